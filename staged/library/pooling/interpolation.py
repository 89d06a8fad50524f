"""Images at other sizes and at other places: `interpolate`, `grid_sample`, `affine_grid`, as torch has them.

Resizing is done axis by axis. Nearest neighbours by a whole factor repeat elements; other modes read the elements
around each place and weigh them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from staged.errors import ArgumentError
from staged.ir.sizes import Extent, exact_quotient, largest
from staged.ir.types import Shape, f32, f64, i64
from staged.library.pooling.adaptive_pooling import adaptive_means
from staged.ops.array import Array
from staged.ops.checks import check_sizes, known_extent
from staged.ops.choice import stop_gradient, where
from staged.ops.comparisons import clip
from staged.ops.dimension import as_extent, real_number
from staged.ops.elementwise import abs_, floor, isnan, round_
from staged.ops.index import take
from staged.ops.promote import (
    as_array,
    as_float,
    broadcast,
    cast,
    check_argument,
    check_real,
    is_number,
    plain_number,
    promoted,
    shape_error,
)
from staged.ops.public import public
from staged.ops.shape import expand_dims, matrix_transpose, moveaxis, reshape
from staged.ops.source import iota
from staged.source import here

_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_FINEST = 2**16
"""The largest divisor of a factor for sizes that the program finds."""
_CUBIC_STEPS = (-1, 0, 1, 2)
"""The elements that a bicubic mode reads, counted from the one at or before the place."""
_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area")


def _options(name: str, what: str, given: Any, known: Sequence[str]) -> None:
    if given not in known:
        raise ArgumentError(f"{name}: {what} is one of {', '.join(map(repr, known))}, got {given!r}", where=here())


@public("interpolate")
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Array:
    """(N, C, L), (N, C, H, W) or (N, C, D, H, W) at another `size`, or at `scale_factor` times its own.

    `mode` is "nearest", "nearest-exact", "area" (means over windows), or "linear", "bilinear", "bicubic", "trilinear"
    by the number of axes. With `align_corners` the first and last elements stay where they are, else the edges do.
    torch `nn.functional.interpolate`. Source of bicubic: Keys, Cubic convolution interpolation, 1981, with a = -0.75.
    """
    array = as_float(x) if mode not in ("nearest", "nearest-exact") else as_array(x)
    rank = array.ndim - 2
    _options("interpolate", "mode", mode, _MODES)
    if rank not in (1, 2, 3) or _RANKS.get(mode, rank) != rank:
        raise shape_error(
            f"interpolate: mode {mode!r} does not fit {array.type}", array, hint="the layout is (N, C, ..)"
        )
    if align_corners is not None and mode not in _RANKS:
        raise ArgumentError(f"interpolate: align_corners is for linear and cubic modes, not for {mode!r}", where=here())
    given = array.shape[2:]
    wanted, scales = _resized(array, given, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return adaptive_means("interpolate", array, rank, wanted)
    for axis in range(rank):
        times = exact_quotient(wanted[axis], given[axis])
        if mode == "nearest" and isinstance(times, int) and _is_whole(scales[axis]):
            array = _repeated(array, 2 + axis, times)
        elif mode.startswith("nearest"):
            array = take(array, _nearest(given[axis], wanted[axis], scales[axis], mode), 2 + axis)
        elif wanted[axis] != given[axis] or scales[axis] is not None:
            array = _weighed(array, 2 + axis, wanted[axis], scales[axis], mode, bool(align_corners))
    return array


def _resized(
    array: Array, given: Shape, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[Extent], list[float | None]]:
    """The wanted sizes, and the factors that were given and are to be used for places."""
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate takes size or scale_factor, and one of them", where=here())
    if size is not None:
        found = [as_extent(one) for one in (size if isinstance(size, tuple | list) else [size] * len(given))]
        sizes = [one for one in found if one is not None]
        message = f"interpolate: a size {size!r} does not fit {array.type}"
        check_sizes(len(given) == len(found) == len(sizes), message, array)
        for one in sizes:
            check_sizes(one > 0, message, array)
        if recompute:
            raise ArgumentError("interpolate: recompute_scale_factor goes with scale_factor", where=here())
        return sizes, [None] * len(given)
    factors = [
        plain_number(one)
        for one in (scale_factor if isinstance(scale_factor, tuple | list) else [scale_factor] * len(given))
    ]
    if len(factors) != len(given) or not all(is_number(one) and one > 0 for one in factors):
        raise shape_error(f"interpolate: scale_factor {scale_factor!r} does not fit {array.type}", array)
    sizes = [_times(array, extent, float(factor)) for extent, factor in zip(given, factors, strict=True)]
    for one in sizes:
        message = f"interpolate: scale_factor {scale_factor!r} leaves nothing of {array.type}"
        check_sizes(one > 0, message, array)
    return sizes, [None] * len(given) if recompute else [float(factor) for factor in factors]


def _times(array: Array, extent: Extent, factor: float) -> Extent:
    if isinstance(extent, int):
        return math.floor(extent * factor)
    above, below = factor.as_integer_ratio()
    if below > _FINEST:
        raise shape_error(
            f"interpolate: scale_factor {factor} of the size {extent} of {array.type} is not exact",
            array,
            hint="pass `size`, or a fraction with a power of two below",
        )
    return extent * above // below


def _is_whole(scale: float | None) -> bool:
    return scale is None or scale == int(scale)


def _repeated(x: Array, axis: int, times: int) -> Array:
    before, extent, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    if times == 1:
        return x
    wide = broadcast(expand_dims(x, axis + 1), (*before, extent, times, *after))
    return reshape(wide, (*before, extent * times, *after))


def _nearest(extent: Extent, count: Extent, scale: float | None, mode: str) -> Array:
    # In f32, as torch computes it: another rounding would be another element.
    step = extent / count if scale is None else 1.0 / scale
    number = cast(iota((count,)), f32)
    place = floor((number + 0.5) * step) if mode == "nearest-exact" else floor(number * step)
    return clip(cast(place, i64), 0, extent - 1)


def _weighed(x: Array, axis: int, count: Extent, scale: float | None, mode: str, corners: bool) -> Array:
    """Each new element a sum of its neighbours along an axis, weighed by their distances."""
    extent = x.shape[axis]
    number = cast(iota((count,)), f64)
    if corners:
        place = number * ((extent - 1) / largest(count - 1, 1) if count != 1 else 0.0)
    else:
        place = (number + 0.5) * (extent / count if scale is None else 1.0 / scale) - 0.5
        place = place if mode == "bicubic" else where(place < 0, 0.0, place)
    whole = floor(place)
    beyond, first = place - whole, cast(whole, i64)
    steps = _CUBIC_STEPS if mode == "bicubic" else (0, 1)
    weights = _cubic(beyond) if mode == "bicubic" else (1.0 - beyond, beyond)
    total: Array | None = None
    for step, weight in zip(steps, weights, strict=True):
        near = take(x, clip(first + step, 0, extent - 1), axis)
        part = near * reshape(cast(weight, x.dtype), (count, *[1] * (x.ndim - axis - 1)))
        total = part if total is None else total + part
    assert total is not None
    return total


_A = -0.75


def _cubic(t: Array) -> tuple[Array, Array, Array, Array]:
    """The weights of the elements at -1, 0, 1 and 2, of a place at t from 0."""

    def far(d: Array) -> Array:
        return ((d - 5.0) * d + 8.0) * d * _A - 4.0 * _A

    def near(d: Array) -> Array:
        return ((_A + 2.0) * d - (_A + 3.0)) * d * d + 1.0

    return far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)


# ---- places that are arrays -----------------------------------------------------------------------


@public("affine_grid")
def affine_grid(theta: Any, size: Sequence[int], align_corners: bool | None = None) -> Array:
    """The places that an affine map of each image gives, for `grid_sample`. torch `nn.functional.affine_grid`.

    Shapes: theta (N, 2, 3) and size (N, C, H, W), to (N, H, W, 2); or (N, 3, 4) and (N, C, D, H, W), to
    (N, D, H, W, 3).
    """
    matrix, extents = as_float(theta), tuple(known_extent("affine_grid", "size", extent) for extent in size)
    rank = len(extents) - 2
    if rank not in (2, 3) or matrix.shape != (extents[0], rank, rank + 1):
        raise shape_error(f"affine_grid: {matrix.type} does not fit a size {extents}", matrix)
    shape = extents[2:]
    parts = []
    for axis in reversed(range(rank)):
        count = shape[axis]
        step = 2.0 / (count - 1 if align_corners and count > 1 else count)
        start = (-1.0 if count > 1 else 0.0) if align_corners else -1.0 + 0.5 * step
        line = cast(iota((count,)), matrix.dtype) * step + start
        parts.append(broadcast(reshape(line, (count, *[1] * (rank - axis - 1))), shape))
    flat = [reshape(part, (1, -1, 1)) for part in parts]
    transposed = matrix_transpose(matrix)
    total = transposed[:, rank : rank + 1]
    for number, part in enumerate(flat):
        total = total + part * transposed[:, number : number + 1]
    return reshape(total, (extents[0], *shape, rank))


@public("grid_sample")
def grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Array:
    """Images at the places of a grid, which runs from -1 to 1 along each axis. torch `nn.functional.grid_sample`.

    Shapes: x (N, C, H, W) and grid (N, OH, OW, 2) of (column, row), to (N, C, OH, OW); or x (N, C, D, H, W) and grid
    (N, OD, OH, OW, 3). `mode` is "bilinear", "nearest", or of two axes "bicubic"; beyond the image there are zeros, or
    elements of its "border", or of its "reflection". -1 and 1 are the centres of the outer elements with
    `align_corners`, else their edges. Source: Jaderberg et al., Spatial transformer networks, 2015.
    """
    _options("grid_sample", "mode", mode, ("bilinear", "nearest", "bicubic"))
    _options("grid_sample", "padding_mode", padding_mode, ("zeros", "border", "reflection"))
    image, places = promoted(x, grid, floats=True)
    check_real("grid_sample", image, places)
    rank = image.ndim - 2
    fits = rank in (2, 3) and places.ndim == image.ndim and places.shape[-1] == rank
    if not fits or places.shape[0] != image.shape[0]:
        raise shape_error(
            f"grid_sample does not fit {image.type} and a grid {places.type}",
            image,
            places,
            hint="layouts: (N, C, H, W) and (N, OH, OW, 2), or (N, C, D, H, W) and (N, OD, OH, OW, 3)",
        )
    check_argument(mode != "bicubic" or rank == 2, "grid_sample: bicubic is of images with two axes")
    sizes = image.shape[2:]
    for extent in sizes:
        check_sizes(extent >= 1, f"grid_sample: there is nothing in {image.type}", image)
    coordinates = []
    for axis, extent in enumerate(sizes):
        unit = places[(..., rank - 1 - axis)]
        at = (unit + 1.0) * ((extent - 1) / 2) if align_corners else ((unit + 1.0) * extent - 1.0) * 0.5
        # Bicubic takes the elements around the place itself, each moved onto the image alone.
        coordinates.append(at if mode == "bicubic" else _kept(at, extent, padding_mode, bool(align_corners)))
    # Rows of channels, one for each element of all images.
    count = image.shape[0] * math.prod(sizes)
    rows = reshape(moveaxis(image, 1, -1), (count, image.shape[1]))
    if mode == "nearest":
        corners: list[list[tuple[Array, Array | None]]] = [[(round_(stop_gradient(at)), None)] for at in coordinates]
    else:
        corners = []
        for at, extent in zip(coordinates, sizes, strict=True):
            below = floor(stop_gradient(at))
            beyond = at - below
            if mode == "bicubic":
                around = [_kept(below + step, extent, padding_mode, bool(align_corners)) for step in _CUBIC_STEPS]
                corners.append(list(zip(around, _cubic(beyond), strict=True)))
            else:
                corners.append([(below, 1.0 - beyond), (below + 1.0, beyond)])
    batch = reshape(iota((image.shape[0],)), (-1, *[1] * rank))
    total: Array | None = None
    for chosen in product(*corners):
        flat = batch
        weight: Array | None = None
        outside: Array | None = None
        for (place, share), extent in zip(chosen, sizes, strict=True):
            # Compared as floats: a place far away, or NaN, is no integer. NaN is not outside: its weight is NaN.
            within = (place >= 0) & (place <= extent - 1)
            beyond = (place < 0) | (place > extent - 1)
            flat = flat * extent + cast(where(within, place, 0.0), i64)
            outside = beyond if outside is None else outside | beyond
            share = where(isnan(place), place, 1.0) if share is None else share
            weight = share if weight is None else weight * share
        near = take(rows, flat, 0)
        assert weight is not None and outside is not None
        factor = where(outside, 0.0, weight)
        part = near * expand_dims(factor, -1)
        total = part if total is None else total + part
    assert total is not None
    return moveaxis(total, -1, 1)


def _kept(place: Array, extent: Extent, padding_mode: str, corners: bool) -> Array:
    """A place moved onto the image: to its border, or by reflections at its edges."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, width = (0.0, extent - 1) if corners else (-0.5, extent)
        if width == 0:
            return place * 0.0
        span = real_number(largest(width, 1))
        away = abs_(place - low)
        times = floor(stop_gradient(away) / span)
        rest = away - times * span
        is_odd = times - 2.0 * floor(times * 0.5) > 0.5
        place = where(is_odd, span - rest, rest) + low
    # As in torch, a place on the border does not move with the grid: the next element beyond has no derivative.
    last = real_number(extent - 1)
    return where((place > 0.0) & (place < last), place, stop_gradient(clip(place, 0.0, last)))
