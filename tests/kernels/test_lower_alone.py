"""Kernels with a loop nest of their own, at the border of what their operands may be."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.runtime.compiler import CompileOptions

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


def test_a_pool_whose_places_alone_are_needed_has_no_unused_values():
    """Under a checkpoint the largest values are made again for their places; gcc says where nothing reads them."""

    def gradient(x, w):
        return st.vjp(st.checkpoint(lambda x: st.max_pool2d(x, 2)), x)[1](w)[0]

    staged = st.function(gradient)
    staged.options = CompileOptions("2", (), ("-Wall", "-Wextra", "-Werror"))
    for side in (2, 20):
        x = np.arange(2.0 * side * side, dtype=np.float32).reshape(1, 2, side, side)
        right = np.zeros_like(x)
        right[:, :, 1::2, 1::2] = 1.0
        np.testing.assert_array_equal(staged(x, np.ones((1, 2, side // 2, side // 2), np.float32)), right)
