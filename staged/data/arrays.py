"""Preparation that most data needs before training: normalise, shuffle once, split."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError


def normalize(images: NDArray[Any], mean: float | None = None, std: float | None = None) -> NDArray[np.float32]:
    """`(images - mean) / std` as f32, in the shape of `images`; u8 images are scaled to [0, 1] first.

    `mean` and `std` are of the scaled values; where one is None it is taken from `images` themselves (to normalise
    test data like the training data, pass the training data's). Numerics: mean and std are taken in f64.
    Raises: DataError if `images` is empty and a figure is to be taken from it, or if `std` is not above zero.
    """
    values = images.astype(np.float32) / np.float32(255) if images.dtype == np.uint8 else images.astype(np.float32)
    if values.size == 0 and (mean is None or std is None):
        raise DataError("an empty array has no mean and no standard deviation", hint="pass both: mean=, std=")
    centre = float(values.mean(dtype=np.float64)) if mean is None else mean
    spread = float(values.std(dtype=np.float64)) if std is None else std
    if not spread > 0.0:
        raise DataError(f"cannot divide by a standard deviation of {spread}", hint="pass std=1.0 for constant data")
    return (values - np.float32(centre)) / np.float32(spread)


def train_test_split(
    images: NDArray[Any], labels: NDArray[Any], *, test: float = 0.2, seed: int = 0
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Shuffle once and split: `(train_images, train_labels, test_images, test_labels)`, as contiguous copies.

    `test` is the fraction that tests, rounded to the nearest sample. The same `seed` gives the same split on every
    machine (NumPy's PCG64).
    Raises: DataError if the two differ in length, or if `test` leaves no sample on one side.
    """
    if len(images) != len(labels):
        raise DataError(f"{len(images)} images and {len(labels)} labels, expected as many")
    count = round(len(images) * test)
    if not 0 < count < len(images):
        raise DataError(
            f"test={test} of {len(images)} samples would leave none on one side", hint="choose 0 < test < 1"
        )
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(images))
    train_order, test_order = order[count:], order[:count]
    return images[train_order], labels[train_order], images[test_order], labels[test_order]
