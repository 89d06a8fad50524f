"""Loops whose bounds are at the ends of an integer dtype, compiled and eager, against Python's `range`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import staged as st

MOST = 2**63 - 1
LEAST = -(2**63)
BOUNDS = [
    (MOST - 2, MOST, 5),
    (MOST - 1, MOST, 2**62),
    (MOST - 3, MOST, 1),
    (LEAST + 2, LEAST, -5),
    (LEAST + 3, LEAST, -1),
    (0, MOST, 2**62),
    (0, LEAST, LEAST),
    (LEAST, MOST, MOST),
    (MOST, LEAST, -MOST),
    (3, 3, 7),
    (MOST, LEAST, 3),
    (LEAST, MOST, 1),
    (MOST, LEAST, -1),
    (LEAST, MOST, -3),
]


@st.function
def turns(a: int, b: int, c: int) -> Any:
    """The iterations of a loop with staged bounds, up to 9, and the sum of its indices."""
    count, total = 0, 0
    for i in st.range(a, b, c):
        count += 1
        total = (total // 2) + i // 4
        if count == 9:
            break
    return count, total


@st.function
def constant_turns() -> Any:
    """The same for bounds that are known while staging, one after the other."""
    found = []
    for a, b, c in BOUNDS:
        count, total = 0, 0
        for i in st.range(a, b, c):
            count += 1
            total = (total // 2) + i // 4
            if count == 9:
                break
        found.append((count, total))
    return found


def expected(bounds: tuple[int, int, int]) -> tuple[int, int]:
    count, total = 0, 0
    for i in itertools.islice(range(*bounds), 9):
        count, total = count + 1, total // 2 + i // 4
    return count, total


def test_loops_at_the_ends_of_i64() -> None:
    right = [expected(bounds) for bounds in BOUNDS]
    with st.eager():
        eager = [turns(*bounds) for bounds in BOUNDS]
        eager_constants = constant_turns()
    assert [tuple(map(int, one)) for one in eager] == right
    assert [tuple(map(int, one)) for one in eager_constants] == right
    assert [turns(*bounds) for bounds in BOUNDS] == right
    assert constant_turns() == right


@pytest.mark.parametrize("dtype", (np.uint8, np.int8, np.uint16, np.int32, np.uint32, np.uint64))
def test_ranges_of_other_dtypes_go_below_zero(dtype: Any) -> None:
    @st.function
    def counts(n: Any, k: Any) -> Any:
        found = st.zeros((5,), dtype=st.i64)
        for i in reversed(st.range(n)):
            found[0] += i + 1
        for i in reversed(st.range(k)):
            found[1] += i + 1
        for i, j in zip(st.range(k, n), st.range(n), strict=False):
            found[2] += i + j
        for _ in st.range(n, k, 3):
            found[3] += 1
        for i in reversed(st.range(n, k, 2)):
            found[4] += i
        return found

    cases = [(0, 3), (0, 0), (5, 2)] + ([(255, 253), (0, 255)] if dtype is np.uint8 else [])
    for n, k in cases:
        right = [
            sum(range(1, n + 1)),
            sum(range(1, k + 1)),
            sum(i + j for i, j in zip(range(k, n), range(n), strict=False)),
            len(range(n, k, 3)),
            sum(range(n, k, 2)),
        ]
        with st.eager():
            eager = counts(dtype(n), dtype(k))
        assert np.asarray(eager).tolist() == right
        assert counts(dtype(n), dtype(k)).tolist() == right


def test_a_step_that_cannot_pass_the_end_is_written_plainly() -> None:
    @st.function
    def plain(x: Any) -> Any:
        total = 0.0
        for i in st.range(0, 100, 3):
            total += x[i]
        for i in st.range(99, 0, -2):
            total += x[i]
        return total

    text = plain.stage(np.arange(100.0)).source
    assert "i += 3" in text and "-= 2" in text and "st_advance" not in text
