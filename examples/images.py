"""Images for the examples: CIFAR-10's files, or synthetic ones where they are absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CLASSES, MEAN, DEVIATION = 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def cifar10(folder: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(images, labels, test images, test labels) of `data_batch_1.bin`, ... and `test_batch.bin` in a folder.

    Shapes: images (n, 3, 32, 32) f32, less the mean of each colour and over its deviation; labels (n,) i64.
    Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """

    def read(names: list[Path]) -> tuple[np.ndarray, np.ndarray]:
        if not names:
            raise FileNotFoundError(f"{folder} has no batches of CIFAR-10 in their binary form")
        rows = np.concatenate([np.fromfile(name, np.uint8).reshape(-1, 3073) for name in names])
        images = rows[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255.0
        mean, deviation = (np.array(each, np.float32).reshape(3, 1, 1) for each in (MEAN, DEVIATION))
        return (images - mean) / deviation, rows[:, 0].astype(np.int64)

    return (*read(sorted(Path(folder).glob("data_batch_*.bin"))), *read([Path(folder) / "test_batch.bin"]))


def waves(count: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic images (count, 3, size, size) f32 and labels (count,): a class is a direction of waves, under noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    angle, phase = np.pi * labels / CLASSES, rng.uniform(0, 2 * np.pi, count)
    y, x = np.mgrid[:size, :size] * (8 * np.pi / size)
    along = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y + phase[:, None, None]
    colours = rng.uniform(0.5, 1.0, (count, 3, 1, 1))
    images = colours * np.sin(along)[:, None] + 0.5 * rng.normal(size=(count, 3, size, size))
    return images.astype(np.float32), labels


def load(folder: str | None, size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """CIFAR-10 of `folder`, or `count` synthetic images to train on and a quarter as many to test."""
    if folder is not None:
        return cifar10(folder)
    print("no --data: the images are synthetic, waves in ten directions")
    return (*waves(count, size, 0), *waves(count // 4, size, 1))
