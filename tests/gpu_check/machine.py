"""The facts of the machine as `facts.json`, and the first kernel.

The file has the device's properties and all its attributes, versions, places of NVIDIA's libraries and headers, and the report
of `nvidia-smi -q`. `devices/<name>/facts.json` keeps the facts of real cards for tests and models.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from staged import system
from staged.errors import DependencyError
from staged.runtime.cuda import devices, nvrtc, toolkit
from staged.runtime.cuda.interface import current_runtime
from staged.runtime.guard import ffi
from tests.gpu_check.programs import unpack
from tests.gpu_check.report import Result
from tests.gpu_check.setting import ROOT, Setting, exclusive

PACKAGES = (
    *("numpy", "torch", "triton", "cffi", "optree", "pytest", "cuda-bindings", "cuda-pathfinder", "nvidia-cuda-runtime"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-cccl", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cusolver"),
)
LIBRARIES = ("cublas", "cublasLt", "cudnn", "cusolver")
MOST_ATTRIBUTES = 200
"""CUDA's attributes of a device have the numbers 1 to 148 in CUDA 13."""
X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)


def run(setting: Setting) -> Result:
    """Write the facts, those of the device first."""
    found, reason = system.gpus()
    if setting.rehearsed:
        found = ["the emulated device"]
    if not found:
        return Result("failed", f"no GPU: {reason}")
    facts: dict[str, Any] = {"device": found[0], "devices": len(found), "rehearsed": setting.rehearsed}
    steps: dict[str, Callable[[], Any]] = {
        "date": lambda: time.strftime("%Y-%m-%d", time.gmtime()),
        "sources": lambda: digest_of_sources()[:12],
        "versions": versions,
        "attributes": attributes,
        "properties": properties,
        "exclusive": exclusive,
        "places": places,
        "nvidia_smi": lambda: said_by("nvidia-smi", "-q"),
    }
    unpack()
    complaints = []
    for name, step in steps.items():
        try:
            facts[name] = step()
        except Exception as failure:  # the other facts are still worth their time
            complaints.append(f"{name}: {type(failure).__name__}: {failure}")
        (setting.folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    shown = {"GPU": found[0], **facts.get("versions", {}), **facts.get("places", {})}
    rows = [["fact", "value"], *([name, str(value)] for name, value in shown.items())]
    return Result("passed", f"{found[0]}, {len(facts.get('attributes', {}))} attributes", complaints, rows)


def facts_of(folder: Path) -> dict[str, Any]:
    """The facts in a folder of results or of `devices`. Raises: KeyError if they are not those of this module."""
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    for name in ("device", "versions", "attributes", "properties"):
        facts[name]
    return facts


def versions() -> dict[str, Any]:
    """The versions of the driver, the compilers, the tools and the packages."""
    driver = devices.driver_version()
    found = {"CUDA of the driver": ".".join(map(str, driver)) if driver else None, "Python": platform.python_version()}
    found |= {"C compiler": system.compiler(), "nvcc": system.cuda_compiler() or None}
    found |= {"NVRTC": nvrtc._version() if nvrtc.has_nvrtc() else None}
    words = [line for line in said_by("compute-sanitizer", "--version") if "ersion" in line]
    found |= {"compute-sanitizer": words[0] if words else None, "cores": str(os.cpu_count())}
    return found | {name: version(name) for name in PACKAGES}


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def said_by(*command: str) -> list[str]:
    """The lines that a tool prints; an empty list if the machine does not have the tool."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (done.stdout + done.stderr).splitlines()


def attributes() -> dict[str, int]:
    """All attributes of the device by CUDA's names; by number if the bindings are not installed."""
    try:
        from cuda.bindings import runtime

        names = {int(each): each.name for each in runtime.cudaDeviceAttr}
    except (ImportError, RuntimeError):
        names = {}
    ask = current_runtime().function("cudaDeviceGetAttribute", "int (*)(int *, int, int)")
    value, found = ffi.new("int *"), {}
    for number in range(1, MOST_ATTRIBUTES):
        if ask(value, number, 0) == 0:
            found[names.get(number, str(number))] = int(value[0])
    current_runtime().function("cudaGetLastError", "int (*)(void)")()  # some numbers are not attributes
    return found


def properties() -> dict[str, Any]:
    """The fields of `cudaDeviceProp`; an empty table on the emulated device."""
    if devices.is_emulated():
        return {}
    from cuda.bindings import runtime

    error, found = runtime.cudaGetDeviceProperties(0)
    assert int(error) == 0, error
    return {name: plain(getattr(found, name)) for name in dir(found) if not name.startswith(("_", "getPtr"))}


def digest_of_sources() -> str:
    """A digest of the sources that run: a machine without git has no commit to name."""
    digest = hashlib.sha256()
    for top in ("staged", "tests", "examples"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".h", ".cpp", ".txt") and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """A property as a JSON value."""
    if isinstance(value, bytes):
        return value.decode(errors="replace").rstrip("\0")
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if isinstance(value, (int, float, str)) else str(value)


def places() -> dict[str, str]:
    """The files of NVIDIA's libraries and the folders of their headers, or the reason why one is missing."""
    found = {}
    for name in LIBRARIES:
        found[f"lib{name}"] = place(lambda name=name: toolkit.load_libraries((name,))[-1])
        found[f"headers of {name}"] = place(lambda name=name: toolkit.include_folder(name))
    return found


def place(find: Callable[[], Path]) -> str:
    try:
        return str(find())
    except DependencyError as missing:
        return "; ".join(missing.details) or str(missing)


def first(setting: Setting) -> Result:
    """Load the machine code of one kernel, launch it, and compare its result."""
    from tests.backends.cublas_cudnn import programs

    begin = time.perf_counter()
    found = programs.double(X)
    seconds = time.perf_counter() - begin
    np.testing.assert_array_equal(found, X * 2.0 + 1.0)
    return Result("passed", f"staged, compiled, loaded and right in {seconds:.2f} s")
