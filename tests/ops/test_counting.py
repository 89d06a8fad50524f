"""Places among sorted numbers, counts, elements of a mask up to a bound: NumPy's values, derivatives, devices, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals

RNG = np.random.default_rng(8)
KEYS = np.sort(RNG.integers(-9, 9, 13)).astype(np.float64)
SHUFFLED = np.random.default_rng(5).permutation(13)
X = RNG.integers(-11, 11, (4, 5)).astype(np.float64)
KNOTS = np.array([-7.3, -4.1, -0.3, 0.0, 3.7, 8.8])
LABELS = RNG.integers(0, 5, 20)
W = RNG.uniform(0.5, 1.5, 20)
MASK = X > 2
A, B, M = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 4, 5)), RNG.standard_normal((3, 5))


def up_to(found, size, fill=0):
    return np.concatenate([found, np.full(size, fill, found.dtype)])[:size]


def ours(x, w):
    return {
        "searchsorted": st.searchsorted(KEYS, x),
        "searchsorted_right": st.searchsorted(KEYS, x, side="right"),
        "searchsorted_rows": st.searchsorted(np.stack([KEYS, KEYS + 3]), x[:2]),
        "searchsorted_sorter": st.searchsorted(KEYS[SHUFFLED], x, sorter=st.argsort(KEYS[SHUFFLED])),
        "bucketize": st.bucketize(x, KEYS),
        "digitize": st.digitize(x, KEYS),
        "isin": st.isin(x, KEYS),
        "isin_invert": st.isin(x, KEYS, invert=True),
        "bincount": st.bincount(LABELS, length=4),
        "bincount_weights": st.bincount(LABELS, w, length=7),
        "histogram": st.histogram(x, 4, (-5.0, 8.0)),
        "histogram_of_all": st.histogram(x, 5),
        "histogram_edges": st.histogram(x, KEYS, weights=w),
        "histogram_of_nothing": st.histogram(x[:0], 3),
        "histogram_density": st.histogram(x, 6, density=True, weights=w * w),
        "nonzero": st.nonzero(MASK, size=30, fill_value=-1),
        "nonzero_first": st.nonzero(MASK, size=2),
        "masked_select": st.masked_select(x, MASK, size=25),
        "masked_select_first": st.masked_select(x, MASK, size=3),
        "masked_select_of_both": st.masked_select(x[:, None], MASK[:1, :1], size=25),
        "tensor_split": st.tensor_split(x, 3, 1),
        "tensor_split_at": st.tensor_split(x, [1, 3]),
        "addbmm": st.addbmm(M, A * w[0], B, beta=2, alpha=0.5),
        "vdot": st.vdot(x, w.reshape(5, 4)),
        "diag_embed": st.diag_embed(x, 1, 0, 2),
        "interp": st.interp(x, KNOTS, w[:6]),
        "interp_ends": st.interp(x, KNOTS, w[:6], -9.0, 9.0),
        "interp_period": st.interp(x, KNOTS[::-1].copy(), w[:6], period=7.7),
        "interp_of_one": st.interp(x, KNOTS[:1], w[:1], right=2.0),
        "flatnonzero": st.flatnonzero(MASK, size=9, fill_value=-2),
        "index_copy": st.index_copy(x, 1, [3, 0, 3], x[:, :3] * w[0]),
        "index_fill": st.index_fill(x, 0, [1, -1], 2.5),
        "index_select": st.index_select(x, 1, [3, 0, 3]),
        "index_add": st.index_add(x, 0, [1, 1], x[:2], alpha=2),
    }


def numpys(x, w):
    added = x.copy()
    added[1] += 2 * (x[0] + x[1])
    copied, filled = x.copy(), x.copy()
    copied[:, 0], copied[:, 3] = x[:, 1] * w[0], x[:, 2] * w[0]
    filled[[1, -1]] = 2.5
    embedded = np.zeros((6, 4, 6))
    embedded[np.arange(5), :, np.arange(5) + 1] = x.T
    return {
        "searchsorted": np.searchsorted(KEYS, x),
        "searchsorted_right": np.searchsorted(KEYS, x, side="right"),
        "searchsorted_rows": np.stack([np.searchsorted(KEYS, x[0]), np.searchsorted(KEYS + 3, x[1])]),
        "searchsorted_sorter": np.searchsorted(KEYS, x),
        "bucketize": np.searchsorted(KEYS, x),
        "digitize": np.digitize(x, KEYS),
        "isin": np.isin(x, KEYS),
        "isin_invert": np.isin(x, KEYS, invert=True),
        "bincount": np.bincount(LABELS)[:4],
        "bincount_weights": np.bincount(LABELS, w, 7),
        "histogram": np.histogram(x, 4, (-5.0, 8.0)),
        "histogram_of_all": np.histogram(x, 5),
        "histogram_edges": np.histogram(x, KEYS, weights=w.reshape(x.shape)),
        "histogram_of_nothing": np.histogram(np.zeros(0), 3),
        "histogram_density": np.histogram(x, 6, density=True, weights=(w * w).reshape(x.shape)),
        "nonzero": tuple(up_to(places, 30, -1) for places in np.nonzero(MASK)),
        "nonzero_first": tuple(places[:2] for places in np.nonzero(MASK)),
        "masked_select": up_to(x[MASK], 25),
        "masked_select_of_both": up_to(x[:, None][np.broadcast_to(MASK[:1, :1], (4, 1, 5))], 25),
        "masked_select_first": x[MASK][:3],
        "tensor_split": np.array_split(x, 3, 1),
        "tensor_split_at": np.array_split(x, [1, 3]),
        "addbmm": 2 * M + 0.5 * np.einsum("kij,kjl->il", A * w[0], B),
        "vdot": np.vdot(x, w),
        "diag_embed": embedded,
        "interp": np.interp(x, KNOTS, w[:6]),
        "interp_ends": np.interp(x, KNOTS, w[:6], -9.0, 9.0),
        "interp_period": np.interp(x, KNOTS[::-1], w[:6], period=7.7),
        "interp_of_one": np.where(x > KNOTS[0], 2.0, w[0]),
        "flatnonzero": up_to(np.flatnonzero(MASK), 9, -2),
        "index_copy": copied,
        "index_fill": filled,
        "index_select": x[:, [3, 0, 3]],
        "index_add": added,
    }


def test_values_are_numpys() -> None:
    expected = numpys(X, W)
    compare_trees(ours(wrap(X), wrap(W)), expected, rtol=1e-13, atol=1e-13)
    compare_trees(st.function(ours)(X, W), expected, rtol=1e-13, atol=1e-13)
    for ops in (st.function(st.vmap(ours))(np.stack([X[::-1], X]), np.stack([W, W])),):
        for name, found in ops.items():
            parts = (found, expected[name]) if not isinstance(found, tuple | list) else None
            for one, right in [parts] if parts else zip(found, expected[name], strict=True):
                np.testing.assert_allclose(one[1], right, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_fill_value_does_not_change_bools_into_integers() -> None:
    def select(mask):
        return st.masked_select(mask, ~mask, size=mask.size, fill_value=1)

    for found in map(np.asarray, (select(wrap(MASK)), st.function(select)(MASK))):
        assert found.dtype == bool and (found == (np.arange(MASK.size) >= (~MASK).sum())).all()


def test_derivatives_agree_with_differences() -> None:
    def smooth(x, w):
        found = ours(x, w)
        names = ("bincount_weights", "masked_select", "addbmm", "vdot", "diag_embed", "index_select", "index_add")
        names += ("interp", "interp_period", "index_copy", "index_fill")
        return [found[name] for name in names]

    st.check_grads(smooth, (X + 0.5, W), rtol=1e-6)


def on_a_device(x, w):
    with st.with_backend(st.GPU, x, w):
        return ours(x, w)


def test_a_device_gives_the_same(emulated_device) -> None:
    given = X.astype(np.float32), W.astype(np.float32)
    compare_trees(st.function(on_a_device)(*given), st.function(ours)(*given), rtol=1e-5)


@pytest.mark.slow
def test_an_opencl_device_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device.require()
    given = X.astype(np.float32), W.astype(np.float32)
    expected = st.function(ours)(*given)
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    compare_trees(st.function(on_a_device)(*given), expected, rtol=1e-5)


def test_nan_is_the_largest_number() -> None:
    keys, x = np.array([-1.0, 2.0, math.inf, math.nan, math.nan]), np.array([math.nan, math.inf, -math.inf, 3.0])
    for side in ("left", "right"):
        found = st.function(lambda keys, x, side=side: st.searchsorted(keys, x, side))(keys, x)
        np.testing.assert_array_equal(found, np.searchsorted(keys, x, side))


@pytest.mark.parametrize("n", range(9))
def test_rows_of_every_length(n: int) -> None:
    keys, x = np.arange(0, 2 * n, 2), np.arange(-1, 2 * n + 1)
    np.testing.assert_array_equal(st.function(st.searchsorted)(keys, x), np.searchsorted(keys, x))
    mask = np.arange(n) % 3 == 1
    (found,) = st.function(lambda mask: st.nonzero(mask, size=4, fill_value=9))(mask)
    np.testing.assert_array_equal(found, up_to(np.nonzero(mask)[0], 4, 9))


REFUSED = {
    "rows_that_do_not_fit": (lambda: st.searchsorted(X, X[:2]), st.ShapeError, "no sorted row"),
    "sorter": (lambda: st.searchsorted(KEYS, X, sorter=np.arange(3)), st.ShapeError, "does not sort"),
    "side": (lambda: st.searchsorted(KEYS, X, "middle"), st.StagedError, "side is"),
    "floats": (lambda: st.bincount(W, length=2), st.DTypeError, "needs integers"),
    "a_matrix": (lambda: st.bincount(LABELS.reshape(4, 5), length=2), st.ShapeError, "takes a vector"),
    "no_bins": (lambda: st.histogram(X, 0), st.StagedError, "at least one bin"),
    "staged_bins": (lambda: st.function(lambda n: st.histogram(X, n)[0])(3), st.StagedValueError, "`bins` is a number known"),
    "edges_in_rows": (lambda: st.histogram(X, [[1.0, 2.0]]), st.ShapeError, "a vector of edges"),
    "one_edge": (lambda: st.histogram(X, [1.0]), st.ShapeError, "two edges"),
    "batches": (lambda: st.addbmm(M, A, A), st.ShapeError, "batches of matrices"),
    "points": (lambda: st.interp(X, KNOTS, KNOTS[:3]), st.ShapeError, "two vectors"),
    "no_period": (lambda: st.interp(X, KNOTS, KNOTS, period=0.0), st.StagedError, "is not 0"),
    "rows_to_copy": (lambda: st.index_copy(X, 0, [[1]], X), st.ShapeError, "a vector of indices"),
    "a_row_to_fill": (lambda: st.index_fill(X, 0, [1], W), st.ShapeError, "writes a number"),
    "one_axis": (lambda: st.diag_embed(X, 0, 1, 1), st.ShapeError, "two axes"),
}

test_refused_with_words = refusals(REFUSED)


INF = math.inf


@pytest.mark.parametrize("values", [[0, 1, INF, 5], [INF, INF, -INF, 2], [-INF, 0, 1, 2], [INF, 1, 1, INF], [1, INF, INF, 3]])
def test_interp_beside_infinite_values_is_numpys(values) -> None:
    places, points = np.linspace(-0.5, 3.5, 17), np.arange(4.0)
    with np.errstate(invalid="ignore"):
        wanted = np.interp(places, points, np.array(values, float))
    for run in (st.interp, st.function(st.interp, target="portable")):
        np.testing.assert_array_equal(np.asarray(run(places, points, np.array(values, float))), wanted)
