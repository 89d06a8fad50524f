"""Reading and writing elements: the primitives behind subscripts, `take` and the scatters.

Negative indices wrap around once; an index out of range stops the program with the line. Writing has value semantics:
it makes a new array, which the memory plan turns into an update in place if the old one is unused afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ProgramIndexError, ProgramValueError, ShapeError
from staged.ir.messages import NO_ELEMENTS, OUT_OF_RANGE
from staged.ir.nodes import FAIL
from staged.ir.numbers import limits
from staged.ir.types import (
    NUMBER_DTYPES,
    STORED_DTYPES,
    Dim,
    Extent,
    Shape,
    TensorType,
    bool_,
    f32,
    f64,
    i64,
    shape_text,
    u64,
)
from staged.ops.array import Array, functions
from staged.ops.choice import select, where
from staged.ops.context import bind
from staged.ops.dimension import as_extent
from staged.ops.primitive import BadSample, Primitive, Sample, next_axis, primitive
from staged.ops.promote import (
    as_array,
    axis_of,
    broadcast,
    broadcast_shapes,
    cast,
    constant,
    dtype_error,
    is_number,
    shape_error,
)
from staged.ops.public import Option, public
from staged.ops.shape import reshape
from staged.ops.source import full, iota, zeros_like
from staged.ops.written import as_written

_DTYPES = STORED_DTYPES


# ---- staged scalars as indices --------------------------------------------------------------------


def _infer_check(index: TensorType, extent: Extent, width: Extent = 0, of: str = "") -> TensorType:
    if index.shape or index.dtype is not i64:
        raise DTypeError(f"an index is an i64 scalar, got {index}", hint="cast it: `st.astype(i, st.i64)`")
    return TensorType(i64)


def _check(index: np.ndarray[Any, Any], extent: int, width: int = 0, of: str = "") -> np.ndarray[Any, Any]:
    if of:
        if extent == 0:
            raise ProgramValueError(NO_ELEMENTS.format(of))
    elif width:
        if not -extent <= index <= (-width - 1 if index < 0 else extent - width):
            raise ProgramIndexError(
                f"a slice of {width} elements from {int(index)} on is out of range for an axis of {extent}"
            )
    elif not -extent <= index < extent:
        raise _out_of_range("index", index, extent)
    return np.asarray(index + extent if index < 0 else index)


_check_op: Primitive = primitive(
    name="index_check",
    kind="elementwise",
    infer=_infer_check,
    reference=_check,
    effects=FAIL,
    samples=[
        Sample((np.array(2),), {"extent": 3}, dtypes=(i64,)),
        Sample((np.array(-3),), {"extent": 3}, dtypes=(i64,)),
        Sample((np.array(1),), {"extent": 3, "width": 2}, dtypes=(i64,)),
        Sample((np.array(-3),), {"extent": 3, "width": 2}, dtypes=(i64,)),
        Sample((np.array(0),), {"extent": 1, "of": "max"}, dtypes=(i64,)),
    ],
    bad=[
        BadSample((TensorType(i64, (2,)),), DTypeError, "i64 scalar", {"extent": 3}),
        BadSample((TensorType(f32),), DTypeError, "i64 scalar", {"extent": 3}),
    ],
    doc="The index counted from the front; stops the program where it, or a window of `width` from it, is out of "
    "range, or where"
    " the axis has no element for the function `of` to find.",
    why_not_differentiable="its result is a position",
)


def as_index(x: Any) -> Array:
    """Integers as i64. A u64 beyond these is the largest of them: a negative one would count from the end."""
    array = as_array(x)
    return cast(functions.minimum(array, limits(i64)[1]) if array.dtype is u64 else array, i64)


def checked_index(index: Any, extent: Extent) -> Array:
    """A staged integer as an index of an axis of `extent`: i64, counted from the front, in range."""
    return bind(_check_op, [as_index(index)], extent=extent)


def checked_window(start: Any, extent: Extent, width: Extent) -> Array:
    """The start of the slice `x[start:start + width]`, counted from the front; all of it is in range.

    A slice from a negative start that reaches the end is empty in Python (`x[-2:0]`): it is out of range.
    """
    return bind(_check_op, [as_index(start)], extent=extent, width=width)


def _check_starts(name: str, x: TensorType, starts: Sequence[TensorType]) -> None:
    if len(starts) != x.ndim:
        raise ShapeError(f"{name} needs one start per axis of {x}, got {len(starts)}")
    for start in starts:
        if start.shape or start.dtype is not i64:
            raise DTypeError(f"{name}: a start is an i64 scalar, got {start}")


def _infer_dynamic_slice(x: TensorType, *starts: TensorType, sizes: Shape) -> TensorType:
    _check_starts("dynamic_slice", x, starts)
    if len(sizes) != x.ndim or any(
        isinstance(size, int) and isinstance(extent, int) and not 0 <= size <= extent
        for size, extent in zip(sizes, x.shape, strict=False)
    ):
        raise ShapeError(f"a dynamic slice of {shape_text(sizes)} does not fit into {x}")
    return TensorType(x.dtype, sizes)


def _window(starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(int(start), int(start) + size) for start, size in zip(starts, sizes, strict=True))


dynamic_slice_op: Primitive = primitive(
    name="dynamic_slice",
    takes_host_numbers=True,
    by_parts=True,
    kind="view",
    elements="viewed",
    named_after_operand=True,
    infer=_infer_dynamic_slice,
    reference=lambda x, *starts, sizes: x[_window(starts, sizes)],
    vjp=lambda ct, y, x, *starts, sizes: [
        bind(dynamic_update_op, [zeros_like(x), ct, *starts]),
        *[None] * len(starts),
    ],
    jvp=lambda tangents, y, operands, sizes: (
        None if tangents[0] is None else bind(dynamic_slice_op, [tangents[0], *operands[1:]], sizes=sizes)
    ),
    samples=[
        Sample(((4, 3), np.array(1), np.array(0)), {"sizes": (2, 3)}, dtypes=_DTYPES),
        Sample(((5,), np.array(4)), {"sizes": (1,)}),
    ],
    bad=[
        BadSample((TensorType(f32, (4,)), TensorType(i64)), ShapeError, "does not fit", {"sizes": (5,)}),
        BadSample((TensorType(f32, (4,)),), ShapeError, "one start per axis", {"sizes": (2,)}),
        BadSample((TensorType(f32, (4,)), TensorType(f32)), DTypeError, "i64 scalar", {"sizes": (2,)}),
    ],
    doc="`sizes` elements from `starts` on; the starts are in range (see `index_check`).",
)


def _infer_dynamic_update(x: TensorType, update: TensorType, *starts: TensorType) -> TensorType:
    _check_starts("dynamic_update", x, starts)
    if update.dtype is not x.dtype:
        raise DTypeError(f"cannot write {update} into {x}", hint=f"cast it: `st.astype(v, st.{x.dtype})`")
    if update.ndim != x.ndim or any(
        isinstance(size, int) and isinstance(extent, int) and size > extent
        for size, extent in zip(update.shape, x.shape, strict=False)
    ):
        raise ShapeError(f"cannot write {update} into {x}: it does not fit")
    return x


def _updated(x: np.ndarray[Any, Any], update: np.ndarray[Any, Any], *starts: Any) -> np.ndarray[Any, Any]:
    result = x.copy()
    result[_window(starts, update.shape)] = update
    return result


def _dynamic_update_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array]) -> Any:
    d_x, d_update = tangents[:2]
    if d_x is None and d_update is None:
        return None
    x, update, *starts = operands
    old = zeros_like(x) if d_x is None else d_x
    return bind(dynamic_update_op, [old, zeros_like(update) if d_update is None else d_update, *starts])


dynamic_update_op: Primitive = primitive(
    name="dynamic_update",
    takes_host_numbers=True,
    by_parts=True,
    kind="index",
    takes_halves=True,
    elements="updated",
    infer=_infer_dynamic_update,
    reference=_updated,
    vjp=lambda ct, y, x, update, *starts: [
        bind(dynamic_update_op, [ct, zeros_like(update), *starts]),
        bind(dynamic_slice_op, [ct, *starts], sizes=update.shape),
        *[None] * len(starts),
    ],
    jvp=_dynamic_update_jvp,
    samples=[
        Sample(((4, 3), (2, 3), np.array(1), np.array(0)), dtypes=_DTYPES),
        Sample(((5,), (1,), np.array(4))),
    ],
    bad=[
        BadSample((TensorType(f32, (4,)), TensorType(f64, (1,)), TensorType(i64)), DTypeError, "cannot write"),
        BadSample((TensorType(f32, (4,)), TensorType(f32, (5,)), TensorType(i64)), ShapeError, "does not fit"),
    ],
    doc="x with `update` written at `starts`, which are in range (see `index_check`).",
)


# ---- gather and scatter ---------------------------------------------------------------------------


def _check_indices(name: str, indices: TensorType) -> None:
    if not indices.dtype.is_integer:
        raise DTypeError(f"{name} needs integer indices, got {indices}", hint="cast them: `st.astype(i, st.i64)`")


def _check_axis(name: str, x: TensorType, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise ShapeError(f"{name} along axis {axis} does not fit {x}")


def _out_of_range(meaning: str, index: Any, extent: int) -> ProgramIndexError:
    return ProgramIndexError(OUT_OF_RANGE[meaning].replace("%lld", "{}").format(index, extent))


def wrapped(indices: np.ndarray[Any, Any], extent: int, meaning: str = "index") -> np.ndarray[Any, Any]:
    positions = indices.astype(np.int64)
    bad = (positions < (-extent if meaning == "index" else 0)) | (positions >= extent)
    if bad.any():
        raise _out_of_range(meaning, positions[bad][0], extent)
    return np.where(positions < 0, positions + extent, positions)


def infer_take(x: TensorType, indices: TensorType, axis: int, meaning: str = "index") -> TensorType:
    _check_indices("take", indices)
    _check_axis("take", x, axis)
    if not indices.ndim:
        raise ShapeError("take needs an array of indices, got a single one", hint="`x[i]` reads at one index")
    return TensorType(x.dtype, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


_take_op: Primitive = primitive(
    name="take",
    by_parts=True,
    kind="index",
    elements="gathered",
    infer=infer_take,
    reference=lambda x, indices, axis, meaning="index": np.asarray(
        np.take(x, wrapped(indices, x.shape[axis], meaning), axis=axis)
    ),
    effects=FAIL,
    vjp=lambda ct, y, x, indices, axis, meaning="index": [
        bind(_scatter_add_op, [zeros_like(x), indices, ct], axis=axis),
        None,
    ],
    jvp=lambda tangents, y, operands, axis, meaning="index": (
        None if tangents[0] is None else bind(_take_op, [tangents[0], operands[1]], axis=axis)
    ),
    samples=[
        Sample(((4, 3), np.array([0, 2, 2, -1])), {"axis": 0}, dtypes=_DTYPES),
        Sample(((2, 3), np.array([[1, 0], [2, 2]], np.int32)), {"axis": 1}),
        Sample(((3,), np.array([1])), {"axis": 0}),
        Sample(((3,), np.zeros((0,), np.int64)), {"axis": 0}),
    ],
    bad=[
        BadSample((TensorType(f32, (4,)), TensorType(f32, (2,))), DTypeError, "integer indices", {"axis": 0}),
        BadSample((TensorType(f32, (4,)), TensorType(i64, (2,))), ShapeError, "does not fit", {"axis": 1}),
        BadSample((TensorType(f32, (4,)), TensorType(i64)), ShapeError, "a single one", {"axis": 0}),
    ],
    doc="Elements of x along `axis` at the indices: x.shape[:axis] + indices.shape + x.shape[axis + 1:]. Labels never "
    "wrap.",
)


def infer_take_along(x: TensorType, indices: TensorType, axis: int, meaning: str = "index") -> TensorType:
    _check_indices("take_along", indices)
    _check_axis("take_along", x, axis)
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    if indices.ndim != x.ndim or indices.shape[:axis] + indices.shape[axis + 1 :] != rest:
        raise ShapeError(f"take_along axis {axis}: indices {indices} and {x} differ on another axis")
    return TensorType(x.dtype, indices.shape)


_take_along_op: Primitive = primitive(
    name="take_along",
    by_parts=True,
    kind="index",
    elements="gathered",
    infer=infer_take_along,
    reference=lambda x, indices, axis, meaning="index": np.take_along_axis(
        x, wrapped(indices, x.shape[axis], meaning), axis
    ),
    effects=FAIL,
    vjp=lambda ct, y, x, indices, axis, meaning="index": [
        bind(_scatter_add_along_op, [zeros_like(x), indices, ct], axis=axis),
        None,
    ],
    jvp=lambda tangents, y, operands, axis, meaning="index": (
        None if tangents[0] is None else bind(_take_along_op, [tangents[0], operands[1]], axis=axis)
    ),
    shift=next_axis,
    samples=[
        Sample(((2, 3), np.array([[1], [-1]])), {"axis": 1}, dtypes=_DTYPES),
        Sample(((3, 2), np.array([[0, 1], [2, 2], [0, 0], [1, -3]], np.int32)), {"axis": 0}),
        Sample(((2, 3), np.array([[1], [2]])), {"axis": 1, "meaning": "label"}),
    ],
    bad=[
        BadSample((TensorType(f32, (4, 2)), TensorType(i64, (3, 1))), ShapeError, "another axis", {"axis": 1}),
        BadSample((TensorType(f32, (4,)), TensorType(bool_, (4,))), DTypeError, "integer indices", {"axis": 0}),
    ],
    doc="Element (.., i, ..) of the result is x at (.., indices[.., i, ..], ..): NumPy's `take_along_axis`. Labels "
    "never wrap.",
)


def _infer_scatter_add(x: TensorType, indices: TensorType, updates: TensorType, axis: int) -> TensorType:
    wanted = infer_take(x, indices, axis)
    return infer_sum("scatter_add", x, updates, wanted)


def infer_sum(name: str, x: TensorType, updates: TensorType, wanted: TensorType, aim: str = "") -> TensorType:
    """The type of x with updates of the shape of `wanted` taken into its numbers."""
    if x.dtype.is_bool:
        raise DTypeError(f"{name} needs numbers, got {x}", hint="cast it: `st.astype(x, st.i64)`")
    return _with_updates(name, aim or f"add {updates} to {x}", x, updates, wanted)


def _with_updates(name: str, aim: str, x: TensorType, updates: TensorType, wanted: TensorType) -> TensorType:
    """The type of x with updates, which have its dtype and the shape of `wanted`; `aim` says what is done with them."""
    if updates.dtype is not x.dtype:
        raise DTypeError(f"{name}: cannot {aim}", hint="cast one of them")
    if updates.shape != wanted.shape:
        raise ShapeError(f"{name}: updates must be {shape_text(wanted.shape)}, got {updates}")
    return x


def _scatter_add(
    x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any], axis: int
) -> np.ndarray[Any, Any]:
    result = x.copy()
    where_: Any = (*(slice(None),) * axis, wrapped(indices, x.shape[axis]))
    np.add.at(result, where_, updates)
    return result


def _scatter_jvp(op_of: Any) -> Any:
    def jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int) -> Any:
        d_x, _, d_updates = tangents
        if d_updates is None:
            return d_x
        return bind(op_of(), [zeros_like(operands[0]) if d_x is None else d_x, operands[1], d_updates], axis=axis)

    return jvp


_NUMBERS = NUMBER_DTYPES

_scatter_add_op: Primitive = primitive(
    name="scatter_add",
    by_parts=True,
    kind="index",
    elements="updated",
    infer=_infer_scatter_add,
    reference=_scatter_add,
    effects=FAIL,
    vjp=lambda ct, y, x, indices, updates, axis: [ct, None, bind(_take_op, [ct, indices], axis=axis)],
    jvp=_scatter_jvp(lambda: _scatter_add_op),
    samples=[
        Sample(((4, 3), np.array([0, 2, 2, -1]), (4, 3)), {"axis": 0}, dtypes=_NUMBERS),
        Sample(((2, 3), np.array([[1, 0], [2, 2]], np.int32), (2, 2, 2)), {"axis": 1}),
        Sample(((3,), np.array([1]), (1,)), {"axis": 0}),
    ],
    bad=[
        BadSample(
            (TensorType(f32, (4,)), TensorType(i64, (2,)), TensorType(f32, (3,))), ShapeError, "must be", {"axis": 0}
        ),
        BadSample(
            (TensorType(f32, (4,)), TensorType(i64, (2,)), TensorType(f64, (2,))), DTypeError, "cannot add", {"axis": 0}
        ),
        BadSample(
            (TensorType(bool_, (4,)), TensorType(i64, (2,)), TensorType(bool_, (2,))),
            DTypeError,
            "numbers",
            {"axis": 0},
        ),
    ],
    doc="x with the updates added at the indices along `axis`; an index that comes twice gets both. Adds in row-major "
    "order.",
)


def _infer_scatter(x: TensorType, indices: TensorType, updates: TensorType, axis: int) -> TensorType:
    wanted = infer_take(x, indices, axis)
    return _with_updates("scatter", f"write {updates} into {x}", x, updates, wanted)


def _scatter(
    x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any], axis: int
) -> np.ndarray[Any, Any]:
    result = np.moveaxis(x.copy(), axis, 0)
    flat = wrapped(indices, x.shape[axis]).reshape(-1)
    places = range(axis, axis + indices.ndim)
    rows = np.moveaxis(updates, places, range(indices.ndim)).reshape(flat.size, *result.shape[1:])
    for position, row in zip(flat, rows, strict=True):
        result[position] = row
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))


def _last_writers(x: Array, indices: Array, like: Array, axis: int) -> Array:
    """Bools of the shape of `like`, the updates: whether an update is the last one at its index, the one that stays."""
    numbers = iota(indices.shape, 0)
    for position in range(1, indices.ndim):
        numbers = numbers * indices.shape[position] + iota(indices.shape, position)
    unwritten = full((x.shape[axis],), 0, i64)
    last = bind(_take_op, [bind(_scatter_op, [unwritten, indices, numbers], axis=0), indices], axis=0) == numbers
    wide = (*[1] * axis, *indices.shape, *[1] * (x.ndim - axis - 1))
    return broadcast(reshape(last, wide), like.shape)


def _scatter_vjp(ct: Array, y: Array, x: Array, indices: Array, updates: Array, axis: int) -> list[Array | None]:
    stays = select(
        _last_writers(x, indices, updates, axis), bind(_take_op, [ct, indices], axis=axis), zeros_like(updates)
    )
    return [bind(_scatter_op, [ct, indices, zeros_like(updates)], axis=axis), None, stays]


_scatter_op: Primitive = primitive(
    name="scatter",
    by_parts=True,
    kind="index",
    takes_halves=True,
    elements="updated",
    infer=_infer_scatter,
    reference=_scatter,
    effects=FAIL,
    vjp=_scatter_vjp,
    jvp=lambda tangents, y, operands, axis: (
        None
        if tangents[0] is None and tangents[2] is None
        else bind(
            _scatter_op,
            [
                zeros_like(operands[0]) if tangents[0] is None else tangents[0],
                operands[1],
                zeros_like(operands[2]) if tangents[2] is None else tangents[2],
            ],
            axis=axis,
        )
    ),
    samples=[
        Sample(((4, 3), np.array([0, 2, 2, -1]), (4, 3)), {"axis": 0}, dtypes=_DTYPES),
        Sample(((2, 3), np.array([[1, 0], [2, 2]], np.int32), (2, 2, 2)), {"axis": 1}),
        Sample(((3,), np.array([1, 1, 1]), (3,)), {"axis": 0}),
        Sample(((3, 2), np.zeros((0,), np.int64), (0, 2)), {"axis": 0}),
    ],
    bad=[
        BadSample(
            (TensorType(f32, (4,)), TensorType(i64, (2,)), TensorType(f32, (3,))), ShapeError, "must be", {"axis": 0}
        ),
        BadSample(
            (TensorType(f32, (4,)), TensorType(i64, (2,)), TensorType(f64, (2,))),
            DTypeError,
            "cannot write",
            {"axis": 0},
        ),
    ],
    doc="x with the updates written at the indices along `axis`; of an index that comes twice the last update stays.",
)


def scattered(x: Array, indices: Array, updates: Array, axis: int) -> Array:
    """`x` with `updates` written at integer `indices` along `axis`, the last one where an index comes twice."""
    check_of_no_elements(x, indices, axis)
    return bind(_scatter_op, [x, indices, updates], axis=axis)


def _infer_scatter_add_along(x: TensorType, indices: TensorType, updates: TensorType, axis: int) -> TensorType:
    wanted = infer_take_along(x, indices, axis)
    return infer_sum("scatter_add_along", x, updates, wanted)


def _scatter_add_along(
    x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any], axis: int
) -> np.ndarray[Any, Any]:
    result = x.copy()
    where_: list[Any] = list(np.ogrid[tuple(slice(0, extent) for extent in indices.shape)])
    where_[axis] = wrapped(indices, x.shape[axis])
    np.add.at(result, tuple(where_), updates)
    return result


_scatter_add_along_op: Primitive = primitive(
    name="scatter_add_along",
    by_parts=True,
    kind="index",
    elements="updated",
    infer=_infer_scatter_add_along,
    reference=_scatter_add_along,
    effects=FAIL,
    vjp=lambda ct, y, x, indices, updates, axis: [ct, None, bind(_take_along_op, [ct, indices], axis=axis)],
    jvp=_scatter_jvp(lambda: _scatter_add_along_op),
    shift=next_axis,
    samples=[
        Sample(((2, 3), np.array([[1], [-1]]), (2, 1)), {"axis": 1}, dtypes=_NUMBERS),
        Sample(((3, 2), np.array([[0, 1], [2, 2], [0, 0], [1, -3]], np.int32), (4, 2)), {"axis": 0}),
    ],
    bad=[
        BadSample(
            (TensorType(f32, (4,)), TensorType(i64, (2,)), TensorType(f32, (3,))), ShapeError, "must be", {"axis": 0}
        ),
    ],
    doc="x with updates[.., i, ..] added at (.., indices[.., i, ..], ..): the transpose of `take_along`.",
)


# ---- public: gather and scatter -------------------------------------------------------------------


def integers(indices: Any, name: str) -> Array:
    array = as_array(indices)
    if not array.dtype.is_integer:
        raise dtype_error(f"{name} needs integer indices, got {array.type}", array, hint="cast them to `st.i64`")
    return as_index(array) if array.dtype is u64 else cast(array, array.dtype)


def at_labels(x: Array, labels: Array, meaning: str = "label") -> Array:
    """Elements of a vector, or along the last axis of rows, at labels. A negative label is out of range.

    `meaning` is their name in the error (a key of `OUT_OF_RANGE`).
    """
    places = integers(labels, meaning)
    return bind(_take_op if x.ndim == 1 else _take_along_op, [x, places], axis=x.ndim - 1, meaning=meaning)


def check_of_no_elements(x: Array, indices: Array, axis: int) -> None:
    """Check indices by themselves where there may be no elements to read or write at them, as a loop over those would
    not.

    Of axes with no elements, and with as many as the program finds, which may be none.
    """
    extent, others = x.shape[axis], _without(x.shape, axis)
    nothing = 0 in others or any(isinstance(other, Dim) for other in others)
    if nothing and 0 not in indices.shape:
        bind(_take_op, [iota((extent,)), indices], axis=0)


@public("take", method=True)
def take(x: Any, indices: Any, axis: int | None = None) -> Array:
    """Elements of `x` along `axis` at integer indices. Array API `take`, with indices of any shape.

    Shapes: x.shape[:axis] + indices.shape + x.shape[axis + 1:]; `axis=None` takes from the flattened array. Negative
    indices wrap; one out of range stops the program with the line. The gradients of equal indices add up.
    """
    array = as_array(x)
    if axis is None:
        if array.ndim != 1:
            array = reshape(array, (-1,))
        axis = 0
    along, positions = axis_of(axis, array.ndim, "take"), integers(indices, "take")
    if positions.ndim:
        check_of_no_elements(array, positions, along)
        return bind(_take_op, [array, positions], axis=along)
    return array[(*[slice(None)] * along, positions)]


@public("take_along_axis", method=True)
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Array:
    """x[.., indices[.., i, ..], ..] along `axis`. Array API `take_along_axis`; index rules as in `take`."""
    array, positions = as_array(x), integers(indices, "take_along_axis")
    along = axis_of(axis, array.ndim, "take_along_axis")
    if positions.ndim != array.ndim:
        raise shape_error("take_along_axis needs indices with as many axes as the array", array, positions)
    rest = broadcast_shapes(_without(array.shape, along), _without(positions.shape, along))
    array = broadcast(array, _with(rest, along, array.shape[along]))
    return bind(_take_along_op, [array, broadcast(positions, _with(rest, along, positions.shape[along]))], axis=along)


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _with(rest: Shape, axis: int, extent: Extent) -> Shape:
    return (*rest[:axis], extent, *rest[axis:])


@public("scatter_add")
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Array:
    """`x` with `updates` added at `indices` along `axis`; an index that occurs twice gets both. The transpose of
    `take`.
    """
    array = as_array(x)
    positions = integers(indices, "scatter_add")
    along = axis_of(axis, array.ndim, "scatter_add")
    if not positions.ndim:
        return functions.add_item(array, (*[slice(None)] * along, positions), updates)
    shape = array.shape[:along] + positions.shape + array.shape[along + 1 :]
    added = broadcast(as_written(array, updates, "add"), shape)
    check_of_no_elements(array, positions, along)
    return bind(_scatter_add_op, [array, positions, added], axis=along)


@public("index_select", method=True)
def index_select(x: Any, axis: int, indices: Any) -> Array:
    """The rows of `x` along `axis` at a vector of indices, or the one at a number. torch `index_select`."""
    chosen = as_array(indices)
    return take(x, chosen if chosen.ndim else reshape(chosen, (1,)), axis)


@public("index_add", method=True)
def index_add(x: Any, axis: int, indices: Any, source: Any, *, alpha: Option = 1) -> Array:
    """`x` with `alpha` times the rows of `source` added along `axis` at a vector of indices. torch `index_add`."""
    return scatter_add(x, indices, source if is_number(alpha) and alpha == 1 else as_array(source) * alpha, axis)


@public("index_copy", method=True)
def index_copy(x: Any, axis: int, indices: Any, source: Any) -> Array:
    """`x` with the rows of `source` written along `axis` at a vector of indices, the last one where an index comes
    twice. torch `index_copy`.
    """
    return _with_rows("index_copy", x, axis, indices, source)


def _with_rows(name: str, x: Any, axis: int, indices: Any, rows: Any) -> Array:
    array, positions = as_array(x), integers(indices, name)
    along = axis_of(axis, array.ndim, name)
    if positions.ndim != 1:
        raise shape_error(f"{name} takes a vector of indices, got {positions.type}", positions)
    shape = array.shape[:along] + positions.shape + array.shape[along + 1 :]
    return scattered(array, positions, broadcast(as_written(array, rows), shape), along)


@public("index_fill", method=True)
def index_fill(x: Any, axis: int, indices: Any, value: Option) -> Array:
    """`x` with a number written along `axis` at a vector of indices. torch `index_fill`."""
    number = as_written(as_array(x), value)
    if number.shape:
        raise shape_error(f"index_fill writes a number, got {number.type}", number)
    return _with_rows("index_fill", x, axis, indices, number)


@public("dynamic_slice")
def dynamic_slice(x: Any, start: Any, size: Any, axis: int = 0) -> Array:
    """`size` elements of `x` along `axis` from a staged `start` on; the size is fixed while staging, or a dimension.

    A start from which `size` elements do not fit stops the program with the line. Negative starts count from the end,
    but not for a dimension's elements.
    """
    array = as_array(x)
    along = axis_of(axis, array.ndim, "dynamic_slice")
    extent, given = array.shape[along], size
    size = as_extent(given)
    if size is None:
        raise shape_error(
            f"dynamic_slice needs a size known while staging, got {given!r}",
            array,
            hint='give it a bound: `n = st.dim("N", n, max=64)`, then `st.dynamic_slice(x, start, n)`',
        )
    if isinstance(extent, int) and isinstance(size, int) and not 0 <= size <= extent:
        raise shape_error(f"dynamic_slice: {size} elements do not fit into axis {along} of {array.type}", array)
    begin = _window_start(start, extent, size)
    starts = [begin if a == along else constant(0, TensorType(i64)) for a in range(array.ndim)]
    sizes = tuple(size if a == along else e for a, e in enumerate(array.shape))
    return bind(dynamic_slice_op, [array, *starts], sizes=sizes)


def _window_start(start: Any, extent: Extent, size: Extent) -> Array:
    if not isinstance(size, int) or not isinstance(extent, int):
        return checked_window(start, extent, size)
    begin = as_index(start)
    if size > 1:
        # Wrapped by hand: the check below must leave room for the window, not for one element.
        begin = where(begin < 0, begin + extent, begin)
        # The check itself would wrap what is still negative, so that is made too large instead.
        begin = where(begin < 0, extent, begin)
    return checked_index(begin, extent - size + 1)


@public("dynamic_update_slice")
def dynamic_update_slice(x: Any, update: Any, start: Any, axis: int = 0) -> Array:
    """`x` with `update` written along `axis` from a staged `start` on; the rules of `dynamic_slice`."""
    array = as_array(x)
    along = axis_of(axis, array.ndim, "dynamic_update_slice")
    new = as_written(array, update)
    size = new.shape[along] if new.ndim == array.ndim else None
    if size is None:
        raise shape_error("dynamic_update_slice needs an update with the axes of the array", array, new)
    begin = _window_start(start, array.shape[along], size)
    starts = [begin if a == along else constant(0, TensorType(i64)) for a in range(array.ndim)]
    return bind(dynamic_update_op, [array, new, *starts])
