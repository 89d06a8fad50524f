"""Matrix products without a library: a loop nest, whose elements are a thread each."""

from __future__ import annotations

from staged.backends.c_family.contraction_call import counted_extent
from staged.ir.loops import Accumulate, Affine, ArrayRef, Axis, Compute, Load, Local, Loop, Nest, Reduction, Store
from staged.ir.nodes import Op
from staged.ir.types import Dim, bound, i64


def product_nest(op: Op, name: str) -> Nest:
    """The loops of a matrix product: batch, row and column around the sum."""
    a, b = (tuple(bound(extent) for extent in operand.tensor.shape) for operand in op.operands[:2])
    (result,) = op.results
    dtype = result.tensor.dtype
    counts = dict(zip(op.attrs.get("dims", ()), (Local("count", i64),), strict=False))
    turned_a, turned_b = (bool(op.attrs.get(f"transpose_{side}", False)) for side in "ab")
    *_, m, n = (bound(extent) for extent in result.tensor.shape)
    k = a[-2] if turned_a else a[-1]
    first = op.operands[0].tensor.shape[0]
    dims: dict[str, Dim] = {counted_extent(op): first} if isinstance(first, Dim) else {}
    size_a, size_b, size_c = (
        max(1, op.operands[0].tensor.size), max(1, op.operands[1].tensor.size), max(1, result.tensor.size)
    )  # fmt: skip
    batch = 1
    for extent in a[:-2]:
        batch *= extent
    left, right = ArrayRef("a", dtype, size_a, "input"), ArrayRef("b", dtype, size_b, "input")
    out = ArrayRef("c", dtype, size_c, "output")
    matrix, row, inner = (
        Axis(axis, extent, dims.get(name)) for name, axis, extent in (("batch", "matrix", batch), ("m", "row", m), ("k", "k", k))
    )
    column = Axis("column", n)
    at_a = Affine.of(matrix, m * k) + Affine.of(row, 1 if turned_a else k) + Affine.of(inner, m if turned_a else 1)
    at_b = Affine.of(matrix, k * n) + Affine.of(column, k if turned_b else 1) + Affine.of(inner, 1 if turned_b else n)
    x, y, term = Local("x", dtype), Local("y", dtype), Local("term", dtype)
    total = Reduction(Local("total", dtype), "sum")
    term_of_sum = (
        Load(x, left, at_a),
        Load(y, right, at_b),
        Compute(term, "multiply", (x, y), {}),
        Accumulate(total, term),
    )
    at_c = Affine.of(matrix, m * n) + Affine.of(row, n) + Affine.of(column)
    line = Loop(column, (Loop(inner, term_of_sum, (total,)), Store(out, at_c, total.target)))
    body = (Loop(matrix, (Loop(row, (line,)),)),)
    return Nest(name, (left, right, *counts.values()), (out,), (), body, batch, counts=counts)
