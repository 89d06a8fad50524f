"""Pseudo-inverses, least squares, ranks, conditions and norms of matrices, from their singular values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staged.ir.sizes import Extent, largest
from staged.ir.types import i64
from staged.library.elementwise.normalization import norm as norm_
from staged.library.linalg.lu import inv
from staged.library.linalg.matrices import BATCHES, adjoint, greatest, matrix, product, size_of, squared, turned
from staged.library.linalg.spectral import eigvalsh, precision, svdvals, thin_svd
from staged.library.linalg.triangular import columns
from staged.ops.array import Array
from staged.ops.choice import stop_gradient, where
from staged.ops.composite import composite
from staged.ops.dimension import real_number
from staged.ops.elementwise import abs_, maximum
from staged.ops.primitive import Sample
from staged.ops.promote import (
    as_array,
    as_float,
    axes_of,
    axis_of,
    broadcast,
    cast,
    check_argument,
    check_dtype,
    check_known,
    is_number,
    promoted,
)
from staged.ops.public import Option, public
from staged.ops.reduction import max_, min_, sum_
from staged.ops.shape import expand_dims, moveaxis, reshape, slice_axis, squeeze
from staged.ops.source import zeros

# ---- pseudo-inverses --------------------------------------------------------------------------------


def _over(values: Array, rtol: float | Array) -> Array:
    """1 over each singular value above `rtol` times the largest, 0 for the others."""
    if size_of(values) == 0:
        return values
    counts = values > rtol * greatest(values, -1)
    return where(counts, 1.0 / where(counts, values, 1.0), 0.0)


def _pinv_slope(t: Array, y: Array, a: Array, turns: bool) -> Array:
    """The derivative along t, or its adjoint: -y t y + y y' t' (1 - a y) + (1 - y a) t' y' y."""
    p, s = (adjoint(y), adjoint(a)) if turns else (y, a)
    rise = adjoint(t)
    first = product(product(p, p, adjoint_b=True), rise)
    last = product(product(rise, p, adjoint_b=True), p)
    total = first - product(product(first, s), p)
    total = total + last - product(p, product(s, last))
    return total - product(product(p, t), p)


@composite(
    "pinv",
    vjp=lambda ct, y, a, *limits, rtol: [_pinv_slope(ct, y, a, True), *(None for _ in limits)],
    jvp=lambda tangents, y, operands, rtol: _pinv_slope(tangents[0], y, operands[0], False),
    **BATCHES,
    samples=[Sample(((4, 3),), {"rtol": 1e-12}, differentiate=())],
)
def _pinv(a: Array, *limits: Array, rtol: float) -> Array:
    """The tolerance is a number, or for each matrix one of `limits`."""
    u, values, v = thin_svd(a)
    return product(v * expand_dims(_over(values, limits[0] if limits else rtol), -2), u, adjoint_b=True)


def _inverse(a: Array, rtol: float | Array) -> Array:
    return _pinv(a, rtol, rtol=0.0)[0] if isinstance(rtol, Array) else _pinv(a, rtol=rtol)[0]


def _tolerance(name: str, rtol: Any, a: Array, usual: Extent) -> float | Array:
    """A number, or numbers (..., 1) for matrices (..., m, n), constants to derivatives."""
    if rtol is None:
        rtol = real_number(usual) * precision(a)
    if is_number(rtol):
        return float(rtol)
    is_array = isinstance(rtol, Array | np.ndarray | np.generic)
    check_argument(is_array, f"linalg.{name}: the tolerance is a number or an array, got {rtol!r}")
    limits = expand_dims(cast(as_array(rtol), a.dtype.part), -1)
    return broadcast(stop_gradient(limits), (*a.shape[:-2], 1))


def _longest(a: Array) -> Extent:
    return largest(*a.shape[-2:])


@public("linalg.pinv")
def pinv(a: Any, rtol: Option = None) -> Array:
    """The pseudo-inverses (..., n, m) of matrices (..., m, n). Array API and torch `linalg.pinv`.

    Singular values up to `rtol` times the largest count as 0; it is a number, or one for each matrix, by default
    max(m, n) times the distance of neighbouring numbers. The derivative is that at a constant rank.
    """
    matrices = matrix("pinv", a)
    return _inverse(matrices, _tolerance("pinv", rtol, matrices, _longest(matrices)))


@public("linalg.lstsq")
def lstsq(a: Any, b: Any, rcond: Option = None) -> tuple[Array, Array, Array, Array]:
    """The smallest x with the least |a x - b|: (x, residuals, rank, singular values). NumPy `linalg.lstsq`.

    Shapes: a (..., m, n), b (..., m, k), or (m,) for one vector. Singular values up to `rcond` times the largest count
    as 0, as in `pinv`. The residuals are the sums of squares of a x - b for each column; there are none where m <= n.
    Derivatives are those at a constant rank.
    """
    matrices, sides = promoted(a, b, floats=True)
    matrices = matrix("lstsq", matrices)
    m, n = matrices.shape[-2:]
    rtol = _tolerance("lstsq", rcond, matrices, _longest(matrices))
    values = svdvals(matrices)
    tall, sides, is_vector = columns("lstsq", turned(matrices), sides)
    matrices = turned(tall)
    found = product(_inverse(matrices, rtol), sides)
    residuals = sum_(squared(product(matrices, found) - sides), -2)
    if m <= n:
        residuals = slice_axis(residuals, residuals.ndim - 1, 0, 0)
    return squeeze(found, -1) if is_vector else found, residuals, _count(values, rtol), values


def _count(values: Array, rtol: float | Array, atol: float | Array = 0.0) -> Array:
    if size_of(values) == 0:
        return zeros(values.shape[:-1], i64)
    least = rtol * greatest(values, -1)
    return sum_(cast(values > (least if isinstance(atol, float) and atol == 0 else maximum(least, atol)), i64), -1)


@public("linalg.matrix_rank")
def matrix_rank(a: Any, /, *, rtol: Option = None, atol: Option = None, hermitian: bool = False) -> Array:
    """The number (i64) of singular values above `rtol` times the largest, and above `atol`.

    NumPy, torch and Array API `linalg.matrix_rank`. By default `rtol` is max(m, n) times the distance of neighbouring
    numbers, or 0 where `atol` is above 0; both are numbers, or one for each matrix. `hermitian`: the lower triangle of
    symmetric matrices is read.
    """
    matrices = matrix("matrix_rank", a)
    least = 0.0 if atol is None else _tolerance("matrix_rank", atol, matrices, 0)
    usual = _tolerance("matrix_rank", None, matrices, _longest(matrices))
    if rtol is None and not isinstance(least, float):
        rtol = where(least > 0, 0.0, usual)
    elif rtol is None and least:
        rtol = 0.0
    else:
        rtol = usual if rtol is None else _tolerance("matrix_rank", rtol, matrices, 0)
    still = stop_gradient(matrices)
    return _count(abs_(eigvalsh(still)) if hermitian else svdvals(still), rtol, least)


# ---- norms ------------------------------------------------------------------------------------------


@public("linalg.matrix_norm")
def matrix_norm(
    x: Any, ord: Option = "fro", axis: tuple[int, int] = (-2, -1), keepdims: bool = False, dtype: Any = None
) -> Array:
    """The norm of matrices in two axes, the last unless told. NumPy, torch and Array API `linalg.matrix_norm`.

    "fro" is the root of the sum of squares, "nuc" the sum of singular values; 1 and -1 are the largest and the smallest
    sum of absolute values in a column, inf and -inf in a row, 2 and -2 the largest and the smallest singular value.
    """
    array = as_float(x) if dtype is None else cast(as_float(x), check_dtype(dtype))
    check_argument(
        len(axis) == 2 and array.ndim > 1, f"linalg.matrix_norm is over two axes, got {axis} of {array.type}"
    )
    order = tuple(axis_of(one, array.ndim, "linalg.matrix_norm") for one in axis)
    if order != (array.ndim - 2, array.ndim - 1):
        found = matrix_norm(moveaxis(array, order, (-2, -1)), ord)
        return reshape(found, tuple(1 if p in order else e for p, e in enumerate(array.shape))) if keepdims else found
    known = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
    check_argument(ord in known, f"linalg.matrix_norm: ord is one of {known}, got {ord!r}")
    if ord == "fro":
        return norm_(array, 2, (-2, -1), keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(array)
        found = sum_(values, -1) if ord == "nuc" else (max_ if ord == 2 else min_)(values, -1)
    else:
        sums = sum_(abs_(array), -2 if abs(ord) == 1 else -1)
        found = (max_ if ord > 0 else min_)(sums, -1)
    return expand_dims(expand_dims(found, -1), -1) if keepdims else found


@public("linalg.norm")
def norm(x: Any, ord: Option = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of a vector, or of a matrix where `axis` names two axes. NumPy and torch `linalg.norm`.

    Without `ord` the root of the sum of squares. With `ord` and without `axis`, `x` is a vector or a matrix. Orders are
    those of `vector_norm` and `matrix_norm`.
    """
    array = as_float(x)
    check_known("linalg.norm", "ord", ord)
    if ord is None:
        return norm_(array, 2, axis, keepdims)
    axes = axes_of(axis, array.ndim, "linalg.norm")
    if len(axes) == 1:
        return norm_(array, ord, axes, keepdims)
    check_argument(len(axes) == 2, f"linalg.norm is of a vector or a matrix, got {len(axes)} axes")
    order = (axis[0] % array.ndim, axis[1] % array.ndim) if axis is not None else axes
    found = matrix_norm(moveaxis(array, order, (-2, -1)), ord=ord)
    kept = tuple(1 if place in axes else extent for place, extent in enumerate(array.shape))
    return reshape(found, kept) if keepdims else found


@public("linalg.cond")
def cond(x: Any, p: Option = None) -> Array:
    """The condition of matrices: the norm `p` of each times that of its inverse. NumPy and torch `linalg.cond`.

    Without `p` or for 2, the largest singular value over the smallest; for -2 the reverse. Other orders are those of
    `matrix_norm`; a singular matrix then stops the program with a ValueError.
    """
    array = matrix("cond", x)
    if p in (None, 2, -2):
        values = svdvals(array)
        most, least = max_(values, -1), min_(values, -1)
        return least / most if p == -2 else most / least
    return matrix_norm(array, ord=p) * matrix_norm(inv(array), ord=p)
