"""Python integers beside arrays of integers that are too narrow for them, where they are taken as they are: static ones,
staged ones, and lists. `tests/frontend/test_narrow_numbers.py` has those that must fit.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import staged as st

COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
DTYPES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
NUMBERS = (0, 1, -1, 127, 128, -128, -129, 255, 256, 257, 2**31, 2**32 + 1, -(2**40), 2**63 - 1, -(2**63))


def both_ways(x: Any, n: Any) -> list[Any]:
    return [c(x, n) for c in COMPARISONS] + [c(n, x) for c in COMPARISONS]


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_are_those_of_the_numbers(dtype: type) -> None:
    x = np.array([0, 1, 2, 100, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    staged = st.function(both_ways)
    for n in NUMBERS:
        expected = both_ways(x, n)  # NumPy 2 compares with the number as it is
        for found in (staged(x, n), both_ways(st.asarray(x), n)):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=str(n))
    known = st.function(lambda x: [both_ways(x, n) for n in NUMBERS])(x)
    for found, n in zip(known, NUMBERS, strict=True):
        for one, other in zip(found, both_ways(x, n), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(n))


def test_a_counter_that_has_outgrown_the_array_equals_none_of_it() -> None:
    @st.function
    def turns_until_found(x: Any) -> Any:
        n = 200
        while not st.any(x == n) and n < 600:
            n += 1
        return n

    assert turns_until_found(np.array([0, 1, 44], np.uint8)) == 600  # 256 + 44 is not 44
    assert turns_until_found(np.array([0, 1, 244], np.uint8)) == 244


def test_a_number_known_while_staging_that_does_not_fit_is_refused_where_it_would_be_an_element() -> None:
    x = np.array([1, 2], np.uint8)
    for refused in (lambda x: x + 256, lambda x: st.where(x > 1, x, -1), lambda x: st.minimum(x, 256)):
        with pytest.raises(st.DTypeError, match="does not fit u8"):
            st.function(refused)(x)


def test_places_and_bins_of_narrow_integers_may_be_more_than_these_have() -> None:
    ids = np.array([3, 200, 255], np.uint8)

    @st.function
    def program(ids: Any, n: Any) -> Any:
        found = st.isin(ids, [3, 300]), st.isin(ids, n), st.searchsorted(ids, 300), st.searchsorted(ids, n)
        return (*found, st.digitize(ids, [10, 300]), st.bincount(ids, length=256), st.segment_sum(st.ones(3), ids, 300))

    expected = [True, False, False], [False] * 3, 3, 3, [0, 1, 1], np.bincount(ids, minlength=256)
    for one, other in zip(program(ids, 300), (*expected, np.bincount(ids, minlength=300)), strict=True):
        np.testing.assert_array_equal(one, other)
