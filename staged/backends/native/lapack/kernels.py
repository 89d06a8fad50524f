"""The kernels of a program that may call LAPACK.

Tested by `tests/runtime/test_lapack.py`.
"""

from __future__ import annotations

from staged.backends.cpu.kernel_library import KernelLibrary
from staged.backends.native.lapack.text import emit_lapack
from staged.code.kernel_text import KernelText
from staged.ir.nodes import Op
from staged.ir.structure import LIBRARY


class LapackLibrary(KernelLibrary):
    """Kernels, and calls of LAPACK for `library` ops."""

    def emit(self, op: Op, name: str) -> KernelText:
        """The text of a function of this name."""
        if op.declared is not LIBRARY:
            return super().emit(op, name)
        assert self.machine.blas is not None, "there is no library to call"
        return emit_lapack(op, name, self.machine.blas)
