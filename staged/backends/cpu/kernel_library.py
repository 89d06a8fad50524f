"""The kernels of one program: each gets a name from the user's Python, equal ones share a function.

Tested by `tests/backends/host/test_kernel_library.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from staged.backends.cpu.contraction_call import emit_contraction
from staged.backends.cpu.nest.kernel import emit_kernel
from staged.code.dialect import C, Dialect
from staged.code.kernel_text import KernelText
from staged.code.writer import Names
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.ir.structure import CONTRACTION, KERNEL
from staged.source import Position


class KernelLibrary:
    """Emits each distinct kernel once, in a dialect: equal kernels share a function, whatever lines they come from."""

    def __init__(
        self, machine: Machine, names: Names, site: Callable[[Position | None], int], dialect: Dialect = C
    ) -> None:
        self.machine = machine
        self.dialect = dialect
        self.names = names
        self.site = site
        self.known: dict[object, KernelText] = {}
        """By loop nest and schedule, and by source code without names and comments."""

    def kernel(self, op: Op) -> KernelText:
        """The C function for an op that is one step."""
        key = _loops_of(op)
        if key is not None and key in self.known:
            return self.known[key]
        name = self.names.fresh(str(op.attrs.get("name") or op.attrs.get("call") or "kernel"))
        made = self.emit(op, name)
        first = self.known.setdefault(_shape_of(made), made)
        if first is not made:
            self.names.used.discard(name)
            made = replace(made, name=first.name, text=first.text, parameters=first.parameters)
        if key is not None:
            self.known[key] = made
        return made

    def emit(self, op: Op, name: str) -> KernelText:
        """The text of a function of this name."""
        if op.declared is CONTRACTION:
            return emit_contraction(op, name, self.machine, self.site)
        return emit_kernel(op, name, self.machine, self.site, self.dialect)


def _loops_of(op: Op) -> object:
    """The nest and the schedule that decide the source code of a kernel, except names; None for other ops."""
    if op.declared is not KERNEL:
        return None
    nest = op.attrs["nest"]
    return nest.inputs, nest.outputs, nest.body, op.attrs["schedule"]


def _shape_of(kernel: KernelText) -> object:
    """The identity of a kernel's function: all but comments and its own names, and the way it is called."""
    types = tuple(type for type, _ in kernel.parameters)
    return kernel.shape, types, kernel.scratch_bytes, kernel.can_fail, kernel.items_text
