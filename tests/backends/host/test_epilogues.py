"""The code that finishes tiles: its indices, and its loops over the columns that no vector covers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import staged as st


def array(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def source_of(function: Callable[..., object], *args: np.ndarray) -> str:
    """The text of a program with vectors of 8 elements."""
    return st.function(function, target="x86-64-v3").stage(*args).source


def convolution(x, weight):
    return st.relu(st.conv2d(x, weight, padding=1))


def convolution_of_pixels(x, weight):
    return st.relu(st.conv2d(x, weight))


def gradient_of_images(x, weight):
    return st.grad(lambda x: st.sum(st.conv2d(x, weight, padding=1) ** 2.0))(x) * 0.5


def gradient_of_weights(x, weight):
    return st.grad(lambda weight: st.sum(st.conv2d(x, weight, padding=1) * x))(weight) * 0.5


@pytest.mark.parametrize(
    ("function", "whole", "ragged"),
    [
        (convolution, ((2, 3, 8, 8), (5, 3, 3, 3)), ((2, 3, 6, 6), (5, 3, 3, 3))),
        (convolution_of_pixels, ((2, 3, 8, 8), (5, 3, 1, 1)), ((2, 3, 6, 6), (5, 3, 1, 1))),
        (gradient_of_images, ((2, 8, 8, 8), (16, 8, 3, 3)), ((2, 8, 6, 6), (16, 8, 3, 3))),
        (gradient_of_weights, ((2, 8, 8, 8), (8, 8, 3, 3)), ((2, 3, 8, 8), (3, 3, 3, 3))),
    ],
)
def test_vectors_of_columns_are_whole_if_they_cover_all(
    function: Callable[..., object], whole: tuple, ragged: tuple
) -> None:
    for shapes, has_rest in ((whole, False), (ragged, True)):
        args = [array(*shape) for shape in shapes]
        source = source_of(function, *args)
        assert ("cols - s" in source) == has_rest and "; ++s)" not in source
        np.testing.assert_allclose(st.function(function, target="x86-64-v3")(*args), function(*args), rtol=2e-4)


def test_the_start_of_a_row_is_computed_once() -> None:
    def scaled(a, b, scale, bias):
        return (a @ b + bias) * scale

    found = source_of(scaled, array(20, 30), array(30, 27), array(20, 27), array(27))
    assert found.count("(row + r) * 27 + col") == found.count("const int64_t row_start = ") == 1
    assert "(scale + row_start + s, cols - s)" in found and "(bias + col + s, cols - s)" in found
