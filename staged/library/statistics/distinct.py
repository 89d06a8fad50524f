"""Distinct elements, the most frequent one, and orders by several keys.

Tested by `tests/ops/test_quantiles.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from staged.ir.sizes import Extent, largest, smallest
from staged.ir.types import i64
from staged.library.statistics.counting import searchsorted
from staged.library.statistics.cumulative import cummax, cumsum
from staged.ops.array import Array
from staged.ops.checks import check_sizes, known_extent
from staged.ops.choice import where
from staged.ops.elementwise import isnan, minimum
from staged.ops.index import take, take_along_axis
from staged.ops.joining import shifted
from staged.ops.promote import as_array, cast, shape_error
from staged.ops.public import Option, public
from staged.ops.reduction import argmax
from staged.ops.shape import moveaxis, pad_axis, reshape, slice_axis
from staged.ops.sorting import Sorted, along, argsort, ordered, taken
from staged.ops.source import arange, full, iota


class UniqueAll(NamedTuple):
    """The Array API's result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The Array API's result of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The Array API's result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def _begins(values: Array, equal_nan: bool) -> Array:
    """Whether each element of sorted rows (the last axis) is another than the one before."""
    last = values.ndim - 1
    before = shifted(values, last, 0)
    differs = before != values
    if equal_nan and values.dtype.is_float:
        differs = differs & ~(isnan(before) & isnan(values))
    found: Array = differs | (iota(values.shape, last) == 0)
    return found


def _unique(name: str, x: Any, size: Extent, fill_value: Any, equal_nan: bool) -> UniqueAll:
    size = known_extent(name, "size", size)
    array = as_array(x)
    n = math.prod(array.shape)
    message = f"{name}: no {size} elements without a `fill_value` of {array.type}"
    check_sizes(size >= 0, message, array)
    if fill_value is None:
        check_sizes(n >= smallest(size, 1), message, array)
    if n == 0:
        empty = full((size,), 0, i64)
        return UniqueAll(
            full((size,), 0 if fill_value is None else fill_value, array.dtype), empty, full(array.shape, 0, i64), empty
        )
    values, order = ordered(reshape(array, (-1,)), 0)
    places = argsort(order)  # the inverse of a permutation
    group = cumsum(_begins(values, equal_nan))
    starts = searchsorted(group, arange(1, size + 2))
    first, is_there = minimum(starts[:size], largest(n - 1, 0)), starts[:size] < n
    if not isinstance(n, int):  # so that there is an element to read
        values, order = pad_axis(values, 0, 0, 1, 0), pad_axis(order, 0, 0, 1, 0)
    filler = slice_axis(values, 0, 0, 1) if fill_value is None else full((), fill_value, array.dtype)
    return UniqueAll(
        where(is_there, take(values, first, 0), filler),
        where(is_there, take(order, first, 0), slice_axis(order, 0, 0, 1)),
        reshape(take(group, places, 0) - 1, array.shape),
        starts[1:] - starts[:size],
    )


@public("unique")
def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    size: int,
    fill_value: Option = None,
    equal_nan: bool = True,
) -> Any:
    """The first `size` distinct elements in order, and where asked for, tuples as NumPy's. JAX `unique`.

    With the index of each one's first, the place of each element of `x` among them, and their counts. Where there are
    fewer, the rest is `fill_value`, or the smallest one, with a count of 0.
    """
    found = _unique("unique", x, size, fill_value, equal_nan)
    asked = (return_index, return_inverse, return_counts)
    more = [part for part, is_asked in zip(found[1:], asked, strict=True) if is_asked]
    return (found.values, *more) if more else found.values


@public("unique_values")
def unique_values(x: Any, *, size: int, fill_value: Option = None) -> Array:
    """The first `size` distinct elements, in order; each NaN is one. Array API `unique_values`; see `unique`."""
    return _unique("unique_values", x, size, fill_value, False).values


@public("unique_counts")
def unique_counts(x: Any, *, size: int, fill_value: Option = None) -> UniqueCounts:
    """The first `size` distinct elements, and their counts. Array API `unique_counts`; see `unique`."""
    found = _unique("unique_counts", x, size, fill_value, False)
    return UniqueCounts(found.values, found.counts)


@public("unique_inverse")
def unique_inverse(x: Any, *, size: int, fill_value: Option = None) -> UniqueInverse:
    """The first `size` distinct elements, and the place of each of `x` among them. Array API `unique_inverse`."""
    found = _unique("unique_inverse", x, size, fill_value, False)
    return UniqueInverse(found.values, found.inverse_indices)


@public("unique_all")
def unique_all(x: Any, *, size: int, fill_value: Option = None) -> UniqueAll:
    """The first `size` distinct elements, their indices, inverse and counts. Array API `unique_all`; see `unique`."""
    return _unique("unique_all", x, size, fill_value, False)


@public("mode", method=True)
def mode(x: Any, axis: int = -1, keepdims: bool = False) -> Sorted:
    """The most frequent element along `axis`, the smallest of several, and its last place. torch `mode`."""
    array, axis = along("mode", x, axis)
    check_sizes(array.shape[axis] > 0, f"mode of no elements has no value, got {array.type}", array)
    last = array.ndim - 1
    values, order = ordered(moveaxis(array, axis, last), last)
    place = iota(values.shape, last)
    length = place - cummax(where(_begins(values, True), place, 0), -1)[0]
    end = argmax(length, -1, keepdims=True)
    found = Sorted(*(moveaxis(take_along_axis(each, end, -1), last, axis) for each in (values, order)))
    return found if keepdims else taken(found, axis, 0, False)


@public("lexsort")
def lexsort(keys: Any, axis: int = -1) -> Array:
    """The places of elements in the order of several keys, of which the last counts most. NumPy `lexsort`."""
    rows: Sequence[Any] = keys if isinstance(keys, list | tuple) else list(as_array(keys))
    arrays = [as_array(key) for key in rows]
    if not arrays or any(each.shape != arrays[0].shape for each in arrays):
        raise shape_error("lexsort needs one or more keys of one shape", *arrays)
    order = argsort(arrays[0], axis)
    for key in arrays[1:]:
        order = take_along_axis(order, argsort(take_along_axis(key, order, axis), axis), axis)
    return cast(order, i64)
