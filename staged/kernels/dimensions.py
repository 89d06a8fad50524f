"""Sizes of symbolic dimensions, as values: before fusion, every `extent` is the result of the `dim` op around it.

n = extent() {dim=N}  ->  the result of dim(count) {dim=N}

Until here code could ask for a size without knowing which value holds it: composites and derivatives know shapes alone.
"""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.sizes import Dim


def resolve_extents(function: Function) -> Function:
    """`function` without `extent` ops.

    Exact: the count of the enclosing `dim` op; a size of 0 makes loops without iterations.
    """
    if not any(op.declared is prims.EXTENT for op in walk_ops(function.block)):
        return function
    return function.with_block(_Resolver(Builder()).block(function.block))


class _Resolver(Copier):
    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.sizes: dict[Dim, Value] = {}

    def block(self, block: Block) -> Block:
        before = dict(self.sizes)
        copy = super().block(block)
        self.sizes = before
        return copy

    def op(self, op: Op) -> None:
        if op.declared is prims.EXTENT:
            dim = op.attrs["dim"]
            if isinstance(dim, Dim):
                self.values[op.result] = self.sizes[dim]
            else:
                attrs = {"value": dim}
                made = self.builder.op(
                    prims.CONSTANT, [], [op.result.type], attrs=attrs, device=op.device, where=op.where
                )
                self.values[op.result] = made.result
            return
        super().op(op)
        if op.declared is prims.DIM:
            self.sizes[op.attrs["dim"]] = self.value(op.result)
