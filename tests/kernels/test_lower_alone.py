"""Kernels with a loop nest of their own, at the border of what their operands may be."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

X = np.arange(3, dtype=np.float32)


def constants_in_constants(x, i):
    """What is put into zeros is the zero that they are made of; ones, and other places, beside it."""
    zero = st.zeros((3,))
    zero[1] = 0.0
    found = st.zeros((3,))
    found[i] = 0.0
    square = st.zeros((3, 3))
    square[1, 1] = 0.0
    rows = st.zeros((2, 3))
    rows[i] = 0.0
    part = st.zeros((3,))
    part[0:2] = 0.0
    ones = st.ones((4,), dtype=st.i32)
    ones[2] = 1
    flags = st.zeros((4,), dtype=st.bool_)
    flags[1] = False
    flags[2] = True
    added = st.zeros((3,))
    added[i] += 0.0
    return zero + x, found, square, rows, part, ones, flags, added, st.pad(st.zeros((1,)), 1)


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_a_constant_is_put_into_an_array_made_of_it(way):
    def run():
        return st.function(constants_in_constants)(X, 1)

    if way == "eager":
        with st.eager():
            found = run()
    else:
        found = run()
    right = (X, np.zeros(3), np.zeros((3, 3)), np.zeros((2, 3)), np.zeros(3), np.ones(4, np.int32))
    right = (*right, np.array([False, False, True, False]), np.zeros(3), np.zeros(3))
    for got, wanted in zip(found, right, strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted)
