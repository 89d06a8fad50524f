"""Scatters that multiply, or keep the largest or smallest, torch's `scatter_reduce` and `index_reduce`, and JAX's
segment sums.

Two primitives, for rows and for elements, as for `scatter_add`: what is at a place and the updates meant for it are
combined one after another. Ties of extremes share the gradient equally, as in torch. A product's derivative multiplies
the other updates of the same place: running products from both sides over the updates in the order of their places,
right where factors are 0, and differentiable in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import ArgumentError, DTypeError, ShapeError
from staged.ir.declaration import declaration_of, prims, reduction_by
from staged.ir.nodes import FAIL
from staged.ir.numbers import initial_value
from staged.ir.sizes import Extent
from staged.ir.types import NUMBER_DTYPES, DType, TensorType, bool_, f32, f64, i64, u64
from staged.library.statistics.cumulative import recur
from staged.library.statistics.products import balanced, times_power
from staged.ops.array import Array
from staged.ops.checks import check_sizes, known_extent
from staged.ops.choice import select, where, zeros_of
from staged.ops.comparisons import logical_and, logical_or
from staged.ops.context import bind
from staged.ops.elementwise import floor_divide, isnan, maximum
from staged.ops.index import check_of_no_elements, infer_sum, infer_take, infer_take_along, integers, wrapped
from staged.ops.joining import shifted
from staged.ops.primitive import BadSample, Primitive, Sample, next_axis, primitive
from staged.ops.promote import (
    as_array,
    axis_of,
    broadcast,
    cast,
    check_argument,
    handle,
    shape_error,
)
from staged.ops.public import public
from staged.ops.record import in_range
from staged.ops.shape import reshape, slice_axis
from staged.ops.sorting import ordered
from staged.ops.source import full, zeros
from staged.ops.subscript import set_item
from staged.ops.wide_numbers import holding

Data = np.ndarray[Any, Any]

_UFUNCS = {"multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
"""The ufuncs of the ops that combine."""


def _nothing(by: str, dtype: DType) -> Any:
    """The number that changes none that it is combined with."""
    reduction = reduction_by(declaration_of(by))
    assert reduction is not None, f"{by} combines elements"
    return initial_value(reduction, dtype.part)  # the op itself rejects complex numbers


# ---- the primitives -------------------------------------------------------------------------------


def _infer(name: str, wanted: Callable[..., TensorType]) -> Callable[..., TensorType]:
    def infer(x: TensorType, indices: TensorType, updates: TensorType, axis: int, by: str) -> TensorType:
        return infer_sum(name, x, updates, wanted(x, indices, axis), f"{by} {x} by {updates}")

    return infer


def _rows(x: Data, indices: Data, updates: Data, axis: int, by: str) -> Data:
    result = x.copy()
    rows: Any = (*(slice(None),) * axis, wrapped(indices, x.shape[axis]))
    _UFUNCS[by].at(result, rows, updates)
    return result


def _elements(x: Data, indices: Data, updates: Data, axis: int, by: str) -> Data:
    result = x.copy()
    places: list[Any] = list(np.ogrid[tuple(slice(0, extent) for extent in indices.shape)])
    places[axis] = wrapped(indices, x.shape[axis])
    _UFUNCS[by].at(result, tuple(places), updates)
    return result


def _adding(along: str) -> Primitive:
    """The op that adds to rows, or to elements along an axis."""
    op: Primitive = prims.SCATTER_ADD_ALONG if along else prims.SCATTER_ADD
    return op


class _Places:
    """The places that updates are meant for: reads and sums there, for rows or for elements."""

    def __init__(self, indices: Array, axis: int, along: str) -> None:
        self.indices, self.axis, self.along = indices, axis, along

    def read(self, x: Array) -> Array:
        with in_range():  # the op itself has checked them
            return bind(prims.TAKE_ALONG if self.along else prims.TAKE, [x, self.indices], axis=self.axis)

    def add(self, x: Array, updates: Array) -> Array:
        with in_range():
            return bind(_adding(self.along), [x, self.indices, updates], axis=self.axis)

    def total(self, x: Array, updates: Array) -> Array:
        return self.add(zeros_of(x), updates)

    def product(self, x: Array, updates: Array) -> Array:
        with in_range():
            op = _elements_op if self.along else _rows_op
            return bind(op, [x, self.indices, updates], axis=self.axis, by="multiply")

    def others(self, updates: Array, extent: Any) -> list[Array]:
        """The product of the other updates of the same place, for each; of f64 balanced, with factors and powers."""
        shape, axis = updates.shape, self.axis
        index = where(self.indices < 0, self.indices + extent, self.indices)
        if not self.along:
            behind = shape[axis + index.ndim :]
            count = math.prod(index.shape)
            wide = (*(1,) * axis, count, *(1,) * len(behind))
            updates = reshape(updates, (*shape[:axis], count, *behind))
            index = broadcast(reshape(index, wide), updates.shape)
        if index.shape[axis] == 0:
            return [cast(reshape(updates, shape), f64)]
        places, order = ordered(index, axis)
        with in_range():
            factors = bind(prims.TAKE_ALONG, [updates, order], axis=axis)
            # Balanced factors of f64. Products of f32 are computed in f64, which has their range.
            factors, powers = balanced(factors, axis) if updates.dtype is f64 else (cast(factors, f64), None)
            before = self._running(factors, places, axis, False)
            left = before * self._running(factors, places, axis, True)
            _, back = ordered(order, axis)
            found = [left] if powers is None else [left, factors, powers]
            return [reshape(bind(prims.TAKE_ALONG, [each, back], axis=axis), shape) for each in found]

    def products(self, x: Array, updates: Array) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """Functions that multiply f64 by the products of all updates of each place, and of the others for each."""
        nothing = cast(zeros_of(x), f64)
        others, *rest = self.others(updates, x.shape[self.axis])
        if not rest:
            product = self.product(nothing + 1, cast(updates, f64))
            return lambda base: base * product, lambda base: base * others
        factors, powers = rest
        total, product = self.total(nothing, powers), self.product(nothing + 1, factors)
        return (
            lambda base: times_power(base * product, total),
            lambda base: times_power(base * others, self.read(total) - powers),
        )

    @staticmethod
    def _running(factors: Array, places: Array, axis: int, reverse: bool) -> Array:
        """The products of those before each (after it, with `reverse`) that have its place."""
        goes_on = shifted(places, axis, -1, reverse) == places
        ones = zeros_of(factors) + 1
        return recur(
            select(goes_on, shifted(factors, axis, 1, reverse), zeros_of(factors)),
            select(goes_on, zeros_of(factors), ones),
            axis,
            reverse,
        )


def _extreme_shares(y: Array, x: Array, updates: Array, places: _Places, by: str) -> tuple[Array, Array, Array]:
    """(whether x is the extreme, whether each update is, how many of them there are at each place).

    A base that changes nothing, -inf, leaves ties to the updates: there it stands for none. NaN is the extreme.
    """
    there = places.read(y)
    are_tied = logical_or(updates == there, isnan(updates))
    count = places.total(x, cast(are_tied, x.dtype))
    stands = logical_or(x != _nothing(by, x.dtype), count == 0)
    is_tied = logical_and(logical_or(x == y, isnan(x)), stands)
    return is_tied, are_tied, maximum(count + cast(is_tied, x.dtype), 1)


def _rule(along: str) -> dict[str, Any]:
    def vjp(ct: Array, y: Array, x: Array, indices: Array, updates: Array, axis: int, by: str) -> list[Any]:
        places = _Places(indices, axis, along)
        if by == "multiply":
            times_all, times_others = places.products(x, updates)
            ct = cast(ct, f64)
            d_updates = times_others(places.read(ct * cast(x, f64)))
            return [cast(times_all(ct), x.dtype), None, cast(d_updates, x.dtype)]
        is_tied, are_tied, count = _extreme_shares(y, x, updates, places, by)
        share = ct / count
        d_updates = select(are_tied, places.read(share), zeros_of(updates))
        return [select(is_tied, share, zeros_of(x)), None, d_updates]

    def jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int, by: str) -> Any:
        x, indices, updates = operands
        d_x, _, d_updates = tangents
        places = _Places(indices, axis, along)
        if d_x is None and d_updates is None:
            return None
        if by == "multiply":
            times_all, times_others = places.products(x, updates)
            total = zeros_of(x) if d_x is None else cast(times_all(cast(d_x, f64)), x.dtype)
            if d_updates is None:
                return total
            changes = times_others(places.read(cast(x, f64)) * cast(d_updates, f64))
            return places.add(total, cast(changes, x.dtype))
        is_tied, are_tied, count = _extreme_shares(y, x, updates, places, by)
        total = zeros_of(x) if d_x is None else select(is_tied, d_x, zeros_of(x))
        if d_updates is not None:
            total = places.add(total, select(are_tied, d_updates, zeros_of(updates)))
        return total / count

    return {"vjp": vjp, "jvp": jvp}


def _declared(
    along: str, reference: Callable[..., Data], cases: Sequence[tuple[Any, Any, Any, int]], doc: str
) -> Primitive:
    name = f"scatter_reduce{along}"
    vector = TensorType(f32, (4,)), TensorType(i64, (2,))
    attrs = {"axis": 0, "by": "multiply"}
    return primitive(
        name=name,
        kind="index",
        elements="updated",
        infer=_infer(name, infer_take_along if along else infer_take),
        reference=reference,
        effects=FAIL,
        shift=next_axis if along else None,
        samples=[
            Sample((x, indices, updates), {"axis": axis, "by": by}, dtypes=NUMBER_DTYPES)
            for x, indices, updates, axis in cases
            for by in _UFUNCS
        ],
        bad=[
            BadSample((*vector, TensorType(f32, (3,))), ShapeError, "must be", attrs),
            BadSample((*vector, TensorType(f64, (2,))), DTypeError, "cannot multiply", attrs),
            BadSample((TensorType(bool_, (4,)), vector[1], TensorType(bool_, (2,))), DTypeError, "numbers", attrs),
        ],
        doc=doc,
        **_rule(along),
    )


_rows_op = _declared(
    "",
    _rows,
    [
        ((4, 3), np.array([0, 2, 2, -1]), (4, 3), 0),
        ((2, 3), np.array([[1, 0], [2, 2]], np.int32), (2, 2, 2), 1),
        ((3,), np.array([1, 1, 1]), (3,), 0),
        ((3, 2), np.zeros((0,), np.int64), (0, 2), 0),
    ],
    "x combined with the updates at the indices along `axis` by `by`: multiply, maximum or minimum. Row by row.",
)
_elements_op = _declared(
    "_along",
    _elements,
    [
        ((2, 3), np.array([[1], [-1]]), (2, 1), 1),
        ((3, 2), np.array([[0, 1], [2, 2], [0, 0], [1, -3]], np.int32), (4, 2), 0),
    ],
    "x at (.., indices[.., i, ..], ..) combined with updates[.., i, ..] by `by`: multiply, maximum or minimum.",
)


# ---- torch's functions ----------------------------------------------------------------------------

_WORDS = ("sum", "mean", "prod", "amax", "amin")


def _combining(reduce: str) -> str:
    """The op that combines two elements by one of torch's words."""
    combine = declaration_of({"mean": "sum"}.get(reduce, reduce.removeprefix("a"))).combine
    assert combine is not None
    return combine.name


def _reduced(
    name: str, along: str, x: Array, indices: Array, updates: Array, axis: int, reduce: str, include_self: bool
) -> Array:
    """`x` with updates combined; the indices are checked by the op that combines."""
    check_argument(reduce in _WORDS, f"{name}: reduce is {', '.join(map(repr, _WORDS))}, got {reduce!r}")
    by = _combining(reduce)
    attrs = {"axis": axis} if by == "add" else {"axis": axis, "by": by}
    op = _adding(along) if by == "add" else _elements_op if along else _rows_op
    counts: Array | None = None
    if reduce == "mean" or not include_self:
        number, one = (x, updates) if along else (zeros(x.shape[axis : axis + 1], i64), zeros(indices.shape, i64))
        ones = full(one.shape, 1, i64)
        counts = bind(
            _adding(along),
            [zeros(number.shape, i64), indices, ones],
            axis=axis if along else 0,
        )
        if not along:
            counts = broadcast(reshape(counts, (*(1,) * axis, -1, *(1,) * (x.ndim - axis - 1))), x.shape)
    if not include_self:
        assert counts is not None
        x = where(counts > 0, as_array(0 if by == "add" else _nothing(by, x.dtype), x.dtype), x)
    if reduce != "mean":
        return bind(op, [x, indices, updates], **attrs)
    assert counts is not None
    # Sums and counts that a narrow dtype cannot hold.
    dtype = f32 if x.dtype.is_half else i64 if x.dtype.is_integer and x.dtype is not u64 else x.dtype
    total = bind(op, [cast(x, dtype), indices, cast(updates, dtype)], **attrs)
    count = cast(maximum(counts + (1 if include_self else 0), 1), dtype)
    return cast(floor_divide(total, count) if dtype.is_integer else total / count, x.dtype)


@public("scatter_reduce", method=True)
def scatter_reduce(x: Any, axis: int, indices: Any, src: Any, reduce: str, *, include_self: bool = True) -> Array:
    """`x` combined with src[.., i, ..] at (.., indices[.., i, ..], ..) along `axis`. torch `scatter_reduce`.

    `reduce` is "sum", "prod", "mean", "amax" or "amin"; without `include_self` an element that an index names does not
    take part itself. `indices` has as many axes as `x`, and no more elements along the others; of `src` as many are
    read. Equal extremes share the gradient. Negative indices wrap; one out of range stops the program with the line.
    """
    array, places = as_array(x), integers(indices, "scatter_reduce")
    updates = _updates(src, array)
    if not array.ndim:
        if places.ndim or updates.ndim:
            raise shape_error("scatter_reduce needs indices with as many axes as the array", array, places, updates)
        found = scatter_reduce(
            *(reshape(array, (1,)), axis, reshape(places, (1,)), reshape(updates, (1,)), reduce),
            include_self=include_self,
        )
        return reshape(found, ())
    along = axis_of(axis, array.ndim, "scatter_reduce")
    if not places.ndim == updates.ndim == array.ndim:
        raise shape_error("scatter_reduce needs indices with as many axes as the array", array, places, updates)
    if places.shape != updates.shape:
        updates = _part(updates, places, None)
    part = _part(array, places, along)
    found = _reduced("scatter_reduce", "_along", part, places, updates, along, reduce, include_self)
    if part is array:
        return found
    return set_item(array, tuple(slice(0, extent) for extent in part.shape), found)


def _updates(given: Any, x: Array) -> Array:
    """Updates of `x`: numbers and lists take its dtype, arrays have it."""
    array = handle(given)
    return array if isinstance(array, Array) and array.ndim else as_array(given, x.dtype)


def _part(x: Array, like: Array, axis: int | None) -> Array:
    """The first elements of `x` along each axis, as many as `like` has; all along `axis`."""
    part = x
    for place, (extent, wanted) in enumerate(zip(x.shape, like.shape, strict=True)):
        if place == axis or extent == wanted:
            continue
        check_sizes(wanted <= extent, "scatter_reduce has more indices than elements along an axis", like, x)
        part = slice_axis(part, place, 0, wanted)
    return part


@public("index_reduce", method=True)
def index_reduce(x: Any, axis: int, indices: Any, source: Any, reduce: str, *, include_self: bool = True) -> Array:
    """`x` combined with the rows of `source` along `axis` at a vector of indices. torch `index_reduce`.

    `reduce` and `include_self` as in `scatter_reduce`; each row goes to the row that its index names.
    """
    array, places = as_array(x), integers(indices, "index_reduce")
    along = axis_of(axis, array.ndim, "index_reduce")
    if places.ndim != 1:
        raise shape_error(f"index_reduce takes a vector of indices, got {places.type}", places)
    shape = (*array.shape[:along], *places.shape, *array.shape[along + 1 :])
    updates = _updates(source, array)
    if updates.shape != shape:
        raise shape_error("index_reduce needs a row for each index", array, places, updates)
    check_of_no_elements(array, places, along)
    return _reduced("index_reduce", "", array, places, updates, along, reduce, include_self)


# ---- JAX's segment sums ---------------------------------------------------------------------------


def _segments(name: str, data: Any, segment_ids: Any, num_segments: Any, reduce: str) -> Array:
    rows, ids = as_array(data), integers(segment_ids, name)
    num_segments = known_extent(name, "num_segments", num_segments)
    check_sizes(num_segments >= 0, f"{name}: num_segments is at least 0, got {num_segments}", error=ArgumentError)
    if not rows.ndim or ids.shape != rows.shape[:1]:
        raise shape_error(f"{name} needs a segment for each row, got {ids.type} for {rows.type}", rows, ids)
    # Rows of no segment go to one more, which is dropped.
    place = where(logical_and(ids >= 0, ids < num_segments), holding(ids, num_segments), num_segments)
    by = _combining(reduce)
    nothing = 0 if by == "add" else _nothing(by, rows.dtype)
    start = full((num_segments + 1, *rows.shape[1:]), nothing, rows.dtype)
    with in_range():
        total = _reduced(name, "", start, place, rows, 0, reduce, reduce != "mean")
    return slice_axis(total, 0, 0, num_segments)


@public("segment_sum")
def segment_sum(data: Any, segment_ids: Any, num_segments: Extent) -> Array:
    """The sums of the rows of each segment: row i is of segment_ids[i]. JAX `ops.segment_sum`.

    Shapes: data (n, ...), segment_ids (n,) integer; result (num_segments, ...). Rows of ids outside of 0 ...
    num_segments - 1 are dropped, also of negative ones.
    """
    return _segments("segment_sum", data, segment_ids, num_segments, "sum")


@public("segment_prod")
def segment_prod(data: Any, segment_ids: Any, num_segments: Extent) -> Array:
    """The products of the rows of each segment, 1 of none; as `segment_sum`. JAX `ops.segment_prod`."""
    return _segments("segment_prod", data, segment_ids, num_segments, "prod")


@public("segment_max")
def segment_max(data: Any, segment_ids: Any, num_segments: Extent) -> Array:
    """The largest elements of each segment, the dtype's smallest of none (-inf); as `segment_sum`.

    Equal ones share the gradient. JAX `ops.segment_max`.
    """
    return _segments("segment_max", data, segment_ids, num_segments, "amax")


@public("segment_min")
def segment_min(data: Any, segment_ids: Any, num_segments: Extent) -> Array:
    """The smallest elements of each segment, the dtype's largest of none (inf); as `segment_sum`.

    Equal ones share the gradient. JAX `ops.segment_min`.
    """
    return _segments("segment_min", data, segment_ids, num_segments, "amin")


@public("segment_mean")
def segment_mean(data: Any, segment_ids: Any, num_segments: Extent) -> Array:
    """The means of the rows of each segment, 0 of none; as `segment_sum`. jraph `segment_mean`."""
    return _segments("segment_mean", data, segment_ids, num_segments, "mean")
