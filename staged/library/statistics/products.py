"""Products. The derivative is, for each factor, the product of the others, without overflow on the way.

Dividing the product by each factor would be wrong if a factor is 0. Products of the others are right everywhere, and so
are their own derivatives. Powers of two balance the factors first, so that neighbours have a product near 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.ir.declaration import prims
from staged.ir.types import bound, f64, i64
from staged.library.elementwise.complex_numbers import complex_form
from staged.library.sequences.loop import scan
from staged.ops.array import Array
from staged.ops.choice import select, stop_gradient, zeros_of
from staged.ops.comparisons import clip, logical_and, logical_or
from staged.ops.context import bind
from staged.ops.declare_elementwise import NUMBERS
from staged.ops.elementwise import abs_, floor, isfinite, log2, maximum, minimum, pow_, round_
from staged.ops.joining import shifted
from staged.ops.primitive import Primitive
from staged.ops.promote import as_array, broadcast, cast
from staged.ops.public import public
from staged.ops.reduction import declare_reduction, expand_back, kept_axes, reduced, wide

# ---- balanced factors -------------------------------------------------------------------------------


def balanced(x: Array, axis: int) -> tuple[Array, Array]:
    """m and whole numbers e, of f64, with x = m * 2^e, so that products of neighbours m along `axis` are near 1.

    Zeros, infinities and NaN are in m, and the products of the other factors are near 1.
    """
    x = cast(x, f64)
    size = select(logical_and(isfinite(x), x != 0), abs_(x), zeros_of(x) + 1)
    sums = floor(bind(prims.CUMSUM, [log2(size)], axis=axis))
    powers = stop_gradient(sums - shifted(sums, axis, 0))
    return times_power(x, -powers), powers


def _before(x: Array, reverse: bool) -> Array:
    """The products of the elements before each of a row (after each, with `reverse`)."""
    axis = x.ndim - 1
    starts = shifted(zeros_of(x), axis, 1, reverse)
    return bind(prims.LINEAR_RECURRENCE, [shifted(x, axis, 0, reverse), starts], axis=axis, reverse=reverse)


def times_power(x: Array, powers: Array) -> Array:
    """x * 2^powers of f64, without overflow on the way: 0 stays 0."""
    powers = clip(powers, -2200.0, 2200.0)
    third = round_(powers * (1.0 / 3.0))
    part = pow_(2.0, third)
    return x * part * part * pow_(2.0, powers - third - third)


# ---- a tree of products -----------------------------------------------------------------------------


def _rows(x: Array, axes: tuple[int, ...]) -> tuple[Array, Callable[[Array], Array]]:
    """The factors of each product as a row, and the way back to the layout of `x`."""
    kept = kept_axes(axes, x.ndim)
    order = (*kept, *axes)
    moved = bind(prims.PERMUTE, [x], axes=order)
    count = math.prod(x.shape[axis] for axis in axes)
    rows = bind(prims.RESHAPE, [moved], shape=(*(x.shape[axis] for axis in kept), count))

    def back(rows: Array) -> Array:
        shaped = bind(prims.RESHAPE, [rows], shape=moved.shape)
        return bind(prims.PERMUTE, [shaped], axes=tuple(int(axis) for axis in np.argsort(order)))

    return rows, back


def _levels(rows: Array) -> list[tuple[Array, Array]]:
    """The pairs of factors that are multiplied at each level of a tree over the last axis."""
    count = rows.shape[-1]
    width = 1 << max(bound(count) - 1, 0).bit_length()
    none = (0,) * (rows.ndim - 1)
    products = bind(prims.PAD, [rows], low=(*none, 0), high=(*none, width - count), value=1)
    levels = []
    while width > 1:
        width //= 2
        levels.append((_part(products, 0, width), _part(products, width, 2 * width)))
        products = levels[-1][0] * levels[-1][1]
    return levels


def _part(x: Array, start: int, stop: int) -> Array:
    """x[..., start:stop]"""
    outer = x.shape[:-1]
    zeros, ones = (0,) * len(outer), (1,) * len(outer)
    return bind(prims.SLICE, [x], start=(*zeros, start), stop=(*outer, stop), step=(*ones, 1))


def product_tree(x: Array, axes: tuple[int, ...]) -> Array:
    """The product over `axes`, pairwise: the first half times the second one, at each level."""
    outer = tuple(x.shape[axis] for axis in kept_axes(axes, x.ndim))
    if x.type.is_static and 0 in x.shape:
        return broadcast(cast(as_array(1.0), x.dtype), outer)
    levels = _levels(_rows(x, axes)[0])
    if not levels:
        return bind(prims.RESHAPE, [x], shape=outer)
    left, right = levels[-1]
    return bind(prims.RESHAPE, [left * right], shape=outer)


def times_others(ct: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """For each element of `x` the product of the others over `axes`, times the `ct` of their product."""
    rows, back = _rows(x, axes)
    count, axes = rows.shape[-1], (rows.ndim - 1,)
    ct = bind(prims.RESHAPE, [ct], shape=(*ct.shape, 1))

    def carefully(t: Any, others: Any) -> list[Array]:
        factors, powers = balanced(rows, axes[0])
        total = bind(prims.SUM, [powers], axes=axes)
        powers = bind(prims.RESHAPE, [total], shape=(*total.shape, 1)) - powers
        others = _before(factors, False) * _before(factors, True)
        return [cast(times_power(cast(ct, f64) * others, powers), x.dtype)]

    if not isinstance(count, int):
        return back(*carefully(None, None))
    if count <= 2:
        return back(_down(ct, rows))
    if count <= 8 and x.dtype is not f64:  # f64 has the products of eight numbers of f32
        return back(cast(_down(cast(ct, f64), cast(rows, f64)), x.dtype))
    size = abs_(rows)
    # The loop runs once if a product may overflow, and not otherwise: balanced factors take more time.
    one, range_ = zeros_of(size) + 1, np.finfo(x.dtype.numpy)
    largest = bind(prims.PROD, [maximum(size, one)], axes=axes)
    smallest = bind(prims.PROD, [select(size == 0, one, minimum(size, one))], axes=axes)
    leaves = logical_or(largest > float(range_.max) / 4, smallest < float(range_.tiny) * 4)
    leaves = bind(prims.ANY, [leaves], axes=tuple(range(leaves.ndim)))
    (others,) = scan(cast(stop_gradient(leaves), i64), [_down(ct, rows)], carefully, ("others",))
    return back(others)


def _down(ct: Array, rows: Array) -> Array:
    """`ct` (..., 1) of the products of rows, times the product of the other factors for each."""
    for left, right in reversed(_levels(rows)):
        ct = bind(prims.CONCAT, [ct * right, ct * left], axis=ct.ndim - 1)
    count = rows.shape[-1]
    assert isinstance(count, int)
    return _part(ct, 0, count)


# ---- the op -----------------------------------------------------------------------------------------


def _prod_vjp(ct: Array, y: Array, x: Array, axes: tuple[int, ...]) -> list[Array]:
    if not axes or x.type.is_static and x.size == 0:
        return [ct if not axes else expand_back(ct, x.shape, axes)]
    return [times_others(ct, x, axes)]


def _prod_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axes: tuple[int, ...]) -> Array:
    (others,) = _prod_vjp(broadcast(cast(as_array(1.0), y.dtype), y.shape), y, operands[0], axes)
    return bind(prims.SUM, [others * tangents[0]], axes=axes)


_prod_op: Primitive = declare_reduction(
    "prod",
    lambda x, axes: np.asarray(np.prod(x, axis=axes, dtype=x.dtype)),
    NUMBERS,
    vjp=_prod_vjp,
    jvp=_prod_jvp,
    doc="The product over `axes`; 1 of no elements. Its derivative is right where factors are 0, too.",
    vector="never",  # the order of multiplications decides which products overflow
    combine=prims.MULTIPLY,
    identity=1,
    noun="product",
)


@complex_form(prims.PROD)
def _prod_of_complex(z: Array, axes: tuple[int, ...]) -> Array:
    return product_tree(z, axes)


@public("prod", method=True)
def prod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Array:
    """The product over `axis` (None: all of them, an int or a tuple). Array API `prod`; dtypes as in `sum`."""
    return reduced(_prod_op, wide(x, dtype), axis, keepdims)
