"""Subscripts: `x[key]`, `x[key] = v` and `x[key] += v` for ints, slices, masks, index arrays, `...` and None.

A key becomes a plan, axis by axis, of the primitives in `index.py` and `dynamic_slice.py`. Writing makes a new array;
the memory plan turns it into an update in place if the old one is unused afterwards.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.errors import ProgramIndexError, StagedValueError, StaticIndexError
from staged.ir.declaration import prims
from staged.ir.size_functions import slice_count
from staged.ir.size_questions import UndecidedSizeError
from staged.ir.sizes import Extent, Size, bounds_of, largest, smallest
from staged.ir.types import Shape, TensorType, bool_, i64, shape_text
from staged.ops.array import Array, StagedArray
from staged.ops.assumptions import decide
from staged.ops.checks import check_sizes
from staged.ops.choice import select, where
from staged.ops.context import bind, current_context
from staged.ops.dimension import as_extent
from staged.ops.dynamic_slice import as_index, checked_index, checked_window, dynamic_slice_op, dynamic_update_op
from staged.ops.index import scatter_add, scattered, take
from staged.ops.promote import (
    as_array,
    broadcast,
    broadcast_shapes,
    cast,
    constant,
    describe,
    dtype_error,
    handle,
    read,
    shape_error,
    type_of,
)
from staged.ops.public import internal, public
from staged.ops.shape import embed, permute_dims, reshape
from staged.ops.windows import width_of
from staged.ops.written import as_written
from staged.source import here

# ---- keys -----------------------------------------------------------------------------------------


@dataclass
class _Plan:
    """A key of `x[...]`, axis by axis: a rectangle of `x`, and the operations on it.

    The rectangle is static (`start`, `count`, `step` per axis) but for axes in `staged`, which start at a staged index.
    `dropped` axes are indexed by one integer; `arrays` by integer arrays. `shape` builds the result's axes: an axis
    number, or None for a new one. `front`: the axes of index arrays move to the front (NumPy's rule for indices that
    are not adjacent).
    """

    start: list[Extent]
    count: list[Extent]
    step: list[int]
    staged: dict[int, Array]
    dropped: set[int]
    arrays: dict[int, Array]
    layout: list[int | None]
    front: bool


def _is_mask(part: Any) -> bool:
    return isinstance(part, Array) and part.dtype.is_bool


def _without_masks(x: Array, parts: list[Any]) -> list[Any]:
    """The key with the places where masks hold, which are known in plain Python."""
    made: list[Any] = []
    axis = 0
    for part in parts:
        if _is_mask(part) and part.ndim:  # a single bool is refused there, too
            if part.shape != x.shape[axis : axis + part.ndim]:
                raise shape_error(f"a mask of {shape_text(part.shape)} does not fit {x.type}", x, part)
            made += map(as_array, np.nonzero(np.asarray(part)))
            axis += part.ndim
        else:
            made.append(part)
            axis += part is not None
    return made


def _parts(x: Array, key: Any) -> list[Any]:
    """The key as one entry per axis (and Nones); numbers and slices unchanged, the rest as handles.

    A `...` without axes is kept: it separates the indices on its sides.
    """
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
            array = as_array(entry)
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
    fill: list[Any] = [slice(None)] * (x.ndim - used)
    if dots:
        return [*parts[: dots[0]], *(fill or [Ellipsis]), *parts[dots[0] + 1 :]]
    return [*parts, *fill]


def _plan(x: Array, parts: Sequence[Any]) -> _Plan:
    indices = [place for place, part in enumerate(parts) if isinstance(part, int | Array)]
    front = bool(indices) and indices[-1] - indices[0] >= len(indices)
    plan = _Plan([0] * x.ndim, list(x.shape), [1] * x.ndim, {}, set(), {}, [], front)
    axis = 0
    for part in parts:
        if part is None or part is Ellipsis:
            plan.layout += [None] if part is None else []
            continue
        extent = x.shape[axis]
        if isinstance(part, slice):
            _plan_slice(plan, x, axis, part)
            plan.layout.append(axis)
        elif isinstance(part, int):
            if isinstance(extent, int) and not -extent <= part < extent:
                if not isinstance(x, StagedArray):
                    # In eager mode this may be the index of a loop: it stops as the program would.
                    raise ProgramIndexError(
                        f"index {part} is out of range for an axis of {extent} elements", where=here()
                    )
                if current_context().is_certain:
                    raise StaticIndexError(
                        f"index {part} is out of range for axis {axis} of {shape_text(x.shape)}",
                        where=here(),
                        details=describe(x),
                        hint=f"indices go from {-extent} to {extent - 1}" if extent else "the axis has no elements",
                    )
                # A condition may guard the access (`i < n and x[i] > 0`): it is looked at when the program gets there.
                plan.staged[axis] = constant(part, TensorType(i64))
            elif not isinstance(extent, int):
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
    if current_context().is_plain:  # numbers, whatever holds them
        start, stop, step = (int(one) if isinstance(one, Array) and not one.ndim else one for one in bounds)
        bounds = start, stop, step
    if any(isinstance(bound, Array) for bound in bounds):
        sizes = [None if bound is None else as_extent(bound) for bound in bounds]
        if any((one is None) != (bound is None) for one, bound in zip(sizes, bounds, strict=True)):
            _plan_window(plan, x, axis, bounds)
            return
        bounds = (sizes[0], sizes[1], sizes[2])
    if part.step == 0:
        raise shape_error("a slice step cannot be 0", x)
    try:
        start, stop, step = indices_of(slice(*bounds), extent)
    except TypeError:
        raise shape_error(f"slice bounds are integers, got {part.start!r}:{part.stop!r}:{part.step!r}", x) from None
    plan.start[axis], plan.step[axis] = start, step
    plan.count[axis] = slice_count(start, stop, step)
    if plan.count[axis] == 0:
        plan.start[axis] = 0


def indices_of(part: slice, extent: Extent) -> tuple[Extent, Extent, int]:
    """The bounds of a slice of an axis, as Python's `slice.indices` has them.

    Of a size that the program finds, `start` is right if the slice has elements; `slice_count` has how many.
    """
    if isinstance(extent, int) and not any(isinstance(each, Size) for each in (part.start, part.stop)):
        return part.indices(extent)
    start, stop, step = part.start, part.stop, 1 if part.step is None else operator.index(part.step)
    first, last = (0, extent) if step > 0 else (extent - 1, -1)

    def place(given: Any, otherwise: Extent) -> Extent:
        if given is None:
            return otherwise
        number = given if isinstance(given, Size) else operator.index(given)
        if bounds_of(number)[1] <= 0 and _is_negative(number):
            return largest(extent + number, 0 if step > 0 else -1)
        if bounds_of(number - extent)[0] >= -1:
            # It is negative only if the axis has no elements.
            return largest(number, 0) if step > 0 else smallest(number, extent - 1)
        decide(number >= 0)
        _check_not_negative(number, "a bound")
        return number if step > 0 else smallest(number, extent - 1)

    end = place(stop, last)
    return place(start, first), smallest(end, extent) if step > 0 else end, step


def _is_negative(bound: Extent) -> bool:
    """Return whether a slice counts from the end: a bound that is not positive may be 0.

    Raises: UndecidedSizeError if only the program knows.
    """
    try:
        return bool(bound < 0)
    except UndecidedSizeError as error:
        error.message = f"a bound of a slice, {bound}, may be 0 or negative"
        error.hint = _FROM_THE_FRONT
        raise


_FROM_THE_FRONT = "count from the front: `x[: x.shape[0] - n]` for `x[:-n]`"


def _check_not_negative(size: Extent, what: str) -> None:
    """Check the size in a bound of a slice: Python would count from the end if it is negative."""
    if bounds_of(size)[0] < 0:
        check_sizes(size >= 0, f"{what} of a slice, {size}, is negative", hint=_FROM_THE_FRONT)


def _plan_window(plan: _Plan, x: Array, axis: int, bounds: tuple[Any, Any, Any]) -> None:
    """`x[i:i + 4]`: bounds of which one is staged, with a size that is known while staging,
    or that is a dimension's."""
    start, stop, step = bounds
    start = 0 if start is None and as_extent(stop) is not None else start
    for bound in (start, stop):
        if isinstance(bound, Array) and (bound.ndim or not bound.dtype.is_integer):
            raise shape_error(f"slice bounds are integers, got {bound.type}", x)
    width = None if start is None or stop is None or isinstance(step, Array) else width_of(start, stop)
    if width is None or step not in (None, 1):
        raise shape_error(
            f"a slice of axis {axis} has a staged bound, so its size is not known while staging",
            x,
            hint="write a width that is known while staging (`x[i:i + 4]`), or `st.dynamic_slice(x, start, size)`; "
            'or give the width a bound: `n = st.dim("N", n, max=64)`, then `x[i:i + n]`',
        )
    extent = x.shape[axis]
    if isinstance(width, int):
        if width <= 0:
            plan.count[axis] = 0
            return
        if isinstance(extent, int) and width > extent:
            raise shape_error(f"a slice of {width} elements does not fit into axis {axis} of {x.type}", x)
    else:
        _check_not_negative(width, "the width")
    plan.count[axis] = width
    plan.staged[axis] = checked_window(start, extent, width)


def _start(x: Array, plan: _Plan, axis: int) -> Array:
    """The start of a staged axis, in range: of a checked window, or checked here."""
    staged = plan.staged[axis]
    return checked_index(staged, x.shape[axis]) if axis in plan.dropped else staged


def _rectangle(x: Array, plan: _Plan) -> Array:
    """The rectangle of `x` that the static part of a key names, with the axes of `x`."""
    stop: list[Extent] = []
    for axis, extent in enumerate(x.shape):
        count = extent if axis in plan.staged else plan.count[axis]
        end = plan.start[axis] + count * plan.step[axis]
        if axis in plan.staged:
            stop.append(extent)
        elif isinstance(end, int) and isinstance(extent, int):
            # One past the last element, so that equal slices are spelled alike.
            stop.append(max(end, -1) if plan.step[axis] < 0 else min(end, extent))
        else:
            stop.append(end)
    start = [0 if axis in plan.staged else first for axis, first in enumerate(plan.start)]
    if (start, stop, plan.step) != ([0] * x.ndim, list(x.shape), [1] * x.ndim):
        x = bind(prims.SLICE, [x], start=tuple(start), stop=tuple(stop), step=tuple(plan.step))
    if plan.staged:
        starts = [
            _start(x, plan, axis) if axis in plan.staged else constant(0, TensorType(i64)) for axis in range(x.ndim)
        ]
        sizes = tuple(plan.count[axis] if axis in plan.staged else extent for axis, extent in enumerate(x.shape))
        if _is_of_nothing(x, plan):
            return broadcast(cast(constant(0, TensorType(i64)), x.dtype), sizes)
        x = bind(dynamic_slice_op, [x, *starts], sizes=sizes)
    return x


def _is_of_nothing(x: Array, plan: _Plan) -> bool:
    """Return whether a single element is read of an axis without elements: the check of the index stops the program."""
    return any(x.shape[axis] == 0 for axis in plan.staged if axis in plan.dropped)


def _laid_out(x: Array, plan: _Plan) -> Array:
    """The rectangle with dropped axes gone and new axes in."""
    return reshape(x, tuple(1 if axis is None else x.shape[axis] for axis in plan.layout))


# ---- public: reading ------------------------------------------------------------------------------


@internal("get_item")
def get_item(x: Any, key: Any) -> Array:
    """`x[key]`: integers (staged ones too), slices, None, `...`, and integer arrays, as in NumPy.

    Negative indices wrap. One out of range is a ShapeError where it is known while staging, and stops the program with
    the line otherwise. Reading by a mask is refused in staged code: its size would not be known while staging.
    """
    array = as_array(x)
    parts = _parts(array, key)
    if current_context().is_plain:
        parts = _without_masks(array, parts)
    mask = next((part for part in parts if _is_mask(part)), None)
    if mask is not None:
        raise shape_error(
            f"reading by a mask ({mask.type}) gives an array whose size is not known while staging",
            array,
            hint="use `st.where(mask, x, 0)`, or `st.sum(st.where(mask, x, 0))` for a sum, or "
            "`st.masked_select(x, mask, size=n)` for at most n elements; writing `x[mask] = v` works"
            if mask.ndim
            else "for the element 0 or 1, cast it: `st.astype(mask, st.i64)`",
        )
    plan = _plan(array, parts)
    laid = _laid_out(_rectangle(array, plan), plan)
    if not plan.arrays:
        return laid
    merged, flat, at, _ = _merged(laid, plan)
    return take(merged, flat, at)


def _index_arrays(plan: _Plan) -> tuple[list[int], list[Array]]:
    """(positions, arrays) of the integer arrays among the laid out axes."""
    places = [place for place, axis in enumerate(plan.layout) if axis in plan.arrays]
    return places, [as_index(plan.arrays[axis]) for axis in plan.layout if axis is not None and axis in plan.arrays]


def _merged(x: Array, plan: _Plan) -> tuple[Array, Array, int, list[int]]:
    """`x` with the indexed axes moved together and merged, the indices into the merged axis, its place,
    and the order."""
    places, indices = _index_arrays(plan)
    others = [axis for axis in range(x.ndim) if axis not in places]
    at = 0 if plan.front else places[0]
    order = [*others[:at], *places, *others[at:]]
    moved = permute_dims(x, tuple(order))
    extents = moved.shape[at : at + len(places)]
    shape = broadcast_shapes(*(index.shape for index in indices))
    if len(places) == 1:
        return moved, broadcast(indices[0], shape), at, order
    total, flat, bad = math.prod(extents), None, None
    for size, index in zip(extents, indices, strict=True):
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
    new = as_written(x, value)
    lead = len(shape) - new.ndim
    if lead < 0 or any(have not in (1, want) for have, want in zip(new.shape, shape[lead:], strict=True)):
        raise shape_error(
            f"cannot write {new.type} into a place of shape {shape_text(shape)}",
            x,
            new,
            hint="the value broadcasts: its extents are those of the place, or 1",
        )
    return broadcast(new, shape)


@public("set_item")
def set_item(x: Any, key: Any, value: Any) -> Array:
    """A new array: `x` after `x[key] = value`. Keys as in `get_item`, and bool masks.

    The value broadcasts; its dtype must promote to that of `x`. Of equal indices the last one wins, as in NumPy.
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
    rest = [part for part in parts[1:] if part is not Ellipsis]
    if not _is_mask(mask) or any(part != slice(None) for part in rest):
        raise shape_error(
            "a mask in a write stands first and alone", x, hint="combine conditions with `st.where(mask, v, x)`"
        )
    if mask.shape != x.shape[: mask.ndim]:
        raise shape_error(f"a mask of {shape_text(mask.shape)} does not fit {x.type}", x, mask)
    new = handle(value)
    if type_of(new).ndim > x.ndim - mask.ndim:
        raise shape_error(
            f"x[mask] = v writes the same v everywhere, got {type_of(new)}",
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
            _start(x, plan, axis) if axis in plan.staged else as_array(first, i64)
            for axis, first in enumerate(plan.start)
        ]
        if _is_of_nothing(x, plan):
            return x
        return bind(dynamic_update_op, [x, new, *starts])
    if plan.staged:
        raise shape_error(
            "writing with a step and a staged index at once is not supported", x, hint="write in two steps"
        )
    inside = broadcast(constant(True, TensorType(bool_)), new.shape)
    chosen = embed(inside, x.shape, plan.start, plan.step, False)
    return select(chosen, embed(new, x.shape, plan.start, plan.step), x)


def _set_arrays(x: Array, plan: _Plan, value: Any) -> Array:
    """x[i] = v by integer arrays; the last write where an index comes twice."""
    merged, flat, at, order = _merged(x, plan)
    if 0 in flat.shape:
        return x
    new = _value_for(x, value, (*merged.shape[:at], *flat.shape, *merged.shape[at + 1 :]))
    result = scattered(merged, flat, new, at)
    moved = tuple(x.shape[axis] for axis in order)
    back = tuple(int(axis) for axis in np.argsort(order))
    return permute_dims(reshape(result, moved), back)


@public("add_item")
def add_item(x: Any, key: Any, value: Any) -> Array:
    """`x` with `value` added at `key`; an index that occurs twice is added to twice (NumPy's `np.add.at`)."""
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
