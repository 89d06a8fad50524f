"""Maxima, means and norms over windows of lines, images and volumes, and the inverse of maxima."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from staged.ir.sizes import Extent, Size, largest, product, smallest
from staged.ir.types import i64
from staged.library.pooling.ranks import check_windows, pooled, sizes
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.choice import where
from staged.ops.context import bind, bind_all
from staged.ops.elementwise import maximum, minimum, pow_
from staged.ops.index import scattered, take_along_axis
from staged.ops.pooling import avg_pool_op, max_pool_op
from staged.ops.promote import (
    as_array,
    as_float,
    broadcast,
    cast,
    check_argument,
    check_known,
    dtype_error,
    is_number,
    promoted,
    shape_error,
)
from staged.ops.public import public
from staged.ops.shape import pad, reshape
from staged.ops.source import full, iota


class Window(NamedTuple):
    """The windows along an axis; `divisor` is instead of their size in a mean."""

    kernel: int
    stride: int
    padding: int
    dilation: int = 1
    divisor: int | None = None


_WHOLE = Window(1, 1, 0)


def _windows(rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1) -> list[Window]:
    kernel = sizes(kernel_size, "kernel_size", rank)
    steps = kernel if stride is None else sizes(stride, "stride", rank)
    edges, apart = sizes(padding, "padding", rank), sizes(dilation, "dilation", rank)
    return [Window(*each) for each in zip(kernel, steps, edges, apart, strict=True)]


def _attrs(axes: Sequence[Window], *names: str) -> dict[str, tuple[int, int]]:
    return {name: (getattr(axes[0], name), getattr(axes[1], name)) for name in names}


def _longer(image: Array, axes: Sequence[Window], value: Any) -> Array:
    """The images, padded with `value` after each axis by what the last window lacks, if windows need only begin on the
    image (`ceil_mode`).
    """
    if min(min(axis.kernel, axis.stride, axis.dilation) for axis in axes) < 1:
        return image  # the type rule raises an error
    more = []
    for number, (kernel, stride, padding, dilation, _) in enumerate(axes):
        extent, reach = image.shape[2 + number], dilation * (kernel - 1) + 1
        # none begins in the padding after the image
        count = smallest(-(-(extent + 2 * padding - reach) // stride) + 1, -(-(extent + padding) // stride))
        more.append((0, largest(extent, (count - 1) * stride + reach - 2 * padding) - extent))
    return pad(image, [(0, 0), (0, 0), *more], value=value) if any(after != 0 for _, after in more) else image


# ---- maxima ---------------------------------------------------------------------------------------


def _check_elements(image: Array, windows: Array, axes: Sequence[Window]) -> None:
    """Raise ShapeError if a window contains padding alone: wide steps can lead over the whole image."""
    for number, (_, stride, padding, dilation, _) in enumerate(axes):
        extent, count = image.shape[2 + number], windows.shape[2 + number]
        begins = range(-padding, 0, stride)
        for begin in begins if isinstance(count, Size) else begins[:count]:
            # From padding before the image to the first place on it; windows that begin on it have an element there.
            kernel, edges, apart = zip(*(axis[:1] + axis[2:4] for axis in axes), strict=True)
            message = (
                f"max_pool2d: with kernel {kernel}, padding {edges}, dilation {apart} a window of {image.type} "
                f"has padding alone"
            )
            check_sizes(begin + -(begin // dilation) * dilation < extent, message, image)


def maxima(image: Array, axes: Sequence[Window], ceil_mode: bool, return_indices: bool) -> tuple[Array, Array | None]:
    """The maxima of windows of images, and their positions in the H * W plane."""
    wide = image
    # For a bool or complex image, which does not have a lowest number, the type rule raises an error.
    if ceil_mode and (image.dtype.is_float or image.dtype.is_integer):
        lowest = -math.inf if image.dtype.is_float else int(np.iinfo(image.dtype.numpy).min)
        wide = _longer(image, axes, lowest)
    values, places = bind_all(max_pool_op, [wide], **_attrs(axes, "kernel", "stride", "padding", "dilation"))
    check_windows("max_pool2d", image, values.shape[2:])
    if any(axis.padding for axis in axes):
        for extent in image.shape[2:]:
            check_sizes(extent > 0, f"max_pool2d: images must have elements, got {image.type}", image)
    if any(axis.dilation != 1 for axis in axes):
        _check_elements(image, values, axes)
    if not return_indices:
        return values, None
    padded, width = wide.shape[3], image.shape[3]
    if padded != width:
        places = cast(places, i64)
        places = places // padded * width + places % padded
    return values, places


def _max_pool(rank: int, x: Any, axes: Sequence[Window], ceil_mode: bool, return_indices: bool) -> Any:
    return pooled(
        f"max_pool{rank}d",
        as_array(x),
        axes,
        _WHOLE,
        lambda image, axes: maxima(image, axes, ceil_mode, return_indices),
    )


@public("max_pool1d")
def max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window of (N, C, L) or (C, L). torch `nn.functional.max_pool1d`; see `max_pool2d`."""
    return _max_pool(1, x, _windows(1, kernel_size, stride, padding, dilation), ceil_mode, return_indices)


@public("max_pool2d")
def max_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window; `stride` is the kernel size unless given. torch `nn.functional.max_pool2d`.

    Shapes: x (N, C, H, W) or (C, H, W). Elements of a window are `dilation` apart. Ties give their gradient to the
    first. Padding is never chosen. With `ceil_mode` the last window may reach over the edge. `return_indices` gives
    (maxima, places), of positions in the H * W plane. Raises ShapeError if a window has padding alone.
    """
    return _max_pool(2, x, _windows(2, kernel_size, stride, padding, dilation), ceil_mode, return_indices)


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
    return _max_pool(3, x, _windows(3, kernel_size, stride, padding, dilation), ceil_mode, return_indices)


# ---- means ----------------------------------------------------------------------------------------


def _counted(count: Extent, extent: Extent, axis: Window, with_padding: bool, like: Array) -> Array:
    """The number of elements of each window along an axis that are inside the image, or inside it and its padding."""
    edge = axis.padding if with_padding else 0
    begin = iota((count,)) * axis.stride - axis.padding
    return cast(minimum(begin + axis.kernel, extent + edge) - maximum(begin, -edge), like.dtype)


def means(image: Array, axes: Sequence[Window], ceil_mode: bool = False, with_padding: bool = True) -> Array:
    """The means of windows of images."""
    wide = _longer(image, axes, 0.0) if ceil_mode else image
    values = bind(avg_pool_op, [wide], **_attrs(axes, "kernel", "stride", "padding"))
    check_windows("avg_pool2d", image, values.shape[2:])
    size, divisors = axes[0].kernel * axes[1].kernel, [axis.divisor for axis in axes if axis.divisor is not None]
    if divisors:
        return values * (size / math.prod(divisors))
    if wide is image and (with_padding or not any(axis.padding for axis in axes)):
        return values
    # The mean is over all elements of a window; these are those that count.
    rows, columns = (_counted(values.shape[2 + a], image.shape[2 + a], axes[a], with_padding, image) for a in (0, 1))
    return values * (float(size) / (reshape(rows, (-1, 1)) * columns))


def _avg_pool(
    rank: int, x: Any, axes: list[Window], ceil_mode: bool, count_include_pad: bool, divisor: int | None = None
) -> Array:
    name = f"avg_pool{rank}d"
    (array,) = promoted(x, floats=True)
    check_known(name, "divisor_override", divisor)
    check_argument(divisor is None or divisor != 0, f"{name}: divisor_override is not 0")
    if divisor is not None:  # sums over planes, then sums over columns by the divisor
        axes = [axis._replace(divisor=1 if number else divisor) for number, axis in enumerate(axes)]
    values: Array = pooled(
        name, array, axes, _WHOLE, lambda image, axes: (means(image, axes, ceil_mode, count_include_pad), None)
    )
    return values


@public("avg_pool1d")
def avg_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of (N, C, L) or (C, L). torch `nn.functional.avg_pool1d`; see `avg_pool2d`."""
    return _avg_pool(1, x, _windows(1, kernel_size, stride, padding), ceil_mode, count_include_pad)


@public("avg_pool2d")
def avg_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The mean of each window; `stride` defaults to the kernel size. torch `nn.functional.avg_pool2d`.

    Shapes: x (N, C, H, W) or (C, H, W). Padding counts as zeros, or not at all without `count_include_pad`; the part of
    a `ceil_mode` window past the edge never counts. With `divisor_override` the sum divided by that. Integers become
    f32.
    """
    return _avg_pool(2, x, _windows(2, kernel_size, stride, padding), ceil_mode, count_include_pad, divisor_override)


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
    return _avg_pool(3, x, _windows(3, kernel_size, stride, padding), ceil_mode, count_include_pad, divisor_override)


# ---- norms ----------------------------------------------------------------------------------------


def _lp_pool(rank: int, x: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Array:
    """(sum of powers)^(1 / p). The derivative at 0 is 0."""
    is_power = is_number(norm_type) and math.isfinite(norm_type) and norm_type > 0
    check_argument(is_power, f"lp_pool{rank}d: norm_type is a number above 0, got {norm_type}")
    axes = _windows(rank, kernel_size, stride, 0)
    means = _avg_pool(rank, pow_(as_float(x), norm_type), axes, ceil_mode, True)
    total = means * float(math.prod(axis.kernel for axis in axes))
    return where(total == 0, 0.0, pow_(where(total == 0, 1.0, total), 1.0 / norm_type))


@public("lp_pool1d")
def lp_pool1d(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Array:
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, L). torch's function."""
    return _lp_pool(1, x, norm_type, kernel_size, stride, ceil_mode)


@public("lp_pool2d")
def lp_pool2d(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Array:
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, H, W). torch's function."""
    return _lp_pool(2, x, norm_type, kernel_size, stride, ceil_mode)


@public("lp_pool3d")
def lp_pool3d(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Array:
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, D, H, W). torch's function."""
    return _lp_pool(3, x, norm_type, kernel_size, stride, ceil_mode)


# ---- inverse of maxima -----------------------------------------------------------------------------------------


def _unpool(rank: int, x: Any, indices: Any, kernel: Any, stride: Any, padding: Any, output_size: Any) -> Array:
    name = f"max_unpool{rank}d"
    array, places = as_array(x), as_array(indices)
    if array.ndim not in (rank + 1, rank + 2) or array.shape != places.shape:
        raise shape_error(f"{name} needs maxima and their places of one shape, got {array.type} and {places.type}")
    if not places.dtype.is_integer:
        raise dtype_error(f"{name} needs integer places, got {places.type}", places)
    lead, counts = array.shape[:-rank], array.shape[-rank:]
    if output_size is None:
        axes = _windows(rank, kernel, stride, padding)
        wanted = [(n - 1) * axis.stride + axis.kernel - 2 * axis.padding for n, axis in zip(counts, axes, strict=True)]
    else:
        wanted = [size if isinstance(size, Size) else int(size) for size in output_size][-rank:]
    for extent in wanted:
        check_sizes(len(wanted) == rank and extent > 0, f"{name}: an image of {tuple(wanted)} does not go")
    planes, area, count = product(lead), product(wanted), product(counts)
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

    `indices` are the second result of `max_pool1d` with `return_indices`. If an index occurs twice, the last maximum
    stays.
    """
    return _unpool(1, x, indices, kernel_size, stride, padding, output_size)


@public("max_unpool2d")
def max_unpool2d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Array:
    """Maxima put back where they were, zeros elsewhere: the inverse of `max_pool2d`. torch's function of this name."""
    return _unpool(2, x, indices, kernel_size, stride, padding, output_size)


@public("max_unpool3d")
def max_unpool3d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Array:
    """Maxima put back where they were, zeros elsewhere: the inverse of `max_pool3d`. torch's function of this name."""
    return _unpool(3, x, indices, kernel_size, stride, padding, output_size)
