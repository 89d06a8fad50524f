"""Sizes that do not fit a layer stop the program, with the line and the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st


def _refused(function: Any, dims: Any, good: Any, bad: Any, match: str) -> None:
    dynamic = st.function(dims=dims)(function)
    dynamic(*good)
    with pytest.raises(ValueError, match=match):
        dynamic(*bad)
    dynamic(*good)
    assert len(dynamic.programs) == 1


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_an_image_must_be_as_large_as_the_kernel(rows: int) -> None:
    def f(x, w):
        return st.conv2d(x, w)

    w = np.ones((2, 2, 3, 3), np.float32)
    images = [np.ones((1, 2, height, 4), np.float32) for height in (4, rows)]
    _refused(f, {"x": (1, 2, "H <= 8", 4)}, (images[0], w), (images[1], w), f"larger than the padded input.*H is {rows}")


def test_an_image_must_be_as_large_as_a_window() -> None:
    def f(x):
        return st.max_pool2d(x, 3), st.avg_pool2d(x, 2)

    images = [np.ones((1, 2, 4, width), np.float32) for width in (5, 2)]
    _refused(f, {"x": (1, 2, 4, "W <= 8")}, images[:1], images[1:], "larger than the padded input.*W is 2")


def test_recurrent_layers_need_a_step() -> None:
    def f(x, w_ih, w_hh):
        return st.rnn(x, None, w_ih, w_hh)[0]

    weights = np.ones((3, 2), np.float32), np.ones((3, 3), np.float32)
    steps = [np.ones((count, 2, 2), np.float32) for count in (4, 0)]
    dims = {"x": ("T <= 8", 2, 2)}
    _refused(f, dims, (steps[0], *weights), (steps[1], *weights), "at least one step.*T is 0")
