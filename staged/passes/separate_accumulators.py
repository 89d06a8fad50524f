"""Sums begin as constants filled in where they are added up."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Function, Op, Value
from staged.ir.rewrite import Copier
from staged.ir.storage import is_tensor
from staged.ir.structure import CALL
from staged.ir.views import Call, Loop


def separate_accumulators(function: Function) -> Function:
    """loop(zeros), call(zeros) with others that use the same zeros  ->  zeros made for each of them, right before it

    Why: what a loop carries and what a call changes in place begins in a buffer of its own. Equal constants have become
    one op, so that each would be copied there; filling reads nothing, and the constant needs no memory of its own.
    Leaves: the first constant, for `eliminate_dead_code`.
    """
    return function.with_block(_Filler(Builder()).block(function.block))


class _Filler(Copier):
    def op(self, op: Op) -> None:
        places: list[int] = []
        if op.declared is CALL:
            places = [param for param, _ in Call(op).in_place]
        elif op.declared.is_loop:
            places = list(range(len(Loop(op).bounds), len(op.operands)))
        fresh = {number: made for number in places if (made := self.filled(op.operands[number])) is not None}
        if not fresh:
            super().op(op)
            return
        # The constants made here stand for themselves: `value` leaves them as they are.
        again = op.replace(operands=[fresh.get(number, operand) for number, operand in enumerate(op.operands)])
        super().op(again)
        for old, new in zip(op.results, again.results, strict=True):
            self.values[old] = self.values[new]

    def filled(self, value: Value) -> Value | None:
        """The same constant again, if it is one."""
        made = value.made_by(prims.BROADCAST_TO)
        if made is None or not made.operands[0].made_by(prims.CONSTANT) or not is_tensor(value):
            return None
        return self.builder.append(made.replace(operands=[self.value(made.operands[0])])).result
