"""The kernels of one program: each gets a name from the user's Python, equal ones share a function."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from staged.backends.c_family.contraction_call import emit_contraction
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.loops import emit_kernel
from staged.backends.c_family.writer import Names
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.source import Position


class KernelLibrary:
    """Emits each distinct kernel once: kernels of equal text share a function, whatever lines they come from."""

    def __init__(self, machine: Machine, names: Names, site: Callable[[Position | None], int]) -> None:
        self.machine = machine
        self.names = names
        self.site = site
        self.known: dict[object, KernelText] = {}

    def kernel(self, op: Op) -> KernelText:
        """The C function for a `kernel` or `contraction` op."""
        name = self.names.fresh(str(op.attrs.get("name") or "kernel"))
        emit = emit_contraction if op.name == "contraction" else emit_kernel
        made = emit(op, name, self.machine, self.site)
        first = self.known.setdefault(_shape_of(made), made)
        if first is made:
            return made
        self.names.used.discard(name)
        return replace(made, name=first.name, text=first.text, prepare=first.prepare, parameters=first.parameters)


_INDEX = re.compile(r"for \(int64_t (\w+) =")


def _shape_of(kernel: KernelText) -> object:
    """What two kernels must share to be one function: the text but for comments and the names of what it declares.

    Renamed alike are the function itself and its loop indices, in order; anything else keeps its name, so that kernels
    which differ in what they call never meet.
    """
    lines = [line for line in kernel.text.splitlines() if not line.lstrip().startswith("//")]
    text = re.sub(rf"\b{kernel.name}(?=(_\w+)?\()", "KERNEL", "\n".join(lines))
    for number, index in enumerate(dict.fromkeys(_INDEX.findall(text))):
        text = re.sub(rf"\b{index}\b", f"INDEX_{number}", text)
    types = tuple(type for type, _ in kernel.parameters)
    return text, types, kernel.shared_bytes, kernel.scratch_bytes, kernel.can_fail, kernel.items_text
