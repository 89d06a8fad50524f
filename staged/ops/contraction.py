"""Matrix products: `matmul` with its transposes as flags, and the products that are made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.types import DType, TensorType, bool_, f32, f64, i8, i16, i32, i64, shape_text, u16
from staged.ops.array import Array, functions
from staged.ops.context import bind
from staged.ops.dtypes import result_dtype
from staged.ops.joining import concat
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import (
    as_array,
    axis_of,
    broadcast,
    broadcast_shapes,
    cast,
    check_dtype,
    dtype_error,
    is_number,
    promoted,
    shape_error,
    together,
)
from staged.ops.public import Option, public
from staged.ops.reduction import sum_
from staged.ops.shape import expand_dims, moveaxis, reshape, slice_axis, squeeze
from staged.ops.wide_numbers import settled


def _infer_matmul(
    a: TensorType, b: TensorType, transpose_a: bool = False, transpose_b: bool = False, dtype: DType | None = None
) -> TensorType:
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(f"matmul needs matrices, got {a} @ {b}", hint="`x[:, None]` makes a vector a column")
    if a.dtype is not b.dtype:
        raise DTypeError(f"matmul needs operands of one dtype, got {a} @ {b}", hint="cast one of them")
    if a.dtype.is_bool:
        raise DTypeError(f"matmul needs numbers, got {a} @ {b}", hint="cast them: `st.astype(x, st.f32)`")
    if dtype is not None and not (a.dtype.is_integer and is_wider(dtype, a.dtype) or a.dtype.is_half and dtype is f32):
        raise DTypeError(f"matmul sums products of {a.dtype} in a wider integer dtype, got {dtype}")
    m, k = a.shape[-2:] if not transpose_a else a.shape[:-3:-1]
    k2, n = b.shape[-2:] if not transpose_b else b.shape[:-3:-1]
    if k != k2:
        left, right = (*a.shape[:-2], m, k), (*b.shape[:-2], k2, n)
        raise ShapeError(
            f"matmul needs equal inner sizes, got {shape_text(left)} @ {shape_text(right)}",
            hint=f"make the right operand {shape_text((*b.shape[:-2], k, n))}, or the left one "
            f"{shape_text((*a.shape[:-2], m, k2))}",
        )
    if a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul needs equal batch sizes, got {a} @ {b}")
    return TensorType(dtype or a.dtype, (*a.shape[:-2], m, n))


def is_wider(dtype: DType, given: DType) -> bool:
    """Return whether `dtype` is another dtype of integers, which has all numbers of `given`."""
    is_kind = dtype.kind == given.kind or (dtype.kind, given.kind) == ("i", "u")
    return is_kind and dtype.size > given.size


def _transposed(x: np.ndarray[Any, Any], flag: bool) -> np.ndarray[Any, Any]:
    return np.swapaxes(x, -1, -2) if flag else x


def _in(dtype: DType | None, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x if dtype is None else x.astype(dtype.numpy)


def _matmul_vjp(
    ct: Array, y: Array, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, dtype: Any = None
) -> list[Array]:
    d_a = matrix_product(b, ct, transpose_b, True) if transpose_a else matrix_product(ct, b, False, not transpose_b)
    d_b = matrix_product(ct, a, True, transpose_a) if transpose_b else matrix_product(a, ct, not transpose_a, False)
    return [d_a, d_b]


def bilinear_jvp(tangents: Sequence[Any], first: Any, second: Any) -> Any:
    """The jvp of an op linear in each of two operands: `first(t)` and `second(t)` apply it to one tangent."""
    parts = [rule(tangent) for rule, tangent in zip((first, second), tangents, strict=True) if tangent is not None]
    return None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]


_matmul_op: Primitive = primitive(
    name="matmul",
    kind="contraction",
    infer=_infer_matmul,
    reference=lambda a, b, transpose_a=False, transpose_b=False, dtype=None: np.matmul(
        _transposed(_in(dtype, a), transpose_a), _transposed(_in(dtype, b), transpose_b)
    ),
    vjp=_matmul_vjp,
    jvp=lambda tangents, y, operands, transpose_a=False, transpose_b=False: bilinear_jvp(
        tangents,
        lambda t: matrix_product(t, operands[1], transpose_a, transpose_b),
        lambda t: matrix_product(operands[0], t, transpose_a, transpose_b),
    ),
    samples=[
        Sample(((2, 3), (3, 4)), {"transpose_a": False, "transpose_b": False}, dtypes=(f32, f64, i32, i64)),
        Sample(((3, 2), (3, 4)), {"transpose_a": True, "transpose_b": False}),
        Sample(((2, 3), (4, 3)), {"transpose_a": False, "transpose_b": True}),
        Sample(((3, 2), (4, 3)), {"transpose_a": True, "transpose_b": True}),
        Sample(((2, 2, 3), (2, 3, 1)), {"transpose_a": False, "transpose_b": False}),
        Sample(((2, 0), (0, 3)), {"transpose_a": False, "transpose_b": False}),
        Sample(
            ((5, 7), (3, 7)),
            {"transpose_a": False, "transpose_b": True, "dtype": i32},
            low=-128,
            high=127,
            dtypes=(i8, i16),
        ),
    ],
    bad=[
        BadSample((TensorType(f32, (64, 784)), TensorType(f32, (748, 128))), ShapeError, "equal inner sizes"),
        BadSample((TensorType(f32, (3,)), TensorType(f32, (3, 2))), ShapeError, "needs matrices"),
        BadSample((TensorType(f32, (2, 3)), TensorType(f64, (3, 2))), DTypeError, "one dtype"),
        BadSample((TensorType(bool_, (2, 3)), TensorType(bool_, (3, 2))), DTypeError, "needs numbers"),
        BadSample((TensorType(f32, (2, 3, 4)), TensorType(f32, (3, 4, 5))), ShapeError, "batch sizes"),
        BadSample((TensorType(i8, (2, 3)), TensorType(i8, (3, 4))), DTypeError, "wider integer", {"dtype": u16}),
    ],
    doc="(..., m, k) @ (..., k, n) -> (..., m, n); the flags swap the last two axes of an operand first. Products of "
    "integers, and of halves in programs, are made and added up in `dtype`, where there is one.",
)


def matrix_product(
    a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, dtype: DType | None = None
) -> Array:
    """The primitive: operands of one dtype, with equal batch axes."""
    summed = {} if dtype is None else {"dtype": dtype}
    return bind(_matmul_op, [a, b], transpose_a=transpose_a, transpose_b=transpose_b, **summed)


def _summed_in(dtype: DType, a: Array, b: Array) -> tuple[Array, Array, DType | None]:
    """The operands of a product in `dtype`, and that of its sums where it is another one: integers stay narrow."""
    if a.dtype.is_integer and is_wider(dtype, a.dtype):
        return a, b, dtype
    if result_dtype([TensorType(a.dtype), TensorType(dtype)])[0] is not dtype:
        raise dtype_error(
            f"matmul in {dtype} would round what {a.dtype} holds",
            a,
            b,
            hint=f"take a dtype that holds {a.dtype}, or convert the operands: `st.astype(x, st.{dtype})`",
        )
    return cast(a, dtype), cast(b, dtype), None


@public("matmul", method=True, torch=("mm", "bmm"))
def matmul(a: Any, b: Any, *, dtype: Any = None) -> Array:
    """The matrix product `a @ b`. Array API `matmul`.

    Shapes: (..., m, k) @ (..., k, n) -> (..., m, n); leading axes broadcast, dtypes promote. A vector on the left is a
    row, on the right a column, and that axis is dropped from the result. With a `dtype` that holds theirs the products
    are made and added up in that one, as in NumPy: `st.matmul(x, w, dtype=st.i32)` of i8 (JAX's
    `preferred_element_type`, torch's `_int_mm`). Raises ShapeError where inner sizes differ, DTypeError where `dtype`
    would round the operands.
    """
    left, right = promoted(a, b)
    if not left.ndim or not right.ndim:
        raise shape_error(
            f"matmul needs arrays, got {left.type} @ {right.type}", left, right, hint="use `*` to multiply by a number"
        )
    row, column = left.ndim == 1, right.ndim == 1
    if (left.shape[-1]) != (right.shape[0] if column else right.shape[-2]):
        raise shape_error(
            f"matmul needs equal inner sizes, got {shape_text(left.shape)} @ {shape_text(right.shape)}",
            left,
            right,
            hint=_inner_hint(left, right),
        )
    left, right, summed = (left, right, None) if dtype is None else _summed_in(check_dtype(dtype), left, right)
    if column:
        right = expand_dims(right, 1)
    if row:
        left = expand_dims(left, 0)
    if right.ndim == 2 and left.ndim > 2:
        # One big product instead of many small ones.
        rows = reshape(left, (math.prod(left.shape[:-1]), left.shape[-1]))
        product = matrix_product(rows, right, dtype=summed)
        result = reshape(product, (*left.shape[:-1], right.shape[-1]))
    else:
        batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left, right = (broadcast(x, (*batch, *x.shape[-2:])) for x in (left, right))
        result = matrix_product(left, right, dtype=summed)
    if row:
        result = squeeze(result, -2)
    return squeeze(result, -1) if column else result


def _inner_hint(left: Array, right: Array) -> str:
    inner = left.shape[-1]
    wanted = (inner,) if right.ndim == 1 else (*right.shape[:-2], inner, right.shape[-1])
    if right.ndim >= 2 and right.shape[-1] == inner:
        return "the right operand fits when transposed: `st.matrix_transpose(b)`"
    columns = right.shape[max(right.ndim - 2, 0)]
    return f"make the right operand {shape_text(wanted)}, or give the left one {columns} columns"


@public("dot", method=True)
def dot(a: Any, b: Any) -> Array:
    """`a @ b` for vectors and matrices, a product with a number otherwise. NumPy `dot`, up to two dimensions."""
    left, right = map(as_array, settled(a, b))
    if not left.ndim or not right.ndim:
        return left * right
    if left.ndim > 2 or right.ndim > 2:
        raise shape_error("dot takes vectors and matrices", left, right, hint="use `@`, or `st.tensordot`")
    return matmul(left, right)


@public("outer", method=True)
def outer(a: Any, b: Any) -> Array:
    """Every product of an element of vector `a` with one of vector `b`: (m,), (n,) -> (m, n). NumPy `outer`."""
    left, right = settled(a, b)
    return reshape(left, (-1, 1)) * reshape(right, (1, -1))


@public("vecdot", method=True)
def vecdot(a: Any, b: Any, axis: int = -1) -> Array:
    """The sum of conj(a) * b along `axis`. Array API `vecdot`: of integers in their own dtype, as `matmul`."""
    left, right = settled(a, b)
    product = functions.conj(as_array(left)) * right
    return sum_(product, axis, dtype=product.dtype)


@public("tensordot")
def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Sums of products over pairs of axes, or over the last and first `axes` of them. Array API `tensordot`."""
    left, right = promoted(a, b)
    if isinstance(axes, int):
        if axes > min(left.ndim, right.ndim):
            raise shape_error(f"tensordot: there are no {axes} axes in {left.type} and {right.type}", left, right)
        first, second = list(range(left.ndim - axes, left.ndim)), list(range(axes))
    else:
        first, second = (list(one) if isinstance(one, tuple | list) else [one] for one in axes)
        first = [axis_of(axis, left.ndim, "tensordot") for axis in first]
        second = [axis_of(axis, right.ndim, "tensordot") for axis in second]
    if [left.shape[axis] for axis in first] != [right.shape[axis] for axis in second]:
        raise shape_error(f"tensordot: axes {first} and {second} differ in extent", left, right)
    count = len(first)
    left = moveaxis(left, first, list(range(left.ndim - count, left.ndim)))
    right = moveaxis(right, second, list(range(count)))
    outer_left, outer_right = left.shape[: left.ndim - count], right.shape[count:]
    inner = math.prod(right.shape[:count])
    flat = matrix_product(
        reshape(left, (math.prod(outer_left), inner)),
        reshape(right, (inner, math.prod(outer_right))),
    )
    return reshape(flat, (*outer_left, *outer_right))


@public("inner", method=True)
def inner(a: Any, b: Any) -> Array:
    """Sums of products over the last axes: (..., k), (*rest, k) -> (..., *rest). NumPy and torch `inner`."""
    left, right = promoted(a, b)
    return tensordot(left, right, ([-1], [-1])) if left.ndim and right.ndim else left * right


@public("kron", method=True)
def kron(a: Any, b: Any) -> Array:
    """Each element of `a` times the whole of `b`, in its place: extents multiply. NumPy and torch `kron`."""
    left, right = promoted(a, b)
    ndim = max(left.ndim, right.ndim)
    outer_, inner_ = (1,) * (ndim - left.ndim) + left.shape, (1,) * (ndim - right.ndim) + right.shape
    left = reshape(left, [part for extent in outer_ for part in (extent, 1)])
    right = reshape(right, [part for extent in inner_ for part in (1, extent)])
    extents = [math.prod(pair) for pair in zip(outer_, inner_, strict=True)]
    return reshape(left * right, tuple(extents))


@public("cross", method=True)
def cross(a: Any, b: Any, axis: int = -1) -> Array:
    """The vector product of the three elements along `axis`; other axes broadcast. Array API `linalg.cross`."""
    left, right = together(a, b, name="cross")
    along = axis_of(axis, left.ndim, "cross")
    if left.shape[along] != 3:
        raise shape_error(f"cross takes vectors of 3 elements, got {left.type} and {right.type}", left, right)
    x, y, z = (slice_axis(left, along, place, place + 1) for place in range(3))
    u, v, w = (slice_axis(right, along, place, place + 1) for place in range(3))
    return concat([y * w - z * v, z * u - x * w, x * v - y * u], along)


@public("mv", method=True)
def mv(a: Any, b: Any) -> Array:
    """A matrix times a vector: (m, k), (k,) -> (m,). torch `mv`."""
    return matmul(a, b)


def _scaled(x: Any, factor: Any) -> Array:
    array = as_array(x)
    return array if is_number(factor) and factor == 1 else array * factor


@public("addmm", method=True, torch=("addmv", "baddbmm"))
def addmm(x: Any, a: Any, b: Any, *, beta: Option = 1, alpha: Option = 1) -> Array:
    """beta * x + alpha * (a @ b), of matrices, of a matrix and a vector, or batches of them. torch `addmm`.

    torch's `addmv` and `baddbmm` are methods by these names.
    """
    product = _scaled(matmul(a, b), alpha)
    return product if is_number(beta) and beta == 0 else _scaled(x, beta) + product


@public("addbmm", method=True)
def addbmm(x: Any, a: Any, b: Any, *, beta: Option = 1, alpha: Option = 1) -> Array:
    """beta * x + alpha * the sum of the a[i] @ b[i]: (m, n), (k, m, l), (k, l, n) -> (m, n). torch `addbmm`."""
    return addmm(x, *_beside_each_other(as_array(a), as_array(b)), beta=beta, alpha=alpha)


def _beside_each_other(a: Array, b: Array) -> tuple[Array, Array]:
    """Batches of matrices as two matrices, whose product is the sum of the products."""
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise shape_error(f"addbmm takes batches of matrices that fit, got {a.type} and {b.type}", a, b)
    return reshape(moveaxis(a, 0, 1), (a.shape[1], -1)), reshape(b, (-1, b.shape[2]))


@public("vdot", method=True)
def vdot(a: Any, b: Any) -> Array:
    """The sum of conj(a) * b over the elements of arrays of any shapes, in row-major order. NumPy and torch `vdot`."""
    left, right = settled(a, b)
    return dot(functions.conj(reshape(left, (-1,))), reshape(right, (-1,)))


@public("addr", method=True)
def addr(x: Any, a: Any, b: Any, *, beta: Option = 1, alpha: Option = 1) -> Array:
    """beta * x + alpha * outer(a, b): (m, n), (m,), (n,) -> (m, n). torch `addr`."""
    x, a, b = settled(x, a, b)
    product = _scaled(outer(a, b), alpha)
    return product if is_number(beta) and beta == 0 else _scaled(x, beta) + product
