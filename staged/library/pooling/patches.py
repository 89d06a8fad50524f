"""Windows of images as columns and back, and channels traded for resolution: moves of elements, and sums of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from staged.ir.sizes import Extent, exact_quotient
from staged.ir.types import Shape
from staged.library.pooling.ranks import check_windows, extents, sizes
from staged.ops.array import Array
from staged.ops.checks import check_sizes, known_extent
from staged.ops.convolution import Sizes, window_count
from staged.ops.joining import stack
from staged.ops.promote import as_array, axis_of, fixed_size, shape_error, whole
from staged.ops.public import public
from staged.ops.shape import embed, pad, permute_dims, reshape, slice_axis


def _windows(name: str, size: Shape, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Shape:
    """The number of windows along both axes."""
    if min(*kernel, *stride, *dilation) < 1 or min(padding) < 0:
        raise shape_error(f"{name}: kernel {kernel}, stride {stride}, padding {padding}, dilation {dilation} do not go")
    counts = [window_count(size[a], kernel[a], stride[a], padding[a], dilation[a]) for a in (0, 1)]
    if 0 in counts:
        raise shape_error(f"{name}: a kernel {kernel} is larger than the padded image {size}")
    return tuple(counts)


def _images(name: str, x: Array, rank: int, layout: str) -> tuple[Array, bool]:
    """The array with a batch, and whether it had one."""
    if x.ndim not in (rank - 1, rank):
        raise shape_error(f"{name} needs an input of {layout}, with or without N, got {x.type}", x)
    return (x, True) if x.ndim == rank else (reshape(x, (1, *x.shape)), False)


@public("unfold")
def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Array:
    """Each window of images as a column. torch `nn.functional.unfold`, known as im2col.

    Shapes: x (N, C, H, W) or (C, H, W) to (N, C * kH * kW, windows), the windows row by row.
    """
    image, batched = _images("unfold", as_array(x), 4, "(N, C, H, W)")
    kernel, step, edge = sizes(kernel_size, "kernel_size", 2), sizes(stride, "stride", 2), sizes(padding, "padding", 2)
    apart = sizes(dilation, "dilation", 2)
    rows, columns = _windows("unfold", image.shape[2:], kernel, apart, edge, step)
    check_windows("unfold", image, (rows, columns))
    wide = pad(image, [(0, 0), (0, 0), (edge[0],) * 2, (edge[1],) * 2])
    taps = []
    for i, j in product(range(kernel[0]), range(kernel[1])):
        tap = slice_axis(wide, 2, i * apart[0], i * apart[0] + (rows - 1) * step[0] + 1, step[0])
        taps.append(slice_axis(tap, 3, j * apart[1], j * apart[1] + (columns - 1) * step[1] + 1, step[1]))
    channels = fixed_size("unfold", image, 1)
    shape = (image.shape[0], channels * kernel[0] * kernel[1], rows * columns)
    y = reshape(stack(taps, 2), shape)
    return y if batched else reshape(y, y.shape[1:])


@public("fold")
def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Array:
    """The transpose of `unfold`: columns added up where their windows are. torch `nn.functional.fold`.

    Shapes: x (N, C * kH * kW, windows) or without N, to (N, C, *output_size).
    """
    array, batched = _images("fold", as_array(x), 3, "(N, C * kH * kW, windows)")
    kernel, step, edge = sizes(kernel_size, "kernel_size", 2), sizes(stride, "stride", 2), sizes(padding, "padding", 2)
    apart, size = sizes(dilation, "dilation", 2), extents(output_size, "output_size", 2)
    rows, columns = _windows("fold", size, kernel, apart, edge, step)
    taps = kernel[0] * kernel[1]
    width, count = fixed_size("fold", array, 1), array.shape[2]
    if width % taps or count != rows * columns:
        raise shape_error(
            f"fold: {array.type} does not have columns of {taps} taps for {rows} x {columns} windows",
            array,
            hint=f"an image of {size} has {rows * columns} windows of {kernel}",
        )
    parts = reshape(array, (array.shape[0], width // taps, taps, rows, columns))
    wide = (array.shape[0], width // taps, size[0] + 2 * edge[0], size[1] + 2 * edge[1])
    total: Array | None = None
    for number, (i, j) in enumerate(product(range(kernel[0]), range(kernel[1]))):
        tap = reshape(slice_axis(parts, 2, number, number + 1), (*parts.shape[:2], rows, columns))
        placed = embed(tap, wide, (0, 0, i * apart[0], j * apart[1]), (1, 1, *step))
        total = placed if total is None else total + placed
    assert total is not None
    y = slice_axis(slice_axis(total, 2, edge[0], edge[0] + size[0]), 3, edge[1], edge[1] + size[1])
    return y if batched else reshape(y, y.shape[1:])


# ---- channels -------------------------------------------------------------------------------------


def _factor(name: str, what: str, value: Any) -> int:
    value = whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise shape_error(f"{name}: {what} is an int of at least 1, got {value!r}")
    return value


def _divided(name: str, x: Array, axis: int, by: int) -> tuple[Array, Extent]:
    """The array, and the extent of an axis divided by a number, which must divide it."""
    extent = x.shape[axis]
    count = extent // by
    message = f"{name}: the {extent} elements along axis {axis} of {x.type} are no multiple of {by}"
    check_sizes(count * by >= extent, message, x)
    return slice_axis(x, axis, 0, count * by), count


def _ranked(name: str, x: Any, least: int, layout: str) -> Array:
    array = as_array(x)
    if array.ndim < least:
        raise shape_error(f"{name} needs an input of {layout}, got {array.type}", array)
    return array


@public("pixel_shuffle")
def pixel_shuffle(x: Any, upscale_factor: int) -> Array:
    """Channels traded for resolution: (.., C * r^2, H, W) to (.., C, H * r, W * r). torch's function of this name.

    Source: Shi et al., Real-time single image and video super-resolution, 2016.
    """
    array, r = (
        _ranked("pixel_shuffle", x, 3, "(.., C * r^2, H, W)"),
        _factor("pixel_shuffle", "upscale_factor", upscale_factor),
    )
    array, channels = _divided("pixel_shuffle", array, array.ndim - 3, r * r)
    lead, n = array.shape[:-3], array.ndim - 3
    height, width = array.shape[n + 1 :]
    parts = reshape(array, (*lead, channels, r, r, height, width))
    moved = permute_dims(parts, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(moved, (*lead, channels, height * r, width * r))


@public("pixel_unshuffle")
def pixel_unshuffle(x: Any, downscale_factor: int) -> Array:
    """The inverse of `pixel_shuffle`: (.., C, H * r, W * r) to (.., C * r^2, H, W). torch's function of this name."""
    array = _ranked("pixel_unshuffle", x, 3, "(.., C, H * r, W * r)")
    r = _factor("pixel_unshuffle", "downscale_factor", downscale_factor)
    n, lead = array.ndim - 3, array.shape[:-3]
    array, height = _divided("pixel_unshuffle", array, n + 1, r)
    array, width = _divided("pixel_unshuffle", array, n + 2, r)
    channels = array.shape[n]
    parts = reshape(array, (*lead, channels, height, r, width, r))
    moved = permute_dims(parts, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(moved, (*lead, channels * r * r, height, width))


@public("channel_shuffle")
def channel_shuffle(x: Any, groups: int) -> Array:
    """The channels of (N, C, ..) dealt out anew over groups: channel (g, i) becomes (i, g). torch's function.

    Source: Zhang et al., ShuffleNet, 2018.
    """
    array, count = _ranked("channel_shuffle", x, 3, "(N, C, ..)"), _factor("channel_shuffle", "groups", groups)
    array, per_group = _divided("channel_shuffle", array, 1, count)
    parts = reshape(array, (array.shape[0], count, per_group, *array.shape[2:]))
    order = (0, 2, 1, *range(3, array.ndim + 1))
    return reshape(permute_dims(parts, order), array.shape)


@public("unflatten", method=True)
def unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Array:
    """`x` with one axis divided into several of `sizes`; one of these may be -1. torch `unflatten`."""
    array = as_array(x)
    axis = axis_of(dim, array.ndim, "unflatten")
    wanted = [known_extent("unflatten", "sizes", size) for size in sizes]
    if wanted.count(-1) > 1:
        raise shape_error(f"unflatten: only one of the sizes {tuple(wanted)} may be -1", array)
    known = math.prod(size for size in wanted if size != -1)
    extent = array.shape[axis]
    missing = exact_quotient(extent, known) if -1 in wanted else None
    if missing is not None:
        wanted[wanted.index(-1)] = missing
    elif -1 in wanted or known != extent:
        raise shape_error(f"unflatten: {tuple(wanted)} does not make up {extent}, axis {dim} of {array.type}", array)
    return reshape(array, (*array.shape[:axis], *wanted, *array.shape[axis + 1 :]))
