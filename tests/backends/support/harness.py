"""Compiles support text into a shared object whose functions run over NumPy arrays."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from staged.code.support.library import render
from staged.code.support.vectors import width_snippet
from staged.ir.machine import PORTABLE, X86_64_V3, X86_64_V4, Machine

NUMPY = {"f32": np.float32, "f64": np.float64, "u32": np.uint32, "i64": np.int64, "i32": np.int32}
C_NAMES = {"f32": "float", "f64": "double", "u32": "uint32_t", "i32": "int32_t"}
FLAGS = ["-std=c11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
FOLDER = tempfile.TemporaryDirectory()

Array = np.ndarray[Any, Any]


def machines() -> list[Machine]:
    """The targets that this processor can run."""
    path = Path("/proc/cpuinfo")
    flags = path.read_text().split() if path.exists() else []
    found = [PORTABLE]
    if {"avx2", "fma"} <= set(flags):
        found.append(X86_64_V3)
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= set(flags):
        found.append(X86_64_V4)
    return found


def program(snippets: list[str], drivers: str, machine: Machine, replace: tuple[str, str] = ("", "")) -> str:
    """The C file with these snippets and `drivers`; `replace` plants a mistake."""
    top, support = render([*snippets, width_snippet(machine.vector_bytes)])
    if replace[0]:
        assert replace[0] in support, f"{replace[0]} is not in the text"
        support = support.replace(*replace)
    return "\n".join([*top, "#include <stdint.h>", support, drivers])


@functools.cache
def compiled(text: str, march: str | None, extra: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The shared object of a C file."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    (folder / "program.c").write_text(text)
    target = [f"-march={march}"] if march else []
    command = ["gcc", *FLAGS, *WARNINGS, *target, *extra, "-shared", "-fPIC", "program.c", "-o", "program.so", "-lm"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return ctypes.CDLL(str(folder / "program.so"))


def pointer(array: Array) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def ulps(got: Array, exact: Array) -> Array:
    """The distance of `got` from the more exact `exact`, in units of the last place of `got`'s dtype.

    0 where both are the same infinity or both are NaN; infinite where only one of them is.
    """
    dtype = got.dtype
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(dtype).tiny)).astype(np.longdouble)
        distance = np.abs(got.astype(np.longdouble) - exact.astype(np.longdouble)) / unit
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        alike = np.isfinite(got) & np.isfinite(rounded)
    return np.where(same & ~alike, 0.0, np.where(alike, distance, np.inf)).astype(np.float64)
