"""The kernels of one program: each gets a name from the user's Python, equal ones share a function.

Tested by `tests/backends/host/test_kernel_library.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from staged.backends.cpu.contraction_call import emit_contraction
from staged.backends.cpu.nest.kernel import emit_kernel
from staged.code.dialect import C, Dialect
from staged.code.kernel_text import KernelText
from staged.code.printer import print_function
from staged.code.sizes import MOST, Sized, merged
from staged.code.support.library import Snippet
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

    def shared(self, kernels: Mapping[Op, KernelText]) -> dict[Op, KernelText]:
        """The kernels of a program. Kernels that differ only in sizes have one function."""
        groups: dict[object, dict[str, tuple[KernelText, Sized]]] = {}
        for kernel in kernels.values():
            if kernel.code is not None:
                sized = Sized.of(kernel.code, self.dialect)
                key = sized.shape, kernel.scratch_bytes > 0, kernel.can_fail, kernel.items_text
                groups.setdefault(key, {}).setdefault(kernel.name, (kernel, sized))
        made = self._with_shared_epilogues(kernels)
        for group in groups.values():
            if len(group) > 1:
                made |= self._merged(list(group.values()))
        return {op: _as_one(kernel, made[kernel.name]) if kernel.name in made else kernel
                for op, kernel in kernels.items()}  # fmt: skip

    def _with_shared_epilogues(self, kernels: Mapping[Op, KernelText]) -> dict[str, KernelText]:
        """By name, the products whose epilogues differ only in sizes, with one function for these."""
        groups: dict[str, dict[str, tuple[Op, Sized]]] = {}
        for op, kernel in kernels.items():
            if kernel.epilogue is not None:
                sized = Sized.of(kernel.epilogue)
                groups.setdefault(sized.shape, {}).setdefault(kernel.name, (op, sized))
        made: dict[str, KernelText] = {}
        for group in groups.values():
            if len(group) > 1:
                users = [sized for _, sized in group.values()]
                # Calls in line cost nothing, and a product calls the function in few places.
                found = merged(users, len(users[0].function.parameters), most=2 * MOST)
                if found is not None:
                    name = self.names.fresh(f"{_common_name(list(group))}_epilogue")
                    comment = f"// Finishes tiles of {len(group)} products, which differ in sizes."
                    text = f"{comment}\n{print_function(replace(found[0], name=name), self.dialect)}"
                    for (own, (op, _)), sizes in zip(group.items(), found[1], strict=True):
                        shared = Snippet(name, text), sizes
                        made[own] = emit_contraction(op, own, self.machine, self.site, shared)
        return made

    def _merged(self, users: Sequence[tuple[KernelText, Sized]]) -> dict[str, KernelText]:
        """By name, kernels of equal shape with one function; none if it has too many sizes."""
        first, _ = users[0]
        at = len(first.parameters) - 2 - (first.scratch_bytes > 0) - first.can_fail
        found = merged([sized for _, sized in users], at)
        if found is None:
            return {}
        code, sizes = found
        for kernel, _ in users:
            self.names.used.discard(kernel.name)
        name = self.names.fresh(_common_name([kernel.name for kernel, _ in users]))
        comments = (*code.comments, f"for {len(users)} kernels, which differ in sizes")
        code = replace(code, name=name, comments=comments)
        parameters = tuple((p.variable.type.before_name, p.variable.text) for p in code.parameters)
        one = replace(first, name=name, code=code, text=print_function(code, self.dialect), parameters=parameters)
        return {kernel.name: replace(one, sizes=own) for (kernel, _), own in zip(users, sizes, strict=True)}

    def emit(self, op: Op, name: str) -> KernelText:
        """The text of a function of this name."""
        if op.declared is CONTRACTION:
            return emit_contraction(op, name, self.machine, self.site)
        return emit_kernel(op, name, self.machine, self.site, self.dialect)


def _as_one(kernel: KernelText, one: KernelText) -> KernelText:
    """A kernel with the function that it shares."""
    return replace(
        kernel, name=one.name, text=one.text, parameters=one.parameters, code=one.code, sizes=one.sizes,
        functions=one.functions,
    )  # fmt: skip


def _common_name(names: Sequence[str]) -> str:
    """The beginning that all of these names share, without the number of a layer; the first name, if it is short."""
    words = [name.split("_") for name in names]
    common = [word for word, *_ in takewhile(lambda each: len({*each}) == 1, zip(*words, strict=False))]
    while common and any(letter.isdigit() for letter in common[-1]):
        common.pop()
    return "_".join(common) if any(len(word) > 1 for word in common) else names[0]


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
