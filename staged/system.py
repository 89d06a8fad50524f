"""The parts of this machine that `staged` uses: compiler, processor, program cache, GPUs, OpenCL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from staged.base.launcher import this_job
from staged.errors import StagedError, UnsupportedError
from staged.ir.machine import MACHINES, PORTABLE, Machine
from staged.runtime.blas import chosen_blas
from staged.runtime.cache import default_cache
from staged.runtime.compiler import find_compiler
from staged.runtime.cuda import devices
from staged.runtime.cuda.building import find_cxx
from staged.runtime.cuda.emulated import package
from staged.runtime.machine import native_machine
from staged.runtime.mpi_check import examined as examined_mpi

__all__ = [
    "cache_summary",
    "clear_cache",
    "compiler",
    "contraction",
    "cuda_compiler",
    "emulated_device",
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


def emulated_device() -> str:
    """The C++ compiler that compiles the emulated device and programs for it, and its version.

    Raises: DependencyError without the package `cuda_emulator`; CompilerError without a compiler.
    """
    package()
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


def mpi() -> tuple[str, str]:
    """(the compiler, the launcher and the library of MPI, the problem): one of the two strings is empty."""
    return examined_mpi()


def machine() -> Machine:
    """The processor of this machine as the scheduler sees it."""
    return replace(native_machine(), blas=chosen_blas())


def target(name: str, contract: bool | None = None, ranks: int | None = None) -> Machine:
    """The machine description behind a target's name: 'native', 'portable', 'x86-64-v3', 'x86-64-v4'.

    `contract` allows compilers to contract products and sums; None leaves the choice to `$STAGED_CONTRACT`.
    `ranks` is the number of ranks if it is static; None means the ranks of this job.
    Raises: UnsupportedError for a name that is not known.
    """
    if name == "native":
        found = machine()
    elif name in MACHINES:
        found = MACHINES[name]
        found = found if found.is_iso_c else replace(found, blas=chosen_blas())
    else:
        raise UnsupportedError(f"unknown target {name!r}", hint=f"one of native, {', '.join(sorted(MACHINES))}")
    found = replace(found, contracts=contraction() if contract is None else contract)
    return for_ranks(found, 1 if ranks is None and this_job().ranks == 1 else ranks)


def for_ranks(machine: Machine, ranks: int | None) -> Machine:
    """The machine for programs of this number of ranks; None means any number."""
    if ranks == 1:
        return replace(machine, ranks=1)
    return replace(machine, ranks=ranks, bucket_bytes=bucket_bytes(), overlaps=switch("STAGED_OVERLAP"))


def contraction() -> bool:
    """Return whether `$STAGED_CONTRACT` allows compilers to contract products and sums."""
    return switch("STAGED_CONTRACT")


def switch(variable: str) -> bool:
    """Return whether an environment variable is 1."""
    asked = os.environ.get(variable, "").strip()
    if asked not in ("", "0", "1"):
        raise StagedError(f"{variable} is {asked!r}", hint="set it to 0 or 1, or unset it")
    return asked == "1"


def bucket_bytes() -> int:
    """The size of a message in which several arrays are reduced over ranks: `$STAGED_BUCKET_BYTES`, by default 4 MB."""
    asked = os.environ.get("STAGED_BUCKET_BYTES", "").strip() or str(PORTABLE.bucket_bytes)
    if not asked.isascii() or not asked.isdigit():
        raise StagedError(f"STAGED_BUCKET_BYTES is {asked!r}", hint="set it to a number of bytes, or unset it")
    return int(asked)


def cache_summary() -> tuple[Path, int, int]:
    """The program cache: (folder, number of programs, bytes)."""
    cache = default_cache()
    return cache.root, len(cache.entries()), cache.size()


def clear_cache() -> int:
    """Remove every cached program; returns their number."""
    return default_cache().clear()
