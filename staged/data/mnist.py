"""MNIST from its four IDX files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from staged.data.arrays import normalize
from staged.data.idx import read_idx
from staged.errors import DataError

# Of the 60,000 training images scaled to [0, 1]: the figures that PyTorch's and Lantern's examples use.
MNIST_MEAN = 0.1307
MNIST_STD = 0.3081

_PREFIX = {"train": "train", "test": "t10k"}


class Split(NamedTuple):
    """Images and labels to train on, and others to test on."""

    train_images: NDArray[Any]
    train_labels: NDArray[np.int32]
    test_images: NDArray[Any]
    test_labels: NDArray[np.int32]


def mnist(
    folder: str | PathLike[str], part: Literal["train", "test"] = "train", *, normalized: bool = True
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """One part of MNIST: `(images, labels)` from `<prefix>-images-idx3-ubyte` and `<prefix>-labels-idx1-ubyte`.

    The prefix is `train` (60,000 images) or `t10k` (10,000); each file may be plain or gzip, with or without `.gz`.
    Shapes: images (n, 1, 28, 28), labels (n,) i32, 0 <= label < 10. Images are f32, scaled to [0, 1], less MNIST_MEAN,
    over MNIST_STD; with `normalized=False` the u8 values as they lie in the file.
    Raises: DataError if a file is missing or unreadable, if images and labels differ in number, or if a label is out
    of range.
    Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
    """
    if part not in _PREFIX:
        raise DataError(f"MNIST has no part {part!r}", hint='say "train" or "test"')
    images_file = _find(Path(folder), f"{_PREFIX[part]}-images-idx3-ubyte")
    labels_file = _find(Path(folder), f"{_PREFIX[part]}-labels-idx1-ubyte")
    images, labels = read_idx(images_file, ndim=3), read_idx(labels_file, ndim=1)
    for file, array in ((images_file, images), (labels_file, labels)):
        if array.dtype != np.uint8:
            raise DataError(f"{file} holds {array.dtype.name}, expected uint8", hint="these are not MNIST's files")
    if len(images) != len(labels):
        raise DataError(
            f"{images_file} holds {len(images)} images and {labels_file} {len(labels)} labels, expected as many",
            hint="the two files belong to different parts; take both from one download",
        )
    if labels.size and labels.max() > 9:
        raise DataError(f"{labels_file} holds the label {labels.max()}, expected 0 to 9", hint="is this MNIST?")
    images = images[:, np.newaxis]
    return (normalize(images, MNIST_MEAN, MNIST_STD) if normalized else images), labels.astype(np.int32)


def mnist_split(folder: str | PathLike[str], *, normalized: bool = True) -> Split:
    """MNIST split for training and testing, from the files found in `folder`.

    With the training files there: its two official parts. With the `t10k` files alone: the first four fifths of these
    for training (8,000 of 10,000) and the rest for testing, in the file's order, so that figures can be compared.
    Shapes, dtypes and errors: as `mnist`.
    """
    test_images, test_labels = mnist(folder, "test", normalized=normalized)
    if any(Path(folder).glob("train-*")):
        return Split(*mnist(folder, "train", normalized=normalized), test_images, test_labels)
    count = len(test_images) * 4 // 5
    return Split(test_images[:count], test_labels[:count], test_images[count:], test_labels[count:])


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.exists():
            return candidate
    raise DataError(
        f"{folder} has no {name}, plain or with .gz" if folder.is_dir() else f"{folder} is not a folder",
        hint="name the folder that holds MNIST's IDX files",
    )
