"""Pooling against PyTorch: padding that counts or does not, windows over the edge, adaptive windows; refusals."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.errors.said import refusals
from tests.ops.against_torch import agree_compiled
from tests.torch_reference import reference

RNG = np.random.default_rng(8)
IMAGES = RNG.standard_normal((2, 3, 7, 6))
LINES = RNG.standard_normal((2, 3, 11))
VOLUMES = np.random.default_rng(9).standard_normal((1, 2, 5, 6, 4))

# function, its arguments, the input
POOLS = {
    "max_overlapping": ("max_pool2d", (3, 2, 1), {}, IMAGES),
    "max_ceil": ("max_pool2d", (2,), {"ceil_mode": True}, IMAGES),
    "max_ceil_padding": ("max_pool2d", (3, 2, 1), {"ceil_mode": True}, IMAGES),
    "max_ceil_long_stride": ("max_pool2d", (2, 3, 1), {"ceil_mode": True}, IMAGES),
    "max_dilated": ("max_pool2d", ((2, 3), (1, 2), 1, (3, 2)), {}, IMAGES),
    "max_dilated_ceil": ("max_pool2d", (2, 3, (1, 0), 2, True), {}, IMAGES),
    "max_dilated_apart": ("max_pool2d", (2, 2, 0, (1, 2)), {}, IMAGES),
    "max_1d_dilated": ("max_pool1d", (3, 2, 1), {"dilation": 2}, LINES),
    "max_3d_dilated": ("max_pool3d", (2, 2, 1), {"dilation": (2, 3, 1)}, VOLUMES),
    "avg": ("avg_pool2d", ((3, 2), (2, 1), (1, 0)), {}, IMAGES),
    "avg_without_padding": ("avg_pool2d", (3, 2, 1), {"count_include_pad": False}, IMAGES),
    "avg_ceil": ("avg_pool2d", (3, 2), {"ceil_mode": True}, IMAGES),
    "avg_ceil_padding": ("avg_pool2d", (3, 2, 1), {"ceil_mode": True}, IMAGES),
    "avg_ceil_without_padding": ("avg_pool2d", (4, 3, 2), {"ceil_mode": True, "count_include_pad": False}, IMAGES),
    "avg_ceil_long_stride": ("avg_pool2d", (2, 3, 1), {"ceil_mode": True}, IMAGES),
    "avg_divisor": ("avg_pool2d", ((3, 2), 2, 1), {"divisor_override": 5, "ceil_mode": True}, IMAGES),
    "avg_3d_divisor": ("avg_pool3d", (2, 2, 1), {"divisor_override": 3, "count_include_pad": False}, VOLUMES),
    "max_1d": ("max_pool1d", (3, 2, 1), {}, LINES),
    "max_1d_ceil": ("max_pool1d", (2,), {"ceil_mode": True}, LINES),
    "avg_1d": ("avg_pool1d", (3, 2, 1), {"count_include_pad": False}, LINES),
    "adaptive_avg_to_one": ("adaptive_avg_pool2d", (1,), {}, IMAGES),
    "adaptive_avg_even": ("adaptive_avg_pool2d", ((7, 2),), {}, IMAGES),
    "adaptive_avg_overlapping": ("adaptive_avg_pool2d", ((3, 4),), {}, IMAGES),
    "adaptive_avg_larger": ("adaptive_avg_pool2d", ((9, 4),), {}, IMAGES),
    "adaptive_avg_one_axis": ("adaptive_avg_pool2d", ((None, 4),), {}, IMAGES),
    "adaptive_max_overlapping": ("adaptive_max_pool2d", ((3, 4),), {}, IMAGES),
    "adaptive_max_larger": ("adaptive_max_pool2d", ((9, None),), {}, IMAGES),
    "adaptive_max": ("adaptive_max_pool2d", ((1, 3),), {}, IMAGES),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling_agrees_with_torch(name) -> None:
    function, arguments, options, x = POOLS[name]
    agree_compiled(
        lambda x: getattr(st, function)(x, *arguments, **options),
        lambda F, x: getattr(F, function)(x, *arguments, **options),
        x,
    )


def test_integers_pool_over_the_edge_too() -> None:
    x = np.arange(-15, 0).reshape(1, 1, 3, 5)
    y = st.max_pool2d(x, 2, ceil_mode=True)
    np.testing.assert_array_equal(y, [[[[-9, -7, -6], [-4, -2, -1]]]])


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_places_of_windows_with_steps_are_torchs(ceil_mode) -> None:
    def places(F, x):
        return F.max_pool2d(x, (3, 2), (1, 2), 1, (1, 3), ceil_mode, return_indices=True)[1]

    expected = reference(lambda torch, x: places(torch.nn.functional, torch.tensor(x)), IMAGES)
    for run in (st.function(lambda x: places(st, x)), lambda x: places(st, x)):
        np.testing.assert_array_equal(run(IMAGES), expected)


def test_a_batch_of_no_images_is_pooled_to_none() -> None:
    def pooled(x):
        return st.sum(st.max_pool2d(x, 3, stride=2, padding=1) + st.avg_pool2d(x, 3, stride=2, padding=1))

    with st.eager():
        assert st.value_and_grad(pooled)(IMAGES[:0])[1].shape == (0, 3, 7, 6)


def test_an_image_without_a_batch_keeps_its_axes() -> None:
    assert st.adaptive_avg_pool2d(IMAGES[0], (2, 4)).shape == (3, 2, 4)
    assert st.avg_pool1d(LINES[0], 2).shape == (3, 5)


test_bad_calls_are_refused_with_the_line = refusals(
    (lambda x: st.adaptive_avg_pool2d(x, 0), "`output_size` must be at least 1, got"),
    (lambda x: st.adaptive_max_pool2d(x, (2, 2, 2)), "`output_size` must be an int or a pair of ints"),
    (lambda x: st.adaptive_avg_pool3d(x, 0), "adaptive_avg_pool3d: `output_size` must be at least 1"),
    (lambda x: st.adaptive_avg_pool2d(x[0, 0], 2), r"input of \(N, C, H, W\)"),
    (lambda x: st.max_pool2d(x, 9), "larger"),
    (lambda x: st.max_pool2d(x > 0, 2, ceil_mode=True), "needs numbers"),
    (lambda x: st.max_pool2d(x, 0, ceil_mode=True), "do not go"),
    (lambda x: st.max_pool2d(x, 2, dilation=0), "do not go"),
    (lambda x: st.max_pool2d(x, 2, dilation=(7, 1)), "larger"),
    (lambda x: st.max_pool2d(x[:, :, :1], (2, 1), padding=(1, 0), dilation=2), "padding alone"),
    (lambda x: st.max_pool2d(x[:, :, :1], (3, 1), 3, (1, 0), 2, ceil_mode=True), "padding alone"),
    (lambda x: st.avg_pool2d(x, 2, padding=2), "half the kernel"),
    (lambda x: st.max_pool1d(x, 2), r"input of \(N, C, L\)"),
    (lambda x: st.avg_pool1d(x[0], (2, 2)), "`kernel_size` must be an int"),
    given=(IMAGES,),
)
