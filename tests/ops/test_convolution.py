"""Convolutions against PyTorch: groups, dilation, depthwise, transposed, in one dimension; refusals."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.errors.said import refusals
from tests.ops.against_torch import agree_compiled

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _same_numbers_in_every_order(monkeypatch):
    """A test draws the same numbers, whatever ran before in this process."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(7))

# input, weight, what conv2d is asked for
CONVOLUTIONS = {
    "dilation": ((2, 3, 9, 8), (4, 3, 3, 2), {"dilation": (2, 3)}),
    "dilation_stride_padding": ((1, 2, 11, 9), (3, 2, 3, 3), {"dilation": 2, "stride": (2, 1), "padding": (2, 1)}),
    "groups": ((2, 6, 7, 7), (9, 2, 3, 3), {"groups": 3, "padding": 1}),
    "groups_stride": ((2, 4, 9, 8), (8, 2, 3, 3), {"groups": 2, "stride": 2}),
    "groups_dilation": ((1, 4, 9, 9), (4, 2, 3, 3), {"groups": 2, "dilation": 2, "padding": (1, 2)}),
    "depthwise": ((2, 6, 8, 9), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    "depthwise_stride": ((2, 5, 9, 9), (5, 1, 5, 5), {"groups": 5, "padding": 2, "stride": 2}),
    "depthwise_two_each": ((2, 3, 6, 7), (6, 1, 3, 2), {"groups": 3}),
    "pointwise_groups": ((2, 8, 5, 5), (8, 4, 1, 1), {"groups": 2}),
    "dilation_same": ((1, 2, 7, 7), (2, 2, 3, 3), {"dilation": 2, "padding": "same"}),
    "not_square": ((2, 2, 12, 5), (3, 2, 5, 2), {"stride": (3, 1), "padding": (0, 1)}),
}
TRANSPOSED = {
    "plain": ((2, 3, 4, 5), (3, 2, 3, 3), {}),
    "stride": ((2, 3, 4, 5), (3, 2, 3, 2), {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
    "groups": ((1, 4, 3, 4), (4, 3, 2, 3), {"stride": (2, 3), "groups": 2}),
    "dilation": ((1, 2, 4, 3), (2, 2, 3, 3), {"dilation": (2, 1), "padding": (1, 0), "stride": (1, 2)}),
    "padded_beyond_the_stride": (
        (1, 2, 4, 3), (2, 2, 3, 3), {"dilation": (4, 3), "padding": (2, 0), "stride": (1, 2), "output_padding": (3, 2)}
    ),
}


def operands(x, w, outputs):
    return tuple(RNG.standard_normal(shape) for shape in (x, w, (outputs,)))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d_agrees_with_torch(name) -> None:
    x, w, options = CONVOLUTIONS[name]
    agree_compiled(
        lambda x, w, b: st.conv2d(x, w, b, **options),
        lambda F, x, w, b: F.conv2d(x, w, b, **options),
        *operands(x, w, w[0]),
    )


@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv_transpose2d_agrees_with_torch(name) -> None:
    x, w, options = TRANSPOSED[name]
    agree_compiled(
        lambda x, w, b: st.conv_transpose2d(x, w, b, **options),
        lambda F, x, w, b: F.conv_transpose2d(x, w, b, **options),
        *operands(x, w, w[1] * options.get("groups", 1)),
    )


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "dilation": 2}, {"groups": 2, "padding": (1,)}, {"padding": "same"}]
)
def test_conv1d_agrees_with_torch(options) -> None:
    x, w = (2, 4, 11), (6, 4 // options.get("groups", 1), 3)
    agree_compiled(
        lambda x, w, b: st.conv1d(x, w, b, **options),
        lambda F, x, w, b: F.conv1d(x, w, b, **options),
        *operands(x, w, 6),
    )


def test_an_image_without_a_batch_keeps_its_axes() -> None:
    x, w = RNG.standard_normal((3, 6, 6)), RNG.standard_normal((3, 2, 3, 3))
    assert st.conv_transpose2d(x, w).shape == (2, 8, 8)
    assert st.conv1d(x[0], w[:, 0, 0, :][:, None].repeat(6, 1)).shape == (3, 4)
    for layer in (st.nn.Conv2d, st.nn.ConvTranspose2d):
        layer = layer(3, 4, 1, dtype=st.f64)
        np.testing.assert_array_equal(layer(x), np.asarray(layer(x[None]))[0])


test_bad_calls_are_refused_with_the_line = refusals(
    (lambda x, w: st.conv_transpose2d(x, w, output_padding=1), "below neither the stride"),
    (lambda x, w: st.conv_transpose2d(x, w, padding=9), "leaves nothing"),
    (lambda x, w: st.conv3d(x[None], w[None]), r"got f32 \(1, 2, 3, 5, 5\) and f32 \(1, 3, 3, 3, 3\)"),
    (lambda x, w: st.conv2d(x, w, groups=1.0), "do not go"),
    (lambda x, w: st.conv_transpose2d(x, w[:2]), "does not fit"),
    (lambda x, w: st.conv2d(x, w, groups=2), "channels"),
    (lambda x, w: st.conv2d(x, w, dilation=0), "do not go"),
    (lambda x, w: st.conv2d(x, w, np.ones(1, np.float32)), r"one number per output channel, 3, got f32 \(1,\)"),
    (lambda x, w: st.conv2d(x, w, 2.0), "one number per output channel"),
    (lambda x, w: st.conv_transpose2d(x, w, np.ones((3, 1), np.float32)), "one number per output channel"),
    (lambda x, w: st.conv2d(x, w, padding="same", stride=2), "does not go"),
    (lambda x, w: st.conv1d(x, w), "conv1d needs a 3-dimensional input"),
    (lambda x, w: st.conv1d(x[0], w[0], stride=(1, 2)), "`stride` must be an int"),
    given=(np.zeros((2, 3, 5, 5), np.float32), np.zeros((3, 3, 3, 3), np.float32)),
)
