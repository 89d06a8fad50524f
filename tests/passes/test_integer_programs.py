"""Whole programs of integers that meet the ends of their ranges, compiled and eager, against Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st


def both(f: Any, *arguments: Any) -> list[Any]:
    with st.eager():
        eager = f(*arguments)
    return [f(*arguments), eager]


def test_extremes_of_loop_counters() -> None:
    @st.function
    def extremes(x: Any) -> Any:
        total, warm, most = 0, 0.0, 0
        out = st.zeros((4,), dtype=st.f64)
        for s in st.range(3):
            total += min(s, 5)
            warm += min(s, 100) / 100
            most += max(-2, s - 5)
            out[min(s + 2, 3)] += x[min(s + 1, 9)]
        steps = 0
        for i in st.range(4):
            steps = min(100, i + 1)
        return total, warm, most, out, steps

    for total, warm, most, out, steps in both(extremes, np.arange(10.0)):
        assert (total, most, steps) == (3, -2 - 2 - 2, 4)
        assert warm == pytest.approx(0.03)
        np.testing.assert_array_equal(out, [0, 0, 1, 5])


def test_an_index_that_wraps_around() -> None:
    @st.function
    def wrapped(x: Any) -> Any:
        found = st.zeros((4,), dtype=st.f64)
        for i in st.range(4):
            found[i] = x[(i * 2**62) // 2**60]
        return found

    for found in both(wrapped, np.arange(16.0)):
        np.testing.assert_array_equal(found, [0, 4, 8, 12])  # 2^63 wraps to -2^63: the index -8, from the end


def test_an_index_below_zero_in_u32_is_out_of_range() -> None:
    @st.function
    def outside(x: Any) -> Any:
        found = 0.0
        for i in st.range(4):
            found += x[st.maximum(st.astype(i, st.u32) - 1, 0)]
        return found

    for run in (lambda: outside(np.arange(16.0)), lambda: both(outside, np.arange(16.0))):
        with pytest.raises(IndexError, match="index 4294967295 is out of range"):
            run()


def test_extremes_of_what_wraps_around() -> None:
    @st.function
    def wrapping() -> Any:
        u, q = st.zeros((4,), dtype=st.u32), st.zeros((4,), dtype=st.i32)
        for i in st.range(4):
            u[i] = st.maximum(st.astype(i, st.u32) - 2, 1)
            q[i] = st.minimum((st.astype(i, st.i32) + 1) * 2000000000, 0)
        return u, q

    for u, q in both(wrapping):
        np.testing.assert_array_equal(u, [4294967294, 4294967295, 1, 1])
        np.testing.assert_array_equal(q, [0, -294967296, 0, -589934592])


def test_constants_that_rules_write_are_those_of_the_dtype() -> None:
    @st.function
    def constants(x: Any) -> Any:
        y = -x * 2654435761
        return (
            y > 5,
            st.astype(y, st.i64),
            y,
            st.sum(st.full((300,), 3, dtype=st.u8), dtype=st.u8),
            st.sum(st.full((70000, 70000), 3, dtype=st.u32), dtype=st.u32),
        )

    found = constants(np.array(1, np.uint32))
    assert [int(one) for one in found] == [1, 1640531535, 1640531535, 900 % 256, 3 * 70000 * 70000 % 2**32]


def test_integers_that_a_float_has_not() -> None:
    @st.function
    def lost(n: int) -> Any:
        return int(float(n)) - n, st.astype(st.astype(n, st.f64), st.f32)

    for difference, narrow in both(lost, 2**53 + 1):
        assert difference == -1
        assert float(narrow) == 2.0**53
    for _, narrow in both(lost, 2**24 + 2**53 + 2**29 + 1):  # a tie of f32 only after it is rounded to f64
        assert float(narrow) == float(np.float32(np.float64(2**24 + 2**53 + 2**29 + 1)))
