"""Augmentations inside programs: what they draw, and what they compute of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged.data import normalize_channels, random_crop, random_flip
from tests.errors.said import refuses

IMAGES = np.random.default_rng(0).integers(1, 256, (64, 3, 6, 5)).astype(np.float32)


def both(f: Any, *args: Any) -> Any:
    """The result of the program, which eager mode has too."""
    staged = st.function(seed=3)(f)
    again = st.function(seed=3)(f)
    with st.eager():
        wanted = again(*args)
    got = staged(*args)
    np.testing.assert_array_equal(got, wanted)
    return got


def test_a_crop_is_a_window_of_its_own_image_at_any_place() -> None:
    made = both(lambda x: random_crop(x, (4, 3)), IMAGES)
    places = set()
    for image, window in zip(IMAGES, made, strict=True):
        found = [(i, j) for i in range(3) for j in range(3) if np.array_equal(image[:, i : i + 4, j : j + 3], window)]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) == 9  # each of them is drawn among 64 images


def test_a_padded_crop_has_zeros_outside() -> None:
    made = both(lambda x: random_crop(x, (6, 5), padding=2), IMAGES)
    padded = np.pad(IMAGES, ((0, 0), (0, 0), (2, 2), (2, 2)))
    places = set()
    for image, window in zip(padded, made, strict=True):
        found = [(i, j) for i in range(5) for j in range(5) if np.array_equal(image[:, i : i + 6, j : j + 5], window)]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) > 12


def test_a_flip_turns_whole_images() -> None:
    made = both(random_flip, IMAGES)
    turned = np.array([np.array_equal(new, old[:, :, ::-1]) for new, old in zip(made, IMAGES, strict=True)])
    same = np.array([np.array_equal(new, old) for new, old in zip(made, IMAGES, strict=True)])
    assert (turned ^ same).all() and 16 < turned.sum() < 48
    np.testing.assert_array_equal(both(lambda x: random_flip(x, 1.0), IMAGES), IMAGES[..., ::-1])
    np.testing.assert_array_equal(both(lambda x: random_flip(x, 0.0), IMAGES), IMAGES)


def test_images_are_normalised_by_channel() -> None:
    mean, std = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)
    shape = (3, 1, 1)
    wanted = (IMAGES / 255 - np.reshape(mean, shape)) / np.reshape(std, shape)
    made = both(lambda x: normalize_channels(x, mean, std), IMAGES.astype(np.uint8))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    made = both(lambda x: normalize_channels(x, mean, std), IMAGES)
    np.testing.assert_allclose(made, (IMAGES - np.reshape(mean, shape)) / np.reshape(std, shape), rtol=1e-5)


def test_a_gradient_goes_back_to_the_pixels_that_were_taken() -> None:
    f = st.function(seed=3)(st.grad(lambda x: st.sum(random_crop(random_flip(x), (4, 3)))))
    slope = f(IMAGES)
    assert set(np.unique(slope)) == {0.0, 1.0}
    assert slope.sum() == 64 * 3 * 12


def test_each_batch_of_a_loop_is_drawn_anew() -> None:
    @st.function(seed=1)
    def f(x: Any, n: Any) -> Any:
        total = st.zeros(64)
        for _ in st.range(n):
            total = total + st.sum(st.abs(random_flip(x) - x), axis=(1, 2, 3))
        return total

    once, often = f(IMAGES, 1), f(IMAGES, 20)
    assert (once == 0).any() and (often > 0).all()


def test_faults_name_the_line() -> None:
    for f, words in (
        (lambda x: random_crop(x, 7), "a window of 7 x 7 does not fit images of 6 x 5"),
        (lambda x: random_flip(x[0]), r"random_flip takes images \(n, channels, height, width\), got \(3, 6, 5\)"),
        (lambda x: normalize_channels(x, (0.5,), (0.5,)), "3 channels, 1 means and 1 standard"),
    ):
        with refuses(st.ShapeError, words) as caught:
            st.function(f)(IMAGES)
        assert "test_augment.py" in str(caught.value)
