"""Reading and writing elements: the primitives behind `x[...]`, `x[i] = v`, `take` and the scatters.

Negative indices wrap around once; an index out of range stops the program with the line. Writing has value semantics:
`set_item(x, key, v)` is a new array, and the memory plan makes it an update in place where nobody reads the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.errors import DTypeError, ProgramIndexError, ShapeError, StagedValueError
from staged.ir.nodes import FAIL
from staged.ir.types import Dim, Extent, Shape, TensorType, bool_, f32, f64, i32, i64, shape_text, u8
from staged.ops.array import Array
from staged.ops.context import bind
from staged.ops.elementwise import select, where
from staged.ops.primitive import PRIMITIVES, BadSample, Primitive, Sample, primitive
from staged.ops.promote import (
    as_array,
    axis_of,
    broadcast,
    broadcast_shapes,
    cast,
    constant,
    dtype_error,
    handle,
    is_number,
    promoted,
    public,
    read,
    shape_error,
)
from staged.ops.reduction import max_
from staged.ops.shape import embed, permute_dims, reshape
from staged.ops.source import iota, zeros_like
from staged.source import here

_DTYPES = (f32, f64, i32, i64, u8, bool_)


# ---- staged scalars as indices --------------------------------------------------------------------


def _infer_check(index: TensorType, extent: Extent) -> TensorType:
    if index.shape or index.dtype is not i64:
        raise DTypeError(f"an index is an i64 scalar, got {index}", hint="cast it: `st.astype(i, st.i64)`")
    return TensorType(i64)


def _check(index: np.ndarray[Any, Any], extent: int) -> np.ndarray[Any, Any]:
    if not -extent <= index < extent:
        raise ProgramIndexError(f"index {int(index)} is out of range for an axis of {extent} elements")
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
    ],
    bad=[
        BadSample((TensorType(i64, (2,)),), DTypeError, "i64 scalar", {"extent": 3}),
        BadSample((TensorType(f32),), DTypeError, "i64 scalar", {"extent": 3}),
    ],
    doc="The index counted from the front; stops the program where it is out of range.",
    why_not_differentiable="its result is a position",
)


def checked_index(index: Any, extent: Extent) -> Array:
    """A staged integer as an index of an axis of `extent`: i64, counted from the front, in range."""
    return bind(_check_op, [cast(as_array(index), i64)], extent=extent)


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


_dynamic_slice_op: Primitive = primitive(
    name="dynamic_slice",
    kind="view",
    infer=_infer_dynamic_slice,
    reference=lambda x, *starts, sizes: x[_window(starts, sizes)],
    vjp=lambda ct, y, x, *starts, sizes: [
        bind(_dynamic_update_op, [zeros_like(x), ct, *starts]),
        *[None] * len(starts),
    ],
    jvp=lambda tangents, y, operands, sizes: (
        None if tangents[0] is None else bind(_dynamic_slice_op, [tangents[0], *operands[1:]], sizes=sizes)
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
    return bind(_dynamic_update_op, [old, zeros_like(update) if d_update is None else d_update, *starts])


_dynamic_update_op: Primitive = primitive(
    name="dynamic_update",
    kind="index",
    infer=_infer_dynamic_update,
    reference=_updated,
    vjp=lambda ct, y, x, update, *starts: [
        bind(_dynamic_update_op, [ct, zeros_like(update), *starts]),
        bind(_dynamic_slice_op, [ct, *starts], sizes=update.shape),
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


def _wrapped(indices: np.ndarray[Any, Any], extent: int) -> np.ndarray[Any, Any]:
    positions = indices.astype(np.int64)
    bad = (positions < -extent) | (positions >= extent)
    if bad.any():
        raise ProgramIndexError(f"index {positions[bad][0]} is out of range for an axis of {extent} elements")
    return np.where(positions < 0, positions + extent, positions)


def _infer_take(x: TensorType, indices: TensorType, axis: int) -> TensorType:
    _check_indices("take", indices)
    _check_axis("take", x, axis)
    if not indices.ndim:
        raise ShapeError("take needs an array of indices, got a single one", hint="`x[i]` reads at one index")
    return TensorType(x.dtype, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


_take_op: Primitive = primitive(
    name="take",
    kind="index",
    infer=_infer_take,
    reference=lambda x, indices, axis: np.asarray(np.take(x, _wrapped(indices, x.shape[axis]), axis=axis)),
    effects=FAIL,
    vjp=lambda ct, y, x, indices, axis: [bind(_scatter_add_op, [zeros_like(x), indices, ct], axis=axis), None],
    jvp=lambda tangents, y, operands, axis: (
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
    doc="Elements of x along `axis` at the indices: shape x.shape[:axis] + indices.shape + x.shape[axis + 1:].",
)


def _infer_take_along(x: TensorType, indices: TensorType, axis: int) -> TensorType:
    _check_indices("take_along", indices)
    _check_axis("take_along", x, axis)
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    if indices.ndim != x.ndim or indices.shape[:axis] + indices.shape[axis + 1 :] != rest:
        raise ShapeError(f"take_along axis {axis}: indices {indices} and {x} differ on another axis")
    return TensorType(x.dtype, indices.shape)


_take_along_op: Primitive = primitive(
    name="take_along",
    kind="index",
    infer=_infer_take_along,
    reference=lambda x, indices, axis: np.take_along_axis(x, _wrapped(indices, x.shape[axis]), axis),
    effects=FAIL,
    vjp=lambda ct, y, x, indices, axis: [bind(_scatter_add_along_op, [zeros_like(x), indices, ct], axis=axis), None],
    jvp=lambda tangents, y, operands, axis: (
        None if tangents[0] is None else bind(_take_along_op, [tangents[0], operands[1]], axis=axis)
    ),
    samples=[
        Sample(((2, 3), np.array([[1], [-1]])), {"axis": 1}, dtypes=_DTYPES),
        Sample(((3, 2), np.array([[0, 1], [2, 2], [0, 0], [1, -3]], np.int32)), {"axis": 0}),
    ],
    bad=[
        BadSample((TensorType(f32, (4, 2)), TensorType(i64, (3, 1))), ShapeError, "another axis", {"axis": 1}),
        BadSample((TensorType(f32, (4,)), TensorType(bool_, (4,))), DTypeError, "integer indices", {"axis": 0}),
    ],
    doc="Element (.., i, ..) of the result is x at (.., indices[.., i, ..], ..): NumPy's `take_along_axis`.",
)


def _infer_scatter_add(x: TensorType, indices: TensorType, updates: TensorType, axis: int) -> TensorType:
    wanted = _infer_take(x, indices, axis)
    return _check_scatter("scatter_add", x, updates, wanted)


def _check_scatter(name: str, x: TensorType, updates: TensorType, wanted: TensorType) -> TensorType:
    if x.dtype.is_bool:
        raise DTypeError(f"{name} takes numbers, got {x}", hint="cast it: `st.astype(x, st.i64)`")
    if updates.dtype is not x.dtype:
        raise DTypeError(f"{name}: cannot add {updates} to {x}", hint="cast one of them")
    if updates.shape != wanted.shape:
        raise ShapeError(f"{name}: updates must be {shape_text(wanted.shape)}, got {updates}")
    return x


def _scatter_add(
    x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any], axis: int
) -> np.ndarray[Any, Any]:
    result = x.copy()
    where_: Any = (*(slice(None),) * axis, _wrapped(indices, x.shape[axis]))
    np.add.at(result, where_, updates)
    return result


def _scatter_jvp(op_of: Any) -> Any:
    def jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int) -> Any:
        d_x, _, d_updates = tangents
        if d_updates is None:
            return d_x
        return bind(op_of(), [zeros_like(operands[0]) if d_x is None else d_x, operands[1], d_updates], axis=axis)

    return jvp


_NUMBERS = (f32, f64, i32, i64)

_scatter_add_op: Primitive = primitive(
    name="scatter_add",
    kind="index",
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
            (TensorType(bool_, (4,)), TensorType(i64, (2,)), TensorType(bool_, (2,))), DTypeError, "numbers", {"axis": 0}
        ),
    ],
    doc="x with the updates added at the indices along `axis`; an index that comes twice gets both. Adds in row-major order.",
)


def _infer_scatter_add_along(x: TensorType, indices: TensorType, updates: TensorType, axis: int) -> TensorType:
    wanted = _infer_take_along(x, indices, axis)
    return _check_scatter("scatter_add_along", x, updates, wanted)


def _scatter_add_along(
    x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any], axis: int
) -> np.ndarray[Any, Any]:
    result = x.copy()
    where_: list[Any] = list(np.ogrid[tuple(slice(0, extent) for extent in indices.shape)])
    where_[axis] = _wrapped(indices, x.shape[axis])
    np.add.at(result, tuple(where_), updates)
    return result


_scatter_add_along_op: Primitive = primitive(
    name="scatter_add_along",
    kind="index",
    infer=_infer_scatter_add_along,
    reference=_scatter_add_along,
    effects=FAIL,
    vjp=lambda ct, y, x, indices, updates, axis: [ct, None, bind(_take_along_op, [ct, indices], axis=axis)],
    jvp=_scatter_jvp(lambda: _scatter_add_along_op),
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


def _integers(indices: Any, name: str) -> Array:
    array = as_array(indices)
    if not array.dtype.is_integer:
        raise dtype_error(f"{name} needs integer indices, got {array.type}", array, hint="cast them to `st.i64`")
    return cast(array, array.dtype)


@public("take")
def take(x: Any, indices: Any, axis: int | None = None) -> Array:
    """Elements of `x` along `axis` at integer indices. Array API `take`, with indices of any shape.

    Shapes: x.shape[:axis] + indices.shape + x.shape[axis + 1:]; `axis=None` takes from the flattened array. Negative
    indices wrap; one out of range stops the program with the line. The gradient adds up where an index comes twice.
    """
    array = as_array(x)
    if axis is None:
        if array.ndim != 1:
            array = reshape(array, (-1,))
        axis = 0
    along, positions = axis_of(axis, array.ndim, "take"), _integers(indices, "take")
    if positions.ndim:
        return bind(_take_op, [array, positions], axis=along)
    return get_item(array, (*[slice(None)] * along, positions))


@public("take_along_axis")
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Array:
    """x[.., indices[.., i, ..], ..] along `axis`. Array API `take_along_axis`; index rules as in `take`."""
    array, positions = as_array(x), _integers(indices, "take_along_axis")
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
    """`x` with `updates` added at `indices` along `axis`; an index that comes twice gets both. The transpose of `take`."""
    array = as_array(x)
    positions = _integers(indices, "scatter_add")
    along = axis_of(axis, array.ndim, "scatter_add")
    if not positions.ndim:
        return add_item(array, (*[slice(None)] * along, positions), updates)
    shape = array.shape[:along] + positions.shape + array.shape[along + 1 :]
    added = broadcast(as_array(updates, array.dtype), shape)
    return bind(_scatter_add_op, [array, positions, added], axis=along)


@public("dynamic_slice")
def dynamic_slice(x: Any, start: Any, size: int, axis: int = 0) -> Array:
    """`size` elements of `x` along `axis` from a staged `start` on; the size is fixed while staging.

    A start from which `size` elements do not fit stops the program with the line. Negative starts count from the end.
    """
    array = as_array(x)
    along = axis_of(axis, array.ndim, "dynamic_slice")
    extent = array.shape[along]
    if isinstance(extent, int) and not 0 <= size <= extent:
        raise shape_error(f"dynamic_slice: {size} elements do not fit into axis {along} of {array.type}", array)
    begin = _window_start(start, extent, size)
    starts = [begin if a == along else constant(0, TensorType(i64)) for a in range(array.ndim)]
    sizes = tuple(size if a == along else e for a, e in enumerate(array.shape))
    return bind(_dynamic_slice_op, [array, *starts], sizes=sizes)


def _window_start(start: Any, extent: Extent, size: int) -> Array:
    if not isinstance(extent, int):
        raise shape_error("a window of a symbolic axis needs a size fixed while staging")
    begin = cast(as_array(start), i64)
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
    new = as_array(update, array.dtype)
    size = new.shape[along] if new.ndim == array.ndim else None
    if not isinstance(size, int):
        raise shape_error("dynamic_update_slice needs an update with the axes of the array", array, new)
    begin = _window_start(start, array.shape[along], size)
    starts = [begin if a == along else constant(0, TensorType(i64)) for a in range(array.ndim)]
    return bind(_dynamic_update_op, [array, new, *starts])


# ---- keys -----------------------------------------------------------------------------------------


@dataclass
class _Plan:
    """A key of `x[...]`, axis by axis: what a rectangle of `x` it names, and what happens to that afterwards.

    The rectangle is static (`start`, `count`, `step` per axis) but for axes in `staged`, read from a staged index.
    `dropped` axes are indexed by one integer; `arrays` by integer arrays. `shape` builds the result's axes: an axis
    number, or None for a new one. `front`: the axes of index arrays move to the front (NumPy's rule for indices that do
    not stand side by side).
    """

    start: list[int]
    count: list[Extent]
    step: list[int]
    staged: dict[int, Array]
    dropped: set[int]
    arrays: dict[int, Array]
    layout: list[int | None]
    front: bool


def _is_mask(part: Any) -> bool:
    return isinstance(part, Array) and part.dtype.is_bool and part.ndim > 0


def _parts(x: Array, key: Any) -> list[Any]:
    """The key as one entry per axis (and Nones); numbers and slices as they are, the rest as handles."""
    entries = list(key) if isinstance(key, tuple) else [key]
    parts: list[Any] = []
    for raw in entries:
        entry = read(raw)
        if entry is None or entry is Ellipsis or isinstance(entry, slice):
            parts.append(entry)
        elif isinstance(entry, bool | np.bool_):
            raise shape_error("a bool is not an index", x, hint="use `st.where` to choose by a condition")
        elif isinstance(entry, int | np.integer):
            parts.append(int(entry))
        elif isinstance(entry, float | str):
            raise StagedValueError(
                f"an index is an integer, a slice or an array of integers, got {entry!r}", where=here()
            )
        else:
            array = handle(entry)
            if not (array.dtype.is_integer or array.dtype.is_bool):
                raise dtype_error(
                    f"an index is of integers, got {array.type}", x, array, hint="cast it: `st.astype(i, st.i64)`"
                )
            parts.append(array)
    used = sum(part.ndim if _is_mask(part) else part is not None and part is not Ellipsis for part in parts)
    if used > x.ndim:
        raise shape_error(
            f"too many indices: {used} for an array of {x.ndim} dimension{'s' * (x.ndim != 1)}",
            x,
            hint=f"the array is {shape_text(x.shape)}",
        )
    dots = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise shape_error("an index has at most one `...`", x)
    fill = [slice(None)] * (x.ndim - used)
    if dots:
        return [*parts[: dots[0]], *fill, *parts[dots[0] + 1 :]]
    return [*parts, *fill]


def _plan(x: Array, parts: Sequence[Any]) -> _Plan:
    indices = [place for place, part in enumerate(parts) if isinstance(part, int | Array)]
    front = bool(indices) and indices[-1] - indices[0] >= len(indices)
    plan = _Plan([0] * x.ndim, list(x.shape), [1] * x.ndim, {}, set(), {}, [], front)
    axis = 0
    for part in parts:
        if part is None:
            plan.layout.append(None)
            continue
        extent = x.shape[axis]
        if isinstance(part, slice):
            _plan_slice(plan, x, axis, part)
            plan.layout.append(axis)
        elif isinstance(part, int):
            if isinstance(extent, int) and not -extent <= part < extent:
                raise shape_error(
                    f"index {part} is out of range for axis {axis} of {shape_text(x.shape)}",
                    x,
                    hint=f"indices go from {-extent} to {extent - 1}" if extent else "the axis has no elements",
                )
            if not isinstance(extent, int):
                plan.staged[axis] = constant(part, TensorType(i64))
            else:
                plan.start[axis] = part % extent
            plan.count[axis] = 1
            plan.dropped.add(axis)
        elif part.ndim == 0:
            plan.staged[axis] = part
            plan.count[axis] = 1
            plan.dropped.add(axis)
        else:
            plan.arrays[axis] = part
            plan.layout.append(axis)
        axis += 1
    return plan


def _plan_slice(plan: _Plan, x: Array, axis: int, part: slice) -> None:
    extent = x.shape[axis]
    bounds = (read(part.start), read(part.stop), read(part.step))
    if any(isinstance(bound, Array) for bound in bounds):
        raise shape_error(
            f"a slice of axis {axis} has a staged bound, so its size is not known while staging",
            x,
            hint="use `st.dynamic_slice(x, start, size)`: a staged start with a size fixed while staging",
        )
    if isinstance(extent, Dim):
        if bounds != (None, None, None):
            raise shape_error(f"axis {axis} of {x.type} is symbolic: only all of it can be sliced", x)
        return
    if part.step == 0:
        raise shape_error("a slice step cannot be 0", x)
    try:
        start, stop, step = slice(*bounds).indices(extent)
    except TypeError:
        raise shape_error(f"slice bounds are integers, got {part.start!r}:{part.stop!r}:{part.step!r}", x) from None
    plan.start[axis], plan.step[axis] = start, step
    plan.count[axis] = len(range(start, stop, step))
    if plan.count[axis] == 0:
        plan.start[axis] = 0


def _rectangle(x: Array, plan: _Plan) -> Array:
    """The rectangle of `x` that the static part of a key names, with the axes of `x`."""
    stop: list[Extent] = []
    for axis, extent in enumerate(x.shape):
        count = extent if axis in plan.staged else plan.count[axis]
        if isinstance(count, int) and isinstance(extent, int):
            end = plan.start[axis] + count * plan.step[axis]
            # One past the last element, so that equal slices are spelled alike.
            stop.append(max(end, -1) if plan.step[axis] < 0 else min(end, extent))
        else:
            stop.append(extent)
    start = [0 if axis in plan.staged else first for axis, first in enumerate(plan.start)]
    if (start, stop, plan.step) != ([0] * x.ndim, list(x.shape), [1] * x.ndim):
        x = bind(PRIMITIVES["slice"], [x], start=tuple(start), stop=tuple(stop), step=tuple(plan.step))
    if plan.staged:
        starts = [
            checked_index(plan.staged[axis], x.shape[axis]) if axis in plan.staged else constant(0, TensorType(i64))
            for axis in range(x.ndim)
        ]
        sizes = tuple(1 if axis in plan.staged else extent for axis, extent in enumerate(x.shape))
        x = bind(_dynamic_slice_op, [x, *starts], sizes=sizes)
    return x


def _laid_out(x: Array, plan: _Plan) -> Array:
    """The rectangle with dropped axes gone and new axes in."""
    return reshape(x, tuple(1 if axis is None else x.shape[axis] for axis in plan.layout))


# ---- public: reading ------------------------------------------------------------------------------


@public("get_item")
def get_item(x: Any, key: Any) -> Array:
    """`x[key]`: integers (staged ones too), slices, None, `...`, and integer arrays, as in NumPy.

    Negative indices wrap. One out of range is a ShapeError where it is known while staging, and stops the program with
    the line otherwise. Reading by a mask is refused: its size would not be known while staging.
    """
    array = as_array(x)
    parts = _parts(array, key)
    mask = next((part for part in parts if _is_mask(part)), None)
    if mask is not None:
        raise shape_error(
            f"reading by a mask ({mask.type}) gives an array whose size is not known while staging",
            array,
            hint="use `st.where(mask, x, 0)`, or `st.sum(st.where(mask, x, 0))` for a sum; writing `x[mask] = v` works",
        )
    plan = _plan(array, parts)
    laid = _laid_out(_rectangle(array, plan), plan)
    if not plan.arrays:
        return laid
    merged, flat, at, _ = _merged(laid, plan)
    return take(merged, flat, at)


def _index_arrays(plan: _Plan) -> tuple[list[int], list[Array]]:
    """Where integer arrays index, in the laid out axes."""
    places = [place for place, axis in enumerate(plan.layout) if axis in plan.arrays]
    return places, [cast(plan.arrays[axis], i64) for axis in plan.layout if axis is not None and axis in plan.arrays]


def _merged(x: Array, plan: _Plan) -> tuple[Array, Array, int, list[int]]:
    """`x` with the indexed axes moved together and merged, the indices into the merged axis, its place, and the order."""
    places, indices = _index_arrays(plan)
    others = [axis for axis in range(x.ndim) if axis not in places]
    at = 0 if plan.front else places[0]
    order = [*others[:at], *places, *others[at:]]
    moved = permute_dims(x, tuple(order))
    extents = moved.shape[at : at + len(places)]
    shape = broadcast_shapes(*(index.shape for index in indices))
    if len(places) == 1:
        return moved, broadcast(indices[0], shape), at, order
    total, flat, bad = 1, None, None
    sizes: list[int] = []
    for extent in extents:
        if not isinstance(extent, int):
            raise shape_error(f"several index arrays need sizes fixed while staging, got {x.type}", x)
        sizes.append(extent)
        total *= extent
    for size, index in zip(sizes, indices, strict=True):
        wide = broadcast(index, shape)
        wrapped = where(wide < 0, wide + size, wide)
        outside = (wrapped < 0) | (wrapped >= size)
        flat = wrapped if flat is None else flat * size + wrapped
        bad = outside if bad is None else bad | outside
    assert flat is not None and bad is not None
    # An index out of its own axis could still hit the merged one: it is moved out of that, too.
    merged = reshape(moved, (*moved.shape[:at], total, *moved.shape[at + len(places) :]))
    return merged, where(bad, total, flat), at, order


# ---- public: writing ------------------------------------------------------------------------------


def _value_for(x: Array, value: Any, shape: Shape) -> Array:
    """The value to write, of x's dtype, broadcast to `shape`."""
    new = handle(value)
    if is_number(new):
        if isinstance(new, float) and not x.dtype.is_float:
            raise dtype_error(f"cannot write the float {new} into {x.type}", x, hint="cast the array or the number")
        new = constant(new, TensorType(x.dtype))
    if new.dtype is not x.dtype:
        (joined, _) = promoted(new, x, name="assignment")
        if joined.dtype is not x.dtype and not new.type.weak:
            raise dtype_error(
                f"cannot write {new.type} into {x.type}", x, new, hint=f"cast it: `st.astype(v, st.{x.dtype})`"
            )
        new = cast(new, x.dtype)
    lead = len(shape) - new.ndim
    if lead < 0 or any(have not in (1, want) for have, want in zip(new.shape, shape[lead:], strict=True)):
        raise shape_error(
            f"cannot write {new.type} into a place of shape {shape_text(shape)}",
            x,
            new,
            hint="the value broadcasts: its extents are those of the place, or 1",
        )
    return broadcast(cast(new, x.dtype), shape)


@public("set_item")
def set_item(x: Any, key: Any, value: Any) -> Array:
    """`x` with `x[key] = value` done: a new array. Keys as in `get_item`, and bool masks.

    The value broadcasts; its dtype must promote to that of `x`. Of indices that come twice the last one wins, as in NumPy.
    """
    array = as_array(x)
    parts = _parts(array, key)
    if any(_is_mask(part) for part in parts):
        return _set_mask(array, parts, value)
    plan = _plan(array, parts)
    if not plan.arrays:
        return _set_rectangle(array, plan, value)
    inner = _rectangle(array, plan)
    laid = _laid_out(inner, plan)
    written = _set_arrays(laid, plan, value)
    return _put_back(array, plan, reshape(written, inner.shape))


def _set_mask(x: Array, parts: Sequence[Any], value: Any) -> Array:
    """x[mask] = v, where the mask covers leading axes: a choice, element by element."""
    mask = parts[0]
    rest = parts[1:]
    if not _is_mask(mask) or any(part != slice(None) for part in rest):
        raise shape_error(
            "a mask in a write stands first and alone", x, hint="combine conditions with `st.where(mask, v, x)`"
        )
    if mask.shape != x.shape[: mask.ndim]:
        raise shape_error(f"a mask of {shape_text(mask.shape)} does not fit {x.type}", x, mask)
    new = handle(value)
    if isinstance(new, Array) and new.ndim > x.ndim - mask.ndim:
        raise shape_error(
            f"x[mask] = v writes the same v everywhere, got {new.type}",
            x,
            new,
            hint="use `st.where(mask, v, x)` with a v of the shape of x",
        )
    wide = reshape(mask, (*mask.shape, *[1] * (x.ndim - mask.ndim)))
    return select(broadcast(wide, x.shape), _value_for(x, new, x.shape), x)


def _set_rectangle(x: Array, plan: _Plan, value: Any) -> Array:
    counts = tuple(plan.count)
    shape = tuple(1 if axis is None else counts[axis] for axis in plan.layout)
    return _put_back(x, plan, reshape(_value_for(x, value, shape), counts))


def _put_back(x: Array, plan: _Plan, new: Array) -> Array:
    """`x` with its rectangle replaced by `new`, which has the axes of `x`."""
    if new.shape == x.shape and not plan.staged and all(step == 1 for step in plan.step):
        return new
    if all(step == 1 for step in plan.step):
        starts = [
            checked_index(plan.staged[axis], x.shape[axis]) if axis in plan.staged else constant(first, TensorType(i64))
            for axis, first in enumerate(plan.start)
        ]
        return bind(_dynamic_update_op, [x, new, *starts])
    if plan.staged:
        raise shape_error(
            "writing with a step and a staged index at once is not supported", x, hint="write in two steps"
        )
    inside = broadcast(constant(True, TensorType(bool_)), new.shape)
    chosen = embed(inside, x.shape, plan.start, plan.step, False)
    return select(chosen, embed(new, x.shape, plan.start, plan.step), x)


def _set_arrays(x: Array, plan: _Plan, value: Any) -> Array:
    """x[i] = v by integer arrays: for each place the last write to it, found by position, then one choice."""
    merged, flat, at, order = _merged(x, plan)
    extent = merged.shape[at]
    before, after = merged.shape[:at], merged.shape[at + 1 :]
    new = _value_for(x, value, (*before, *flat.shape, *after))
    count = flat.size
    if not count:
        return x
    if not isinstance(extent, int):
        raise shape_error(f"writing by an index array needs sizes fixed while staging, got {x.type}", x)
    positions = reshape(flat, (count,))
    new = reshape(new, (*before, count, *after))
    # The range check of a read: a write out of range stops the program alike.
    positions = take(iota((extent,)), positions, 0)
    writers = where(
        iota((extent, count), 0) == broadcast(positions, (extent, count)), iota((extent, count), 1), -1
    )
    last = max_(writers, 1)
    written = take(new, where(last < 0, 0, last), at)
    hit = reshape(last >= 0, (*[1] * at, extent, *[1] * len(after)))
    result = select(broadcast(hit, merged.shape), written, merged)
    moved = tuple(x.shape[axis] for axis in order)
    back = tuple(int(axis) for axis in np.argsort(order))
    return permute_dims(reshape(result, moved), back)


@public("add_item")
def add_item(x: Any, key: Any, value: Any) -> Array:
    """`x` with `value` added at `key`; of indices that come twice all are added (NumPy's `np.add.at`)."""
    array = as_array(x)
    plan = _plan(array, _parts(array, key))
    if not plan.arrays:
        return set_item(array, key, get_item(array, key) + value)
    inner = _rectangle(array, plan)
    laid = _laid_out(inner, plan)
    merged, flat, at, order = _merged(laid, plan)
    shape = (*merged.shape[:at], *flat.shape, *merged.shape[at + 1 :])
    added = scatter_add(merged, flat, _value_for(array, value, shape), at)
    back = tuple(int(axis) for axis in np.argsort(order))
    moved = tuple(laid.shape[axis] for axis in order)
    return _put_back(array, plan, reshape(permute_dims(reshape(added, moved), back), inner.shape))
