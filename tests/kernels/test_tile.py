"""Tiles around loops that walk some array crosswise: only where each iteration is on its own; results against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import staged as st
from staged.ir.declaration import prims
from staged.ir.loops import Accumulate, Affine, ArrayRef, Axis, Load, Local, Loop, Nest, Reduction, Store, Tile, walk
from staged.ir.types import f32
from staged.kernels.tile import tile_transposes


def test_sums_of_transposed_operands_are_right():
    random = np.random.default_rng(0)
    x, y = (random.integers(-4, 5, (200, 200)).astype(np.float32) for _ in range(2))
    z = random.integers(-4, 5, (130, 257)).astype(np.float32)

    @st.function
    def run(x, y, z):
        crosswise = x * y.T
        return (
            st.sum(crosswise),
            st.max(x + y.T),
            st.sum(x - y.T, axis=0),
            st.min(x - y.T, axis=1),
            crosswise,
            z.T + 1.0,
            st.sum(z.T, axis=1),
        )

    crosswise = x * y.T
    right = (
        crosswise.sum(), (x + y.T).max(), (x - y.T).sum(0), (x - y.T).min(1), crosswise, z.T + 1, z.sum(0),
    )  # fmt: skip
    for got, wanted in zip(run(x, y, z), right, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_totals_over_three_axes_take_places_in_their_order():
    """The first of ties wins an argmax, and the first NaN: the tiles of the last two axes would come to another one first."""
    random = np.random.default_rng(1)
    x, y = random.integers(-4, 5, (3, 200, 150)).astype(np.float32), random.integers(-4, 5, (3, 150, 200)).astype(np.float32)
    holes = x.copy()
    holes[1, 3, 140] = holes[1, 90, 2] = np.nan

    @st.function
    def run(x, y, holes):
        turned = st.permute_dims(y, (0, 2, 1))
        return (
            st.argmax(x - turned),
            st.argmin(x + turned),
            st.argmax(holes - turned),
            st.sum(x * turned),
            st.max(x - turned),
            st.any(x * turned == -16.0),
            st.sum(x + turned, axis=(1, 2)),
        )

    turned = y.transpose(0, 2, 1)
    right = (
        (x - turned).argmax(), (x + turned).argmin(), (1 * 200 + 3) * 150 + 140, (x * turned).sum(), (x - turned).max(),
        (x * turned == -16).any(), (x + turned).sum((1, 2)),
    )  # fmt: skip
    for got, wanted in zip(run(x, y, holes), right, strict=True):
        np.testing.assert_array_equal(got, wanted)


def crosswise(rows: int, columns: int, outer_total: bool = False, inner_total: bool = False) -> Nest:
    """y[i, j] = x[j, i], or totals of that."""
    i, j = Axis("i", rows), Axis("j", columns)
    x = ArrayRef("x", f32, rows * columns, "input")
    y = ArrayRef("y", f32, rows * columns, "output")
    value = Local("value", f32)
    total = Reduction(Local("total", f32), prims.SUM)
    across, along = Affine.of(j, rows) + Affine.of(i), Affine.of(i, columns) + Affine.of(j)
    body = (Load(value, x, across), Store(y, along, value))
    inner = Loop(j, (*body, Accumulate(total, value)) if outer_total or inner_total else body, (total,) if inner_total else ())
    return Nest("turn", (x,), (y,), (), (Loop(i, (inner,), (total,) if outer_total else ()),), rows)


def has_tiles(nest: Nest) -> bool:
    return any(isinstance(s, Tile) for s in walk(nest.body))


def test_a_loop_that_carries_a_total_is_left_as_it_is():
    assert has_tiles(tile_transposes(crosswise(200, 200)))
    for outer, inner in ((True, False), (False, True)):
        assert not has_tiles(tile_transposes(crosswise(200, 200, outer, inner)))


def test_loops_that_feed_a_total_from_around_them_are_left_as_they_are():
    nest = crosswise(200, 200, outer_total=True)
    (outer,) = nest.body
    around = Loop(Axis("k", 3), (replace(outer, reductions=()),), outer.reductions)
    assert not has_tiles(tile_transposes(replace(nest, body=(around,))))


def test_small_arrays_and_empty_ones_have_no_tiles():
    for rows, columns in ((0, 200), (200, 0), (1, 1), (127, 128)):
        assert not has_tiles(tile_transposes(crosswise(rows, columns)))


def test_both_parts_of_transposed_complex_numbers_are_read_in_tiles():
    random = np.random.default_rng(2)
    z = (random.normal(size=(150, 140)) + 1j * random.normal(size=(150, 140))).astype(np.complex64)

    @st.function
    def run(z):
        return z.real.T * 2, z.imag.T * 2

    for got, wanted in zip(run(z), (z.real.T * 2, z.imag.T * 2), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert "first_" in run.stage(z).source
