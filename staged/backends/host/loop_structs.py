"""Structs with the addresses of what one iteration of a loop keeps: `m->h_residuals[layer].ln_1_rstd`.

Loops that keep few values do not have such a struct, nor do those of many iterations: there, each array is a field of
`Buffers` itself.

Tested by `tests/backends/host/test_loop_structs.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from staged.code.expr import Expr, Index, Member, member
from staged.code.types import CType, Space, pointer, word
from staged.code.writer import Names, c_identifier
from staged.ir.buffers import Buffer, Plan
from staged.ir.nodes import Function, Op
from staged.ir.sizes import Size
from staged.ir.storage import structural_ops, where_made
from staged.ir.structure import FOR
from staged.ir.trips import trip_count
from staged.ir.types import SequenceType, TensorType
from staged.ir.views import Loop
from staged.source import Position

LEAST_FIELDS = 8
"""Values that a loop keeps in structs; for fewer ones, the program is shorter without."""
MOST_ADDRESSES = 2048
"""Addresses in all structs of a loop: a program sets them at the beginning of each call."""


@dataclass(frozen=True)
class LoopStruct:
    """The structs of a loop, an array with one for each iteration."""

    array: str
    """The field of `Buffers`."""
    fields: Mapping[Buffer, str]
    """By array of all iterations, the field with the address of one iteration's part."""
    lines: Mapping[str, Position | None]
    """By field, the Python line that computes the value."""
    count: int
    index: str
    """The name of an iteration's number: `layer`."""
    local: str
    """The name of a pointer to one of the structs."""

    @property
    def arrays(self) -> dict[str, Buffer]:
        """By field, the array of all iterations."""
        return {field: buffer for buffer, field in self.fields.items()}

    def nbytes(self, field: str) -> int:
        """The bytes of one iteration's part."""
        return self.arrays[field].nbytes // self.count


@dataclass(frozen=True)
class Slot:
    """The field of a struct, with the address of what an iteration keeps."""

    struct: LoopStruct
    field: str
    type: str
    """The type of the struct."""

    def place(self, index: Expr) -> Expr:
        """The struct of an iteration."""
        return Index(member("m", self.struct.array), index)

    def at(self, index: Expr) -> Expr:
        """The address of what the iteration keeps."""
        return Member(self.place(index), self.field, arrow=False)

    @property
    def pointer(self) -> CType:
        return pointer(word(self.type), Space.GLOBAL, is_const=True)


def loop_structs(function: Function, plan: Plan) -> list[LoopStruct]:
    """The structs of a program's loops."""
    if plan.device_bytes:
        return []
    uses = Counter(plan.sequences.values())
    of_threads = {buffer for shared in plan.shared.values() for buffer in shared.own}
    found, names = list[LoopStruct](), Names()
    for op in structural_ops(function.block):
        if not op.declared.is_loop or isinstance(trip_count(op) if op.declared is FOR else None, Size):
            continue  # setting the addresses of as many iterations as there may be takes longer than a short loop
        kept, count = dict[Buffer, Position | None](), 0
        for result, value in zip(Loop(op).collected, Loop(op).elements, strict=True):
            buffer, type = plan.sequences.get(result), result.type
            if not isinstance(buffer, Buffer) or uses[buffer] > 1 or buffer in of_threads:
                continue
            if isinstance(type, SequenceType) and isinstance(type.element, TensorType) and type.element.shape:
                count = type.bound or 0
                kept[buffer] = where_made(value) or op.where
        if len(kept) >= LEAST_FIELDS and count * len(kept) <= MOST_ADDRESSES:
            found.append(_struct(op, kept, count, names))
    return found


def _struct(op: Op, kept: Mapping[Buffer, Position | None], count: int, names: Names) -> LoopStruct:
    layers = op.attrs.get("layer", ("", 0, ""))[0].strip(".")
    path = c_identifier(layers) if layers else ""
    is_gradient = all(buffer.name.startswith("d_") for buffer in kept)
    role, local = ("gradients", f"d_{path}" if path else "d") if is_gradient else ("residuals", "kept")
    inside, fields = Names(), dict[Buffer, str]()
    for buffer in kept:
        name = buffer.name.removesuffix("_history")
        name = name.removeprefix("d_") if is_gradient else name
        fields[buffer] = inside.fresh("x" if name == path else name.removeprefix(f"{path}_"))
    array = names.fresh(f"{path}_{role}" if path else role)
    lines = {fields[buffer]: where for buffer, where in kept.items()}
    return LoopStruct(array, fields, lines, count, "layer" if path else "iteration", local)
