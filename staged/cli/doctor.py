"""`staged doctor`: what this machine offers, what is missing, and how to get it."""

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
    """Look at compiler, vector width, threads, cache, optional libraries, CUDA, GPU, OpenCL and MPI."""
    return [_python(), _compiler(), *_machine(), _cache(), *_libraries(), *_cuda(), _opencl(), _mpi()]


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
            name,
            found,
            "installed" if found else "not installed",
            "" if found else f'pip install ".[{extra}]" in the clone',
        )
        for name, extra in wanted.items()
        for found in [importlib.util.find_spec(name) is not None]
    ]


# What the extra `cuda` installs, by what it is for.
_CUDA_WHEELS = (
    "cuda-bindings",
    "nvidia-cuda-cccl",
    "nvidia-cuda-crt",
    "nvidia-cuda-runtime",
    "nvidia-cuda-nvrtc",
    "nvidia-cublas",
    "nvidia-cudnn-cu13",
    "nvidia-cusolver",
)


def _cuda() -> list[Finding]:
    versions = {name: _version(name) for name in _CUDA_WHEELS}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        wheels = Finding(
            "CUDA wheels", False, f"not installed: {', '.join(missing)}", 'pip install ".[cuda]" in the clone'
        )
    else:
        wheels = Finding("CUDA wheels", True, ", ".join(f"{name} {version}" for name, version in versions.items()))
    return [wheels, _nvcc(), _gpu(), _emulated_device()]


def _nvcc() -> Finding:
    found = system.cuda_compiler()
    if found:
        return Finding("nvcc", True, found)
    return Finding(
        "nvcc", False, "not on the PATH", "nothing: only exported programs with a GPU region are built with it"
    )


def _emulated_device() -> Finding:
    """Return whether the emulated CUDA device, which needs its package and a C++ compiler, can run GPU regions here."""
    try:
        compiler = system.emulated_device()
    except st.DependencyError:
        return Finding("emulated device", False, "not installed", "pip install . ./cuda_emulator in the clone")
    except st.CompilerError as error:
        return Finding("emulated device", False, error.message, error.hint or "install g++, or set STAGED_CXX")
    chosen = os.environ.get("STAGED_CUDA") == "emulate"
    state = "in use (STAGED_CUDA=emulate)" if chosen else "STAGED_CUDA=emulate runs GPU regions on it"
    return Finding("emulated device", True, f"{state}, by {compiler}")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpu(driver: Path = Path("/proc/driver/nvidia")) -> Finding:
    """GPUs according to the CUDA runtime; without one, according to the files of the NVIDIA driver."""
    found, reason = system.gpus()
    if found:
        return Finding("GPU", True, ", ".join(found))
    models = []
    for information in sorted(driver.glob("gpus/*/information")):
        model = re.search(r"^Model:\s*(.+)$", information.read_text(errors="replace"), re.MULTILINE)
        models.append(model[1].strip() if model else information.parent.name)
    if models:
        return Finding("GPU", False, f"{', '.join(models)}; but {reason}", 'pip install ".[cuda]" in the clone')
    return Finding(
        "GPU", False, f"no NVIDIA GPU, or no driver for it ({reason})", "nothing, if programs run on the CPU only"
    )


def _mpi() -> Finding:
    """The MPI library, if its compiler and its launcher run a program on 2 ranks."""
    found, problem = system.mpi()
    if found:
        return Finding("MPI", True, found)
    remedy = 'pip install ".[mpi]" in the clone, or set STAGED_MPICC, if programs run on several ranks'
    return Finding("MPI", False, problem, remedy)


def _opencl() -> Finding:
    """The first OpenCL device, if it builds an empty kernel."""
    name, reason = system.opencl()
    if not reason:
        return Finding("OpenCL", True, name)
    if not name:
        return Finding("OpenCL", False, reason, 'pip install ".[opencl]" in the clone, if programs use OpenCL')
    why = f"{name} builds no kernel: {' '.join(reason.split())}"
    return Finding("OpenCL", False, why, "install PoCL 3.1 or newer, or another OpenCL driver, if programs use OpenCL")
