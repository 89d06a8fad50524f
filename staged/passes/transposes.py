"""Transposes of matrix products become products of transposes."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Function, Op
from staged.ir.rewrite import Copier
from staged.ir.users import users_of


def fold_transpose_of_matmul(function: Function) -> Function:
    """transpose(matmul(a, b))  ->  matmul(b', a'), with the transposes as flags: (A B)' = B' A'

    Why: a transposed product, such as the `(x @ w).T` of a user, then needs no copy, and what follows fuses into it.
    Leaves: the first product, for `eliminate_dead_code`. A product that others use too stays as it is.
    """
    return function.with_block(_Folder(function).block(function.block))


class _Folder(Copier):
    def __init__(self, function: Function) -> None:
        super().__init__(Builder())
        self.users = users_of(function.block)

    def op(self, op: Op) -> None:
        product = op.operands[0].made_by(prims.MATMUL) if _swaps_last_axes(op) else None
        if product is None or len(self.users[product.result]) > 1:
            super().op(op)
            return
        flags = {
            "transpose_a": not product.attrs.get("transpose_b", False),
            "transpose_b": not product.attrs.get("transpose_a", False),
        }
        a, b = (self.value(operand) for operand in product.operands)
        attrs = {**product.attrs, **flags}
        made = Op(prims.MATMUL, [b, a], [op.result.type], attrs=attrs, device=op.device, where=product.where)
        self.define(op.results, self.builder.append(made).results)


def _swaps_last_axes(op: Op) -> bool:
    if op.declared is not prims.PERMUTE:
        return False
    *batch, row, column = op.attrs["axes"]
    return (*batch, column, row) == tuple(range(len(batch) + 2))
