"""Windows that begin at a staged position, and the check of an index; writing makes a new array, as in `index.py`.

Negative positions count from the end. A position out of range stops the program with the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ProgramIndexError, ProgramValueError, ShapeError
from staged.ir.messages import NO_ELEMENTS, OUT_OF_RANGE
from staged.ir.nodes import FAIL
from staged.ir.numbers import limits
from staged.ir.sizes import Extent
from staged.ir.types import STORED_DTYPES, Shape, TensorType, f32, f64, i64, shape_text, u64
from staged.ops.array import Array, functions
from staged.ops.choice import where
from staged.ops.context import bind
from staged.ops.dimension import as_extent
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import as_array, axis_of, cast, constant, shape_error
from staged.ops.public import public
from staged.ops.source import zeros_like
from staged.ops.written import as_written


def out_of_range(meaning: str, index: Any, extent: int) -> ProgramIndexError:
    return ProgramIndexError(OUT_OF_RANGE[meaning].replace("%lld", "{}").format(index, extent))


def _infer_check(index: TensorType, extent: Extent, width: Extent = 0, of: str = "") -> TensorType:
    if index.shape or index.dtype is not i64:
        raise DTypeError(f"an index must be an i64 scalar, got {index}", hint="cast it: `st.astype(i, st.i64)`")
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
        raise out_of_range("index", index, extent)
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
    doc="The index counted from the front. The program stops if the index or its window of `width` is out of range. It "
    "also stops if the axis is empty and the function `of` needs an element.",
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
            raise DTypeError(f"{name}: a start must be an i64 scalar, got {start}")


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
        Sample(((4, 3), np.array(1), np.array(0)), {"sizes": (2, 3)}, dtypes=STORED_DTYPES),
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
        Sample(((4, 3), (2, 3), np.array(1), np.array(0)), dtypes=STORED_DTYPES),
        Sample(((5,), (1,), np.array(4))),
    ],
    bad=[
        BadSample((TensorType(f32, (4,)), TensorType(f64, (1,)), TensorType(i64)), DTypeError, "cannot write"),
        BadSample((TensorType(f32, (4,)), TensorType(f32, (5,)), TensorType(i64)), ShapeError, "does not fit"),
    ],
    doc="x with `update` written at `starts`, which are in range (see `index_check`).",
)


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
    sizes = tuple(size if a == along else e for a, e in enumerate(array.shape))
    return bind(dynamic_slice_op, [array, *_starts(array, along, start, size)], sizes=sizes)


def _starts(array: Array, along: int, start: Any, size: Extent) -> list[Array]:
    """The starts of a window of `size` elements along one axis, and of all elements along the others."""
    begin = _window_start(start, array.shape[along], size)
    return [begin if a == along else constant(0, TensorType(i64)) for a in range(array.ndim)]


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
    return bind(dynamic_update_op, [array, new, *_starts(array, along, start, size)])
