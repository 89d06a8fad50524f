"""Functions that pad, convolve, resize and sample against PyTorch's and NumPy's: eagerly and compiled, with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.ops.against_torch import agree_compiled

RNG = np.random.default_rng(12)
LINES, IMAGES = RNG.standard_normal((3, 4, 11)), RNG.standard_normal((2, 4, 9, 8))
VOLUMES = RNG.standard_normal((2, 4, 6, 5, 7))
FLAT, SPATIAL = RNG.uniform(-1.6, 1.6, (2, 5, 6, 2)), RNG.uniform(-1.6, 1.6, (2, 3, 2, 4, 3))
DEEP, BIAS = RNG.standard_normal((6, 4, 3, 2, 3)), RNG.standard_normal(6)

# function, its arguments, options, the arrays
CASES = {
    **{
        f"resized_{mode}_{number}": ("interpolate", (), {"mode": mode, **how}, (x,))
        for mode, x in (
            ("nearest", IMAGES), ("nearest-exact", LINES), ("linear", LINES), ("bilinear", IMAGES), ("bicubic", IMAGES),
            ("area", IMAGES), ("trilinear", VOLUMES),
        )
        for number, how in enumerate(
            ({"size": 13}, {"scale_factor": 2}, {"scale_factor": 1.7}, {"scale_factor": 0.6, "recompute_scale_factor": True})
        )
    },
    **{
        f"resized_{mode}_corners": ("interpolate", (), {"mode": mode, "size": 12, "align_corners": True}, (x,))
        for mode, x in (("linear", LINES), ("bilinear", IMAGES), ("bicubic", IMAGES), ("trilinear", VOLUMES))
    },
    **{
        f"sampled_{mode}_{padding}_{corners}_{x.ndim}": ("grid_sample", (mode, padding, corners), {}, (x, grid))
        for x, grid in ((IMAGES, FLAT), (VOLUMES, SPATIAL))
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
        if mode == "bilinear" or (not corners if mode == "nearest" else x is IMAGES)
    },
    "grid": ("affine_grid", ((2, 3, 4, 5), False), {}, (RNG.standard_normal((2, 2, 3)),)),
    "grid_of_corners": ("affine_grid", ((2, 3, 4, 5, 1), True), {}, (RNG.standard_normal((2, 3, 4)),)),
    **{
        f"conv3d_{number}": ("conv3d", (), options, (VOLUMES, DEEP[:, : 4 // options.get("groups", 1)], BIAS))
        for number, options in enumerate(
            (
                {}, {"stride": 2, "padding": 1}, {"stride": (1, 2, 1), "padding": (1, 0, 2), "dilation": (2, 1, 2)},
                {"groups": 2}, {"padding": "same"},
            )
        )
    },
    **{
        f"conv_transpose3d_{number}": ("conv_transpose3d", (), options, (VOLUMES, DEEP[:4, :3], bias))
        for number, (options, bias) in enumerate(
            (
                ({}, BIAS[:3]), ({"stride": 2, "padding": 1, "output_padding": (1, 0, 1)}, BIAS[:3]),
                ({"stride": (1, 2, 1), "dilation": (2, 1, 2), "groups": 2}, BIAS),
                ({"padding": 1, "stride": 1, "dilation": (3, 1, 4), "output_padding": (2, 0, 3)}, BIAS[:3]),
            )
        )
    },
    "conv_transpose1d": ("conv_transpose1d", (None, 2, 1, 1, 2, 2), {}, (LINES, RNG.standard_normal((4, 3, 3)))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_function_agrees_with_torch(name) -> None:
    function, arguments, options, arrays = CASES[name]
    agree_compiled(
        lambda *xs: getattr(st, function)(*xs, *arguments, **options),
        lambda F, *xs: getattr(F, function)(*xs, *arguments, **options),
        *arrays,
    )


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("widths", [1, (2, 1), ((0, 3), (7, 9)), ((11, 0), (1, 1))])
def test_a_mode_of_pad_is_numpys_for_any_width(mode, widths) -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(st.function(lambda x: st.pad(x, widths, mode))(x), np.pad(x, widths, mode=mode))
    np.testing.assert_array_equal(st.pad(x[:1], widths, mode), np.pad(x[:1], widths, mode=mode))
    slope = st.grad(lambda x: st.sum(st.pad(x, widths, mode)))(x)
    assert slope.sum() == np.pad(x, widths, mode=mode).size


def test_numpys_pad_of_an_array_of_ours_has_its_modes() -> None:
    x = st.asarray(np.arange(5.0))
    np.testing.assert_array_equal(np.pad(x, 2, "reflect"), [2, 1, 0, 1, 2, 3, 4, 3, 2])


def test_integers_and_bools_keep_their_dtype() -> None:
    x = np.arange(16, dtype=np.int32).reshape(1, 1, 4, 4)
    assert np.asarray(st.interpolate(x, scale_factor=2)).dtype == np.int32
    assert np.asarray(st.pad(x > 3, pad=(1, 1), mode="circular")).dtype == bool
    assert np.asarray(st.unfold(x, 2)).dtype == np.int32


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_at_a_place_that_is_nan_there_is_nan(mode: str, padding_mode: str) -> None:
    grid = np.array([np.nan, 0.5, 0.0, 0.0]).reshape(1, 1, 2, 2)
    y = np.asarray(st.grid_sample(np.ones((1, 1, 3, 3)), grid, mode, padding_mode, align_corners=True))
    np.testing.assert_array_equal(y.ravel(), [np.nan, 1.0])


def test_a_place_that_is_far_away_is_beyond_the_image() -> None:
    grid = np.array([1e30, 0.0, -np.inf, 0.0]).reshape(1, 1, 2, 2)
    y = np.asarray(st.grid_sample(np.ones((1, 1, 3, 3)), grid, align_corners=True))
    np.testing.assert_array_equal(y, np.zeros((1, 1, 1, 2)))


def test_the_slope_of_a_norm_of_zeros_is_zero() -> None:
    assert not np.asarray(st.grad(lambda x: st.sum(st.lp_pool2d(x, 3, 2)))(np.zeros((1, 1, 4, 4)))).any()


def test_cosine_similarity_broadcasts_before_it_takes_norms():
    x, y = np.random.default_rng(0).normal(size=(1, 2, 3)), np.random.default_rng(1).normal(size=(2, 1, 3))
    a, b = np.broadcast_arrays(x, y)
    expected = np.sum(a * b, -2) / (np.linalg.norm(a, axis=-2) * np.linalg.norm(b, axis=-2))
    np.testing.assert_allclose(st.cosine_similarity(x, y, axis=-2), expected, rtol=1e-12)


def test_fractional_pools_of_no_images():
    assert st.fractional_max_pool3d(np.zeros((0, 1, 4, 5, 4), np.float32), 2, 2).shape == (0, 1, 2, 2, 2)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("dtype", ["i16", "i64", "u64"])
def test_fractional_windows_of_integers_are_drawn_in_the_default_float(rank, dtype):
    image = np.arange(4 * 11**rank).reshape(1, 4, *(11,) * rank)

    def places(x):
        st.seed(3)
        return getattr(st, f"fractional_max_pool{rank}d")(x, 3, 6, return_indices=True)[1]

    for run in (places, st.function(places)):
        integers, floats = (np.asarray(run(st.asarray(image, dtype=kind))) for kind in (dtype, "f32"))
        np.testing.assert_array_equal(integers, floats)


def test_an_axis_that_is_not_there_is_an_index_error_and_a_shape_error() -> None:
    for call in (lambda x: st.expand_dims(x, 4), lambda x: st.sum(x, -3), lambda x: st.swapaxes(x, 0, 2)):
        with pytest.raises(IndexError, match="does not exist") as caught:
            st.function(call)(np.ones((2, 3)))
        assert isinstance(caught.value, st.ShapeError)


def test_shapes_and_axes_are_tuples_by_name_or_stand_one_after_the_other() -> None:
    x = st.asarray(np.arange(6.0).reshape(2, 3))
    for made in (st.reshape(x, shape=(3, 2), copy=True), st.reshape(x, 3, 2), x.reshape(3, -1), x.reshape([3, 2])):
        np.testing.assert_array_equal(made, np.arange(6.0).reshape(3, 2))
    for made in (st.permute_dims(x, axes=(1, 0)), st.permute_dims(x, 1, 0), x.permute_dims((-1, 0))):
        np.testing.assert_array_equal(made, np.asarray(x).T)
    assert st.reshape(st.ones((1, 1))).shape == () == st.permute_dims(st.ones(()), ()).shape
