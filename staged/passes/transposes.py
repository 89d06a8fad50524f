"""Transposes of matrix products become products of transposes.

Tested by `tests/passes/test_simplify.py`.
"""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Function, Op, walk_blocks
from staged.ir.rewrite import Copier


def fold_transpose_of_matmul(function: Function) -> Function:
    """transpose(matmul(a, b))  ->  matmul(b', a'), with the transposes as flags: (A B)' = B' A'

    Why: the gradient of a weight that is used transposed (`x @ w.T`) is the transpose of a product; written the right
    way round it needs no copy, and an optimiser's update fuses into it. Leaves: the first product, for
    `eliminate_dead_code`. A product that others use too stays as it is.
    """
    return function.with_block(_Folder(function).block(function.block))


class _Folder(Copier):
    def __init__(self, function: Function) -> None:
        super().__init__(Builder())
        uses: dict[object, int] = {}
        for block in walk_blocks(function.block):
            for value in (*block.end.operands, *(operand for op in block.ops for operand in op.operands)):
                uses[value] = uses.get(value, 0) + 1
        self.uses = uses

    def op(self, op: Op) -> None:
        product = self.product_behind(op)
        if product is None:
            super().op(op)
            return
        a, b = (self.value(operand) for operand in product.operands)
        attrs = {
            **product.attrs,
            "transpose_a": not product.attrs.get("transpose_b", False),
            "transpose_b": not product.attrs.get("transpose_a", False),
        }
        made = Op(prims.MATMUL, [b, a], [op.result.type], attrs=attrs, device=op.device, where=product.where)
        made.result.hint = op.result.hint
        self.builder.append(made)
        self.values[op.result] = made.result

    def product_behind(self, op: Op) -> Op | None:
        if op.declared is not prims.PERMUTE:
            return None
        axes = tuple(op.attrs["axes"])
        rank = len(axes)
        product = op.operands[0].made_by(prims.MATMUL)
        if product is None or axes != (*range(rank - 2), rank - 1, rank - 2):
            return None
        return product if self.uses[product.result] == 1 else None
