"""The kernels of one program: each gets a name from the user's Python, equal ones share a function."""

from __future__ import annotations

from collections.abc import Callable

from staged.backends.c_family.loops import emit_kernel
from staged.backends.native.contraction_call import emit_contraction

from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.writer import Names
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.source import Position


class KernelLibrary:
    """Emits each distinct kernel once."""

    def __init__(self, machine: Machine, names: Names, site: Callable[[Position | None], int]) -> None:
        self.machine = machine
        self.names = names
        self.site = site

    def kernel(self, op: Op) -> KernelText:
        """The C function for a `kernel` or `contraction` op."""
        name = self.names.fresh(str(op.attrs.get("name") or "kernel"))
        emit = emit_contraction if op.name == "contraction" else emit_kernel
        return emit(op, name, self.machine, self.site)
