"""Augmentations of batches of images: functions of staged code, so that the program draws and applies them itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import staged as st


def random_crop(images: Any, size: int | tuple[int, int], padding: int = 0, *, generator: Any = None) -> Any:
    """A window of `size` at a random place of each image, after `padding` zeros on each side.

    Shapes: images (n, channels, height, width), any dtype; the result (n, channels, *size). Each image has a place of
    its own, each place is as likely. Differentiable by the images. Raises: ShapeError if the window is larger.
    Source: torchvision's `RandomCrop`, which places one window for a whole batch.
    """
    height, width = (size, size) if isinstance(size, int) else size
    _check("random_crop", images)
    if padding:
        images = st.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    n, channels, full_height, full_width = images.shape
    if height > full_height or width > full_width:
        raise st.ShapeError(
            f"a window of {height} x {width} does not fit images of {full_height} x {full_width}", where=st.here()
        )
    top = st.random.integers(0, full_height - height + 1, (n, 1), generator=generator)
    left = st.random.integers(0, full_width - width + 1, (n, 1), generator=generator)
    rows = st.reshape(top + st.arange(height), (n, 1, height, 1))
    columns = st.reshape(left + st.arange(width), (n, 1, 1, width))
    rows = st.broadcast_to(rows, (n, channels, height, full_width))
    columns = st.broadcast_to(columns, (n, channels, height, width))
    return st.take_along_axis(st.take_along_axis(images, rows, axis=2), columns, axis=3)


def random_flip(images: Any, p: float = 0.5, *, generator: Any = None) -> Any:
    """Each image turned left to right with probability `p`, by itself.

    Shapes: images (n, channels, height, width), any dtype. Source: torchvision's `RandomHorizontalFlip`.
    """
    _check("random_flip", images)
    turned = st.random.bernoulli(p, (images.shape[0], 1, 1, 1), generator=generator)
    return st.where(turned, st.flip(images, axis=3), images)


def normalize_channels(images: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """`(images - mean) / std` by channel, in f32; images of u8 are scaled to [0, 1] first.

    Shapes: images (n, channels, height, width); a mean and a std for each channel. Raises: ShapeError for another
    number of them. Source: torchvision's `Normalize`.
    """
    _check("normalize_channels", images)
    channels = images.shape[1]
    if len(mean) != channels or len(std) != channels:
        raise st.ShapeError(
            f"images of {channels} channels, {len(mean)} means and {len(std)} standard deviations", where=st.here()
        )
    if images.dtype == st.u8:
        images = st.astype(images, st.f32) / 255.0
    centre, spread = (st.reshape(st.asarray(list(each), dtype=st.f32), (channels, 1, 1)) for each in (mean, std))
    return (st.astype(images, st.f32) - centre) / spread


def _check(name: str, images: Any) -> None:
    if len(images.shape) != 4:
        raise st.ShapeError(
            f"{name} takes images (n, channels, height, width), got {tuple(images.shape)}", where=st.here()
        )
