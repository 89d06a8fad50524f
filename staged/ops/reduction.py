"""Reductions: sum, max, min, any, all, argmax, argmin, and functions made of them (mean, var, std).

The primitives drop the reduced axes; `keepdims` is a reshape afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.declaration import Declaration, prims
from staged.ir.messages import NO_ELEMENTS
from staged.ir.types import NUMBER_DTYPES, DType, Shape, TensorType, bool_, f32, i64, u8, u64
from staged.ops.array import Array, functions
from staged.ops.choice import select
from staged.ops.comparisons import not_equal
from staged.ops.context import bind
from staged.ops.declare_elementwise import BOOLS, NUMBERS, NUMERIC, SAMPLE_DTYPES, check_kind
from staged.ops.elementwise import divide, maximum, sqrt, square
from staged.ops.primitive import BadSample, Primitive, Sample, next_axes, next_axis, primitive
from staged.ops.promote import (
    as_array,
    axes_of,
    axis_of,
    broadcast,
    cast,
    check_dtype,
    check_known,
    is_number,
    promoted,
)
from staged.ops.public import public
from staged.source import returns_its_op

# ---- declaring ------------------------------------------------------------------------------------


def _check_axes(name: str, x: TensorType, axes: tuple[int, ...]) -> None:
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < x.ndim for axis in axes):
        raise ShapeError(f"{name} over axes {axes} does not fit {x}", hint="axes are sorted, each named once")


def _infer(name: str, kinds: tuple[str, ...], needs_element: bool) -> Callable[..., TensorType]:
    def infer(x: TensorType, axes: tuple[int, ...]) -> TensorType:
        _check_axes(name, x, axes)
        check_kind(name, x, kinds)
        if needs_element and any(x.shape[axis] == 0 for axis in axes):
            raise ShapeError(f"{NO_ELEMENTS.format(name)}, got {x}", hint=f"check the size before `{name}`")
        return TensorType(x.dtype, tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes))

    return infer


def declare_reduction(
    name: str,
    reference: Callable[..., Any],
    kinds: tuple[str, ...],
    *,
    combine: Declaration,
    identity: int | Literal["lowest", "highest"],
    **fields: Any,
) -> Primitive:
    """Declare a reduction that combines all elements along `axes` with the op `combine`, in any order."""
    needs_element = isinstance(identity, str)
    dtypes = SAMPLE_DTYPES[kinds]
    samples = [
        Sample(((2, 3),), {"axes": (1,)}, dtypes=dtypes),
        Sample(((2, 3),), {"axes": (0,)}, dtypes=dtypes),
        Sample(((2, 3, 4),), {"axes": (0, 2)}, dtypes=dtypes),
        Sample(((2, 3),), {"axes": (0, 1)}, dtypes=dtypes),
        Sample(((3,),), {"axes": ()}, dtypes=dtypes),
        Sample(((3, 0),), {"axes": (0,)}, dtypes=dtypes),
        # Rows long enough for vectors, teams of threads and cascades.
        Sample(((2, 5000),), {"axes": (1,)}, low=0.999, high=1.001, dtypes=dtypes, differentiate=()),
    ]
    wrong = TensorType(next(dtype for dtype in (bool_, f32) if dtype.kind not in kinds), (3,))
    bad = [
        BadSample((wrong,), DTypeError, f"{name} needs", {"axes": (0,)}),
        BadSample((TensorType(dtypes[0], (3,)),), ShapeError, "does not fit", {"axes": (1,)}),
    ]
    if needs_element:
        bad.append(BadSample((TensorType(dtypes[0], (0, 3)),), ShapeError, "no elements", {"axes": (0,)}))
    else:
        samples.append(Sample(((0, 3),), {"axes": (0,)}, dtypes=dtypes))
    return primitive(
        name=name,
        kind="reduction",
        infer=_infer(name, kinds, needs_element),
        reference=reference,
        shift=next_axes,
        samples=samples,
        bad=bad,
        combine=combine,
        identity=identity,
        **fields,
    )


def kept_axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """The axes of an array that are not in `axes`."""
    return tuple(axis for axis in range(ndim) if axis not in axes)


def expand_back(y: Array, shape: Shape, axes: Sequence[int]) -> Array:
    """A reduced array repeated along the axes it lost."""
    if not axes:
        return y
    return bind(prims.BROADCAST_TO, [y], shape=shape, axes=kept_axes(axes, len(shape)))


def _sum(x: np.ndarray[Any, Any], axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.asarray(np.sum(x, axis=axes, dtype=x.dtype))


_sum_op: Primitive = declare_reduction(
    "sum",
    _sum,
    NUMERIC,
    vjp=lambda ct, y, x, axes: [expand_back(ct, x.shape, axes)],
    jvp=lambda tangents, y, operands, axes: bind(_sum_op, [tangents[0]], axes=axes),
    doc="The sum over `axes`; 0 of no elements. The order of additions is the back end's.",
    harmless=True,
    by_parts=True,
    combine=prims.ADD,
    identity=0,
)


# ---- max and min ----------------------------------------------------------------------------------


def _winners(y: Array, x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """(mask of elements that equal the extreme, their number per result)."""
    tied = x == expand_back(y, x.shape, axes)
    return tied, bind(_sum_op, [cast(tied, x.dtype)], axes=axes)


def _zeros_like(x: Array) -> Array:
    return broadcast(cast(as_array(0.0), x.dtype), x.shape)


def _ones_like(x: Array) -> Array:
    return broadcast(cast(as_array(1.0), x.dtype, x.type.weak), x.shape)


def _extreme_vjp(ct: Array, y: Array, x: Array, axes: tuple[int, ...]) -> list[Array]:
    tied, count = _winners(y, x, axes)
    # NaN equals nothing: then no element wins, and every cotangent is NaN, as in torch and in forward mode (0 / 0).
    lost = select(count == 0, y, _zeros_like(y))
    return [select(tied, expand_back(ct / count, x.shape, axes), expand_back(lost, x.shape, axes))]


def _extreme_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axes: tuple[int, ...]) -> Array:
    tied, count = _winners(y, operands[0], axes)
    return bind(_sum_op, [select(tied, tangents[0], _zeros_like(tangents[0]))], axes=axes) / count


_max_op: Primitive = declare_reduction(
    "max",
    lambda x, axes: np.asarray(np.max(x, axis=axes)),
    NUMBERS,
    vjp=_extreme_vjp,
    jvp=_extreme_jvp,
    doc="The largest element over `axes`; NaN where there is one. Ties share the gradient evenly, as torch's `amax`.",
    combine=prims.MAXIMUM,
    identity="lowest",
    noun="largest",
)
_min_op: Primitive = declare_reduction(
    "min",
    lambda x, axes: np.asarray(np.min(x, axis=axes)),
    NUMBERS,
    vjp=_extreme_vjp,
    jvp=_extreme_jvp,
    doc="The smallest element over `axes`; NaN where there is one. Ties share the gradient evenly, as torch's `amin`.",
    combine=prims.MINIMUM,
    identity="highest",
    noun="smallest",
)
_any_op: Primitive = declare_reduction(
    "any",
    lambda x, axes: np.asarray(np.any(x, axis=axes)),
    BOOLS,
    doc="Whether an element over `axes` is true.",
    why_not_differentiable="its result is not a float",
    harmless=True,
    vector="never",
    combine=prims.LOGICAL_OR,
    identity=0,
    noun="disjunction",
)
_all_op: Primitive = declare_reduction(
    "all",
    lambda x, axes: np.asarray(np.all(x, axis=axes)),
    BOOLS,
    doc="Whether every element over `axes` is true.",
    why_not_differentiable="its result is not a float",
    harmless=True,
    vector="never",
    combine=prims.LOGICAL_AND,
    identity=1,
    noun="conjunction",
)


# ---- positions ------------------------------------------------------------------------------------


def _position(name: str, reference: Callable[..., Any], extreme: Primitive) -> Primitive:
    which = extreme.noun

    def infer(x: TensorType, axis: int) -> TensorType:
        _check_axes(name, x, (axis,))
        check_kind(name, x, NUMBERS)
        if x.shape[axis] == 0:
            raise ShapeError(f"{NO_ELEMENTS.format(name)}, got {x}", hint=f"check the size before `{name}`")
        return TensorType(i64, x.shape[:axis] + x.shape[axis + 1 :])

    return primitive(
        name=name,
        kind="reduction",
        infer=infer,
        reference=lambda x, axis: np.asarray(reference(x, axis=axis), dtype=np.int64),
        shift=next_axis,
        samples=[
            Sample(((2, 3),), {"axis": 1}, dtypes=NUMBER_DTYPES),
            Sample(((3, 2, 2),), {"axis": 0}, dtypes=NUMBER_DTYPES),
            Sample((np.array([[1.0, 3.0, 3.0], [np.nan, 5.0, np.nan]], np.float32),), {"axis": 1}),
        ],
        bad=[
            BadSample((TensorType(bool_, (3,)),), DTypeError, f"{name} needs numbers", {"axis": 0}),
            BadSample((TensorType(f32, (3,)),), ShapeError, "does not fit", {"axis": 1}),
            BadSample((TensorType(f32, (0,)),), ShapeError, "no elements", {"axis": 0}),
        ],
        doc=f"The position of the {which} element along `axis`, the first of ties; NaN counts as the {which}.",
        why_not_differentiable="its result is a position",
        vector="never",
        combine=extreme.combine,
        identity=extreme.identity,
        order="first of ties",
        noun=which,
    )


_argmax_op = _position("argmax", np.argmax, _max_op)
_argmin_op = _position("argmin", np.argmin, _min_op)


# ---- public ---------------------------------------------------------------------------------------


def keep_dims(y: Array, shape: Shape, axes: Sequence[int], keepdims: bool) -> Array:
    """A reduced array, with extents of 1 where the reduced axes were if `keepdims`."""
    check_known("a reduction", "keepdims", keepdims)
    if not keepdims or not axes:
        return y
    wide = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return bind(prims.RESHAPE, [y], shape=wide)


def _check_elements(name: str, x: Array, axes: Sequence[int]) -> None:
    """Stop the program if an extreme is taken of no elements: the first index must exist."""
    for axis in axes:
        extent = x.shape[axis]
        if not isinstance(extent, int):
            bind(prims.INDEX_CHECK, [cast(as_array(0), i64)], extent=extent, of=name)


@returns_its_op
def reduced(op: Primitive, x: Array, axis: Any, keepdims: bool) -> Array:
    axes = axes_of(axis, x.ndim, op.name)
    if not axes:
        return x
    if op.is_extreme:
        _check_elements(op.name, x, axes)
    return keep_dims(bind(op, [x], axes=axes), x.shape, axes, keepdims)


@returns_its_op
def peak(x: Array, axes: Sequence[int]) -> Array:
    """The largest float over `axes`, with extents of 1 where these were; -inf of no elements, where `max` has no value.

    For functions that have one: a softmax of no elements has none, the log of a sum of no exponentials is -inf.
    """
    if any(x.shape[axis] == 0 for axis in axes):
        wide = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
        return broadcast(cast(as_array(-math.inf), x.dtype), wide)
    return keep_dims(bind(_max_op, [x], axes=tuple(axes)), x.shape, axes, True)


def wide(x: Any, dtype: Any = None) -> Array:
    """Signed integers and bools as i64, unsigned ones as u64, so that their sums have room."""
    array = as_array(x)
    if dtype is not None:
        return cast(array, check_dtype(dtype))
    own = array.dtype
    return array if own.is_inexact else cast(array, u64 if own.kind == "u" else i64, array.type.weak)


@public("sum", method=True)
def sum_(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Array:
    """The sum over `axis` (None: all of them, an int or a tuple). Array API `sum`.

    Floats keep their dtype; bools and signed integers give i64, unsigned ones u64, unless `dtype` is set.
    """
    return reduced(_sum_op, wide(x, dtype), axis, keepdims)


@public("max", method=True, numpy=("amax",))
def max_(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest element over `axis`; NaN where there is one. Array API `max`. Ties share the gradient evenly."""
    return reduced(_max_op, as_array(x), axis, keepdims)


@public("min", method=True, numpy=("amin",))
def min_(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The smallest element over `axis`; NaN where there is one. Array API `min`. Ties share the gradient evenly."""
    return reduced(_min_op, as_array(x), axis, keepdims)


def _bools(x: Any) -> Array:
    array = as_array(x)
    return array if array.dtype.is_bool else not_equal(array, 0)


@public("any", method=True)
def any_(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """Return whether an element over `axis` is true (numbers: not 0). Array API `any`."""
    return reduced(_any_op, _bools(x), axis, keepdims)


@public("all", method=True)
def all_(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """Return whether every element over `axis` is true (numbers: not 0). Array API `all`."""
    return reduced(_all_op, _bools(x), axis, keepdims)


@returns_its_op
def _locate(op: Primitive, x: Any, axis: int | None, keepdims: bool) -> Array:
    array = as_array(x)
    if array.dtype.is_bool:
        array = cast(array, u8)
    if axis is None:
        whole = array.shape
        flat = bind(prims.RESHAPE, [array], shape=(math.prod(whole),))
        _check_elements(op.name, flat, (0,))
        return keep_dims(bind(op, [flat], axis=0), whole, range(len(whole)), keepdims)
    if not array.ndim and axis in (0, -1):
        return bind(op, [bind(prims.RESHAPE, [array], shape=(1,))], axis=0)
    where_ = axis_of(axis, array.ndim, op.name)
    _check_elements(op.name, array, (where_,))
    return keep_dims(bind(op, [array], axis=where_), array.shape, (where_,), keepdims)


@public("argmax", method=True)
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position (i64) of the largest element along `axis`, or in the flattened array. Array API `argmax`.

    The first of ties; NaN counts as the largest.
    """
    return _locate(_argmax_op, x, axis, keepdims)


@public("argmin", method=True)
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position (i64) of the smallest element along `axis`, or in the flattened array. Array API `argmin`.

    The first of ties; NaN counts as the smallest.
    """
    return _locate(_argmin_op, x, axis, keepdims)


def extent_of(x: Array, axes: Sequence[int], dtype: DType) -> Any:
    """The number of elements that a reduction over `axes` takes: a Python float, or a scalar of the program."""
    count = math.prod(x.shape[axis] for axis in axes)
    return float(count) if isinstance(count, int) else cast(as_array(count), dtype)


def freedom_of(x: Array, axes: Sequence[int], dtype: DType, correction: float) -> Any:
    """The divisor of a variance over `axes`: n - `correction`, at least 0, as in NumPy and torch."""
    if is_number(correction) and correction == 0:
        return extent_of(x, axes, dtype)
    rest = extent_of(x, axes, dtype) - correction
    return max(rest, 0.0) if isinstance(rest, float) else maximum(rest, 0.0)


@public("mean", method=True)
def mean(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Array:
    """The mean over `axis` (None: all of them, an int or a tuple); integers give f32. Array API `mean`.

    `x` is cast to `dtype`, a float, first, where that is given.
    """
    (array,) = promoted(x if dtype is None else wide(x, dtype), floats=True)
    axes = axes_of(axis, array.ndim, "mean")
    total = reduced(_sum_op, array, axes, keepdims)
    return divide(total, extent_of(array, axes, array.dtype.part)) if axes else total


@public("var", method=True)
def var(x: Any, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over `axis`: squared distances to the mean over (n - correction). Array API `var`.

    `correction=0` divides by n (NumPy's default), 1 gives the unbiased estimate (torch's default); n - correction is at
    least 0, so that too few elements give inf or NaN. Computed in two passes, without cancellation for data far from 0.
    """
    (array,) = promoted(x, floats=True)
    axes = axes_of(axis, array.ndim, "var")
    centred = array - mean(array, axes, keepdims=True) if axes else array - array
    squares = square(centred)
    if array.dtype.is_complex:  # distances, which are real
        squares = square(functions.real(centred)) + square(functions.imag(centred))
    total = reduced(_sum_op, squares, axes, keepdims)
    return divide(total, freedom_of(array, axes, total.dtype, correction))


@public("std", method=True)
def std(x: Any, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The square root of `var`, with the same arguments; the derivative at 0 is 0. Array API `std`."""
    spread = var(x, axis, correction=correction, keepdims=keepdims)
    return select(spread == 0, _zeros_like(spread), sqrt(spread))


@public("count_nonzero", method=True)
def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The number of elements over `axis` that are not 0, as i64. Array API `count_nonzero`."""
    return sum_(_bools(x), axis, keepdims)
