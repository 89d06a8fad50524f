"""What a reverse makes again takes its place among the other ops, once nothing merges it with what was made before."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.nodes import Function, Op
from staged.ir.rewrite import Copier


def inline_checkpoints(function: Function) -> Function:
    """checkpoint(x, d_y) {ops that make y again, and their reverse}  ->  these ops

    Why: merging equal ops would keep all that the checkpoint is there to drop; the memory plan sees plain ops.
    Leaves: no `checkpoint`.
    """
    return function.with_block(_Inliner(Builder()).block(function.block))


class _Inliner(Copier):
    def op(self, op: Op) -> None:
        if op.name != "checkpoint":
            super().op(op)
            return
        given = self.inline(op.blocks[0], [self.value(operand) for operand in op.operands])
        for old, new in zip(op.results, given, strict=True):
            self.values[old] = new
            new.hint = new.hint or old.hint
