"""The machine and the versions that a table was measured with."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

_VERSIONS = """
import importlib.metadata as m, json
found = {}
for name in ("numpy", "torch", "jax"):
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""


def describe(peers_python: str) -> dict[str, str]:
    """Processor, cores, memory, compiler and versions, as words for the head of a table."""
    versions = json.loads(subprocess.run([peers_python, "-c", _VERSIONS], capture_output=True, check=True).stdout)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": processor(),
        "cores": str(cores),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": compiler(),
        "python": platform.python_version(),
        **versions,
    }


def processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    fields = dict(line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    words = {key.strip(): value.strip() for key, value in fields.items()}
    vectors = [
        name for name in ("avx512f", "avx2", "asimd") if name in words.get("flags", words.get("Features", "")).split()
    ]
    # A virtual machine may hide the product's name; family and model still tell the generation.
    numbers = [f"{key.removeprefix('cpu ')} {words[key]}" for key in ("cpu family", "model") if key in words]
    return f"{words.get('model name', 'unknown')} ({', '.join([*numbers, *vectors[:1]])})"


def compiler() -> str:
    command = os.environ.get("STAGED_CC", "cc")
    try:
        return subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except OSError:
        return f"none ({command} was not found)"
