"""The handwritten digits that come with scikit-learn: small, and there without a network."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError, DependencyError


def digits(size: Literal[8, 28] = 8) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The 1,797 digits of scikit-learn: `(images, labels)`, in scikit-learn's order.

    Shapes: images (1797, 1, size, size) f32 in [0, 1], labels (1797,) i32, 0 <= label < 10. With `size=28` every pixel
    is repeated three times each way and a border of two is added, so that a network made for MNIST takes them.
    Raises: DependencyError without scikit-learn (the extra `data`); DataError for another size.
    Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (1998).
    """
    if size not in (8, 28):
        raise DataError(f"digits come as 8 x 8 or 28 x 28, got size={size}")
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DependencyError(
            "the digits are part of scikit-learn, which is not installed",
            hint='pip install ".[data]" in the clone, or pip install scikit-learn',
        ) from error
    bunch = load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[:, np.newaxis]
    if size == 28:
        images = images.repeat(3, axis=2).repeat(3, axis=3)
        images = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return images, bunch.target.astype(np.int32)
