"""CIFAR-10 from its binary files, and Fashion-MNIST from its IDX files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from staged.data.arrays import normalize
from staged.data.mnist import mnist
from staged.data.synthetic import synthetic_images
from staged.errors import DataError

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
"""Of each channel of the 50,000 training images scaled to [0, 1]: the figures of PyTorch's examples."""
CIFAR10_STD = (0.2470, 0.2435, 0.2616)
FASHION_MEAN = 0.2860
FASHION_STD = 0.3530
_RECORD = 1 + 3 * 32 * 32
_FILES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}


def cifar10(
    folder: str | PathLike[str],
    part: Literal["train", "test"] = "train",
    *,
    normalized: bool = True,
    synthetic: int = 0,
) -> tuple[NDArray[np.generic], NDArray[np.int32]]:
    """One part of CIFAR-10: `(images, labels)` from the binary version's files.

    These are `data_batch_1.bin` to `data_batch_5.bin`, and `test_batch.bin`, in `folder` or in `cifar-10-batches-bin`
    below it. A record is a label byte and 3 x 32 x 32 bytes.
    Shapes: images (n, 3, 32, 32), labels (n,) i32, 0 <= label < 10. Images are f32, scaled to [0, 1], less CIFAR10_MEAN
    over CIFAR10_STD by channel; with `normalized=False` the u8 values of the files. With `synthetic` that many random
    images take their place where none of the files is there, which a line of output says.
    Raises: DataError if a file is missing, is not a number of records, or has a label above 9.
    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
    """
    if part not in _FILES:
        raise DataError(f"CIFAR-10 has no part {part!r}", hint='say "train" or "test"')
    names, home = _FILES[part], Path(folder)
    if (home / "cifar-10-batches-bin").is_dir():
        home = home / "cifar-10-batches-bin"
    if synthetic and not any((home / name).exists() for name in names):
        images, labels = synthetic_images(f"CIFAR-10 ({part})", home, synthetic, (3, 32, 32), 10)
    else:
        parts = [_records(home / name) for name in names]
        records = np.concatenate(parts)
        labels, images = records[:, 0].astype(np.int32), records[:, 1:].reshape(-1, 3, 32, 32)
    if not normalized:
        return images, labels
    mean, std = (np.array(each, np.float32).reshape(3, 1, 1) for each in (CIFAR10_MEAN, CIFAR10_STD))
    return (images.astype(np.float32) / np.float32(255) - mean) / std, labels


def fashion_mnist(
    folder: str | PathLike[str],
    part: Literal["train", "test"] = "train",
    *,
    normalized: bool = True,
    synthetic: int = 0,
) -> tuple[NDArray[np.generic], NDArray[np.int32]]:
    """One part of Fashion-MNIST, whose files have MNIST's names and format: `(images, labels)` as `mnist` gives them.

    Shapes: images (n, 1, 28, 28), labels (n,) i32, 0 <= label < 10. Images are f32, scaled to [0, 1], less FASHION_MEAN
    over FASHION_STD; with `normalized=False` the u8 values. With `synthetic` that many random images take their place
    where the files are absent, which a line of output says. Raises: DataError as `mnist` does.
    Source: H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST (2017).
    """
    prefix = {"train": "train", "test": "t10k"}.get(part, "?")
    if synthetic and not any(Path(folder).glob(f"{prefix}-*")):
        images, labels = synthetic_images(f"Fashion-MNIST ({part})", Path(folder), synthetic, (1, 28, 28), 10)
    else:
        images, labels = mnist(folder, part, normalized=False)
    return (normalize(images, FASHION_MEAN, FASHION_STD) if normalized else images), labels


def _records(file: Path) -> NDArray[np.uint8]:
    if not file.exists():
        pickled = any(file.parent.glob("data_batch_?")) or (file.parent / "cifar-10-batches-py").is_dir()
        raise DataError(
            f"{file.parent} has no {file.name}",
            hint="these are the pickled files, which run code when they are read: take the binary version"
            if pickled
            else "name the folder of the binary version, `cifar-10-batches-bin`",
        )
    content = np.fromfile(file, np.uint8)
    if content.size % _RECORD or not content.size:
        raise DataError(
            f"{file} has {content.size} bytes, expected a number of records of {_RECORD}",
            hint="the download or copy broke off; fetch the file again",
        )
    records = content.reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        raise DataError(f"{file} holds the label {records[:, 0].max()}, expected 0 to 9", hint="is this CIFAR-10?")
    return records
