"""Attention as one nest, in memory for one row: no score is written down.

Each query takes in its keys one by one. What it keeps is a state of two values, the largest score m so far and the sum
l of exp(score - m), and a row of the values' mean, relative to m too. Where m grows, both are scaled by exp(old m - new
m). Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Rabe and Staats, Self-attention
does not need O(n^2) memory, 2021.

`test_attention.py` uses it: no pass makes it, and it is no part of the package. It shows that the nests' folds and the
schedules suffice for attention in memory that is linear in the sequence.
"""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Begin,
    Bound,
    Compute,
    Constant,
    Fold,
    Guarded,
    Load,
    Local,
    Loop,
    Merge,
    Nest,
    Reduction,
    Statement,
    Store,
    Take,
    identity,
)
from staged.ir.types import DType


def softmax_sum(dtype: DType) -> tuple[Fold, Local, Local]:
    """The fold to the largest of some scores and the sum of their exponentials; by what a merge scales its left and
    right side.
    """

    def local(name: str) -> Local:
        return Local(name, dtype)

    (m, total), (a, s), (b, t) = ((local("m"), local("l")), (local("m_1"), local("l_1")), (local("m_2"), local("l_2")))
    largest, below_a, below_b = local("largest"), local("below_1"), local("below_2")
    scale_a, scale_b, part_a, part_b, both = (local(name) for name in ("scale_1", "scale_2", "part_1", "part_2", "sum"))
    body = (
        Compute(largest, prims.MAXIMUM, (a, b), {}),
        Compute(below_a, prims.SUBTRACT, (a, largest), {}),
        Compute(below_b, prims.SUBTRACT, (b, largest), {}),
        Compute(scale_a, prims.EXP, (below_a,), {}),
        Compute(scale_b, prims.EXP, (below_b,), {}),
        Compute(part_a, prims.MULTIPLY, (s, scale_a), {}),
        Compute(part_b, prims.MULTIPLY, (t, scale_b), {}),
        Compute(both, prims.ADD, (part_a, part_b), {}),
    )
    starts = (identity(prims.MAX, dtype), identity(prims.SUM, dtype))
    return Fold((m, total), starts, Merge((a, s), (b, t), body, (largest, both))), scale_a, scale_b


def attention_nest(
    heads: int, queries: int, keys: int, depth: int, width: int, dtype: DType, causal: bool = False
) -> Nest:
    """softmax(q @ k.T / sqrt(depth)) @ v for each head: q is (heads, queries, depth), k (heads, keys, depth), v (heads,
    keys, width).

    With `causal`, a query sees the keys up to its own number.
    """
    q, k, v = (
        ArrayRef(name, dtype, heads * rows * columns, "input")
        for name, rows, columns in (("q", queries, depth), ("k", keys, depth), ("v", keys, width))
    )
    out = ArrayRef("out", dtype, heads * queries * width, "output")
    row = ArrayRef("row", dtype, width, "scratch")
    head, query, key, i, j = (
        Axis(name, extent)
        for name, extent in (("head", heads), ("query", queries), ("key", keys), ("i", depth), ("j", width))
    )
    at_q = Affine.of(head, queries * depth) + Affine.of(query, depth) + Affine.of(i)
    at_k = Affine.of(head, keys * depth) + Affine.of(key, depth) + Affine.of(i)
    at_v = Affine.of(head, keys * width) + Affine.of(key, width) + Affine.of(j)
    at_out = Affine.of(head, queries * width) + Affine.of(query, width) + Affine.of(j)
    fold, old_scale, scale = softmax_sum(dtype)
    names = ("x", "y", "term", "score", "before", "value", "scaled", "part", "after", "mean", "result")
    x, y, term, score, before, value, scaled, part, after, mean, result = (Local(name, dtype) for name in names)
    dot = Reduction(Local("dot", dtype), prims.SUM)
    seen: tuple[Statement, ...] = (
        Loop(
            i,
            (Load(x, q, at_q), Load(y, k, at_k), Compute(term, prims.MULTIPLY, (x, y), {}), Accumulate(dot, term)),
            (dot,),
        ),
        Compute(score, prims.MULTIPLY, (dot.target, Constant(float(depth) ** -0.5, dtype)), {}),
        Take(fold, (score, Constant(1.0, dtype))),
        Loop(
            j,
            (
                Load(before, row, Affine.of(j)),
                Load(value, v, at_v),
                Compute(scaled, prims.MULTIPLY, (before, old_scale), {}),
                Compute(part, prims.MULTIPLY, (value, scale), {}),
                Compute(after, prims.ADD, (scaled, part), {}),
                Store(row, Affine.of(j), after),
            ),
        ),
    )
    if causal:
        seen = (Guarded((Bound(Affine.of(query) + Affine.of(key, -1), keys + queries),), seen),)
    one = (
        Begin(fold),
        Loop(j, (Store(row, Affine.of(j), Constant(0.0, dtype)),)),
        Loop(key, seen),
        Loop(
            j,
            (
                Load(mean, row, Affine.of(j)),
                Compute(result, prims.DIVIDE, (mean, fold.state[1]), {}),
                Store(out, at_out, result),
            ),
        ),
    )
    body: tuple[Statement, ...] = (Loop(head, (Loop(query, one),)),)
    return Nest("attention", (q, k, v), (out,), (row,), body, heads)
