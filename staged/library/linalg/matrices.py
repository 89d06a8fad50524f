"""Matrices as operands, their rows and columns in loops: shared by the functions of `st.linalg`.

A matrix is in the last two axes; leading axes are a batch.
"""

from __future__ import annotations

from typing import Any

from staged.ir.declaration import prims
from staged.ir.sizes import Extent
from staged.ir.types import Shape, TensorType, i64
from staged.library.elementwise.complex_numbers import conj, join, parts
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.context import bind
from staged.ops.contraction import matrix_product
from staged.ops.dynamic_slice import dynamic_slice_op, dynamic_update_op
from staged.ops.elementwise import square as square_of
from staged.ops.primitive import same_attrs
from staged.ops.promote import as_float, broadcast, broadcast_shapes, constant, shape_error
from staged.ops.record import in_range
from staged.ops.reduction import peak
from staged.ops.shape import expand_dims, slice_axis, swapaxes
from staged.ops.source import eye, zeros

LEAF = 64
"""The rows up to which a factorization goes row by row; larger ones are halved, and what joins halves is a product."""
LEAVES = 16
"""The largest number of such pieces, each of which is text in the program."""

BATCHES: dict[str, Any] = {"shift": same_attrs, "has_batches": True, "takes_complex": True}
"""The traits of composites of matrices, which have leading axes anyway: the rule of `vmap`, and complex operands."""

_ZERO = TensorType(i64)


# ---- operands -------------------------------------------------------------------------------------


def matrix(name: str, x: Any) -> Array:
    """The operand of `linalg.<name>`: no integers, two axes or more."""
    array = as_float(x)
    if array.ndim < 2:
        raise shape_error(f"linalg.{name} takes a matrix, or an array of matrices, got {array.type}", array)
    return array


def square(name: str, x: Any) -> Array:
    """The operand of a function of square matrices."""
    array = matrix(name, x)
    if array.shape[-1] != array.shape[-2]:
        raise shape_error(f"linalg.{name} takes square matrices, got {array.type}", array)
    return array


def size_of(x: Array) -> Extent:
    """The number of columns."""
    return x.shape[-1]


def with_batch(batch: Shape, x: Array) -> Array:
    return broadcast(x, (*batch, *x.shape[-2:]))


def same_batch(a: Array, b: Array) -> tuple[Array, Array]:
    """Both, with leading axes broadcast together."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return with_batch(batch, a), with_batch(batch, b)


def turned(x: Array) -> Array:
    """The transposed matrices."""
    return swapaxes(x, -1, -2)


def adjoint(x: Array) -> Array:
    """The transposed matrices, of complex numbers the conjugate of these."""
    return conj(turned(x))


def product(a: Array, b: Array, adjoint_a: bool = False, adjoint_b: bool = False) -> Array:
    """The product of matrices of one batch, or of their adjoints."""
    return matrix_product(conj(a) if adjoint_a else a, conj(b) if adjoint_b else b, adjoint_a, adjoint_b)


def with_real_diagonal(x: Array) -> Array:
    """Square complex matrices without the imaginary part of their diagonal; real ones as they are."""
    if not x.dtype.is_complex:
        return x
    re, im = parts(x)
    return join(re, where(eye(size_of(x)) != 0, 0.0, im))


def squared(x: Array) -> Array:
    """The squares of absolute values."""
    if not x.dtype.is_complex:
        return square_of(x)
    re, im = parts(x)
    return square_of(re) + square_of(im)


def greatest(x: Array, *axes: int) -> Array:
    """The largest floats along axes, which keep one element; -inf without elements."""
    return peak(x, [axis % x.ndim for axis in axes])


def block(x: Array, rows: tuple[Extent, Extent], columns: tuple[Extent, Extent]) -> Array:
    """A part of each matrix, from a row and a column up to others."""
    return slice_axis(slice_axis(x, x.ndim - 2, *rows), x.ndim - 1, *columns)


def leaf(n: Extent, least: int = LEAF) -> Extent:
    """The rows up to which a matrix of `n` rows is not halved further."""
    return max(least, -(-n // LEAVES)) if isinstance(n, int) else n


def halves(n: Extent) -> int:
    """The size of the first half: of full vectors."""
    assert isinstance(n, int), "matrices whose size the program finds are not halved"
    return -(-n // 16) * 8


# ---- in loops ---------------------------------------------------------------------------------------


def part(x: Array, t: Array, axis: int) -> Array:
    """The row or column `t` (axis -2 or -1) of each matrix, with that axis of extent 1."""
    sizes: list[Extent] = list(x.shape)
    sizes[axis] = 1
    return bind(dynamic_slice_op, [x, *_starts(x, t, axis)], sizes=tuple(sizes))


def with_part(x: Array, t: Array, axis: int, new: Array) -> Array:
    """`x` with `new` in place of that part."""
    return bind(dynamic_update_op, [x, new, *_starts(x, t, axis)])


def _starts(x: Array, t: Array, axis: int) -> list[Array]:
    return [t if place == x.ndim + axis else constant(0, _ZERO) for place in range(x.ndim)]


# ---- rows in another order --------------------------------------------------------------------------


def rows_at(x: Array, order: Array) -> Array:
    """The rows (..., m, n) in the order (..., m): the first is the one that `order` names first."""
    with in_range():
        if order.ndim == 1:
            return bind(prims.TAKE, [x, order], axis=0)
        return bind(prims.TAKE_ALONG, [x, _per_element(order, x)], axis=x.ndim - 2)


def rows_to(x: Array, order: Array) -> Array:
    """The inverse of `rows_at`: the first row goes to the place that `order` names first."""
    empty = zeros(x.shape, x.dtype)
    with in_range():
        if order.ndim == 1:
            return bind(prims.SCATTER_ADD, [empty, order, x], axis=0)
        return bind(prims.SCATTER_ADD_ALONG, [empty, _per_element(order, x), x], axis=x.ndim - 2)


def _per_element(order: Array, x: Array) -> Array:
    return broadcast(expand_dims(order, -1), x.shape)
