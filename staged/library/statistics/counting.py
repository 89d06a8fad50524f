"""Places among sorted numbers, counts of equal ones, and elements that a mask selects, up to a bound."""

from __future__ import annotations

import math
from typing import Any

from staged.ir.sizes import Extent, largest, smallest
from staged.ir.types import bool_, bound, f32, f64, i32, i64
from staged.library.statistics.cumulative import cumsum
from staged.ops.array import Array
from staged.ops.assumptions import decide
from staged.ops.checks import check_sizes, known_extent
from staged.ops.choice import where
from staged.ops.comparisons import clip, logical_and, logical_or, not_equal
from staged.ops.elementwise import isfinite, isinf, isnan, maximum, minimum
from staged.ops.index import scatter_add, take, take_along_axis
from staged.ops.joining import concat
from staged.ops.promote import (
    as_array,
    as_float,
    broadcast,
    broadcast_shapes,
    cast,
    check_argument,
    check_known,
    dtype_error,
    handle,
    promoted,
    shape_error,
    type_of,
    whole,
)
from staged.ops.public import Option, public
from staged.ops.reduction import any_, max_, min_, sum_
from staged.ops.shape import expand_dims, pad_axis, reshape, slice_axis
from staged.ops.sorting import ordered
from staged.ops.source import arange, full, iota, zeros
from staged.ops.wide_numbers import comparable, holding, settled

# ---- places among sorted numbers --------------------------------------------------------------------


@public("searchsorted")
def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, right: bool = False, out_int32: bool = False
) -> Array:
    """The places at which the numbers `v` keep a sorted `a` sorted, as i64, or i32 with `out_int32`. NumPy and torch
    `searchsorted`.

    Shapes: a (n,), v of any; or a (..., n), v (..., m), row by row. Among equal numbers the first place, or with
    `side="right"` the one after the last. NaN is the largest number. `sorter`, of the shape of `a`, are the places that
    sort it (`st.argsort(a)`). By bisection: log2(n) reads of `a` for each.
    """
    check_argument(side in ("left", "right"), f'searchsorted: side is "left" or "right", got {side!r}')
    rows, values = promoted(*comparable(a, v))
    if sorter is not None:
        order = as_array(sorter)
        if order.shape != rows.shape:
            raise shape_error(f"searchsorted: a sorter {order.type} does not sort {rows.type}", order, rows)
        rows = take_along_axis(rows, order, -1)
    if not rows.ndim or rows.ndim > 1 and rows.shape[:-1] != values.shape[:-1]:
        raise shape_error(f"searchsorted: {rows.type} is no sorted row for each row of {values.type}", rows, values)
    n = rows.shape[-1]
    if not isinstance(n, int):  # so that there is an element to compare with
        rows = pad_axis(rows, rows.ndim - 1, 0, 1, 0)
    after_equals = right or side == "right"
    shape, is_row = values.shape, rows.ndim == 1
    values = reshape(values, (-1,)) if is_row else values
    place = broadcast(cast(as_array(0), i64), values.shape)
    for step in reversed([1 << bit for bit in range(bound(n).bit_length() if n != 0 else 0)]):
        further = place + step
        at = minimum(further, n) - 1 if isinstance(n, int) else clip(further, 1, n + 1) - 1
        found = take(rows, at, 0) if is_row else take_along_axis(rows, at, -1)
        before = found <= values if after_equals else found < values
        if rows.dtype.is_float:
            before = logical_or(before, isnan(values) if after_equals else logical_and(isnan(values), ~isnan(found)))
        place = where(logical_and(further <= n, before), further, place)
    place = cast(place, i32) if out_int32 else place
    return reshape(place, shape) if is_row else place


@public("bucketize")
def bucketize(x: Any, boundaries: Any, *, right: bool = False, out_int32: bool = False) -> Array:
    """The bucket of each element between sorted `boundaries`, their ends (`right`: begins). torch `bucketize`."""
    return searchsorted(boundaries, x, right=right, out_int32=out_int32)


@public("digitize")
def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """The bin of each element: `bins` are sorted upwards, each begins one (with `right` ends one). NumPy `digitize`."""
    return searchsorted(bins, x, right=not right)


@public("interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> Array:
    """The piecewise linear function through the points (xp, fp), at `x`. NumPy and JAX `interp`.

    Shapes: x any; xp, fp (n,), xp sorted upwards. Below and above all points it is `left` and `right`, by default the
    first and last of `fp`; with a `period` it repeats, and points need no order. Derivatives by x, xp and fp.
    """
    place, points, values = (as_float(each) for each in promoted(x, xp, fp))
    message = f"interp takes points as two vectors, got {points.type} and {values.type}"
    check_sizes(points.ndim == 1 and values.shape == points.shape, message, points, values)
    count = points.shape[0]
    check_sizes(count > 0, message, points, values)
    if period is not None:
        check_argument(period != 0, "interp: the period is not 0")
        length = abs(period)
        place, points = place % length, points % length
        points, order = ordered(points, 0)
        values = take(values, order, 0)
        points = concat([points[-1:] - length, points, points[:1] + length], 0)
        values = concat([values[-1:], values, values[:1]], 0)
        count, left, right = count + 2, None, None
    above = clip(searchsorted(points, place, "right"), smallest(1, count - 1), count - 1)
    below = maximum(above - 1, 0)
    flat = reshape(above, (-1,)), reshape(below, (-1,))
    x1, x0 = (reshape(take(points, at, 0), place.shape) for at in flat)
    y1, y0 = (reshape(take(values, at, 0), place.shape) for at in flat)
    width = x1 - x0
    share, rise = (place - x0) / where(width == 0, 1, width), y1 - y0
    # Beside an infinite value, as in NumPy: the value at a knot is the knot's, between knots it is infinite.
    is_knot = (share == 0) & ~isfinite(rise)
    found = y0 + share * where(is_knot, 0, rise)
    from_above = (isinf(y0) | isnan(rise)) & ~is_knot
    found = where(from_above, where((y0 == y1) | (share == 1), y1, y1 + (share - 1) * rise), found)
    found = where(place < points[0], values[0] if left is None else left, found)
    return where(place > points[-1], values[-1] if right is None else right, found)


@public("isin")
def isin(x: Any, test: Any, *, invert: bool = False) -> Array:
    """Whether each element of `x` is among those of `test` (not among them with `invert`). NumPy and torch `isin`."""
    left, right = promoted(*comparable(x, test))
    found = any_(expand_dims(left, left.ndim) == reshape(right, (-1,)), -1)
    return ~found if invert else found


# ---- counts -----------------------------------------------------------------------------------------


@public("bincount")
def bincount(x: Any, weights: Any = None, *, length: Extent) -> Array:
    """The counts of 0 ... `length` - 1 in a vector of integers, or the sums of their `weights`. JAX `bincount`.

    Other integers are not counted. Counts are i64.
    """
    values = as_array(x)
    size = known_extent("bincount", "length", length)
    if not values.dtype.is_integer:
        raise dtype_error(
            f"bincount needs integers, got {values.type}", values, hint="cast them: `st.astype(x, st.i64)`"
        )
    if values.ndim != 1:
        raise shape_error(f"bincount takes a vector, got {values.type}", values, hint="`x.reshape(-1)` is one")
    counted = logical_and(values >= 0, values < size)
    parts = cast(counted, i64) if weights is None else where(counted, weights, 0)
    total = scatter_add(
        zeros((size + 1,), dtype=parts.dtype), where(counted, holding(values, bound(size)), size), parts
    )
    return slice_axis(total, 0, 0, size)


@public("histogram")
def histogram(
    x: Any, bins: Any = 10, range: Any = None, weights: Any = None, *, density: bool = False
) -> tuple[Array, Array]:
    """The numbers of elements in bins (or sums of their `weights`), and the edges of the bins. NumPy `histogram`.

    `bins` is a number of equal bins over `range`, the extremes of `x` where that is None; or sorted edges. A bin holds
    its left edge, the last one its right edge too; what is beyond all edges, or NaN, is not counted. With `density`
    each number is divided by their sum and by the width of the bin: the integral is 1.
    """
    check_known("histogram", "density", density)
    bins = whole(bins)
    is_real, is_counted = type_of(handle(x)).dtype.is_inexact, isinstance(bins, int)
    if not is_real and (is_counted or type_of(handle(bins)).dtype.is_inexact):
        x = cast(as_array(x), f64)  # f32 does not represent all integers
    if is_counted:
        for extent in as_array(x).shape if range is None else ():
            decide(extent > 0)
        values = reshape(as_array(x), (-1,))
        edges = _edges(values, bins, range)
        shown = edges if is_real else cast(edges, f32)
    else:
        x, bins = settled(*comparable(x, bins))
        shown = as_array(bins)
        if not shown.ndim:
            check_known("histogram", "bins", bins)
        if shown.ndim != 1:
            raise shape_error(f"histogram takes a number of bins or a vector of edges, got {shown.type}", shown)
        values, edges = promoted(reshape(as_array(x), (-1,)), shown)
    count = edges.shape[0] - 1
    check_sizes(count > 0, f"histogram needs two edges or more, got {edges.type}", edges)
    place = minimum(searchsorted(edges, values, "right") - 1, count - 1)
    outside = ~logical_and(values >= edges[0], values <= edges[-1])
    heavy = None if weights is None else reshape(as_array(settled(x, weights)[1] if is_real else weights), (-1,))
    counts = bincount(where(outside, -1, place), heavy, length=count)
    if density:
        parts = cast(counts, as_float(shown).dtype)
        counts = parts / (shown[1:] - shown[:-1]) / sum_(parts)
    return counts, shown


def _edges(x: Array, bins: int, between: Any) -> Array:
    check_argument(bins > 0, f"histogram: there is at least one bin, got {bins}")
    if between is None and 0 in x.shape:
        between = 0.0, 1.0  # of no elements, as in NumPy
    low, high = (min_(x), max_(x)) if between is None else (cast(as_array(end), x.dtype) for end in between)
    apart = where(low == high, 0.5, 0.0)
    low, high = low - apart, high + apart
    steps = cast(cast(iota((bins + 1,)), f64) / float(bins), x.dtype)
    return where(steps == 1, high, low + steps * (high - low))


# ---- elements of a mask, up to a bound ----------------------------------------------------------------


def _places(mask: Array, size: Extent, name: str) -> tuple[Array, Array]:
    """(the places of the first `size` true elements of a vector, which of these there are)."""
    size = known_extent(name, "size", size)
    n = mask.shape[0]
    place = searchsorted(cumsum(mask), arange(1, size + 1))
    return clip(place, 0, largest(n - 1, 0)), place < n


@public("nonzero")
def nonzero(x: Any, *, size: int, fill_value: int = 0) -> tuple[Array, ...]:
    """The indices of the first `size` elements that are not 0, an i64 vector per axis. JAX `nonzero`.

    In row-major order; where there are fewer, the rest is `fill_value`.
    """
    array = as_array(x)
    shape = array.shape
    place, is_there = _places(reshape(not_equal(array, 0), (-1,)), size, "nonzero")
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple(
        where(is_there, place // largest(stride, 1) % largest(extent, 1), fill_value)
        for stride, extent in zip(strides, shape, strict=True)
    )


@public("flatnonzero")
def flatnonzero(x: Any, *, size: int, fill_value: int = 0) -> Array:
    """The places of the first `size` elements that are not 0 in the flattened array, then `fill_value`. JAX
    `flatnonzero`.
    """
    return nonzero(reshape(as_array(x), (-1,)), size=size, fill_value=fill_value)[0]


@public("masked_select")
def masked_select(x: Any, mask: Any, *, size: int, fill_value: Option = 0) -> Array:
    """The first `size` elements of `x` where `mask` holds, row-major, then `fill_value`. torch `masked_select`.

    torch's has as many elements as the mask selects; here the number is a bound: an int or a size.
    """
    array, chosen = as_array(x), as_array(mask)
    shape = broadcast_shapes(array.shape, chosen.shape)
    place, is_there = _places(reshape(broadcast(chosen, shape), (-1,)), size, "masked_select")
    filler = full((), fill_value, bool_) if array.dtype == bool_ else fill_value
    return where(is_there, take(reshape(broadcast(array, shape), (-1,)), place, 0), filler)
