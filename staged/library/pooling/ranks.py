"""Helpers for lines (N, C, L), images (N, C, H, W) and volumes (N, C, D, H, W), by functions for images.

The rank is the number of axes after the channels. A line is an image of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.ir.sizes import Extent, Size
from staged.ir.types import i64
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.convolution import Sizes
from staged.ops.dimension import as_extent
from staged.ops.index import take_along_axis
from staged.ops.promote import cast, shape_error, whole
from staged.ops.shape import expand_dims, flatten, reshape, squeeze

AXES = {1: "L", 2: "H, W", 3: "D, H, W"}
_SIZES = {1: "an int", 2: "an int or a pair of ints", 3: "an int or three ints"}


def extents(value: Any, name: str, rank: int) -> tuple[Extent, ...]:
    """`sizes`, which may be those that the program finds."""
    given = tuple(map(as_extent, value)) if isinstance(value, tuple | list) else (as_extent(value),) * rank
    if len(given) == rank and any(isinstance(one, Size) for one in given) and None not in given:
        return tuple(one for one in given if one is not None)
    return sizes(value, name, rank)


def sizes(value: Any, name: str, rank: int) -> Sizes:
    """(v, v) from v for images, or the pair itself; a ShapeError for anything else."""
    given = tuple(map(whole, value)) if isinstance(value, tuple | list) else (whole(value),) * rank
    if len(given) == rank and all(isinstance(one, int) and not isinstance(one, bool) for one in given):
        return given
    found = tuple(size if isinstance(size := as_extent(one), Size) else one for one in given)
    shown = f"({', '.join(map(str, found))})" if any(isinstance(one, Size) for one in found) else repr(value)
    raise shape_error(f"`{name}` must be {_SIZES[rank]}, got {shown}", hint=f"one size for each of {AXES[rank]}")


def with_batch(name: str, x: Array, rank: int) -> Array:
    """(1, C, ...) from (C, ...), or `x` itself; a ShapeError for another number of axes."""
    if x.ndim not in (rank + 1, rank + 2):
        layout = f"(N, C, {AXES[rank]}) or (C, {AXES[rank]})"
        raise shape_error(f"{name} needs an input of {layout}, got {x.type}", x, hint="`st.reshape` adds or joins axes")
    return reshape(x, (1, *x.shape)) if x.ndim == rank + 1 else x


def check_windows(name: str, x: Array, counts: Sequence[Extent]) -> None:
    """Check that a window fits into the images, along each axis whose size the program finds."""
    for count in counts:
        if not isinstance(count, int):  # for those that are known the type rule raises an error
            check_sizes(count > 0, f"{name}: the kernel is larger than the padded input {x.type}", x)


def pooled(
    name: str, x: Array, axes: Sequence[Any], whole: Any, pool: Callable[..., tuple[Array, Array | None]]
) -> Any:
    """Pool the last axes of (N, C, ...) or (C, ...). `axes` has one description of windows per axis.

    `pool` accepts images and the descriptions of two axes. It returns values, and their indices in the images or None.
    `whole` describes an axis that does not change. The maximum or mean over a window of a volume is computed in two
    steps: over the image, and over the depth. The first of equal maxima stays the first.
    """
    rank = len(axes)
    array = with_batch(name, x, rank)
    if rank == 3:
        # (N, C, D, H, W) -> (N, C * D, H, W) -> (N, C, D, h * w) -> (N, C, d, h * w) -> (N, C, d, h, w)
        planes, inner = pool(flatten(array, 1, 2), axes[1:])
        inner = None if inner is None else cast(inner, i64)
        rows, columns = planes.shape[2:]
        values, places = pool(reshape(planes, (*array.shape[:3], rows * columns)), (axes[0], whole))
        shape = (*array.shape[:2], values.shape[2], rows, columns)
        values = reshape(values, shape)
        if inner is not None and places is not None:
            by_channel, at = reshape(inner, (*array.shape[:3], rows, columns)), cast(places, i64)
            first = reshape(take_along_axis(flatten(by_channel, 2), flatten(at, 2), 2), at.shape)
            area = array.shape[3] * array.shape[4]
            places = reshape(at // (rows * columns) * area + first, shape)
    else:
        values, places = pool(*((array, axes) if rank == 2 else (expand_dims(array, -2), (whole, *axes))))
    if x.ndim == rank + 1:
        values = reshape(values, values.shape[1:])
        places = None if places is None else reshape(places, places.shape[1:])
    places = None if places is None else cast(places, i64)
    if rank == 1:
        values, places = squeeze(values, -2), None if places is None else squeeze(places, -2)
    return values if places is None else (values, places)
