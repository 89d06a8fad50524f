"""Images for the examples: CIFAR-10's files, or synthetic ones where they are absent."""

from __future__ import annotations

import numpy as np

from staged import data

CLASSES = 10


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
        return (*data.cifar10(folder, "train"), *data.cifar10(folder, "test"))
    print("no --data: the images are synthetic, waves in ten directions")
    return (*waves(count, size, 0), *waves(count // 4, size, 1))
