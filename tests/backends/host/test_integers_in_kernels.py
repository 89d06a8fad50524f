"""Products and totals of integers wrap to their dtype, as NumPy's do: every dtype, in vectors and in what is left of them."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from staged.ir.types import dtype_of

DTYPES = [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64]
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
    program = st.function(run).stage(arrays, *separate)
    found, apart = program(arrays, *separate)
    if where == "host" and np.dtype(dtype).itemsize < 4:
        assert f"st_max_{dtype_of(dtype)}v" in program.source, "not in vectors"
    assert apart == (separate[0].max(), separate[1].min(), wrapped(separate[2].astype(object).sum(), dtype))
    for x, results in zip(arrays, found, strict=True):
        exact = x.astype(object).sum()
        right = (x.max(), x.min(), exact, wrapped(exact, dtype), x.argmax(), x.argmin())
        for got, wanted in zip(results, right, strict=True):
            assert got == wanted


ELEMENTWISE = {
    "add": lambda x, y, s: x + y,
    "subtract": lambda x, y, s: x - y,
    "multiply": lambda x, y, s: x * y,
    "chain": lambda x, y, s: 1 - x * 3 + y * y * y,
    "negative": lambda x, y, s: -x,
    "divide": lambda x, y, s: x // s,
    "remainder": lambda x, y, s: x % s,
    "power": lambda x, y, s: x**2,
    "left": lambda x, y, s: x << (s & 7),
    "right": lambda x, y, s: x >> (s & 7),
    "invert": lambda x, y, s: ~x,
    "inverted, compared": lambda x, y, s: ~y > x,
    "bits": lambda x, y, s: (x & y) ^ (x | s),
    "less": lambda x, y, s: (x < y) | (x == s),
    "a sum, compared": lambda x, y, s: x + s > y,
    "a product, shifted": lambda x, y, s: (x * s) >> 1,
    "a negative, divided": lambda x, y, s: -x // s,
}
"""Functions that NumPy computes as they stand: its arrays of integers wrap, no element becomes an int on the way.

Operands that are compared, shifted or divided are computed for that alone: what two functions share has a C type.
"""


@pytest.mark.parametrize("where", ["host", "region", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise_arithmetic_wraps_in_its_own_dtype(dtype, where, emulated_device):
    """131 elements, in vectors, and 3, one by one; the ends of the range among them."""
    draw, span = np.random.default_rng(7), np.iinfo(dtype)
    x, y = (draw.integers(span.min, span.max, 131, dtype=dtype, endpoint=True) for _ in range(2))
    x[:4] = y[1:5] = (span.max, span.min, span.min, span.max)
    s = draw.integers(1, 100, 131).astype(dtype)

    def run(groups):
        if where != "region":
            return [{name: f(*group) for name, f in ELEMENTWISE.items()} for group in groups]
        with with_backend(GPU, groups):
            return [{name: f(*group) for name, f in ELEMENTWISE.items()} for group in groups]

    groups = [(x, y, s), (x[:3], y[:3], s[:3])]
    with st.eager() if where == "eager" else contextlib.nullcontext():
        found = st.function(run)(groups)
    for group, results in zip(groups, found, strict=True):
        for name, f in ELEMENTWISE.items():
            with np.errstate(all="ignore"):
                want = f(*group)
            got = np.asarray(results[name])
            assert got.dtype == want.dtype, name
            np.testing.assert_array_equal(got, want, err_msg=name)


FLOATS = [0.0, -0.9, -1.5, 127.9, 128.0, -128.9, -129.0, 255.9, 256.0, -32769.0, 32768.0, 65535.5, 65536.0]
FLOATS += [1e10, -1e10, 9.3e18, 1e19, 1.9e19, -1e19, np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("where", ["host", "region"])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_floats_out_of_range_become_what_astype_says(source, where, emulated_device):
    """Towards zero; the smallest number of a signed dtype for what it has not, the ends of an unsigned one, 0 for NaN."""
    x = np.array(FLOATS * 4, source)

    def run(xs):
        """Each of an array of its own, or vectors of one would wait for what has no vectors."""
        if where != "region":
            return [st.astype(x, dtype) for x, dtype in zip(xs, DTYPES, strict=True)]
        with with_backend(GPU, xs):
            return [st.astype(x, dtype) for x, dtype in zip(xs, DTYPES, strict=True)]

    for dtype, got in zip(DTYPES, st.function(run)([x.copy() for _ in DTYPES]), strict=True):
        span, right = np.iinfo(dtype), []
        for number in x.tolist():
            whole = int(number) if np.isfinite(number) else None
            if whole is not None and span.min <= whole <= span.max:
                right.append(whole)
            else:
                right.append(span.max if span.min == 0 and number > 0 else span.min)
        np.testing.assert_array_equal(got, np.array(right, dtype))


def test_u64_beyond_i64_is_a_number_of_its_own(capsys):
    """It prints, converts and compares as what it is, and not as a negative number."""
    big = np.array([2**64 - 1, 2**63, 5], np.uint64)

    @st.function
    def everything(x, i):
        print(f"{x[0]} {x[0]:,} {x[0]:x} {x[0]:.3e} {x[2]:c}", x)
        return st.astype(x, st.f64), x // 3, x > 2**63, st.max(x), x[i]

    for mode in (contextlib.nullcontext, st.eager):
        with mode():
            as_f64, third, more, largest, at = map(np.asarray, everything(big, np.uint64(1)))
        assert as_f64.tolist() == [2.0**64, 2.0**63, 5.0]
        assert third.tolist() == [(2**64 - 1) // 3, 2**63 // 3, 1]
        assert (more.tolist(), largest, at) == ([True, False, False], 2**64 - 1, 2**63)
        line = "18446744073709551615 18,446,744,073,709,551,615 ffffffffffffffff 1.845e+19 \x05"
        array = "[18446744073709551615  9223372036854775808                    5]"
        assert capsys.readouterr().out == f"{line} {array}\n"


@pytest.mark.parametrize(
    "f",
    [lambda x, i: x[i], st.take, lambda x, i: st.dynamic_slice(x, i[0], 2), lambda x, i: st.take_along_axis(x, i, 0)],
)
def test_an_index_of_u64_does_not_count_from_the_end(f):
    x, i = np.arange(4.0), np.array([2**64 - 1], np.uint64)
    with pytest.raises(IndexError):
        st.function(f)(x, i)
    with st.eager(), pytest.raises(IndexError):
        f(st.asarray(x), st.asarray(i))
