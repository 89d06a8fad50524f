"""Functions that exchange arrays between ranks. Their primitives are in `ranks.py`.

In eager mode there is one rank.
"""

from __future__ import annotations

from typing import Any

from staged.errors import ArgumentError, ShapeError
from staged.ir.sizes import exact_quotient
from staged.ir.types import TensorType, bool_, i64
from staged.ops.array import Array, StagedArray
from staged.ops.choice import where
from staged.ops.comparisons import equal
from staged.ops.context import bind, current_context
from staged.ops.joining import concat
from staged.ops.promote import as_array, as_float, axis_of, cast, check_argument, check_known
from staged.ops.public import public
from staged.ops.ranks import (
    all_gather_op,
    all_to_all_op,
    broadcast_op,
    rank,
    ranks,
    reduce_scatter_op,
    reduced,
    rows_of,
    shard_op,
    shift_op,
    static_ranks,
)
from staged.ops.record import RecordContext
from staged.ops.shape import broadcast_to, moveaxis, reshape, slice_axis
from staged.source import here


@public("all_reduce")
def all_reduce(x: Any, by: str = "sum") -> Array:
    """Combine the arrays of all ranks element by element.

    Parameters
    ----------
    x : array_like
        A local array of any shape and dtype. All ranks have the same shape.
    by : {"sum", "mean", "max", "min"}
        "sum" of bools counts in i64. "mean" of integers returns a float.

    Returns
    -------
    Array
        A replicated array of the shape of `x`. Without an MPI launcher it is `x`.

    Raises
    ------
    ArgumentError
        If `by` has another value.

    Notes
    -----
    f16 and bf16 are added in f32. The order of the sum is that of the MPI library.

    Examples
    --------
    >>> st.all_reduce(st.asarray([1.0, 2.0]), "mean")
    [1. 2.]
    """
    if by not in ("sum", "mean", "max", "min"):
        raise ArgumentError(
            f'`by` must be "sum", "mean", "max" or "min", got {by!r}', where=here(), hint='write `by="sum"`'
        )
    array = as_array(x)
    if by == "mean":
        array = as_float(array)
        count = cast(ranks(), array.dtype.part if array.dtype.is_complex else array.dtype)
        return reduced(array, "sum") / count
    if by == "sum" and array.dtype is bool_:
        array = cast(array, i64)
    return reduced(array, by)


def _rows(x: Array, axis: int, count: int, name: str) -> Array:
    """The array with `axis` in `count` equal parts, which become the first axis."""
    size = x.shape[axis]
    rows = exact_quotient(size, count)
    if rows is None:
        raise ShapeError(
            f"{name} needs a size that {count} ranks divide, got {size} for axis {axis} of {x.type}",
            where=here(),
            hint=f"pad the axis, or drop its last elements: `x[: n - n % {count}]`",
        )
    split = reshape(x, (*x.shape[:axis], count, rows, *x.shape[axis + 1 :]))
    return moveaxis(split, axis, 0)


def _joined(x: Array, axis: int) -> Array:
    """The inverse of `_rows`."""
    moved = moveaxis(x, 0, axis)
    shape = moved.shape
    return reshape(moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


@public("all_gather")
def all_gather(x: Any, axis: int = 0) -> Array:
    """Concatenate the arrays of all ranks along an axis, in the order of the ranks.

    Parameters
    ----------
    x : array_like
        A local array with at least one axis, of any dtype. All ranks have the same shape.
    axis : int

    Returns
    -------
    Array
        A replicated array, `ranks` times as large along `axis`. The number of ranks is static in the program.

    Examples
    --------
    >>> st.all_gather(st.asarray([1.0, 2.0]))
    [1. 2.]
    """
    array = as_array(x)
    at = axis_of(axis, array.ndim, "all_gather")
    return _joined(bind(all_gather_op, [array], ranks=static_ranks()), at)


@public("shard")
def shard(x: Any, axis: int = 0) -> Array:
    """Return the part of a replicated array that belongs to this rank.

    Parameters
    ----------
    x : array_like
        A replicated array of any dtype. The number of ranks divides its size along `axis`.
    axis : int

    Returns
    -------
    Array
        A local array: part number `st.rank()` of `st.ranks()` equal parts along `axis`.

    Raises
    ------
    ShapeError
        If the number of ranks does not divide the size, when the part is used. `st.batches` accepts any size.

    Examples
    --------
    >>> st.shard(st.asarray([1.0, 2.0]))
    [1. 2.]
    """
    array, count = as_array(x), static_ranks()
    at = axis_of(axis, array.ndim, "shard")
    if at == 0 and exact_quotient(array.shape[0], count) is None:
        return UnevenPart(array, count)
    return part_of(array, at, count)


def part_of(x: Array, axis: int, count: int) -> Array:
    """The part of this rank of `count` equal parts."""
    return bind(shard_op, [_rows(x, axis, count, "shard")], ranks=count)


class UnevenPart(Array):
    """A part of an array whose rows the ranks do not divide: `st.batches` divides each batch instead."""

    __slots__ = ("count", "whole")

    def __init__(self, whole: Array, count: int) -> None:
        self.whole, self.count = whole, count

    def __staged_read__(self) -> Array:
        return _rows(self.whole, 0, self.count, "shard")  # raises the error

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        return self.__staged_read__().type


def whole_of(x: Any) -> Array | None:
    """The array of which `shard` returned a part along axis 0; None if `x` is not such a part."""
    if isinstance(x, UnevenPart):
        return x.whole
    part = x.value.made_by(shard_op) if isinstance(x, StagedArray) else None
    rows = None if part is None else rows_of(part)
    context = current_context()
    return context.handle(rows.operands[0]) if rows is not None and isinstance(context, RecordContext) else None


def is_computed_from_part(x: Any) -> bool:
    """Return whether an array is computed element by element from a part of `shard` along axis 0."""
    waiting = [x.value] if isinstance(x, StagedArray) else []
    seen = set(waiting)
    while waiting:
        op = waiting.pop().producer
        if op is None:
            continue
        if op.declared is shard_op and rows_of(op) is not None:
            return True
        if op.declared.kind == "elementwise" or op.declared.is_move:
            new = [value for value in op.operands if value not in seen]
            seen.update(new)
            waiting += new
    return False


@public("reduce_scatter")
def reduce_scatter(x: Any, axis: int = 0) -> Array:
    """Add the arrays of all ranks, and return the part of the sum that belongs to this rank.

    Parameters
    ----------
    x : array_like
        A local array of numbers. The number of ranks divides its size along `axis`.
    axis : int

    Returns
    -------
    Array
        A local array: part number `st.rank()` of the sum along `axis`.

    Raises
    ------
    ShapeError
        If the number of ranks does not divide the size.

    Examples
    --------
    >>> st.reduce_scatter(st.asarray([1.0, 2.0]))
    [1. 2.]
    """
    array, count = as_array(x), static_ranks()
    rows = _rows(array, axis_of(axis, array.ndim, "reduce_scatter"), count, "reduce_scatter")
    return bind(reduce_scatter_op, [rows], ranks=count)


@public("all_to_all")
def all_to_all(x: Any, split_axis: int = 0, concat_axis: int = 0) -> Array:
    """Send part r of an array to rank r, and concatenate the parts that arrive.

    Parameters
    ----------
    x : array_like
        A local array of any dtype. The number of ranks divides its size along `split_axis`.
    split_axis, concat_axis : int
        The axis whose parts are sent, and the axis along which the received parts are concatenated.

    Returns
    -------
    Array
        A local array with the number of elements of `x`.

    Raises
    ------
    ShapeError
        If the number of ranks does not divide the size.

    Examples
    --------
    >>> st.all_to_all(st.asarray([1.0, 2.0]))
    [1. 2.]
    """
    array, count = as_array(x), static_ranks()
    split = axis_of(split_axis, array.ndim, "all_to_all")
    joined = axis_of(concat_axis, array.ndim, "all_to_all")
    return _joined(bind(all_to_all_op, [_rows(array, split, count, "all_to_all")], ranks=count), joined)


@public("broadcast")
def broadcast(x: Any, root: int = 0) -> Array:
    """Return the array of rank `root` on all ranks.

    Parameters
    ----------
    x : array_like
        A local array of any shape and dtype. All ranks have the same shape.
    root : int
        The number of a rank, known while staging.

    Returns
    -------
    Array
        A replicated array. `st.broadcast_to` changes the shape of an array instead.

    Examples
    --------
    >>> st.broadcast(st.asarray([1.0, 2.0]))
    [1. 2.]
    """
    check_known("broadcast", "root", root)
    last = static_ranks() - 1
    check_argument(
        isinstance(root, int) and 0 <= root <= last, f"broadcast: `root` must be a rank from 0 to {last}, got {root!r}"
    )
    return bind(broadcast_op, [as_array(x)], root=root)


@public("shift_ranks")
def shift_ranks(x: Any, shift: int = 1, wrap: bool = True) -> Array:
    """Send an array to the rank `shift` after this one, and return the array that arrives.

    Parameters
    ----------
    x : array_like
        A local array of any shape and dtype. All ranks have the same shape.
    shift : int
        Known while staging. A negative number sends to ranks before this one.
    wrap : bool
        If True, the first rank follows the last one. Otherwise ranks without a sender receive zeros.

    Returns
    -------
    Array
        A local array of the shape of `x`.

    Examples
    --------
    >>> st.shift_ranks(st.asarray([1.0, 2.0]), 1, wrap=False)
    [0. 0.]
    """
    check_known("shift_ranks", "shift", shift)
    check_known("shift_ranks", "wrap", wrap)
    check_argument(isinstance(shift, int), f"shift_ranks: `shift` must be an integer, got {shift!r}")
    return bind(shift_op, [as_array(x)], shift=shift, wrap=bool(wrap))


@public("exchange_halo")
def exchange_halo(x: Any, width: int = 1, axis: int = 0, edge: str = "zero") -> Array:
    """Extend an array by the elements of the neighbouring ranks.

    Parameters
    ----------
    x : array_like
        A local array: the part of this rank along `axis` of a larger array.
    width : int
        The number of elements to receive from each side, at most the size of `axis`.
    axis : int
    edge : {"zero", "wrap", "nearest"}
        The elements beyond the first and the last rank: zeros, those of the other end, or the outermost element.

    Returns
    -------
    Array
        A local array, larger by ``2 * width`` along `axis`.

    Raises
    ------
    ArgumentError
        If `width` or `edge` has another value.

    Examples
    --------
    >>> st.exchange_halo(st.asarray([1.0, 2.0]), 1, edge="nearest")
    [1. 1. 2. 2.]
    """
    array = as_array(x)
    at = axis_of(axis, array.ndim, "exchange_halo")
    check_known("exchange_halo", "width", width)
    size = array.shape[at]
    check_argument(
        isinstance(width, int) and isinstance(size, int) and 1 <= width <= size,
        f"exchange_halo: `width` must be between 1 and the size of the axis, {size}, got {width!r}",
    )
    if edge not in ("zero", "wrap", "nearest"):
        raise ArgumentError(
            f'`edge` must be "zero", "wrap" or "nearest", got {edge!r}', where=here(), hint='write `edge="zero"`'
        )
    first, last = slice_axis(array, at, 0, width), slice_axis(array, at, size - width, size)
    before = shift_ranks(last, 1, edge == "wrap")
    after = shift_ranks(first, -1, edge == "wrap")
    if edge == "nearest":
        me, shape = rank(), before.shape
        ends = slice_axis(array, at, 0, 1), slice_axis(array, at, size - 1, size)
        before = where(equal(me, 0), broadcast_to(ends[0], shape), before)
        after = where(equal(me, ranks() - 1), broadcast_to(ends[1], shape), after)
    return concat([before, array, after], at)
