"""Composites in differentiated code: those with a derivative of their own keep it, the others are their primitives."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.nodes import Block, Op, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import COMPOSITE
from staged.ops.composite import COMPOSITES


def open_composites(block: Block) -> Block:
    """`block` with every composite that has no vjp rule of its own replaced by its body.

    Exact: the body is what the composite means; effects and bits are the same.
    """

    class Opener(Copier):
        def op(self, op: Op) -> None:
            if op.declared is COMPOSITE and COMPOSITES[op.attrs["name"]].vjp is None:
                self.inline_op(op)
            else:
                super().op(op)

    if not any(op.declared is COMPOSITE for op in walk_ops(block)):
        return block
    return Opener(Builder()).block(block)
