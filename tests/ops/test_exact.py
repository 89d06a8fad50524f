"""The meaning of ops at the borders of their dtypes: constants, arguments and eager mode give the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import staged as st
from tests.passes.borders import INTEGERS, same_bits

NUMBERS = (
    0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.5, 128.0, 255.0, 255.9, 256.0, 300.0, -1.0, -300.0, 2147483520.0, 2147483648.0,
    -2147483648.0, -2147483904.0, 4294967040.0, 4294967296.0, 9.2e18, 2.0**63, -(2.0**63), 1e30, -1e30,
    math.inf, -math.inf, math.nan,
)  # fmt: skip


def whole(x: float, dtype: Any) -> int:
    """The rule of `astype`: towards 0; out of range the smallest integer, without a sign the nearer end; NaN as the smallest."""
    bits = 8 * dtype.size
    low, high = (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if math.isnan(x):
        return low
    number = math.trunc(max(min(x, 2.0**100), -(2.0**100)))
    if low <= number <= high:
        return number
    return high if dtype.kind == "u" and number > high else low


@pytest.mark.parametrize("source", (np.float32, np.float64))
def test_floats_that_an_integer_dtype_has_not(source: Any) -> None:
    @st.function
    def convert(x: Any, s: Any) -> Any:
        arrays = tuple(st.astype(x, dtype) for dtype in INTEGERS)
        scalars = tuple(tuple(st.astype(s[number], dtype) for number in range(len(NUMBERS))) for dtype in INTEGERS)
        dtype = {np.float32: st.f32, np.float64: st.f64}[source]
        known = tuple(tuple(st.astype(st.asarray(n, dtype=dtype), d) for n in NUMBERS) for d in INTEGERS)
        return arrays, scalars, known

    x = np.array(NUMBERS, source)
    with st.eager():
        eager = convert(np.tile(x, 5), x)
    for arrays, scalars, known in (convert(np.tile(x, 5), x), eager):
        for dtype, array, row, constants in zip(INTEGERS, arrays, scalars, known, strict=True):
            right = [whole(float(number), dtype) for number in x]
            assert np.asarray(array).tolist() == right * 5, dtype
            assert [int(one) for one in row] == right, dtype
            assert [int(one) for one in constants] == right, dtype


def test_clip_between_bounds_that_cross_is_the_upper_one() -> None:
    @st.function
    def clipped(x: Any, low: Any, high: Any) -> Any:
        return st.clip(x, 6.0, 3.0), st.clip(x, low, high), st.clip(x, low, None), st.clip(x, None, high)

    x = np.array([1.0, 5.0, 9.0, np.nan, -0.0])
    with st.eager():
        eager = clipped(x, 6.0, 3.0)
    for found in (clipped(x, 6.0, 3.0), eager):
        right = [np.clip(x, 6.0, 3.0), np.clip(x, 6.0, 3.0), np.clip(x, 6.0, None), np.clip(x, None, 3.0)]
        for one, other in zip(found, right, strict=True):
            assert same_bits(one, other)


def test_powers_and_sums_at_zeros_of_both_signs() -> None:
    @st.function
    def zeros(x: Any, m: Any) -> Any:
        return x**0.5, x**-0.5, st.sum(m, axis=1), st.sum(m[0]), 0.0 - x, x + 0.0, st.atan2(0.0 - x, -1.0), -(x - x)

    x = np.array([0.0, -0.0])
    m = np.array([[-0.0], [0.0]])
    right = (
        np.array([math.pow(number, 0.5) for number in x]),
        np.array([np.inf, np.inf]),
        np.zeros(2),
        np.array(0.0),
        np.zeros(2),
        np.zeros(2),
        np.full(2, np.pi),
        -np.zeros(2),
    )
    with st.eager():
        eager = zeros(x, m)
    for found in (zeros(x, m), eager):
        for number, (one, other) in enumerate(zip(found, right, strict=True)):
            assert same_bits(one, other), (number, one, other)


REFUSED = {
    "a number": lambda x: st.asarray(300, dtype=st.u8) + x,
    "a number below": lambda x: st.asarray(-1, dtype=st.u8) + x,
    "a NaN": lambda x: st.asarray(math.nan, dtype=st.i64) + x,
    "an array of a number": lambda x: st.full((1,), 300, dtype=st.u8) + x,
    "an array of NaN": lambda x: st.full((1,), math.nan, dtype=st.u8) + x,
    "a frame": lambda x: st.pad(x, 1, value=300),
    "a frame of infinities": lambda x: st.pad(x, 1, value=math.inf),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_number_that_an_integer_dtype_has_not_is_refused(case: str) -> None:
    x = np.array([1], np.uint8)
    with pytest.raises(st.DTypeError, match="does not fit"):
        st.function(REFUSED[case])(x)
    with st.eager(), pytest.raises(st.DTypeError, match="does not fit"):
        REFUSED[case](x)


def test_extremes_of_zeros_of_both_signs() -> None:
    """Of 0.0 and -0.0 the second one, in vectors as in their last elements and in scalars."""

    @st.function
    def extremes(x: Any, y: Any, s: Any) -> Any:
        z, n = st.asarray(0.0, dtype=st.f64), st.asarray(-0.0, dtype=st.f64)
        return (
            *(f(a, b) for f in (st.maximum, st.minimum) for a, b in ((x, y), (x, s), (s, x), (x, 0.0), (0.0, x), (x, -0.0))),
            *(f(a, b) for f in (st.maximum, st.minimum) for a, b in ((z, n), (n, z), (x[0], x[1]), (x[6], x[0]), (x[:7], 0.0))),
        )  # fmt: skip

    def right(x: Any, y: Any, s: Any) -> Any:
        z, n = 0.0, -0.0
        pairs = [(x, y), (x, s), (s, x), (x, z), (z, x), (x, n)]
        few = [(z, n), (n, z), (x[0], x[1]), (x[6], x[0]), (x[:7], z)]
        found = [second_at_ties(f, *pair) for f in (np.maximum, np.minimum) for pair in pairs]
        return found + [second_at_ties(f, *pair) for f in (np.maximum, np.minimum) for pair in few]

    def second_at_ties(f: Any, a: Any, b: Any) -> Any:
        return np.where(np.equal(a, b), b, f(a, b))

    numbers = [0.0, -0.0, math.nan, 1.0, -1.0]
    x = np.array([a for a in numbers for _ in numbers] * 3)
    y = np.array([b for _ in numbers for b in numbers] * 3)
    for s in (0.0, -0.0):
        with st.eager():
            eager = extremes(x, y, np.float64(s))
        for found in (extremes(x, y, np.float64(s)), eager):
            for number, (one, other) in enumerate(zip(found, right(x, y, s), strict=True)):
                assert same_bits(one, other), (s, number, one, other)
