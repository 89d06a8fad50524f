"""Products and totals of integers wrap to their dtype, as NumPy's do: every dtype, in vectors and in what is left of them."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend

DTYPES = [np.uint8, np.uint32, np.int32, np.int64]
SIZES = [(3, 4, 2), (1, 1, 1), (2, 0, 3), (1, 300, 1), (9, 33, 65)]


def products(pairs):
    return [(a @ b, st.dot(a[0], b[:, 0]), st.tensordot(a, b, 1), st.permute_dims(a, (1, 0)) @ a) for a, b in pairs]


@pytest.mark.parametrize("where", ["host", "region", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_integers(dtype, where, emulated_device):
    def run(pairs):
        if where != "region":
            return products(pairs)
        with with_backend(GPU, pairs):
            return products(pairs)

    pairs = []
    for m, k, n in SIZES:
        a, b = np.arange(m * k) * 77773 + 1, np.arange(k * n) * 70003 + 3
        pairs.append((a.astype(dtype).reshape(m, k), b.astype(dtype).reshape(k, n)))
    if where == "eager":
        with st.eager():
            found = st.function(run)(pairs)
    else:
        found = st.function(run)(pairs)
    for (a, b), results in zip(pairs, found, strict=True):
        wide_a, wide_b = a.astype(object), b.astype(object)
        right = wide_a @ wide_b if a.shape[1] else np.zeros((a.shape[0], b.shape[1]), object)
        for got, wanted in zip(results, (right, right[0, 0], right, wide_a.T @ wide_a), strict=True):
            assert np.asarray(got).dtype == dtype
            np.testing.assert_array_equal(np.asarray(got), wrapped(wanted, dtype))


def wrapped(exact, dtype):
    """Python's integers, in a dtype."""
    bits = 8 * np.dtype(dtype).itemsize
    return np.asarray(np.asarray(exact, object) % (1 << bits), object).astype(np.uint64).astype(dtype)


@pytest.mark.parametrize("where", ["host", "region"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_totals_of_integers(dtype, where, emulated_device):
    """63 to 129 elements: a vector less one, whole vectors, and one more, for every width."""
    arrays = [(np.arange(n, dtype=np.int64) * 7919 % 251).astype(dtype) for n in (1, 63, 64, 65, 129)]

    def totals(arrays):
        return [(st.max(x), st.min(x), st.sum(x), st.sum(x, dtype=x.dtype), st.argmax(x), st.argmin(x)) for x in arrays]

    def alone(a, b, c):
        """One total of each array: whole vectors, which no place of an element keeps from being."""
        return st.max(a), st.min(b), st.sum(c, dtype=c.dtype)

    def run(arrays, a, b, c):
        if where != "region":
            return totals(arrays), alone(a, b, c)
        with with_backend(GPU, arrays, a, b, c):
            return totals(arrays), alone(a, b, c)

    separate = [np.roll(arrays[4], by) for by in (5, 40, 70)]
    found, apart = st.function(run)(arrays, *separate)
    assert apart == (separate[0].max(), separate[1].min(), wrapped(separate[2].astype(object).sum(), dtype))
    for x, results in zip(arrays, found, strict=True):
        exact = x.astype(object).sum()
        right = (x.max(), x.min(), exact, wrapped(exact, dtype), x.argmax(), x.argmin())
        for got, wanted in zip(results, right, strict=True):
            assert got == wanted
