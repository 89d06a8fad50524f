"""The parts of this machine that `staged` uses: compiler, processor, program cache, GPUs, OpenCL."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from staged.errors import UnsupportedError
from staged.ir.machine import MACHINES, Machine
from staged.runtime.blas import chosen_blas
from staged.runtime.cache import default_cache
from staged.runtime.compiler import find_compiler
from staged.runtime.cuda import devices
from staged.runtime.cuda.building import find_cxx
from staged.runtime.machine import native_machine

__all__ = [
    "cache_summary",
    "clear_cache",
    "compiler",
    "cuda_compiler",
    "cxx_compiler",
    "gpus",
    "machine",
    "opencl",
    "target",
]


def compiler() -> str:
    """The C compiler that programs are compiled with, and its version.

    Raises: CompilerError where none is found.
    """
    found = find_compiler()
    return f"{' '.join(found.command)} ({found.version})"


def cxx_compiler() -> str:
    """The C++ compiler that the emulated device and programs for it are compiled with, and its version.

    Raises: CompilerError where none is found.
    """
    command, version = find_cxx()
    return f"{' '.join(command)} ({version})"


def cuda_compiler() -> str:
    """The path and version of nvcc, which builds exported programs with kernels; empty without one."""
    path = shutil.which("nvcc")
    if path is None:
        return ""
    run = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace")
    version = re.search(r"release ([\d.]+)", run.stdout)
    return f"{path} ({version[1] if version else 'version unknown'})"


def gpus() -> tuple[list[str], str]:
    """(description of each GPU, reason if there is none), from the CUDA runtime of the extra `cuda`."""
    found = [str(gpu) for gpu in devices.gpus()]
    return found, "" if found else devices.in_words(devices.gpu_count()[1])


def opencl() -> tuple[str, str]:
    """(name of the first OpenCL device, reason if it does not run kernels): without a device the name is empty."""
    from staged.runtime.opencl import examined

    return examined()


def machine() -> Machine:
    """The processor of this machine as the scheduler sees it."""
    return replace(native_machine(), blas=chosen_blas())


def target(name: str) -> Machine:
    """The machine description behind a target's name: 'native', 'portable', 'x86-64-v3', 'x86-64-v4'.

    Raises: UnsupportedError for a name that is not known.
    """
    if name == "native":
        return machine()
    if name not in MACHINES:
        raise UnsupportedError(f"unknown target {name!r}", hint=f"one of native, {', '.join(sorted(MACHINES))}")
    found = MACHINES[name]
    return found if found.is_iso_c else replace(found, blas=chosen_blas())


def cache_summary() -> tuple[Path, int, int]:
    """The program cache: (folder, number of programs, bytes)."""
    cache = default_cache()
    return cache.root, len(cache.entries()), cache.size()


def clear_cache() -> int:
    """Remove every cached program; returns their number."""
    return default_cache().clear()
