"""Reading and writing elements: the primitives behind subscripts, `take` and the scatters.

Negative indices wrap around once; an index out of range stops the program with the line. Writing has value semantics:
it makes a new array, which the memory plan turns into an update in place if the old one is unused afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.nodes import FAIL
from staged.ir.sizes import Extent, Size
from staged.ir.types import NUMBER_DTYPES, STORED_DTYPES, Shape, TensorType, bool_, f32, f64, i64, shape_text, u64
from staged.ops.array import Array, functions
from staged.ops.choice import select
from staged.ops.context import bind
from staged.ops.dynamic_slice import as_index, out_of_range
from staged.ops.primitive import BadSample, Primitive, Sample, next_axis, primitive
from staged.ops.promote import as_array, axis_of, broadcast, broadcast_shapes, cast, dtype_error, is_number, shape_error
from staged.ops.public import Option, public
from staged.ops.shape import reshape
from staged.ops.source import full, iota, zeros_like
from staged.ops.written import as_written

# ---- gather and scatter ---------------------------------------------------------------------------


def _check_indices(name: str, indices: TensorType) -> None:
    if not indices.dtype.is_integer:
        raise DTypeError(f"{name} needs integer indices, got {indices}", hint="cast them: `st.astype(i, st.i64)`")


def _check_axis(name: str, x: TensorType, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise ShapeError(f"{name} along axis {axis} does not fit {x}")


def wrapped(indices: np.ndarray[Any, Any], extent: int, meaning: str = "index") -> np.ndarray[Any, Any]:
    positions = indices.astype(np.int64)
    bad = (positions < (-extent if meaning == "index" else 0)) | (positions >= extent)
    if bad.any():
        raise out_of_range(meaning, positions[bad][0], extent)
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
        Sample(((4, 3), np.array([0, 2, 2, -1])), {"axis": 0}, dtypes=STORED_DTYPES),
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
        Sample(((2, 3), np.array([[1], [-1]])), {"axis": 1}, dtypes=STORED_DTYPES),
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
        Sample(((4, 3), np.array([0, 2, 2, -1]), (4, 3)), {"axis": 0}, dtypes=NUMBER_DTYPES),
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
        Sample(((4, 3), np.array([0, 2, 2, -1]), (4, 3)), {"axis": 0}, dtypes=STORED_DTYPES),
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
        Sample(((2, 3), np.array([[1], [-1]]), (2, 1)), {"axis": 1}, dtypes=NUMBER_DTYPES),
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
    nothing = 0 in others or any(isinstance(other, Size) for other in others)
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
