"""Ops that join, split and repeat arrays (concat, stack, split, tile, roll and their kin), and rotate them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError, StagedValueError
from staged.ir.sizes import Extent, largest, smallest
from staged.ir.types import STORED_DTYPES, TensorType, f32, f64
from staged.ops.array import Array, functions
from staged.ops.checks import check_sizes
from staged.ops.context import bind
from staged.ops.dimension import as_extent
from staged.ops.primitive import BadSample, Primitive, Sample, next_axis, primitive
from staged.ops.promote import as_array, axis_of, broadcast, cast, check_known, fixed_size, promoted, read, shape_error
from staged.ops.public import public
from staged.ops.record import in_range
from staged.ops.shape import expand_dims, flip, pad_axis, reshape, slice_axis, squeeze, swapaxes
from staged.source import here

_DTYPES = STORED_DTYPES


def _infer_concat(*xs: TensorType, axis: int) -> TensorType:
    first = xs[0]
    if not 0 <= axis < first.ndim:
        raise ShapeError(f"concat along axis {axis} does not fit {first}", hint="`stack` joins along a new axis")
    total: Extent = 0
    for x in xs:
        if x.dtype is not first.dtype:
            raise DTypeError(f"concat needs arrays of one dtype, got {first} and {x}", hint="cast one of them")
        rest = x.shape[:axis] + x.shape[axis + 1 :]
        if x.ndim != first.ndim or rest != first.shape[:axis] + first.shape[axis + 1 :]:
            raise ShapeError(
                f"concat along axis {axis} needs equal shapes elsewhere, got {first} and {x}",
                hint="slice, pad or reshape one of them",
            )
        total += x.shape[axis]
    return TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _concat_vjp(ct: Array, y: Array, *xs: Array, axis: int) -> list[Array]:
    parts: list[Array] = []
    start: Extent = 0
    for x in xs:
        extent = x.shape[axis]
        parts.append(slice_axis(ct, axis, start, start + extent))
        start += extent
    return parts


def _concat_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int) -> Array:
    filled = [
        broadcast(cast(as_array(0.0), x.dtype), x.shape) if tangent is None else tangent
        for tangent, x in zip(tangents, operands, strict=True)
    ]
    return bind(_concat_op, filled, axis=axis)


_concat_op: Primitive = primitive(
    name="concat",
    by_parts=True,
    kind="view",
    takes_halves=True,
    harmless=True,
    infer=_infer_concat,
    reference=lambda *xs, axis: np.concatenate(xs, axis=axis),
    vjp=_concat_vjp,
    jvp=_concat_jvp,
    shift=next_axis,
    samples=[
        Sample(((2, 3), (1, 3)), {"axis": 0}, dtypes=_DTYPES),
        Sample(((2, 1), (2, 2), (2, 3)), {"axis": 1}),
        Sample(((0, 2), (3, 2)), {"axis": 0}),
        Sample(((2,),), {"axis": 0}),
    ],
    bad=[
        BadSample((TensorType(f32, (2, 3)), TensorType(f32, (2, 4))), ShapeError, "equal shapes", {"axis": 0}),
        BadSample((TensorType(f32, (2,)), TensorType(f64, (2,))), DTypeError, "one dtype", {"axis": 0}),
        BadSample((TensorType(f32, ()),), ShapeError, "does not fit", {"axis": 0}),
    ],
    doc="The operands one after the other along `axis`.",
)


def _joined(arrays: Sequence[Any], name: str) -> list[Array]:
    if isinstance(arrays, Array) and arrays.ndim:
        arrays = [arrays[index] for index in range(len(arrays))]
    arrays = list(arrays)
    if not arrays:
        raise shape_error(f"{name} needs at least one array")
    return promoted(*arrays)


@public("concat", numpy=("concatenate",))
def concat(arrays: Sequence[Any], axis: int | None = 0) -> Array:
    """The arrays one after the other along `axis` (None: flattened first); dtypes promote. Array API `concat`.

    Raises ShapeError where shapes differ on another axis.
    """
    if axis is not None and not isinstance(axis, int | np.integer):
        raise StagedValueError(
            "the second argument of concat is the axis, an integer",
            where=here(),
            hint="give the arrays as one list: `st.concat([a, b])`",
        )
    joined = _joined(arrays, "concat")
    if axis is None:
        joined = [reshape(array, (-1,)) for array in joined]
        axis = 0
    if not joined[0].ndim:
        raise shape_error("concat needs arrays with an axis, got numbers", *joined, hint="`st.stack` joins numbers")
    where = axis_of(axis, joined[0].ndim, "concat")
    return joined[0] if len(joined) == 1 else bind(_concat_op, joined, axis=where)


@public("stack")
def stack(arrays: Sequence[Any], axis: int = 0) -> Array:
    """The arrays, all of one shape, along a new axis; dtypes promote. Array API `stack`."""
    if not isinstance(axis, int | np.integer):
        raise StagedValueError(
            "the second argument of stack is the axis, an integer",
            where=here(),
            hint="give the arrays as one list: `st.stack([a, b])`",
        )
    joined = _joined(arrays, "stack")
    for array in joined[1:]:
        if array.shape != joined[0].shape:
            raise shape_error(
                f"stack needs arrays of one shape, got {joined[0].type} and {array.type}",
                *joined,
                hint="`st.concat` joins along an axis that is there already",
            )
    if all(array.type.weak for array in joined):
        joined = [cast(array, array.dtype.natural) for array in joined]
    return concat([expand_dims(array, axis) for array in joined], axis)


@public("split")
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """`x` cut along `axis` into equal parts (an int), or at the positions of a list. NumPy `split`."""
    array = as_array(x)
    where = axis_of(axis, array.ndim, "split")
    check_known("split", "indices_or_sections", indices_or_sections)
    extent = array.shape[where]
    if isinstance(indices_or_sections, int | np.integer):
        parts = int(indices_or_sections)
        message = f"split: {extent} elements do not make {parts} equal parts"
        check_sizes(parts > 0, message, array)
        width = extent // parts
        check_sizes(width * parts >= extent, message, array)
        edges = [width * number for number in range(parts + 1)]
    else:
        given = [operator.index(cut) if (known := as_extent(cut)) is None else known for cut in indices_or_sections]
        cuts = [smallest(largest(cut + extent if cut < 0 else cut, 0), extent) for cut in given]
        edges = [0, *cuts, extent]
    return _pieces(array, where, edges)


def _pieces(x: Array, axis: int, edges: Sequence[Extent]) -> list[Array]:
    """The parts of an array between positions along an axis."""
    return [slice_axis(x, axis, a, largest(a, b)) for a, b in itertools.pairwise(edges)]


@public("tensor_split", method=True, numpy=("array_split",))
def tensor_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """`x` cut as by `split`; the first of unequal parts have one element more. torch `tensor_split`."""
    array = as_array(x)
    where = axis_of(axis, array.ndim, "tensor_split")
    extent = array.shape[where]
    check_known("tensor_split", "indices_or_sections", indices_or_sections)
    if isinstance(indices_or_sections, int | np.integer) and indices_or_sections > 0:
        parts = int(indices_or_sections)
        width, more = extent // parts, extent % parts
        return _pieces(array, where, [width * number + smallest(number, more) for number in range(parts + 1)])
    return split(array, indices_or_sections, axis)


@public("unstack", method=True)
def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """The parts of `x` along `axis`, without that axis. Array API `unstack`."""
    array = as_array(x)
    where = axis_of(axis, array.ndim, "unstack")
    extent = fixed_size("unstack", array, where, "loop over the parts: `for part in x:`")
    return tuple(squeeze(slice_axis(array, where, i, i + 1), where) for i in range(extent))


@public("tile", method=True)
def tile(x: Any, repetitions: Any) -> Array:
    """`x` repeated as a whole along each axis. Array API `tile`."""
    array = as_array(x)
    if as_extent(repetitions) is None:
        check_known("tile", "repetitions", repetitions)
        given = tuple(repetitions)
    else:
        given = (repetitions,)
    counts = tuple(_repetitions("tile", count, array) for count in given)
    ndim = max(len(counts), array.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - array.ndim) + array.shape
    pairs = [extent for pair in zip(counts, shape, strict=True) for extent in pair]
    apart = reshape(array, [extent for one in shape for extent in (1, one)])
    return reshape(
        broadcast(apart, tuple(pairs)), [count * extent for count, extent in zip(counts, shape, strict=True)]
    )


@public("repeat")
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Array:
    """Each element of `x` repeated `repeats` times along `axis` (None: flattened). Array API `repeat`.

    `repeats` is an integer, or one for each element along the axis; it is known while staging.
    """
    array = as_array(x)
    if as_extent(repeats) is None:
        check_known("repeat", "repeats", repeats)
        counts = np.asarray(repeats)
        if counts.ndim and counts.dtype.kind in "iuf":
            return _repeated(array, counts, axis)
    repeats = _repetitions("repeat", repeats, array)
    if axis is None:
        array, axis = reshape(array, (-1,)), 0
    where = axis_of(axis, array.ndim, "repeat")
    wide = expand_dims(array, where + 1)
    shape = (*array.shape[: where + 1], repeats, *array.shape[where + 1 :])
    joined = (*array.shape[:where], repeats * array.shape[where], *array.shape[where + 1 :])
    return reshape(broadcast(wide, shape), joined)


def _repeated(x: Array, counts: np.ndarray[Any, Any], axis: int | None) -> Array:
    """The elements along an axis, each so many times as its count says."""
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    where = axis_of(axis, x.ndim, "repeat")
    extent = fixed_size("repeat", x, where)
    if (
        counts.ndim > 1
        or counts.size not in (1, extent)
        or (counts.size and (counts.min() < 0 or counts.dtype.kind == "f"))
    ):
        raise shape_error(f"repeat takes a count for each of {extent} elements, got {counts.tolist()}", x)
    places = np.repeat(np.arange(extent), counts if counts.size == extent else int(counts[0]))
    return functions.take(x, functions.asarray(places), where)


def _repetitions(name: str, count: Any, x: Array) -> Extent:
    """The number of repetitions, as a Python int or a size."""
    known = as_extent(count)
    message = f"{name}: a number of repetitions is an integer of at least 0, got {count if known is None else known}"
    if known is None:
        raise shape_error(message, x)
    check_sizes(known >= 0, message, x)
    return known


@public("roll", method=True)
def roll(x: Any, shift: Any, axis: int | tuple[int, ...] | None = None) -> Array:
    """`x` with elements shifted by `shift` (an integer, also a staged one) along `axis` (None: in the flattened array).

    Several axes take a shift each, or one for all. Array API `roll`.
    """
    array = as_array(x)
    if isinstance(axis, tuple | list) or isinstance(shift, tuple | list):
        axes = list(axis) if isinstance(axis, tuple | list) else [axis]
        shifts = list(shift) if isinstance(shift, tuple | list) else [shift] * len(axes)
        axes = axes * len(shifts) if len(axes) == 1 else axes
        if len(shifts) != len(axes):
            raise shape_error(
                f"roll got {len(shifts)} shifts for {len(axes)} axes", array, hint="give each axis its shift"
            )
        for each, along in zip(shifts, axes, strict=True):
            array = roll(array, each, along)
        return array
    if axis is None:
        return reshape(roll(reshape(array, (-1,)), shift, 0), array.shape)
    where = axis_of(axis, array.ndim, "roll")
    extent, known = array.shape[where], as_extent(read(shift))
    if extent == 0:
        return array
    if known is None or not isinstance(extent, int):
        place = functions.arange(extent) + -as_array(shift) % functions.maximum(extent, 1)
        with in_range():
            return functions.take(array, functions.where(place < extent, place, place - extent), where)
    first = -known % extent
    if first == 0:
        return array
    return concat([slice_axis(array, where, first, extent), slice_axis(array, where, 0, first)], where)


def shifted(x: Array, axis: int, value: Any, reverse: bool = False) -> Array:
    """The elements one place on along the axis, after `value`; with `reverse` one place back, before it."""
    wide = pad_axis(x, axis, int(not reverse), int(reverse), value)
    return slice_axis(wide, axis, int(reverse), x.shape[axis] + int(reverse))


@public("fliplr", method=True)
def fliplr(x: Any) -> Array:
    """`x` with the order along axis 1 reversed. NumPy and torch `fliplr`."""
    return flip(x, 1)


@public("flipud", method=True)
def flipud(x: Any) -> Array:
    """`x` with the order along axis 0 reversed. NumPy and torch `flipud`."""
    return flip(x, 0)


@public("rot90", method=True)
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """`x` turned by `k` right angles, from the first of the `axes` towards the second. NumPy and torch `rot90`."""
    array = as_array(x)
    check_known("rot90", "k", k)
    first, second = (axis_of(axis, array.ndim, "rot90") for axis in axes)
    if first == second:
        raise shape_error(f"rot90 turns two axes, got {axes}", array)
    turns = int(k) % 4
    array = flip(array, {1: second, 2: (first, second), 3: first}[turns]) if turns else array
    return swapaxes(array, first, second) if turns % 2 else array


def _atleast(x: Any, ndim: int) -> Array:
    array = as_array(x)
    return reshape(array, (1,) * (ndim - array.ndim) + array.shape)


def _each(function: Callable[[Any], Array], arrays: tuple[Any, ...]) -> Any:
    """The function of one array, or a tuple of those of several, which torch also gives as one tuple."""
    if len(arrays) == 1 and isinstance(arrays[0], tuple) and any(isinstance(one, Array) for one in arrays[0]):
        return tuple(map(function, arrays[0]))
    return function(arrays[0]) if len(arrays) == 1 else tuple(map(function, arrays))


@public("atleast_1d")
def atleast_1d(*arrays: Any) -> Any:
    """An array as it is, a number as an array (1,); of several a tuple. NumPy and torch `atleast_1d`."""
    return _each(lambda x: _atleast(x, 1), arrays)


@public("atleast_2d")
def atleast_2d(*arrays: Any) -> Any:
    """An array as a matrix at least: a vector is one row; of several a tuple. NumPy and torch `atleast_2d`."""
    return _each(lambda x: _atleast(x, 2), arrays)


@public("atleast_3d")
def atleast_3d(*arrays: Any) -> Any:
    """An array with three axes at least: (n,) is (1, n, 1), (m, n) is (m, n, 1); of several a tuple.

    NumPy and torch `atleast_3d`.
    """
    return _each(_atleast_3d, arrays)


def _atleast_3d(x: Any) -> Array:
    array = _atleast(x, 2)
    return expand_dims(array, 2) if array.ndim == 2 else array


@public("hstack")
def hstack(arrays: Sequence[Any]) -> Array:
    """The arrays one after the other along axis 1, vectors along axis 0. NumPy and torch `hstack`."""
    joined = [atleast_1d(array) for array in _joined(arrays, "hstack")]
    return concat(joined, 0 if joined[0].ndim == 1 else 1)


@public("vstack", numpy=("row_stack",))
def vstack(arrays: Sequence[Any]) -> Array:
    """The arrays one after the other along axis 0, each vector a row. NumPy and torch `vstack`."""
    return concat([atleast_2d(array) for array in _joined(arrays, "vstack")], 0)


@public("dstack")
def dstack(arrays: Sequence[Any]) -> Array:
    """The arrays one after the other along axis 2, as `atleast_3d` gives it to them. NumPy and torch `dstack`."""
    return concat([atleast_3d(array) for array in _joined(arrays, "dstack")], 2)


@public("column_stack")
def column_stack(arrays: Sequence[Any]) -> Array:
    """The arrays one after the other along axis 1, each vector a column. NumPy and torch `column_stack`."""
    joined = _joined(arrays, "column_stack")
    return concat([reshape(array, (-1, 1)) if array.ndim < 2 else array for array in joined], 1)
