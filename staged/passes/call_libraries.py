"""Ops that a library of the back end computes in one piece become calls of it."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.nodes import Block, Function, Op
from staged.ir.rewrite import Copier
from staged.ops.context import use_context
from staged.ops.library_calls import FindWay
from staged.ops.record import RecordContext


def call_libraries(function: Function, find_way: FindWay) -> Function:
    """composite(x) {batch_norm_training: body}  ->  library(x) {call: batch_norm_training}, and what is left to do

    Why: a library has a better form of some ops than the loops of their primitives.
    Leaves: every op that `find_way` has no way for; composites among these become their bodies next.
    """
    return function.with_block(_Caller(find_way).block(function.block))


class _Caller(Copier):
    def __init__(self, find_way: FindWay) -> None:
        super().__init__(Builder())
        self.find_way = find_way
        self.around: list[Block] = []

    def contents(self, block: Block) -> None:
        self.around.append(block)
        super().contents(block)
        self.around.pop()

    def op(self, op: Op) -> None:
        way = self.find_way(op, self.around[-1])
        if way is None:
            super().op(op)
            return
        before, self.builder.device = self.builder.device, op.device
        context = RecordContext(self.builder, locate=lambda: op.where)
        with use_context(context):
            taken = [context.handle(self.value(value)) for value in (*op.operands, *way.also_takes)]
            made = [context.value_of(array) for array in way.write(context, *taken)]
        self.builder.device = before
        for old, new in zip(op.results, made, strict=True):
            assert old.type == new.type, f"a library's {op.name} gives {new.type} for {old.type}"
        self.define(op.results, made)
