"""Loop nests as text."""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Bound,
    CallSupport,
    CheckIndex,
    Compute,
    Constant,
    Copy,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Nest,
    PositionOf,
    Reduction,
    Store,
    StorePair,
    Tile,
)
from staged.ir.nest_printer import print_nest
from staged.ir.types import f32, i64


def test_every_statement_has_a_line() -> None:
    i, j = Axis("i", 64), Axis("j", 10)
    x, y, row = ArrayRef("x", f32, 640, "input"), ArrayRef("y", f32, 640, "output"), ArrayRef("row", f32, 10, "scratch")
    a, b, e, k, p = Local("a", f32), Local("a", f32), Local("e", f32), Local("k", i64), Local("p", i64)
    total, best = Reduction(Local("total", f32), prims.SUM), Reduction(Local("best", i64), prims.ARGMAX)
    place = Affine.of(i, 10) + Affine.of(j)
    inside = (
        Load(a, x, place + -3, (Bound(Affine.of(j) + -3, 10),), Constant(0.0, f32)),
        Compute(e, prims.POW, (a, Constant(2.0, f32)), {"mode": 1}),
        Accumulate(total, e),
        Accumulate(best, e, Affine.of(j)),
        PositionOf(p, Affine.of(j, -2) + 9),
        CheckIndex(k, p, 10),
        Store(y, Affine.of(k), e, atomic=True),
        LoadPair(a, b, x, Affine.of(j, 2)),
        StorePair(y, Affine.of(j, 2), a, b),
    )
    body = (
        Copy(y, None),
        Copy(y, x),
        Loop(i, (Tile(j, 4, (Loop(j, inside),), (total, best)), Guarded((Bound(Affine.of(i), 3),), (Store(row, Affine(), e),)))),
        CallSupport("st_fill", "fill", (row, Constant(7, i64))),
    )
    text = print_nest(Nest("all", (x, k), (y,), (row,), body, 64))
    assert text.splitlines() == [
        "nest all(x: f32[640], k: i64) -> y: f32[640], scratch row: f32[10]",
        "  y = zeros",
        "  y = x",
        "  for i < 64:",
        "    total = 0.0",
        "    best = nothing",
        "    for pieces of 4 of j < 10:",
        "      for j < 10:",
        "        a = x[10*i + j - 3] if 0 <= j - 3 < 10 else 0.0",
        "        e = pow(a, 2.0, mode=1)",
        "        total = sum(total, e)",
        "        best = argmax(best, e at j)",
        "        p = -2*j + 9",
        "        k = check_index(p, 10)",
        "        y[k] += e",
        "        a, a_2 = x[2*j], x[2*j + 1]",
        "        y[2*j], y[2*j + 1] = a, a_2",
        "    where 0 <= i < 3:",
        "      row[0] = e",
        "  st_fill(row, 7)",
    ]
