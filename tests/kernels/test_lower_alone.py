"""Kernels with a loop nest of their own, at the border of what their operands may be."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.runtime.options import CompileOptions
from tests.passes.borders import same_bits

X = np.arange(3, dtype=np.float32)


def constants_in_constants(x, i):
    """The zero of which zeros are made, put into them; ones, and other places, beside it."""
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


IMAGES = np.random.default_rng(4).integers(-1, 2, (2, 2, 7, 6)).astype(np.float32)
IMAGES[0, 0, :2, :2] = [[-0.0, 0.0], [0.0, -0.0]]
IMAGES[0, 1, 2, 2:4] = np.nan
IMAGES[1] = [[[-np.inf]], [[-np.inf]]]
IMAGES[1, 1, 3, 3] = np.nan
WINDOWS = ((2, 2, 0), (2, 2, 1), (3, 2, 0), (3, 1, 1), (2, 1, 0), (2, 3, 0))
"""(kernel, stride, padding): side by side, padded, overlapping, with gaps between them."""


@st.function
def pooled(x):
    found = ()
    for kernel, stride, padding in WINDOWS:
        largest, pull = st.vjp(lambda x, k=kernel, s=stride, p=padding: st.max_pool2d(x, k, s, p), x)
        found += (largest, pull(st.reshape(st.arange(1, largest.size + 1, dtype=st.f32), largest.shape))[0])
    return found


def window_by_window(image, kernel, stride, padding):
    """The largest of each window and its place: the first of ties, the first NaN."""
    height, width = image.shape
    rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in image.shape)
    values, places = np.zeros((rows, columns), image.dtype), np.zeros((rows, columns), int)
    for i, j in np.ndindex(rows, columns):
        top, left = i * stride - padding, j * stride - padding
        inside = [
            (y, x)
            for y in range(max(top, 0), min(top + kernel, height))
            for x in range(max(left, 0), min(left + kernel, width))
        ]
        numbers = [image[at] for at in inside]
        nans = [number for number, value in enumerate(numbers) if np.isnan(value)]
        best = nans[0] if nans else numbers.index(max(numbers))
        values[i, j], places[i, j] = numbers[best], inside[best][0] * width + inside[best][1]
    return values, places


def test_the_first_of_ties_and_the_first_nan_is_the_largest_of_a_window():
    found = iter(pooled(IMAGES))
    for window in WINDOWS:
        values, slopes = next(found), next(found)
        pairs = [[window_by_window(image, *window) for image in images] for images in IMAGES]
        right = np.array([[values for values, _ in images] for images in pairs])
        assert same_bits(values, right), window
        cotangents = np.arange(1, right.size + 1, dtype=np.float32).reshape(right.shape)
        d_images = np.zeros((2, 2, 42), np.float32)
        for image in np.ndindex(2, 2):
            np.add.at(d_images[image], pairs[image[0]][image[1]][1].ravel(), cotangents[image].ravel())
        np.testing.assert_array_equal(slopes, d_images.reshape(IMAGES.shape), err_msg=str(window))
