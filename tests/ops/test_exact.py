"""What ops mean at the borders of their dtypes: constants, arguments and eager mode give the same bits."""

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
    """What `astype` says: towards 0; out of range the smallest integer, without a sign the nearer end; NaN as the smallest."""
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
