"""Directives that rewrite nests: the same results to the bit, or a refusal that says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from harness import fused, kernels, tensor
from nest_interpreter import run_nest

from staged.ir.convolutions import Convolution, forward_nest
from staged.ir.dependences import are_independent, is_independent
from staged.ir.loops import Affine, ArrayRef, Axis, Load, Local, Loop, Nest, Store, walk
from staged.ir.named_loops import IllegalSchedule
from staged.ir.nest_printer import print_nest
from staged.ir.products import product_nest
from staged.ir.rewrites import Divide, Fuse, Pad, Reorder, Rewriting, StripMine, rewritten
from staged.ir.storage_rewrites import Expand, Keep, Pack
from staged.ir.types import f32
from staged.kernels.lower import lower
from staged.ops import contraction as D
from staged.ops import elementwise as E
from staged.ops import reduction as R
from staged.ops import shape as S


def product(m: int, k: int, n: int, dtype: str = "f32", turned: str = "") -> Nest:
    """The nest of a product with an epilogue: a row is added, and what is below zero is cut off."""
    shapes = ((k, m) if "a" in turned else (m, k)), ((n, k) if "b" in turned else (k, n)), (n,)

    def f(a, b, y):
        return E.maximum(D.matrix_product(a, b, "a" in turned, "b" in turned) + y, 0)

    (op,) = kernels(fused(f, *(tensor(dtype, *shape) for shape in shapes)))
    if op.name == "kernel":  # unscheduled
        return lower_product(op)
    return product_nest(op, "product", op.attrs["nest"])


def lower_product(op) -> Nest:
    nest = op.attrs["nest"]
    assert isinstance(nest, Nest)
    return nest


def inputs_of(nest: Nest, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for source in nest.inputs:
        assert isinstance(source, ArrayRef)
        values = rng.standard_normal(source.size) if source.dtype.is_float else rng.integers(-50, 50, source.size)
        made.append(values.astype(source.dtype.numpy))
    return made


def same(nest: Nest, rewrites: Sequence[Rewriting], most: int = 1, seed: int = 0) -> Nest:
    """The rewritten nest, which gives the same bits, and stores each element at `most` so many times."""
    made = rewritten(nest, rewrites)
    given = inputs_of(nest, seed)
    for got, want in zip(run_nest(made, given, most), run_nest(nest, given), strict=True):
        assert got.tobytes() == want.tobytes(), print_nest(made)
    return made


TILES = (StripMine("row", 3, "tiles", "r"), StripMine("column", 4, "panels", "s"), Reorder(("panels", "tiles", "r", "s")))
KEPT = (*TILES, Keep("k", ("r", "s")))

ROWS: dict[str, tuple[Rewriting, ...]] = {
    "two ranges": (Divide("row", 2),),
    "two ranges of both": (Divide("row", 4), Divide("column", 5)),
    "equal pieces": (Divide("row", 3), StripMine("row_tail", 3, "tiles", "r")),
    "strips": (StripMine("column", 4, "panels", "s"),),
    "a sum in strips": (StripMine("k", 5, "blocks", "step"),),
    "columns outside": (Reorder(("column", "row")),),
    "tiles": TILES,
    "totals of a row": (Keep("k", ("column",)),),
    "totals of a row in memory": (Expand("k", ("column",)),),
    "tiles in memory": (*TILES, Expand("k", ("r", "s")), Keep("k", ("r", "s"))),
    "rows in memory": (Expand("k", ("row", "column")), Reorder(("column", "row"))),
    "columns twice": (Divide("column", 5, 6), Keep("k", ("column_tail",))),
    "totals of all": (Keep("k", ("row", "column")),),
    "a register tile": KEPT,
    "a panel of the right operand": (*KEPT, Pack("b", "tiles", ("k", "s"))),
    "panels of both operands": (*KEPT, Pack("a", "k", ("k", "r")), Pack("b", "tiles", ("k", "s"))),
    "more rows than there are": (Pad("row", 4), StripMine("row", 4, "tiles", "r")),
    "more columns than there are": (
        Pad("column", 5), StripMine("column", 5, "panels", "s"), StripMine("row", 2, "tiles", "r"),
        Reorder(("panels", "tiles", "r", "s")), Keep("k", ("r", "s")), Pack("b", "tiles", ("k", "s")),
    ),
    "a padded panel alone": (
        Divide("column", 5), StripMine("column_head", 5, "panels", "s"), Pad("column_tail", 5), Keep("k", ("column_tail",)),
    ),
    "totals in blocks of a sum": (StripMine("k", 5, "blocks", "step"), Keep("blocks", ("row", "column"))),
}  # fmt: skip


@pytest.mark.parametrize("turned", ["", "ab"])
@pytest.mark.parametrize("name", ROWS)
def test_a_rewritten_product_gives_the_same_bits(name: str, turned: str) -> None:
    same(product(6, 10, 8, turned=turned), ROWS[name], 2 if "twice" in name else 1)


def test_a_panel_is_read_within_the_bounds_around_its_reads() -> None:
    (op,) = kernels(fused(lambda x, y: S.permute_dims(x, (1, 0)) * 2 + y, tensor("f32", 5, 6), tensor("f32", 6, 5)))
    row, column = (s.axis.name for s in walk(lower(op).body) if isinstance(s, Loop))
    same(lower(op), (Pad(row, 4), Pack("x", row, (row, column))))


def test_directives_read_as_one_line_each() -> None:
    directives = (
        *ROWS["two ranges"], *KEPT, Pack("b", "tiles", ("k", "s")), Pad("row", 4), *ROWS["columns twice"], Expand("k", ("r", "s")),
    )  # fmt: skip
    assert list(map(str, directives)) == [
        "divide row: at 2",
        "strip-mine row: tiles by 3 r",
        "strip-mine column: panels by 4 s",
        "reorder: panels, tiles, r, s",
        "keep k: over r, s, in registers",
        "pack b: at tiles, by k, s",
        "pad row: to a multiple of 4",
        "divide column: at 5, the last 6 apart",
        "keep k: over column_tail, in registers",
        "expand k: over r, s, in memory",
    ]


def test_a_register_tile_reads_as_it_runs() -> None:
    nest = product(6, 10, 8)
    made = rewritten(nest, (*KEPT, Pack("b", "tiles", ("k", "s"))))
    assert print_nest(made).splitlines()[1:] == """\
  for panels < 2:
    for k < 10:
      for s < 4:
        b_2 = b[8*k + 4*panels + s]
        b_panel[4*k + s] = b_2
    for tiles < 2:
      for r < 3:
        for s_2 < 4:
          total[4*r + s_2] = 0.0
      for k_2 < 10:
        for r < 3:
          for s_2 < 4:
            x = a[k_2 + 30*tiles + 10*r]
            y_2 = b_panel[4*k_2 + s_2]
            term = multiply(x, y_2)
            total_2 = total[4*r + s_2]
            total_3 = add(total_2, term)
            total[4*r + s_2] = total_3
      for r < 3:
        for s_2 < 4:
          total_4 = total[4*r + s_2]
          y_3 = y[4*panels + s_2]
          y_total_larger_candidate = add(total_4, y_3)
          y_total_larger_2 = maximum(y_total_larger_candidate, 0.0)
          y_total_larger[24*tiles + 8*r + 4*panels + s_2] = y_total_larger_2
""".splitlines()


def softmax_nest() -> Nest:
    def f(x):
        e = E.exp(x - R.max_(x, axis=1, keepdims=True))
        return e / R.sum_(e, axis=1, keepdims=True)

    (op,) = kernels(fused(f, tensor("f32", 4, 6)))
    return lower(op)


def transposed_nest() -> Nest:
    (op,) = kernels(fused(lambda x: S.permute_dims(x, (1, 0)) + 1, tensor("f32", 4, 6)))
    return lower(op)


def total_nest() -> Nest:
    (op,) = kernels(fused(lambda x, y: R.sum_(x * S.permute_dims(y, (1, 0))), tensor("f32", 4, 6), tensor("f32", 6, 4)))
    return lower(op)


def columns_nest() -> Nest:
    """Totals in memory: terms of each come from two loops."""
    (op,) = kernels(
        fused(lambda x, y: R.sum_(x * S.permute_dims(y, (1, 0, 2)), axis=(0, 1)), tensor("f32", 9, 6, 5), tensor("f32", 6, 9, 5))
    )
    return lower(op)


REFUSED: dict[str, tuple[Callable[[], Nest], tuple[Rewriting, ...], str]] = {
    "no such loop": (lambda: product(6, 10, 8), (Divide("rows", 2),), "no loop is called rows; there are row, column, k"),
    "outside of its range": (lambda: product(6, 10, 8), (Divide("row", 6),), "it has 6 iterations"),
    "a total goes on": (lambda: product(6, 10, 8), (Divide("k", 5),), "the total total goes on"),
    "a tail": (lambda: product(6, 10, 8), (StripMine("row", 4, "o", "i"),), "6 iterations are no multiple of 4"),
    "not directly inside": (lambda: product(6, 10, 8), (Reorder(("k", "column")),), "column has more in it"),
    "a total of the outer loop": (total_nest, (Reorder(("j", "i")),), "keeps a total|another order"),
    "terms of totals in memory": (columns_nest, (Reorder(("j", "i", "k")),), "x_scaled_total_total would be written in another"),
    "a tail longer than its loop": (lambda: product(6, 10, 8), (Divide("column", 5, 9),), "it has 8 iterations"),
    "read again after it was written": (
        lambda: replace(product(6, 10, 8), in_place=((0, 2),)), (Divide("column", 5, 6),), "would be read after it was written",
    ),
    "memory for totals of other loops": (lambda: product(6, 10, 8), (Expand("k", ("row",)),), "row has 0 loops of this name in it"),
    "nothing to keep": (lambda: product(6, 10, 8), (Keep("k", ()),), "no loops to keep totals over"),
    "totals of other loops": (lambda: product(6, 10, 8), (Keep("k", ("row",)),), "row has 0 loops of this name in it"),
    "no totals": (lambda: product(6, 10, 8), (Keep("column", ("row",)),), "it has no totals"),
    "more terms": (lambda: product(6, 10, 8), (Pad("k", 4),), "total would take in more terms"),
    "not an input": (lambda: product(6, 10, 8), (Pack("c", "k", ("k",)),), "there are the inputs a, b, y"),
    "along another loop": (lambda: product(6, 10, 8), (Pack("b", "column", ("k",)),), "it is read along column, k"),
    "rows with gaps": (lambda: product(6, 10, 8, turned="b"), (Fuse("row", "column", "element"),), "row is 10 apart, column 0"),
    "not neighbours": (lambda: product(6, 10, 8), (Fuse("row", "k", "element"),), "row has more in it than the loop k"),
    "a window of two axes": (
        lambda: forward_nest(Convolution(1, 2, 3, (5, 5), (3, 3), padding=(1, 1)), f32),
        (Pack("x", "o", ("channel", "i+q", "p", "j")),), "i and q do not go along one axis",
    ),
    "not read there": (softmax_nest, (Keep("j", ("i",)),), "i has 3 loops|i has 2 loops"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_a_result_is_refused(name: str) -> None:
    nest, rewrites, why = REFUSED[name]
    with pytest.raises(IllegalSchedule, match=why):
        rewritten(nest(), rewrites)


def test_every_directive_on_random_nests_gives_the_same_bits_or_is_refused() -> None:
    rng = np.random.default_rng(3)
    done: dict[str, int] = {}
    refused = 0
    for number in range(400):
        kind = number % 4
        m, k, n = (int(x) for x in rng.integers(1, 9, 3))
        if kind == 0:
            nest = product(m, k, n, str(rng.choice(["f32", "i32"])), str(rng.choice(["", "a", "b", "ab"])))
        elif kind == 1:
            (op,) = kernels(fused(lambda x, y: S.permute_dims(x, (1, 0)) * 2 + y, tensor("f32", m, n), tensor("f32", n, m)))
            nest = lower(op)
        elif kind == 2:
            (op,) = kernels(fused(lambda x: R.max_(x, axis=2) + R.sum_(x, axis=2), tensor("f32", m, k, n)))
            nest = lower(op)
        else:
            (op,) = kernels(fused(lambda x: R.sum_(x, axis=0), tensor("f32", m, k, n)))
            nest = lower(op)
        for _ in range(4):
            names = list(dict.fromkeys(s.axis.name for s in walk(nest.body) if isinstance(s, Loop)))
            if not names:
                break
            one, *rest = (str(x) for x in rng.permutation(names))
            size = int(rng.integers(1, 5))
            choices: list[Rewriting] = [
                Divide(one, size), StripMine(one, size, f"{one}o", f"{one}i"), Pad(one, size),
                Reorder(tuple([one, *rest][: int(rng.integers(1, 4))])), Keep(one, tuple(rest[: int(rng.integers(1, 3))])),
                Expand(one, tuple(rest[: int(rng.integers(1, 3))])),
                Pack(str(rng.choice(["a", "b", "x"])), one, tuple([one, *rest][: int(rng.integers(1, 3))])),
                *(Fuse(outer, inner, f"{outer}_{inner}") for outer, inner in pairwise(names)),
            ]  # fmt: skip
            directive = choices[int(rng.integers(len(choices)))]
            try:
                nest = same(nest, (directive,), seed=number)
                done[type(directive).__name__] = done.get(type(directive).__name__, 0) + 1
            except IllegalSchedule:
                refused += 1
    assert min(done.get(each, 0) for each in ("Divide", "StripMine", "Fuse", "Pad", "Reorder", "Keep", "Expand", "Pack")) >= 8, done
    assert refused > 100


def test_iterations_are_independent_where_each_writes_elements_of_its_own() -> None:
    nest = rewritten(product(6, 10, 8), (StripMine("row", 3, "tiles", "r"), Reorder(("tiles", "r", "column"))))
    assert nest.items == 2 and all(is_independent(s) for s in walk(nest.body) if isinstance(s, Loop) and not s.reductions)
    assert rewritten(product(6, 10, 8), (Divide("row", 2),)).items == 6
    assert rewritten(product(6, 10, 8), (Pad("column", 5), Reorder(("column", "row")))).items == 10
    assert not is_independent(next(s for s in walk(total_nest().body) if isinstance(s, Loop)))


@pytest.mark.parametrize("step, apart", [(1, False), (2, True), (3, True)])
def test_elements_of_two_stores_are_apart_where_the_next_iteration_is_beyond_both(step: int, apart: bool) -> None:
    x, y, i, value = ArrayRef("x", f32, 8, "input"), ArrayRef("y", f32, 16, "output"), Axis("i", 4), Local("value", f32)
    stores = [Store(y, Affine.of(i, step) + offset, value) for offset in (0, 1)]
    assert is_independent(Loop(i, (Load(value, x, Affine.of(i)), *stores))) is apart


@pytest.mark.parametrize("row, apart", [(9, True), (8, True), (7, False)])
def test_columns_of_a_matrix_are_apart_where_rows_are_long_enough(row: int, apart: bool) -> None:
    """Three columns of each, of eight: the last one of the second loop is in the next row if a row has seven."""
    x, y, value = ArrayRef("x", f32, 8, "input"), ArrayRef("y", f32, 64, "output"), Local("value", f32)
    panel, i, tail = Axis("panel", 2), Axis("i", 3), Axis("tail", 2)
    rows = [Axis("r", 4) for _ in range(3)]

    def store(row_of: Axis, column: Affine, later: int = 0) -> Loop:
        return Loop(row_of, (Load(value, x, Affine()), Store(y, Affine.of(row_of, row) + column + later * row, value)))

    column = Affine.of(panel, 3) + Affine.of(i)
    panels = Loop(panel, (Loop(i, (store(rows[0], column), store(rows[1], column, 4))),))
    rest = Loop(tail, (store(rows[2], Affine.of(tail) + 6),))
    assert is_independent(panels)
    assert are_independent((panels, rest)) is apart


def test_a_loop_that_reads_what_another_writes_comes_after_it() -> None:
    scratch, y, value = ArrayRef("panel", f32, 8, "scratch"), ArrayRef("y", f32, 8, "output"), Local("value", f32)
    i, j = Axis("i", 8), Axis("j", 8)
    x = ArrayRef("x", f32, 8, "input")
    copy = Loop(i, (Load(value, x, Affine.of(i)), Store(scratch, Affine.of(i), value)))
    use = Loop(j, (Load(value, scratch, Affine.of(j)), Store(y, Affine.of(j), value)))
    assert not are_independent((copy, use))
