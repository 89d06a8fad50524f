"""Pooling of lines and volumes, of norms, in windows drawn by chance, and back: all by pooling of images.

A window of a volume is one of an image at each of several depths, so the maximum or mean over it is taken in two steps,
over the image and over the depth. The first of equal maxima stays the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from staged.ir.types import i64
from staged.library.draws.random import uniform
from staged.library.pooling.adaptive_pooling import Windows, adaptive_avg_pool2d, adaptive_max_pool2d, pooled_at
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.dtypes import float_dtype
from staged.ops.elementwise import pow_
from staged.ops.index import scattered, take_along_axis
from staged.ops.pooling import avg_pool1d, avg_pool2d, check_divisor, max_pool2d, on_lines
from staged.ops.promote import (
    as_array,
    as_float,
    broadcast,
    cast,
    check_argument,
    dtype_error,
    fixed_size,
    is_number,
    promoted,
    shape_error,
    whole,
)
from staged.ops.public import public
from staged.ops.shape import flatten, reshape
from staged.ops.source import full, iota

Triple = tuple[int, int, int]


def triple(value: Any, name: str) -> Triple:
    """(v, v, v) from v, or the triple itself; a ShapeError for anything else."""
    given = tuple(map(whole, value)) if isinstance(value, tuple | list) else (whole(value),) * 3
    if len(given) == 3 and all(isinstance(one, int) and not isinstance(one, bool) for one in given):
        return given[0], given[1], given[2]
    raise shape_error(f"{name} is an int or three ints, got {value!r}")


def volumes(name: str, x: Array) -> Array:
    """(N, C, D, H, W), with an N of 1 where there was none."""
    if x.ndim not in (4, 5):
        raise shape_error(f"{name} needs an input of (N, C, D, H, W) or (C, D, H, W), got {x.type}", x)
    return reshape(x, (1, *x.shape)) if x.ndim == 4 else x


def _planes(x: Array) -> Array:
    """(N, C, D, H, W) -> (N, C * D, H, W)"""
    return flatten(x, 1, 2)


def _columns(x: Array, planes: Array) -> Array:
    """(N, C * D, h, w) -> (N, C, D, h * w), of planes that were those of `x`"""
    rows, columns = fixed_size("pooling", planes, 2), fixed_size("pooling", planes, 3)
    return reshape(planes, (*x.shape[:3], rows * columns))


def _volume(x: Array, columns: Array, planes: Array) -> Array:
    """(N, C, d, h * w) -> (N, C, d, h, w)"""
    return reshape(columns, (*x.shape[:2], columns.shape[2], *planes.shape[2:]))


def _sizes(kernel_size: Any, stride: Any, padding: Any) -> tuple[Triple, Triple, Triple]:
    kernel = triple(kernel_size, "kernel_size")
    return kernel, kernel if stride is None else triple(stride, "stride"), triple(padding, "padding")


def _deep_maxima(volume: Array, of_planes: Any, of_columns: Any) -> tuple[Array, Array]:
    """Maxima over image and depth, with their places in the D * H * W volume."""
    planes, places = of_planes(_planes(volume))
    values, chosen = of_columns(_columns(volume, planes))
    by_channel = reshape(places, (*volume.shape[:3], *planes.shape[2:]))
    inner = take_along_axis(flatten(by_channel, 2), flatten(chosen, 2), 2)
    area = fixed_size("pooling", planes, 2) * fixed_size("pooling", planes, 3)
    whole = fixed_size("pooling", volume, 3) * fixed_size("pooling", volume, 4)
    found = chosen // area * whole + reshape(inner, chosen.shape)
    return _volume(volume, values, planes), _volume(volume, found, planes)


def _maybe_both(array: Array, values: Array, places: Array, return_indices: bool, rank: int = 5) -> Any:
    if array.ndim < rank:
        values, places = reshape(values, values.shape[1:]), reshape(places, places.shape[1:])
    return (values, places) if return_indices else values


@public("max_pool3d")
def max_pool3d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W). torch's function; see `max_pool2d`."""
    array = as_array(x)
    volume = volumes("max_pool3d", array)
    (depth, *kernel), (step, *steps), (edge, *edges) = _sizes(kernel_size, stride, padding)
    deep, *apart = triple(dilation, "dilation")
    values, places = _deep_maxima(
        volume,
        lambda planes: max_pool2d(planes, kernel, steps, edges, apart, ceil_mode, True),
        lambda columns: max_pool2d(columns, (depth, 1), (step, 1), (edge, 0), (deep, 1), ceil_mode, True),
    )
    return _maybe_both(array, values, places, return_indices)


@public("avg_pool3d")
def avg_pool3d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W). torch's function; see `avg_pool2d`."""
    (array,) = promoted(x, floats=True)
    volume = volumes("avg_pool3d", array)
    (depth, *kernel), (step, *steps), (edge, *edges) = _sizes(kernel_size, stride, padding)
    check_divisor("avg_pool3d", divisor_override)
    one = None if divisor_override is None else 1  # the sums over planes, then those over columns by the divisor
    planes = avg_pool2d(_planes(volume), kernel, steps, edges, ceil_mode, count_include_pad, one)
    columns = _columns(volume, planes)
    y = avg_pool2d(columns, (depth, 1), (step, 1), (edge, 0), ceil_mode, count_include_pad, divisor_override)
    values = _volume(volume, y, planes)
    return reshape(values, values.shape[1:]) if array.ndim == 4 else values


def _wanted(output_size: Any) -> tuple[Any, Any, Any]:
    given = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * 3
    if len(given) != 3:
        raise shape_error(f"output_size is an int or three, each an int or None, got {output_size!r}")
    return given


@public("adaptive_avg_pool1d")
def adaptive_avg_pool1d(x: Any, output_size: Any) -> Array:
    """Average pooling of (N, C, L) or (C, L) to `output_size` elements. torch's function; see `adaptive_avg_pool2d`."""
    size = output_size[0] if isinstance(output_size, tuple | list) else output_size
    y: Array = on_lines("adaptive_avg_pool1d", x, lambda line: adaptive_avg_pool2d(line, (1, size)))
    return y


@public("adaptive_max_pool1d")
def adaptive_max_pool1d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum pooling of (N, C, L) or (C, L) to `output_size` elements. torch's function; see `adaptive_max_pool2d`."""
    size = output_size[0] if isinstance(output_size, tuple | list) else output_size
    values, places = on_lines("adaptive_max_pool1d", x, lambda line: adaptive_max_pool2d(line, (1, size), True))
    return (values, places) if return_indices else values


@public("adaptive_avg_pool3d")
def adaptive_avg_pool3d(x: Any, output_size: Any) -> Array:
    """Average pooling of (N, C, D, H, W) or (C, D, H, W) to `output_size`. torch's function; see
    `adaptive_avg_pool2d`.
    """
    (array,) = promoted(x, floats=True)
    volume = volumes("adaptive_avg_pool3d", array)
    depth, *size = _wanted(output_size)
    planes = adaptive_avg_pool2d(_planes(volume), size)
    values = _volume(volume, adaptive_avg_pool2d(_columns(volume, planes), (depth, None)), planes)
    return reshape(values, values.shape[1:]) if array.ndim == 4 else values


@public("adaptive_max_pool3d")
def adaptive_max_pool3d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum pooling of (N, C, D, H, W) or (C, D, H, W) to `output_size`. torch's function; see
    `adaptive_max_pool2d`.
    """
    array = as_array(x)
    volume = volumes("adaptive_max_pool3d", array)
    depth, *size = _wanted(output_size)
    values, places = _deep_maxima(
        volume,
        lambda planes: adaptive_max_pool2d(planes, size, True),
        lambda columns: adaptive_max_pool2d(columns, (depth, None), True),
    )
    return _maybe_both(array, values, places, return_indices)


# ---- norms ----------------------------------------------------------------------------------------


def _root(means: Array, norm_type: float, count: int) -> Array:
    """(count * mean)^(1 / p), with slope 0 where it is 0."""
    total = means * float(count)
    return where(total == 0, 0.0, pow_(where(total == 0, 1.0, total), 1.0 / norm_type))


def _power(name: str, x: Any, norm_type: float) -> Array:
    is_power = is_number(norm_type) and math.isfinite(norm_type) and norm_type > 0
    check_argument(is_power, f"{name}: norm_type is a number above 0, got {norm_type}")
    return pow_(as_float(x), norm_type)


@public("lp_pool1d")
def lp_pool1d(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Array:
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, L). torch's function."""
    means = avg_pool1d(_power("lp_pool1d", x, norm_type), kernel_size, stride, 0, ceil_mode)
    size = kernel_size[0] if isinstance(kernel_size, tuple | list) else kernel_size
    return _root(means, norm_type, size)


@public("lp_pool2d")
def lp_pool2d(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Array:
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, H, W). torch's function."""
    means = avg_pool2d(_power("lp_pool2d", x, norm_type), kernel_size, stride, 0, ceil_mode)
    sizes = kernel_size if isinstance(kernel_size, tuple | list) else (kernel_size,) * 2
    return _root(means, norm_type, math.prod(sizes))


@public("lp_pool3d")
def lp_pool3d(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Array:
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, D, H, W). torch's function."""
    means = avg_pool3d(_power("lp_pool3d", x, norm_type), kernel_size, stride, 0, ceil_mode)
    return _root(means, norm_type, math.prod(triple(kernel_size, "kernel_size")))


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


def _fractional(
    name: str, x: Any, kernel: Sequence[int], output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Array, Array, list[Windows]]:
    """The array with a batch, and the windows along each axis."""
    array, rank = as_array(x), len(kernel)
    if array.ndim not in (rank + 1, rank + 2):
        raise shape_error(f"{name} needs an input of {rank + 2} axes, or {rank + 1} without a batch, got {array.type}")
    image = reshape(array, (1, *array.shape)) if array.ndim == rank + 1 else array
    sizes = [fixed_size(name, image, 2 + axis) for axis in range(rank)]
    if (output_size is None) == (output_ratio is None):
        raise shape_error(f"{name} takes output_size or output_ratio, and one of them")
    if output_size is not None:
        wanted = list(output_size) if isinstance(output_size, tuple | list) else [output_size] * rank
    else:
        ratios = output_ratio if isinstance(output_ratio, tuple | list) else (output_ratio,) * rank
        wanted = [int(size * ratio) for size, ratio in zip(sizes, ratios, strict=True)]
    for size, count, window in zip(sizes, wanted, kernel, strict=True):
        if not 1 <= count <= size - window + 1:
            raise shape_error(f"{name}: {tuple(wanted)} windows of {tuple(kernel)} do not fit into {array.type}", array)
    if samples is None:
        samples = uniform((*image.shape[:2], rank), dtype=float_dtype(array.dtype, weak=False))
    drawn = as_float(samples)
    if drawn.shape != (*image.shape[:2], rank):
        raise shape_error(f"{name}: samples have the shape {(*image.shape[:2], rank)}, got {drawn.type}", drawn)
    # torch's samples of an image are for its columns first, those of a volume for its depth first.
    order = (1, 0) if rank == 2 else (0, 1, 2)
    windows = [
        _chance_windows(drawn[:, :, order[axis]], sizes[axis], wanted[axis], kernel[axis]) for axis in range(rank)
    ]
    return array, image, windows


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
    kernel = tuple(kernel_size) if isinstance(kernel_size, tuple | list) else (kernel_size,) * 2
    array, image, (rows, columns) = _fractional(
        "fractional_max_pool2d", x, kernel, output_size, output_ratio, _random_samples
    )
    values, places = pooled_at(image, rows, columns)
    return _maybe_both(array, values, places, return_indices, 4)


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
    kernel = triple(kernel_size, "kernel_size")
    array, volume, (depth, rows, columns) = _fractional(
        "fractional_max_pool3d", x, kernel, output_size, output_ratio, _random_samples
    )
    count = fixed_size("fractional_max_pool3d", volume, 2)

    def of_planes(planes: Array) -> tuple[Array, Array]:
        def each_depth(windows: Windows) -> Windows:
            assert isinstance(windows, Array)
            shape = (*windows.shape[:2], count, *windows.shape[2:])
            wide = broadcast(reshape(windows, (*shape[:2], 1, *shape[3:])), shape)
            return reshape(wide, (*planes.shape[:2], *shape[3:]))

        return pooled_at(planes, each_depth(rows), each_depth(columns))

    values, places = _deep_maxima(volume, of_planes, lambda y: pooled_at(y, depth, 1))
    return _maybe_both(array, values, places, return_indices)


# ---- back -----------------------------------------------------------------------------------------


def _unpool(
    name: str, x: Any, indices: Any, kernel: Any, stride: Any, padding: Any, output_size: Any, rank: int
) -> Array:
    array, places = as_array(x), as_array(indices)
    if array.ndim not in (rank + 1, rank + 2) or array.shape != places.shape:
        raise shape_error(f"{name} needs maxima and their places of one shape, got {array.type} and {places.type}")
    if not places.dtype.is_integer:
        raise dtype_error(f"{name} needs integer places, got {places.type}", places)
    sizes = [fixed_size(name, array, array.ndim - rank + axis) for axis in range(rank)]
    if output_size is None:
        steps = kernel if stride is None else stride
        windows, jumps, edges = (
            tuple(each) if isinstance(each, tuple | list) else (each,) * rank for each in (kernel, steps, padding)
        )
        wanted = [(sizes[a] - 1) * jumps[a] + windows[a] - 2 * edges[a] for a in range(rank)]
    else:
        wanted = [int(size) for size in output_size][-rank:]
    if len(wanted) != rank or min(wanted) < 1:
        raise shape_error(f"{name}: an image of {tuple(wanted)} does not go")
    lead = array.shape[: array.ndim - rank]
    planes = math.prod(fixed_size(name, array, axis) for axis in range(array.ndim - rank))
    area, count = math.prod(wanted), math.prod(sizes)
    # Each place counts from its own plane, in which it must lie.
    own = take_along_axis(broadcast(iota((area,)), (planes, area)), reshape(cast(places, i64), (planes, count)), 1)
    flat = reshape(own + reshape(iota((planes,)), (planes, 1)) * area, (planes * count,))
    empty = full((planes * area,), 0, array.dtype)
    return reshape(scattered(empty, flat, reshape(array, (planes * count,)), 0), (*lead, *wanted))


@public("max_unpool1d")
def max_unpool1d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Array:
    """Maxima put back where they were, zeros elsewhere: the inverse of `max_pool1d`. torch's function of this name.

    `indices` are the places that `return_indices` gives. Of a place that comes twice the last maximum stays.
    """
    return _unpool("max_unpool1d", x, indices, kernel_size, stride, padding, output_size, 1)


@public("max_unpool2d")
def max_unpool2d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Array:
    """Maxima put back where they were, zeros elsewhere: the inverse of `max_pool2d`. torch's function of this name."""
    return _unpool("max_unpool2d", x, indices, kernel_size, stride, padding, output_size, 2)


@public("max_unpool3d")
def max_unpool3d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Array:
    """Maxima put back where they were, zeros elsewhere: the inverse of `max_pool3d`. torch's function of this name."""
    return _unpool("max_unpool3d", x, indices, kernel_size, stride, padding, output_size, 3)
