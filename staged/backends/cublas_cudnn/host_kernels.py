"""Kernels of the host in a program with a device: those of the CPU's programs, in C that is C++ too.

What C has and C++ has not is `restrict`, where compilers of either know `__restrict`, and that a `void *` becomes any
other pointer. nvcc's own front end passes on vectors and the lines that unroll loops, but says that it does not know
the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from staged.backends.cpu.kernel_library import KernelLibrary
from staged.code.dialect import C_AND_CPP
from staged.code.kernel_text import KernelText
from staged.code.writer import Names
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.source import Position

QUIET_NVCC = """\
#ifdef __NVCC__
#pragma nv_diag_suppress 1675  // it hands `#pragma GCC unroll` on to the host's compiler
#endif
"""
"""For a host part in which loops are unrolled."""


class HostKernels:
    """The kernels of a program's host part, each distinct one once."""

    def __init__(self, machine: Machine, names: Names, site: Callable[[Position | None], int]) -> None:
        self.library = KernelLibrary(machine, names, site, C_AND_CPP)

    def kernel(self, op: Op) -> KernelText:
        """The function for a `kernel` or `contraction` op of the host."""
        made = self.library.kernel(op)
        # The templates of products and tiles know no dialect; `restrict` is all that C++ does not take in them.
        support, functions = (
            tuple([replace(each, text=_as_cpp(each.text)) for each in snippets])
            for snippets in (made.support, made.functions)
        )
        return replace(made, text=_as_cpp(made.text), support=support, functions=functions)


def _as_cpp(text: str) -> str:
    return text.replace("*restrict ", "*__restrict ")
