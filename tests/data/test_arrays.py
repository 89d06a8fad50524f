"""Digits, normalisation and splits."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from staged.data import digits, normalize, train_test_split
from staged.errors import DataError, DependencyError


@pytest.fixture
def needs_sklearn(library: Callable[[str], object]) -> None:
    library("sklearn")


@pytest.mark.usefixtures("needs_sklearn")
def test_digits_in_their_own_size() -> None:
    images, labels = digits()
    assert (images.shape, images.dtype) == ((1797, 1, 8, 8), np.float32)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert (labels.dtype, labels[:10].tolist()) == (np.int32, list(range(10)))


@pytest.mark.usefixtures("needs_sklearn")
def test_digits_in_the_size_of_mnist_hold_the_same_pixels() -> None:
    (small, _), (large, _) = digits(), digits(size=28)
    assert large.shape == (1797, 1, 28, 28)
    np.testing.assert_array_equal(large[:, :, 3:-2:3, 3:-2:3], small)
    assert large.sum(dtype=np.float64) == pytest.approx(9 * small.sum(dtype=np.float64))


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DependencyError, match=r'pip install "\.\[data\]"'):
        digits()


def test_digits_of_another_size_are_refused() -> None:
    with pytest.raises(DataError, match="size=9"):
        digits(size=9)  # type: ignore[arg-type]


def test_normalize_scales_bytes_and_takes_its_own_figures() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 1, 4, 4), dtype=np.uint8)
    result = normalize(images)
    assert result.dtype == np.float32
    assert result.mean(dtype=np.float64) == pytest.approx(0, abs=1e-6)
    assert result.std(dtype=np.float64) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(normalize(images, 0.5, 0.25), (images / 255 - 0.5) / 0.25, atol=1e-6)
    np.testing.assert_array_equal(normalize(np.array([3.0]), 1.0, 2.0), np.float32([1.0]))  # floats are not scaled


def test_normalize_refuses_what_has_no_figures() -> None:
    with pytest.raises(DataError, match="empty array has no mean"):
        normalize(np.zeros((0, 3), np.float32))
    with pytest.raises(DataError, match=r"standard deviation of 0\.0"):
        normalize(np.ones(3, np.float32))
    assert normalize(np.zeros((0, 3), np.float32), 0.0, 1.0).shape == (0, 3)


def test_split_keeps_pairs_together_and_every_sample_once() -> None:
    images = np.arange(50, dtype=np.float32).reshape(25, 2)
    labels = np.arange(25, dtype=np.int32)
    train_images, train_labels, test_images, test_labels = train_test_split(images, labels, test=0.2, seed=3)
    assert (len(train_labels), len(test_labels)) == (20, 5)
    assert sorted([*train_labels, *test_labels]) == list(range(25))
    np.testing.assert_array_equal(train_images, images[train_labels])
    np.testing.assert_array_equal(test_images, images[test_labels])
    assert train_images.flags.c_contiguous
    assert train_labels.tolist() != sorted(train_labels)


def test_split_depends_on_the_seed_alone() -> None:
    data = np.arange(1000), np.arange(1000)
    first = train_test_split(*data, seed=1)
    np.testing.assert_array_equal(first[1], train_test_split(*data, seed=1)[1])
    assert (first[1] != train_test_split(*data, seed=2)[1]).any()
    # Pinned, so that "the same on every machine" is more than a hope.
    assert train_test_split(np.arange(10), np.arange(10), seed=0)[3].tolist() == [4, 6]


@pytest.mark.parametrize("test", [0.0, 1.0, 0.01, -0.5, 2.0])
def test_split_that_leaves_one_side_empty_is_refused(test: float) -> None:
    with pytest.raises(DataError, match="would leave none on one side"):
        train_test_split(np.zeros(10), np.zeros(10), test=test)


def test_split_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(DataError, match="10 images and 9 labels"):
        train_test_split(np.zeros(10), np.zeros(9))
