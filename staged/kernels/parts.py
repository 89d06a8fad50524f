"""Parts of the nests of ops that are a kernel each: arrays and numbers of the op, and loops around statements.

Tested by `tests/kernels/test_lower_alone.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.ir.declaration import Declaration, prims
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    Compute,
    Constant,
    Copy,
    Load,
    Local,
    Loop,
    Nest,
    Operand,
    Statement,
    Store,
    collapse,
    forwards,
    map_indices,
)
from staged.ir.nodes import Block, Op, Value
from staged.ir.nouns import noun_of
from staged.kernels.kinds import array_of, is_scalar, shape_of


class Parts:
    """Arrays and numbers of one op's kernel, and the statements that use them."""

    def __init__(self, body: Block, op: Op) -> None:
        self.op = op
        self.inputs: list[ArrayRef | Local] = []
        self.number = {param: number for number, param in enumerate(body.params)}
        for param in body.params:
            hint, dtype = param.hint or _role(op, param), param.tensor.dtype
            self.inputs.append(Local(hint, dtype) if is_scalar(param) else array_of(hint, param, "input"))
        self.results = body.end.operands
        self.outputs = [array_of(v.hint or noun_of(op, v.index), v, "output") for v in self.results]
        self.shapes = [shape_of(operand) for operand in op.operands]
        self.result_numbers = [value.index for value in body.end.operands]
        """The results of the op that the kernel computes: a pool whose positions are unused computes values alone."""

    def begin(self) -> tuple[Copy, tuple[tuple[int, int], ...]]:
        """(what fills the result at first, the pairs that may share a buffer) of an op that changes its first operand.

        Exact: in place only where that array is no other operand too, which would be read after it was changed.
        """
        changed = self.op.operands[0]
        if changed in self.number:
            shared = changed in self.op.operands[1:]
            return Copy(self.outputs[0], self.array(0)), () if shared else ((0, self.number[changed]),)
        return Copy(self.outputs[0], None), ()

    def array(self, number: int) -> ArrayRef:
        """The array behind operand `number` of the op (one array may be several operands)."""
        array = self.inputs[self.number[self.op.operands[number]]]
        assert isinstance(array, ArrayRef)
        return array

    def scalar(self, number: int) -> Local:
        local = self.inputs[self.number[self.op.operands[number]]]
        assert isinstance(local, Local)
        return local

    def element(self, value: Value) -> Operand:
        """A scalar operand, or the zero that initialised the array being updated."""
        if value in self.number:
            held = self.inputs[self.number[value]]
            assert isinstance(held, Local)
            return held
        made = value.made_by(prims.CONSTANT)
        assert made is not None, "a number without a value"
        return Constant(made.attrs["value"], value.tensor.dtype)

    def nest(
        self, name: str, body: Sequence[Statement], parallel: bool, in_place: tuple[tuple[int, int], ...] = ()
    ) -> Nest:
        statements = collapse(forwards(tuple(body)))
        items = 1
        if parallel and len(statements) == 1 and isinstance(statements[0], Loop):
            items = statements[0].axis.extent
        return Nest(name, tuple(self.inputs), tuple(self.outputs), (), statements, items, in_place)

    def load(self, array: ArrayRef, index: Affine) -> tuple[Local, Load]:
        target = Local(array.name, array.dtype)
        return target, Load(target, array, index)

    def add_to(self, array: ArrayRef, index: Affine, value: Operand, by: Declaration = prims.ADD) -> list[Statement]:
        """array[index] += value, or combined with it by another op"""
        before, load = self.load(array, index)
        after = Local(f"new_{array.name}", array.dtype)
        return [load, Compute(after, by, (before, value), {}), Store(array, index, after)]


def _role(op: Op, number: Value) -> str:
    """The role of a number in an op, as its name."""
    place = op.operands.index(number) if number in op.operands else -1
    if op.declared is prims.PERMUTATION:
        return ("seed", "stream", "counter")[place]
    if op.declared is prims.DYNAMIC_UPDATE and place > 1:
        return ("row", "column")[place - 2] if len(op.operands) == 4 else "offset"
    return "number"


def axis_name(number: int) -> str:
    """Return the name of the loop over axis `number` of an array: `i`, `j`, ..., `s`, `i11`."""
    letters = "ijklmnopqrs"
    return letters[number] if number < len(letters) else f"i{number}"


def loops(axes: Sequence[Axis], body: Sequence[Statement]) -> list[Statement]:
    """`body` inside loops over `axes`; axes of one iteration need none but keep their index 0."""
    out = list(body)
    for axis in reversed(axes):
        out = [Loop(axis, tuple(out))]
    return out


def without(body: Sequence[Statement], axis: Axis) -> list[Statement]:
    return list(map_indices(tuple(body), lambda i: Affine(tuple(t for t in i.terms if t[0] is not axis), i.offset)))
