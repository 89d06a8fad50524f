"""Medians, quantiles, distinct elements, modes and orders by several keys: values of NumPy and torch, derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.library.statistics.quantiles import METHODS_OF_QUANTILES
from staged.testing import compare_trees
from tests.errors.said import refuses
from tests.torch_reference import reference

X = np.random.default_rng(11).standard_normal((2, 5, 4))
HOLES = np.where(np.arange(40).reshape(2, 5, 4) % 7 == 3, np.nan, X)
Q = (0.0, 0.1, 0.3, 0.5, 0.75, 1.0)


def ours(x, holes):
    made = {}
    for axis in (None, 0, 1, -1, (0, 2)):
        made[f"median {axis}"] = st.median(x, axis)
        made[f"nanmedian {axis}"] = st.nanmedian(holes, axis)
        made[f"holes {axis}"] = st.median(holes, axis, keepdims=True)
    for method in METHODS_OF_QUANTILES:
        made[method] = st.quantile(x, Q, 1, method=method)
        made[f"nan {method}"] = st.nanquantile(holes, Q, 1, True, method=method)
    made["percent"] = st.percentile(x, [25, 50]), st.nanpercentile(holes, 30.0, 0)
    return made


def numpys(x, holes):
    made = {}
    for axis in (None, 0, 1, -1, (0, 2)):
        made[f"median {axis}"] = np.median(x, axis)
        made[f"nanmedian {axis}"] = np.nanmedian(holes, axis)
        made[f"holes {axis}"] = np.median(holes, axis, keepdims=True)
    for method in METHODS_OF_QUANTILES:
        made[method] = np.quantile(x, Q, 1, method=method)
        made[f"nan {method}"] = np.nanquantile(holes, Q, 1, method=method, keepdims=True)
    made["percent"] = np.percentile(x, [25, 50]), np.nanpercentile(holes, 30.0, 0)
    return made


def test_quantiles_are_numpys() -> None:
    expected = numpys(X, HOLES)
    compare_trees(ours(wrap(X), wrap(HOLES)), expected, rtol=1e-12)
    compare_trees(st.function(ours)(X, HOLES), expected, rtol=1e-12)
    np.testing.assert_allclose(np.quantile(wrap(X), 0.3, 0), np.quantile(X, 0.3, 0))
    rows = np.array([[1.0, np.inf, 2.0, np.inf], [-np.inf, -np.inf, np.inf, 0.0]])
    np.testing.assert_array_equal(st.function(lambda x: st.quantile(x, 1.0, 1))(rows), [np.inf, np.inf])
    np.testing.assert_array_equal(st.function(lambda x: st.median(x, 1))(rows), [np.inf, -np.inf])
    assert st.median(wrap(np.array([3, 1, 2, 4]))).dtype is st.f32
    assert st.quantile(wrap(X), [], 1).shape == np.quantile(X, [], 1).shape
    assert st.nanquantile(wrap(X), [], keepdims=True).shape == (0, 1, 1, 1)


def test_a_device_gives_the_same(emulated_device) -> None:
    @st.function
    def program(x):
        with st.with_backend(st.GPU, x):
            return st.median(x, 1), st.nanquantile(x, 0.3, 0), st.unique(x, True, True, True, size=5), st.mode(x, 1)

    x = np.round(X).astype(np.float32)
    with st.eager():
        expected = program(x)
    compare_trees(program(x), expected, rtol=1e-6)


def test_medians_and_modes_are_torchs() -> None:
    x = np.round(2 * HOLES)
    for dim in (0, 1, -1):
        for place in (0, 1):
            expected = reference(lambda torch, x, d=dim, p=place: torch.median(torch.tensor(x), dim=d)[p], X)
            np.testing.assert_array_equal(st.function(lambda x, d=dim, p=place: st.median(x, dim=d)[p])(X), expected)
        expected = reference(lambda torch, x, d=dim: torch.median(torch.tensor(x), dim=d)[0], x)
        np.testing.assert_array_equal(st.median(x, dim=dim).values, expected)
        whole = np.nan_to_num(x)
        expected = reference(lambda torch, x, d=dim: torch.mode(torch.tensor(x), dim=d, keepdim=True)[0], whole)
        np.testing.assert_array_equal(st.function(lambda x, d=dim: st.mode(x, d, True).values)(whole), expected)
        at = np.asarray(st.mode(wrap(whole), dim, True).indices)
        np.testing.assert_array_equal(np.take_along_axis(whole, at, dim), expected)
    expected = reference(lambda torch, x: torch.quantile(torch.tensor(x), 0.3, dim=1, interpolation="higher"), X)
    np.testing.assert_allclose(st.quantile(wrap(X), 0.3, dim=1, interpolation="higher"), expected)


@pytest.mark.parametrize("in_eager", [False, True])
def test_derivatives_agree_with_differences(in_eager: bool) -> None:
    def all_of(x):
        found = st.median(x, 1), st.quantile(x, (0.2, 0.7), 0), st.nanquantile(x, 0.3), st.mode(x, 1).values
        return [*found, st.unique(x, size=3), st.median(x, dim=1).values]

    st.check_grads(all_of, (X,), in_eager=in_eager, order=1, rtol=1e-5, eps=1e-6)


@pytest.mark.parametrize("in_eager", [False, True])
def test_both_of_two_equal_elements_have_a_part_in_what_is_between(in_eager: bool) -> None:
    x = np.array([2.0, 1.0, 0.0, 1.0])
    st.check_grads(lambda x: (st.median(x), st.nanmedian(x)), (x,), in_eager=in_eager, order=1, rtol=1e-5, eps=1e-6)
    for each in (st.quantile, st.nanquantile):  # a kink: as for torch, each has its share
        found = st.function(lambda x, each=each: st.grad(lambda x: each(x, 0.4))(x))(x)
        np.testing.assert_allclose(found, [0.0, 0.8, 0.0, 0.2])


ROWS = {
    "integers": np.array([[3, 1, 3], [7, 1, 1]]),
    "floats": np.array([2.0, np.nan, -0.0, 0.0, np.nan, 2.0, -1.0]),
    "bools": np.array([True, False, True]),
    "one": np.array([5.0]),
}


@pytest.mark.parametrize("name", ROWS)
def test_distinct_elements_are_numpys(name: str) -> None:
    x = ROWS[name]
    for equal_nan in (True, False):
        values, index, inverse, counts = np.unique(x, True, True, True, equal_nan=equal_nan)
        n = len(values)

        @st.function
        def program(x, equal_nan=equal_nan):
            short = st.unique(x, size=1, equal_nan=equal_nan)
            return *st.unique(x, True, True, True, size=9, fill_value=0, equal_nan=equal_nan), short

        for found in (program(x), program.__wrapped__(wrap(x))):
            given = [np.asarray(part) for part in found]
            np.testing.assert_array_equal(given[0][:n], values)
            assert not given[0][n:].any()
            np.testing.assert_array_equal(given[1][:n], index)
            np.testing.assert_array_equal(given[2], inverse.reshape(x.shape))
            np.testing.assert_array_equal(given[3][:n], counts)
            assert not given[3][n:].any()
            np.testing.assert_array_equal(given[4], values[:1])
    found = st.unique_all(x, size=n)
    for part, expected in zip(found, np.unique_all(x), strict=True):
        np.testing.assert_array_equal(part, expected)
    np.testing.assert_array_equal(st.unique_counts(x, size=n).counts, np.unique_counts(x).counts)
    np.testing.assert_array_equal(st.unique_inverse(x, size=n)[1], np.unique_inverse(x).inverse_indices)
    np.testing.assert_array_equal(st.unique_values(x, size=n), np.sort(np.unique_values(x)))


def test_distinct_elements_of_none_and_orders_by_keys() -> None:
    found = st.function(lambda x: st.unique(x, True, True, True, size=2, fill_value=7))(np.zeros((0, 3)))
    compare_trees(found, (np.full(2, 7.0), np.zeros(2, int), np.zeros((0, 3), int), np.zeros(2, int)))
    keys = np.array([[3, 1, 3, 1, 2, 1], [1, 0, 0, 1, 0, 0]])
    np.testing.assert_array_equal(st.function(st.lexsort)(keys), np.lexsort(keys))
    np.testing.assert_array_equal(st.lexsort((wrap(X[0]), wrap(np.round(X[1]))), 0), np.lexsort((X[0], np.round(X[1])), 0))


def test_what_does_not_fit_is_refused() -> None:
    x = wrap(X)
    for function, match in (
        (lambda: st.quantile(x, 1.5), "quantiles are from 0 to 1"),
        (lambda: st.quantile(x, 0.5, method="best"), "no method 'best'"),
        (lambda: st.median(st.zeros((0,))), "median of no elements"),
        (lambda: st.mode(st.zeros((2, 0))), "mode of no elements"),
        (lambda: st.nanmedian(x, dim=0), "the lower of two"),
        (lambda: st.function(lambda x, q: st.quantile(x, q))(X, 0.5), "`q` is a number known while staging"),
        (lambda: st.unique(st.zeros((0,)), size=2), "without a `fill_value`"),
        (lambda: st.unique(x, size=2.5), "`size` is an integer"),
        (lambda: st.unique(wrap(np.ones(1, np.uint8)), size=2, fill_value=-1), "-1 does not fit u8"),
        (lambda: st.lexsort(()), "one or more keys"),
    ):
        with refuses(st.StagedError, match):
            function()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_middle_of_the_smallest_and_of_the_largest_numbers(dtype) -> None:
    """Half of the smallest number is 0, and the sum of the largest overflows."""
    least, most = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    median = st.function(lambda x: (st.median(x), st.nanmedian(x), st.quantile(x, 0.5)), target="portable")
    for x, wanted in (
        (np.array([least, least], dtype), least),
        (np.array([least, 2 * least], dtype), 2 * least),
        (np.array([-3 * least, -2 * least], dtype), np.median(np.array([-3 * least, -2 * least], dtype))),
        (np.array([most, most], dtype), most),
        (np.array([-most, most], dtype), 0.0),
    ):
        for found in (*median(x), st.median(x)):
            assert np.asarray(found) == wanted
