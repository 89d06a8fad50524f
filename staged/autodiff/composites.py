"""Composites in differentiated code: those with a derivative of their own keep it, the others are their primitives."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.nodes import Block, Op, walk_ops
from staged.ir.rewrite import Copier
from staged.ops.composite import COMPOSITES


def open_composites(block: Block) -> Block:
    """`block` with every composite that has no vjp rule of its own replaced by its body.

    Exact: the body is what the composite means; effects and bits are the same.
    """

    class Opener(Copier):
        def op(self, op: Op) -> None:
            if op.name == "composite" and COMPOSITES[op.attrs["name"]].vjp is None:
                given = self.inline(op.blocks[0], [self.value(operand) for operand in op.operands])
                for old, new in zip(op.results, given, strict=True):
                    self.values[old] = new
                    new.hint = new.hint or old.hint
            else:
                super().op(op)

    if not any(op.name == "composite" for op in walk_ops(block)):
        return block
    return Opener(Builder()).block(block)
