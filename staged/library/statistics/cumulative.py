"""Running sums, products and extremes along an axis.

Each is a primitive that carries a state along the axis, f64 for floats. Derivatives are a *linear recurrence* y[j] =
a[j] y[j - 1] + b[j], or a running sum: both are their own derivatives' form, so that these are of any order, and exact
where factors are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.declaration import prims
from staged.ir.types import NUMBER_DTYPES, TensorType, bool_, bound, f32, f64, i64
from staged.library.elementwise.complex_numbers import complex_form
from staged.ops.array import Array
from staged.ops.choice import ones_of, select, stop_gradient, where, zeros_of
from staged.ops.context import bind
from staged.ops.elementwise import exp
from staged.ops.index import take_along_axis
from staged.ops.joining import concat, shifted
from staged.ops.primitive import BadSample, Primitive, Sample, next_axis, primitive
from staged.ops.promote import as_array, as_float, axis_of, cast, shape_error
from staged.ops.public import public
from staged.ops.reduction import wide
from staged.ops.shape import pad_axis, reshape, slice_axis
from staged.ops.source import full, iota

_NUMBERS = NUMBER_DTYPES


# ---- declaring ------------------------------------------------------------------------------------


def _infer(name: str, floats: bool, result: Any = None) -> Callable[..., TensorType]:
    def infer(*xs: TensorType, axis: int, reverse: bool = False) -> TensorType:
        x = xs[0]
        if not 0 <= axis < x.ndim or any(other.shape != x.shape for other in xs):
            raise ShapeError(f"{name} along axis {axis} does not fit {' and '.join(map(str, xs))}")
        if x.dtype.is_bool or (floats and not x.dtype.is_float) or any(other.dtype is not x.dtype for other in xs):
            raise DTypeError(
                f"{name} needs {'floats' if floats else 'numbers'}, got {' and '.join(map(str, xs))}",
                hint=f"cast it: `st.astype(x, st.{'f32' if floats else 'i64'})`",
            )
        return TensorType(result or x.dtype, x.shape)

    return infer


def _scan(
    name: str, reference: Callable[..., Any], operands: int = 1, floats: bool = False, **fields: Any
) -> Primitive:
    dtypes = (f32, f64) if floats else _NUMBERS
    turns = ({}, {"reverse": True}) if fields.pop("reverses", False) else ({},)
    sizes: list[tuple[tuple[int, ...], int]] = [
        ((5,), 0),
        ((3, 4), 1),
        ((4, 3), 0),
        ((2, 3, 5), 1),
        ((0, 3), 0),
        ((3, 0), 0),
    ]
    wrong = (TensorType(bool_, (3,)),) * operands
    return primitive(
        name=name,
        kind="scan",
        infer=_infer(name, floats, fields.pop("result", None)),
        reference=reference,
        shift=next_axis,
        samples=[
            Sample((shape,) * operands, {"axis": axis, **turn}, dtypes=dtypes)
            for shape, axis in sizes
            for turn in turns
        ],
        bad=[
            BadSample(wrong, DTypeError, f"{name} needs", {"axis": 0}),
            BadSample((TensorType(f32, (3,)),) * operands, ShapeError, "does not fit", {"axis": 1}),
        ],
        **fields,
    )


def _carried(x: np.ndarray[Any, Any]) -> Any:
    """The dtype of what is carried along the axis."""
    return np.float64 if x.dtype.kind == "f" else x.dtype


def _of_ufunc(ufunc: np.ufunc) -> Callable[..., Any]:
    def reference(x: np.ndarray[Any, Any], axis: int, reverse: bool = False) -> np.ndarray[Any, Any]:
        given = np.flip(x, axis) if reverse else x
        found = ufunc.accumulate(given, axis=axis, dtype=_carried(x)).astype(x.dtype)
        return np.ascontiguousarray(np.flip(found, axis) if reverse else found)

    return reference


# ---- a linear recurrence ----------------------------------------------------------------------------


def _recurrence(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], axis: int, reverse: bool = False
) -> np.ndarray[Any, Any]:
    factors, parts = (np.moveaxis(x, axis, 0).astype(np.float64) for x in (a, b))
    found = np.empty_like(parts)
    total = np.zeros(parts.shape[1:])
    for j in reversed(range(len(parts))) if reverse else range(len(parts)):
        with np.errstate(invalid="ignore"):
            found[j] = total = np.where(factors[j] == 0, parts[j], factors[j] * total + parts[j])
    return np.ascontiguousarray(np.moveaxis(found, 0, axis).astype(a.dtype))


def recur(a: Array, b: Array, axis: int, reverse: bool = False) -> Array:
    """y[j] = a[j] y[j - 1] + b[j] along `axis`, from 0; with `reverse` from the end, of y[j + 1].

    A factor a[j] of 0 starts again at b[j], also if y[j - 1] is infinite or NaN.
    """
    return bind(_recurrence_op, [a, b], axis=axis, reverse=reverse)


def _recurrence_vjp(ct: Array, y: Array, a: Array, b: Array, axis: int, reverse: bool) -> list[Array]:
    d_b = recur(shifted(a, axis, 0.0, not reverse), ct, axis, not reverse)
    return [d_b * shifted(y, axis, 0.0, reverse), d_b]


def _recurrence_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int, reverse: bool) -> Array:
    d_a, d_b = tangents
    if d_a is not None:
        part = d_a * shifted(y, axis, 0.0, reverse)
        part = select(d_a == 0, zeros_of(part), part)  # a constant factor of 0 beside an infinite y
        d_b = part if d_b is None else d_b + part
    return recur(operands[0], d_b, axis, reverse)


_recurrence_op: Primitive = _scan(
    "linear_recurrence",
    _recurrence,
    2,
    floats=True,
    reverses=True,
    vjp=lambda ct, y, a, b, axis, reverse=False: _recurrence_vjp(ct, y, a, b, axis, reverse),
    jvp=lambda tangents, y, operands, axis, reverse=False: _recurrence_jvp(tangents, y, operands, axis, reverse),
    doc="y[j] = a[j] y[j - 1] + b[j] along `axis`, from 0; with `reverse` from the end, of y[j + 1]. A factor of 0 "
    "starts again, also if y[j - 1] is infinite.",
)


# ---- sums and products ------------------------------------------------------------------------------


def _cumsum_vjp(ct: Array, y: Array, x: Array, axis: int, reverse: bool = False) -> list[Array]:
    return [bind(_cumsum_op, [ct], axis=axis, reverse=not reverse)]


_cumsum_op: Primitive = _scan(
    "cumsum",
    _of_ufunc(np.add),
    reverses=True,
    vjp=_cumsum_vjp,
    by_parts=True,
    jvp=lambda tangents, y, operands, axis, reverse=False: bind(_cumsum_op, [tangents[0]], axis=axis, reverse=reverse),
    harmless=True,
    doc="The sums of the elements up to each along `axis`; with `reverse` from each to the last.",
)


def _products_before(x: Array, axis: int) -> Array:
    """The product of the elements before each, of f64: larger than any of f32 on the way."""
    return shifted(bind(_cumprod_op, [x], axis=axis), axis, 1.0)


def _cumprod_vjp(ct: Array, y: Array, x: Array, axis: int) -> list[Array]:
    factors, given = cast(x, f64), cast(ct, f64)
    after = recur(shifted(factors, axis, 0.0, True), given, axis, True)
    return [cast(after * _products_before(factors, axis), x.dtype)]


def _cumprod_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int) -> Array:
    factors = cast(operands[0], f64)
    return cast(recur(factors, _products_before(factors, axis) * cast(tangents[0], f64), axis), y.dtype)


_cumprod_op: Primitive = _scan(
    "cumprod",
    _of_ufunc(np.multiply),
    vjp=_cumprod_vjp,
    jvp=_cumprod_jvp,
    doc="The products of the elements up to each along `axis`. Its derivative is right where factors are 0, too.",
)


@complex_form(prims.CUMPROD)
def _cumprod_of_complex(z: Array, axis: int) -> Array:
    """Products over runs of 1, 2, 4, ... elements: as many steps as the extent has bits, and no loop."""
    extent, run = z.shape[axis], 1
    while run < bound(extent):
        if isinstance(extent, int):
            longer = slice_axis(z, axis, run, extent) * slice_axis(z, axis, 0, extent - run)
            z = concat([slice_axis(z, axis, 0, run), longer], axis)
        else:
            before = slice_axis(pad_axis(z, axis, run, 0, 0), axis, 0, extent)
            z = where(iota(z.shape, axis) >= run, z * before, z)
        run *= 2
    return z


def _ratio(x: Array, y: Array) -> Array:
    """exp(x - y), for x up to y: 0 where both are -inf, 1 where both are inf."""
    gap = select(x == np.inf, zeros_of(y), x - y)
    return exp(select(y == -np.inf, full(y.shape, -np.inf, dtype=y.dtype), gap))


def _log_shares(x: Array, axis: int) -> tuple[Array, Array]:
    """(the share of what stood before in each sum, that of the element itself).

    The sums are relative to the largest element so far: the result itself is rounded, by more than 1 if it is large.
    """
    most = stop_gradient(take_along_axis(x, bind(_cumargmax_op, [x], axis=axis), axis))
    kept, new = _ratio(shifted(most, axis, -np.inf), most), _ratio(x, most)
    total = recur(kept, new, axis)
    old = kept * shifted(total, axis, 0.0)
    total = select(total == 0.0, ones_of(total), total)
    return old / total, new / total


def _logcumsumexp_vjp(ct: Array, y: Array, x: Array, axis: int) -> list[Array]:
    old, new = _log_shares(x, axis)
    return [recur(shifted(old, axis, 0.0, True), ct, axis, True) * new]


def _logcumsumexp_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int) -> Array:
    old, new = _log_shares(operands[0], axis)
    return recur(old, new * tangents[0], axis)


_logcumsumexp_op: Primitive = _scan(
    "logcumsumexp",
    _of_ufunc(np.logaddexp),
    floats=True,
    vjp=_logcumsumexp_vjp,
    jvp=_logcumsumexp_jvp,
    expensive=True,
    doc="log(sum(exp(x))) of the elements up to each along `axis`, without overflow.",
)


# ---- extremes ---------------------------------------------------------------------------------------


def _places(is_beyond: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def reference(x: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
        rows = np.moveaxis(x, axis, 0)
        found = np.zeros(rows.shape, np.int64)
        best, at = rows[:1].copy(), np.zeros(rows[:1].shape, np.int64)
        for j in range(1, len(rows)):
            row = rows[j : j + 1]
            wins = (row != row) | (best == best) & is_beyond(row, best)
            best, at = np.where(wins, row, best), np.where(wins, j, at)
            found[j] = at[0]
        return np.ascontiguousarray(np.moveaxis(found, 0, axis))

    return reference


def _place(name: str, is_beyond: Callable[[Any, Any], Any], which: str) -> Primitive:
    return _scan(
        name,
        _places(is_beyond),
        result=i64,
        doc=f"The position of the {which} of those up to each along `axis`, the last of ties; NaN is the {which}.",
        why_not_differentiable="its result is a position",
    )


_cumargmax_op = _place("cumargmax", np.greater_equal, "largest")
_cumargmin_op = _place("cumargmin", np.less_equal, "smallest")


# ---- public -----------------------------------------------------------------------------------------


def _along(op: Primitive, x: Array, axis: int) -> Array:
    """`op` along an axis counted from either end; a single number counts as a row of one, as in torch."""
    if not x.ndim and axis in (0, -1):
        return reshape(bind(op, [reshape(x, (1,))], axis=0), ())
    return bind(op, [x], axis=axis_of(axis, x.ndim, op.name))


def _flat(x: Array, axis: int | None) -> tuple[Array, int]:
    return (reshape(x, (-1,)), 0) if axis is None else (x, axis)


@public("cumsum", method=True)
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Array:
    """The sums of the elements up to each along `axis` (None: of all elements, in order). NumPy and torch `cumsum`.

    Floats keep their dtype, and are summed in f64; other dtypes as in `sum`, unless `dtype` is set.
    """
    return _along(_cumsum_op, *_flat(wide(x, dtype), axis))


@public("cumprod", method=True)
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Array:
    """The products of the elements up to each along `axis` (None: of all). NumPy and torch `cumprod`.

    Dtypes as in `cumsum`. The derivative is right where factors are 0, too.
    """
    return _along(_cumprod_op, *_flat(wide(x, dtype), axis))


def _cumulative(name: str, op: Primitive, x: Any, axis: int | None, dtype: Any, first: int | None) -> Array:
    array = wide(x, dtype)
    if axis is None and array.ndim != 1:
        raise shape_error(f"{name} needs an `axis` of an array of {array.ndim} dimensions, got {array.type}", array)
    along = axis_of(0 if axis is None else axis, array.ndim, name)
    found = bind(op, [array], axis=along)
    if first is None:
        return found
    shape = tuple(1 if place == along else extent for place, extent in enumerate(array.shape))
    return concat([full(shape, first, dtype=found.dtype), found], along)


@public("cumulative_sum")
def cumulative_sum(x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The sums of those up to each along `axis`, after a 0 with `include_initial`. Array API `cumulative_sum`."""
    return _cumulative("cumulative_sum", _cumsum_op, x, axis, dtype, 0 if include_initial else None)


@public("cumulative_prod")
def cumulative_prod(x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The products of those up to each along `axis`, after a 1 with `include_initial`. Array API `cumulative_prod`."""
    return _cumulative("cumulative_prod", _cumprod_op, x, axis, dtype, 1 if include_initial else None)


@public("logcumsumexp", method=True)
def logcumsumexp(x: Any, axis: int = -1) -> Array:
    """log(sum(exp(x))) of the elements up to each along `axis`, without overflow. torch `logcumsumexp`."""
    return _along(_logcumsumexp_op, as_float(x), axis)


def _extremes(op: Primitive, x: Any, axis: int) -> tuple[Array, Array]:
    array = as_array(x)
    places = _along(op, array, axis)
    if not array.ndim:
        return array, places
    return take_along_axis(array, places, axis), places


@public("cummax", method=True)
def cummax(x: Any, axis: int = -1) -> tuple[Array, Array]:
    """The largest of the elements up to each along `axis`, and its position: the last of ties. torch `cummax`.

    NaN counts as the largest. The gradient goes to the element at the position.
    """
    return _extremes(_cumargmax_op, x, axis)


@public("cummin", method=True)
def cummin(x: Any, axis: int = -1) -> tuple[Array, Array]:
    """The smallest of the elements up to each along `axis`, and its position: the last of ties. torch `cummin`."""
    return _extremes(_cumargmin_op, x, axis)
