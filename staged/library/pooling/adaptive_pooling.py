"""Pooling to a size, of lines, images and volumes: in windows spread evenly, or at pseudo-random distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staged.ir.sizes import Extent, exact_quotient
from staged.ir.types import Shape, i64
from staged.library.draws.random import uniform
from staged.library.pooling.pooling import Window, maxima, means
from staged.library.pooling.ranks import extents, pooled, sizes, with_batch
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.choice import where
from staged.ops.contraction import matmul
from staged.ops.dtypes import float_dtype
from staged.ops.elementwise import minimum
from staged.ops.index import take, take_along_axis
from staged.ops.promote import as_array, as_float, broadcast, cast, fixed_size, promoted, shape_error
from staged.ops.public import public
from staged.ops.reduction import mean, sum_
from staged.ops.shape import flatten, matrix_transpose, reshape
from staged.ops.source import full, iota


def _wanted(name: str, x: Array, rank: int, output_size: Any) -> Shape:
    """The sizes of the result; None in `output_size` keeps the size of `x`."""
    image = with_batch(name, x, rank)
    given = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * rank
    wanted = extents(tuple([1 if one is None else one for one in given]), "output_size", rank)
    for size in wanted:
        check_sizes(
            size >= 1,
            f"{name}: `output_size` must be at least 1, got {wanted}",
            x,
            hint="None keeps the size of an axis",
        )
    return tuple(own if one is None else size for one, size, own in zip(given, wanted, image.shape[2:], strict=True))


def _counts(image: Array, wanted: Sequence[Extent | None]) -> list[tuple[Extent, Extent]]:
    """(size, number of windows) of both axes of images; None means as many windows as elements."""
    return [(own, own if count is None else count) for own, count in zip(image.shape[2:], wanted, strict=True)]


def adaptive_means(name: str, x: Any, rank: int, output_size: Any) -> Array:
    """The means of windows spread evenly over the last axes of (N, C, ...) or (C, ...)."""
    (array,) = promoted(x, floats=True)

    def pool(image: Array, wanted: Sequence[Extent | None]) -> tuple[Array, None]:
        both = _counts(image, wanted)
        if all(count == 1 for _, count in both):
            return mean(image, (2, 3), keepdims=True), None
        parts = [part for part in (exact_quotient(*each) for each in both) if isinstance(part, int)]
        if len(parts) == len(both):
            return means(image, [Window(part, part, 0) for part in parts]), None
        rows, columns = (_shares(own, count, image) for own, count in both)
        return matmul(rows, matmul(image, matrix_transpose(columns))), None

    values: Array = pooled(name, array, _wanted(name, array, rank, output_size), None, pool)
    return values


def _shares(extent: Extent, count: Extent, like: Array) -> Array:
    """(count, extent): the weight of each element in each adaptive window of an axis."""
    window, element = iota((count, extent), 0), iota((count, extent), 1)
    # floor(w n / c) <= e and e < ceil((w + 1) n / c), without a division
    inside = (window * extent < (element + 1) * count) & (element * count < (window + 1) * extent)
    ones = cast(inside, like.dtype)
    return ones / sum_(ones, 1, keepdims=True)


@public("adaptive_avg_pool1d")
def adaptive_avg_pool1d(x: Any, output_size: Any) -> Array:
    """Average pooling of (N, C, L) or (C, L) to `output_size` elements. torch's function; see `adaptive_avg_pool2d`."""
    return adaptive_means("adaptive_avg_pool1d", x, 1, output_size)


@public("adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Any, output_size: Any) -> Array:
    """Average pooling to a result of `output_size`, with windows spread evenly over the image. torch's function of this
    name.

    Shapes: x (N, C, H, W) or (C, H, W) to (N, C, *output_size); None in a pair keeps that extent. Window i begins at
    floor(i * H / OH) and ends before ceil((i + 1) * H / OH).
    """
    return adaptive_means("adaptive_avg_pool2d", x, 2, output_size)


@public("adaptive_avg_pool3d")
def adaptive_avg_pool3d(x: Any, output_size: Any) -> Array:
    """Average pooling of (N, C, D, H, W) or (C, D, H, W) to `output_size`. torch's function; see
    `adaptive_avg_pool2d`.
    """
    return adaptive_means("adaptive_avg_pool3d", x, 3, output_size)


# ---- maxima ---------------------------------------------------------------------------------------


Windows = int | Array
"""Windows side by side of so many elements; or (.., windows, size) places of the elements of each."""


def _even_windows(extent: Extent, count: Extent) -> Windows:
    """Windows spread evenly over an axis. The last place of a shorter one is repeated, which no maximum minds."""
    if extent == count:
        return 1
    assert isinstance(extent, int) and isinstance(count, int)
    if extent % count == 0:
        return extent // count
    starts = [i * extent // count for i in range(count)]
    ends = [-(-(i + 1) * extent // count) for i in range(count)]
    shape = (count, max(end - start for start, end in zip(starts, ends, strict=True)))
    window, element = iota(shape, 0), iota(shape, 1)
    return minimum(window * extent // count + element, ((window + 1) * extent + count - 1) // count - 1)


def _pooled_at(image: Array, rows: Windows, columns: Windows) -> tuple[Array, Array]:
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
    values, at = maxima(gathered, [Window(size, size, 0) for size in kernel], False, True)
    assert at is not None
    if gathered is image:
        return values, at
    wide, at = gathered.shape[3], cast(at, i64)
    return values, _place(rows, at // wide) * width + _place(columns, at % wide)


def _of_planes(windows: Windows, image: Array) -> Windows:
    """The windows of each plane of `image`, whose channels are perhaps those of several depths."""
    if isinstance(windows, int) or windows.ndim == 2 or windows.shape[1] == image.shape[1]:
        return windows
    count = fixed_size("pooling", image, 1) // fixed_size("pooling", windows, 1)
    shape = (*windows.shape[:2], count, *windows.shape[2:])
    wide = broadcast(reshape(windows, (*shape[:2], 1, *shape[3:])), shape)
    return reshape(wide, (*image.shape[:2], *shape[3:]))


def _place(windows: Windows, position: Array) -> Array:
    """The place in the image of a position among the elements of all windows."""
    if isinstance(windows, int):
        return position
    if windows.ndim == 2:
        return take(reshape(windows, (-1,)), position)
    flat = flatten(position, 2)
    return reshape(take_along_axis(flatten(windows, 2), flat, 2), position.shape)


def _adaptive_max(rank: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    name, array = f"adaptive_max_pool{rank}d", as_array(x)

    def pool(image: Array, wanted: Sequence[Extent | None]) -> tuple[Array, Array]:
        for axis in (2, 3):
            if wanted[axis - 2] is not None:
                fixed_size(name, image, axis)
        rows, columns = (_even_windows(own, count) for own, count in _counts(image, wanted))
        return _pooled_at(image, rows, columns)

    values, places = pooled(name, array, _wanted(name, array, rank, output_size), None, pool)
    return (values, places) if return_indices else values


@public("adaptive_max_pool1d")
def adaptive_max_pool1d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum pooling of (N, C, L) or (C, L) to `output_size` elements. torch's function; see `adaptive_max_pool2d`."""
    return _adaptive_max(1, x, output_size, return_indices)


@public("adaptive_max_pool2d")
def adaptive_max_pool2d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum pooling to a result of `output_size`, with windows spread evenly over the image. torch's function of this
    name.

    Shapes: as in `adaptive_avg_pool2d`. `return_indices` gives (maxima, places), of positions in the H * W plane.
    """
    return _adaptive_max(2, x, output_size, return_indices)


@public("adaptive_max_pool3d")
def adaptive_max_pool3d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum pooling of (N, C, D, H, W) or (C, D, H, W) to `output_size`. torch's function; see
    `adaptive_max_pool2d`.
    """
    return _adaptive_max(3, x, output_size, return_indices)


# ---- windows drawn by chance ----------------------------------------------------------------------


def _chance_windows(sample: Array, extent: int, count: int, kernel: int) -> Windows:
    """(N, C, count, kernel) places: windows at pseudo-random distances, of which the last ends the axis."""
    last = extent - kernel
    window = iota((count,))
    sample = reshape(sample, (*sample.shape, 1))
    if count > 1:
        step = last / (count - 1)
        start = cast((cast(window, sample.dtype) + sample) * step, i64) - cast(sample * step, i64)
        start = where(window == count - 1, last, start)
    else:
        start = broadcast(full((1,), last, i64), (*sample.shape[:-1], 1))
    return reshape(start, (*start.shape, 1)) + iota((kernel,))


def _fractional(rank: int, x: Any, kernel_size: Any, size: Any, ratio: Any, samples: Any, return_indices: bool) -> Any:
    name, array = f"fractional_max_pool{rank}d", as_array(x)
    kernel, image = sizes(kernel_size, "kernel_size", rank), with_batch(name, array, rank)
    own = [fixed_size(name, image, 2 + axis) for axis in range(rank)]
    if (size is None) == (ratio is None):
        raise shape_error(f"{name} needs either output_size or output_ratio", hint="pass one of them")
    if size is None:
        ratios = ratio if isinstance(ratio, tuple | list) else (ratio,) * rank
        size = [int(extent * each) for extent, each in zip(own, ratios, strict=True)]
    wanted = sizes(size, "output_size", rank)
    if not all(1 <= count <= extent - window + 1 for extent, count, window in zip(own, wanted, kernel, strict=True)):
        raise shape_error(f"{name}: {wanted} windows of {kernel} do not fit into {array.type}", array)
    shape = (*image.shape[:2], rank)
    drawn = as_float(uniform(shape, dtype=float_dtype(array.dtype, weak=False)) if samples is None else samples)
    if drawn.shape != shape:
        hint = "one number in [0, 1) for each axis, channel and sample of the batch"
        raise shape_error(f"{name}: `_random_samples` must have the shape {shape}, got {drawn.type}", drawn, hint=hint)
    # torch's samples of an image are for its columns first, those of a volume for its depth first.
    order = (1, 0) if rank == 2 else (0, 1, 2)
    axes = [_chance_windows(drawn[:, :, order[a]], own[a], wanted[a], kernel[a]) for a in range(rank)]
    values, places = pooled(
        name, array, axes, 1, lambda image, both: _pooled_at(image, *(_of_planes(windows, image) for windows in both))
    )
    return (values, places) if return_indices else values


@public("fractional_max_pool2d")
def fractional_max_pool2d(
    x: Any,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """The maximum of windows at pseudo-random distances, so many as `output_size`, or `output_ratio` of the size.

    Shapes: x (N, C, H, W) or (C, H, W). The distances follow from `_random_samples` (N, C, 2), drawn from U(0, 1) by
    default. torch `nn.functional.fractional_max_pool2d`. Source: Graham, Fractional max-pooling, 2014.
    """
    return _fractional(2, x, kernel_size, output_size, output_ratio, _random_samples, return_indices)


@public("fractional_max_pool3d")
def fractional_max_pool3d(
    x: Any,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """`fractional_max_pool2d` of volumes: x (N, C, D, H, W) or (C, D, H, W), samples (N, C, 3). torch's function."""
    return _fractional(3, x, kernel_size, output_size, output_ratio, _random_samples, return_indices)
