"""Products read halves as they are stored."""

from __future__ import annotations

from dataclasses import replace

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.machine import PORTABLE, Machine
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.types import CPU, bound, f32

FEW_ROWS = 4
"""Rows, or columns, up to which a product reads its other operand once, and as it is stored."""


def multiply_halves(function: Function, machine: Machine = PORTABLE) -> Function:
    """matmul(cast(a), cast(b))  ->  matmul(a, b, dtype=f32) for a and b of f16, or both of bf16

    Why: the product copies its operands in pieces, and converts what it copies; casts of their own would write and
    read whole arrays of f32. Exact: every half is an f32, so that the same numbers are multiplied.
    Leaves: the casts, for `eliminate_dead_code`; products on a device, those of a BLAS, which knows no halves, and of a
    machine without vectors; and what a block around the product's converts, once for all iterations, unless rows are
    so few that reading the operands is all the work.
    """
    if machine.is_iso_c or machine.blas is not None or not any(map(_takes_converted, walk_ops(function.block))):
        return function
    return function.with_block(_Multiplier().block(function.block))


class _Multiplier(Copier):
    def __init__(self) -> None:
        super().__init__(Builder())
        self.inside: list[set[Op | None]] = []

    def contents(self, block: Block) -> None:
        self.inside.append(set(block.ops))
        super().contents(block)
        self.inside.pop()

    def op(self, op: Op) -> None:
        if not _takes_converted(op) or not self.is_read_as_stored(op):
            super().op(op)
            return
        operands = [self.halves(operand) for operand in op.operands]
        attrs = {**op.attrs, "dtype": f32}
        made = Op(prims.MATMUL, operands, [op.result.type], attrs=attrs, device=op.device, where=op.where)
        self.define(op.results, self.builder.append(made).results)

    def is_read_as_stored(self, product: Op) -> bool:
        """Return whether a product reads the halves that both operands are converted from."""
        casts = [_conversion(operand) for operand in product.operands]
        dtypes = {None if cast is None else cast.operands[0].tensor.dtype for cast in casts}
        is_small = min(map(bound, product.result.tensor.shape[-2:])) <= FEW_ROWS
        return len(dtypes) == 1 and None not in dtypes and (is_small or self.inside[-1].issuperset(casts))

    def halves(self, value: Value) -> Value:
        """The same array before its conversion, in the same shape."""
        op = value.producer
        assert op is not None, "an operand was found to be converted"
        operand = op.operands[0]
        if op.declared is prims.CAST:
            return self.value(operand)
        before = self.halves(operand)
        type = replace(before.tensor, shape=value.tensor.shape)
        return self.builder.append(op.replace(operands=[before], result_types=[type])).result


def _takes_converted(op: Op) -> bool:
    return op.declared is prims.MATMUL and op.device == CPU and _conversion(op.operands[0]) is not None


def _conversion(value: Value) -> Op | None:
    """The op that makes an array, or what it is a reshaped form of, f32 out of halves."""
    cast = value.behind(prims.RESHAPE).made_by(prims.CAST)
    is_widened = cast is not None and value.tensor.dtype is f32 and cast.operands[0].tensor.dtype.is_half
    return cast if is_widened else None
