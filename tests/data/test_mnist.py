"""MNIST's files: found under their several names, checked against each other, and the real ones."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from staged.data import MNIST_MEAN, MNIST_STD, mnist, mnist_split
from staged.errors import DataError


def write(folder: Path, prefix: str, count: int, *, labels: int | None = None, packed: bool = False) -> np.ndarray:
    """Both files of one part, with `count` random images; returns the images."""
    images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    number = count if labels is None else labels
    files = {
        f"{prefix}-images-idx3-ubyte": struct.pack(">4I", 0x803, count, 28, 28) + images.tobytes(),
        f"{prefix}-labels-idx1-ubyte": struct.pack(">2I", 0x801, number) + bytes(i % 10 for i in range(number)),
    }
    for name, content in files.items():
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return images


@pytest.mark.parametrize("packed", [False, True])
def test_images_are_normalised_and_labels_are_i32(tmp_path: Path, packed: bool) -> None:
    raw = write(tmp_path, "train", 12, packed=packed)
    images, labels = mnist(tmp_path)
    assert (images.dtype, images.shape) == (np.float32, (12, 1, 28, 28))
    assert (labels.dtype, labels.tolist()) == (np.int32, [*range(10), 0, 1])
    np.testing.assert_allclose(images[:, 0], (raw / 255 - MNIST_MEAN) / MNIST_STD, atol=1e-6)


def test_raw_images_are_the_bytes_of_the_file(tmp_path: Path) -> None:
    raw = write(tmp_path, "t10k", 3)
    images, _ = mnist(tmp_path, "test", normalized=False)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images[:, 0], raw)


def test_split_takes_the_official_parts_where_both_are_there(tmp_path: Path) -> None:
    write(tmp_path, "t10k", 10)
    write(tmp_path, "train", 20, packed=True)
    split = mnist_split(tmp_path)
    assert (len(split.train_images), len(split.train_labels)) == (20, 20)
    assert (len(split.test_images), len(split.test_labels)) == (10, 10)


def test_split_of_the_test_files_alone_is_four_fifths_in_order(tmp_path: Path) -> None:
    raw = write(tmp_path, "t10k", 10)
    split = mnist_split(tmp_path, normalized=False)
    np.testing.assert_array_equal(split.train_images[:, 0], raw[:8])
    np.testing.assert_array_equal(split.test_images[:, 0], raw[8:])
    assert split.test_labels.tolist() == [8, 9]


def test_half_a_training_part_is_an_error_and_not_a_silent_fallback(tmp_path: Path) -> None:
    write(tmp_path, "t10k", 10)
    write(tmp_path, "train", 20)
    (tmp_path / "train-images-idx3-ubyte").unlink()
    with pytest.raises(DataError, match="has no train-images-idx3-ubyte"):
        mnist_split(tmp_path)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no train-images-idx3-ubyte, plain or with .gz"):
        mnist(tmp_path)
    with pytest.raises(DataError, match="nowhere is not a folder"):
        mnist(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no part 'validation'"):
        mnist(tmp_path, "validation")  # type: ignore[arg-type]


def test_images_and_labels_of_different_number_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "train", 12, labels=11)
    with pytest.raises(DataError, match=r"12 images and .* 11 labels, expected as many"):
        mnist(tmp_path)


def test_swapped_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "train", 12)
    labels = tmp_path / "train-labels-idx1-ubyte"
    (tmp_path / "train-images-idx3-ubyte").write_bytes(labels.read_bytes())
    with pytest.raises(DataError, match="1 dimensions, expected 3"):
        mnist(tmp_path)


def test_label_out_of_range_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "train", 2)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2) + bytes([3, 10]))
    with pytest.raises(DataError, match="holds the label 10, expected 0 to 9"):
        mnist(tmp_path)


def test_the_real_test_set(data_folder: Callable[[str], Path]) -> None:
    folder = data_folder("mnist")
    images, labels = mnist(folder, "test", normalized=False)
    assert images.shape == (10_000, 1, 28, 28)
    # The official files' own bytes, behind a header of 16: any misread pixel shows.
    header = struct.pack(">4I", 0x803, 10_000, 28, 28)
    assert hashlib.md5(header + images.tobytes()).hexdigest() == "2646ac647ad5339dbf082846283269ea"
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    split = mnist_split(folder)
    assert (split.train_images.shape, split.test_images.shape) == ((8000, 1, 28, 28), (2000, 1, 28, 28))
