"""What this machine has for `staged`, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import staged as st
from staged import system


@dataclass(frozen=True)
class Finding:
    """One line of the report: found or missing, and the way out."""

    name: str
    found: bool
    detail: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return asdict(self)


def examine() -> list[Finding]:
    """Look at compiler, vector width, threads, cache, optional libraries, CUDA and GPU."""
    return [_python(), _compiler(), *_machine(), _cache(), *_libraries(), *_cuda()]


def _python() -> Finding:
    return Finding("Python", True, f"{platform.python_version()}, staged {st.__version__}")


def _compiler() -> Finding:
    try:
        compiler = system.compiler()
    except st.CompilerError as error:
        return Finding("C compiler", False, error.message, error.hint or "install gcc or clang, or set STAGED_CC")
    return Finding("C compiler", True, compiler)


def _machine() -> list[Finding]:
    machine = system.machine()
    threads = os.environ.get("STAGED_NUM_THREADS")
    source = " (STAGED_NUM_THREADS)" if threads else ""
    return [
        Finding("vector width", True, f"{machine.vector_bytes * 8} bits, {machine.name}"),
        Finding("caches", True, f"L1 {machine.l1 >> 10} KiB, L2 {machine.l2 >> 10} KiB, L3 {machine.l3 >> 20} MiB"),
        Finding("threads", True, f"{machine.cores}{source}"),
    ]


def _cache() -> Finding:
    try:
        folder, entries, size = system.cache_summary()
    except st.CacheError as error:
        return Finding(
            "program cache", False, error.message, error.hint or "set STAGED_CACHE_DIR to a folder of your own"
        )
    return Finding("program cache", True, f"{folder}: {entries} programs, {size / 1e6:.1f} MB")


def _libraries() -> list[Finding]:
    wanted = {"matplotlib": "plot", "safetensors": "data", "sklearn": "data"}
    return [
        Finding(
            name, found, "installed" if found else "not installed", "" if found else f"pip install 'staged[{extra}]'"
        )
        for name, extra in wanted.items()
        for found in [importlib.util.find_spec(name) is not None]
    ]


# What the extra `cuda` installs, by what it is for.
_CUDA_WHEELS = ("cuda-bindings", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-cudnn-cu13")


def _cuda() -> list[Finding]:
    versions = {name: _version(name) for name in _CUDA_WHEELS}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        wheels = Finding("CUDA wheels", False, f"not installed: {', '.join(missing)}", "pip install 'staged[cuda]'")
    else:
        wheels = Finding("CUDA wheels", True, ", ".join(f"{name} {version}" for name, version in versions.items()))
    return [wheels, _gpu()]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpu(driver: Path = Path("/proc/driver/nvidia")) -> Finding:
    """What the NVIDIA driver says of itself in files: no library is loaded to look."""
    models = []
    for information in sorted(driver.glob("gpus/*/information")):
        found = re.search(r"^Model:\s*(.+)$", information.read_text(errors="replace"), re.MULTILINE)
        models.append(found[1].strip() if found else information.parent.name)
    if models:
        return Finding("GPU", True, ", ".join(models))
    return Finding("GPU", False, "no NVIDIA GPU, or no driver for it", "nothing, if programs run on the CPU only")
