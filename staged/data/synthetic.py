"""Random data in the shape of a data set whose files are absent: for trying a program out, not for its figures."""

from __future__ import annotations

from os import PathLike

import numpy as np
from numpy.typing import NDArray


def synthetic_images(
    name: str, folder: str | PathLike[str], count: int, shape: tuple[int, ...], classes: int, seed: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """`count` images of u8 with labels: a pattern per class, with noise, so that a network can learn them.

    Prints a line that says so: what is measured on them says nothing about the data set. The same `seed` gives the same
    images on every machine.
    """
    print(f"{name}: no files in {folder}; {count:,} synthetic images instead, whose figures say nothing about it")
    rng = np.random.Generator(np.random.PCG64(seed))
    patterns = rng.integers(0, 256, (classes, *shape))
    labels = rng.integers(0, classes, count).astype(np.int32)
    noise = rng.integers(0, 256, (count, *shape))
    return ((patterns[labels] + noise) // 2).astype(np.uint8), labels
