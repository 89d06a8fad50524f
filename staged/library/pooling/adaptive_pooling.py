"""Pooling of images to a size: in windows spread evenly, or at places that are given."""

from __future__ import annotations

from typing import Any

from staged.ops.array import Array
from staged.ops.contraction import matmul
from staged.ops.convolution import Pair, pair
from staged.ops.elementwise import minimum
from staged.ops.index import take, take_along_axis
from staged.ops.pooling import avg_pool2d, images, max_pool2d
from staged.ops.promote import as_array, cast, fixed_size, promoted, shape_error
from staged.ops.public import public
from staged.ops.reduction import mean, sum_
from staged.ops.shape import flatten, matrix_transpose, reshape
from staged.ops.source import iota


def _sizes(name: str, x: Array, output_size: Any) -> tuple[Pair, Pair]:
    """The extents of the images, and those of the result, where None means the image's own."""
    height, width = x.shape[2:]
    if not isinstance(height, int) or not isinstance(width, int):
        raise shape_error(f"{name} needs height and width fixed while staging, got {x.type}", x)
    given = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    filled = tuple(own if one is None else one for one, own in zip(given, (height, width), strict=False))
    wanted = pair(filled, "output_size")
    if min(wanted) < 1:
        raise shape_error(f"{name}: the output is at least 1 x 1, got {wanted}", x)
    return (height, width), wanted


@public("adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Any, output_size: Any) -> Array:
    """Average pooling to a result of `output_size`, with windows spread evenly over the image. torch's function of this
    name.

    Shapes: x (N, C, H, W) or (C, H, W) to (N, C, *output_size); None in a pair keeps that extent. Window i begins at
    floor(i * H / OH) and ends before ceil((i + 1) * H / OH).
    """
    (array,) = promoted(x, floats=True)
    image = images("adaptive_avg_pool2d", array)
    given, wanted = _sizes("adaptive_avg_pool2d", image, output_size)
    if wanted == (1, 1):
        values = mean(image, (2, 3), keepdims=True)
    elif given[0] % wanted[0] == given[1] % wanted[1] == 0:
        kernel = given[0] // wanted[0], given[1] // wanted[1]
        values = avg_pool2d(image, kernel)
    else:
        rows, columns = (_shares(given[axis], wanted[axis], image) for axis in (0, 1))
        values = matmul(rows, matmul(image, matrix_transpose(columns)))
    return reshape(values, values.shape[1:]) if array.ndim == 3 else values


def _shares(extent: int, count: int, like: Array) -> Array:
    """(count, extent): the weight of each element in each adaptive window of an axis."""
    window, element = iota((count, extent), 0), iota((count, extent), 1)
    # floor(w n / c) <= e and e < ceil((w + 1) n / c), without a division
    inside = (window * extent < (element + 1) * count) & (element * count < (window + 1) * extent)
    ones = cast(inside, like.dtype)
    return ones / sum_(ones, 1, keepdims=True)


@public("adaptive_max_pool2d")
def adaptive_max_pool2d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum pooling to a result of `output_size`, with windows spread evenly over the image. torch's function of this
    name.

    Shapes: as in `adaptive_avg_pool2d`. `return_indices` gives (maxima, places), of positions in the H * W plane.
    """
    array = as_array(x)
    image = images("adaptive_max_pool2d", array)
    given, wanted = _sizes("adaptive_max_pool2d", image, output_size)
    rows, columns = (_even_windows(given[axis], wanted[axis]) for axis in (0, 1))
    values, places = pooled_at(image, rows, columns)
    if array.ndim == 3:
        values, places = reshape(values, values.shape[1:]), reshape(places, places.shape[1:])
    return (values, places) if return_indices else values


Windows = int | Array
"""Windows side by side of so many elements; or (.., windows, size) places of the elements of each."""


def _even_windows(extent: int, count: int) -> Windows:
    """Windows spread evenly over an axis. The last place of a shorter one is repeated, which no maximum minds."""
    if extent % count == 0:
        return extent // count
    starts = [i * extent // count for i in range(count)]
    ends = [-(-(i + 1) * extent // count) for i in range(count)]
    shape = (count, max(end - start for start, end in zip(starts, ends, strict=True)))
    window, element = iota(shape, 0), iota(shape, 1)
    return minimum(window * extent // count + element, ((window + 1) * extent + count - 1) // count - 1)


def pooled_at(image: Array, rows: Windows, columns: Windows) -> tuple[Array, Array]:
    """The maximum of each window of (N, C, H, W), and its place in the H * W plane; the first of ties."""
    gathered, kernel, width = image, [], image.shape[3]
    for axis, windows in ((2, rows), (3, columns)):
        if isinstance(windows, int):
            kernel.append(windows)
            continue
        kernel.append(fixed_size("pooling", windows, windows.ndim - 1))
        lead = windows.shape[:-2] if windows.ndim > 2 else (1, 1)
        extra = (1,) if axis == 2 else ()
        before = () if axis == 2 else (1,)
        places = reshape(windows, (*lead, *before, fixed_size("pooling", windows, -2) * kernel[-1], *extra))
        gathered = take_along_axis(gathered, places, axis)
    values, at = max_pool2d(gathered, (kernel[0], kernel[1]), return_indices=True)
    if gathered is image:
        return values, at
    wide = gathered.shape[3]
    return values, _place(rows, at // wide) * width + _place(columns, at % wide)


def _place(windows: Windows, position: Array) -> Array:
    """The place in the image of a position among the elements of all windows."""
    if isinstance(windows, int):
        return position
    if windows.ndim == 2:
        return take(reshape(windows, (-1,)), position)
    flat = flatten(position, 2)
    return reshape(take_along_axis(flatten(windows, 2), flat, 2), position.shape)
