"""Diagonals of matrices: taken out, put in, summed up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staged.ir.sizes import largest, smallest
from staged.ir.types import bool_
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.joining import concat
from staged.ops.promote import as_array, axis_of, check_known, promoted, shape_error
from staged.ops.public import public
from staged.ops.reduction import sum_
from staged.ops.shape import expand_dims, moveaxis, pad, pad_axis, reshape, slice_axis
from staged.ops.source import eye


@public("diagonal", method=True)
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements (i, i + `offset`) of two axes, as a new last axis. NumPy `diagonal`; torch's with `dim1` and `dim2`.

    Raises ShapeError for equal axes.
    """
    array = as_array(x)
    check_known("diagonal", "offset", offset)
    offset = int(offset)
    row, column = axis_of(axis1, array.ndim, "diagonal"), axis_of(axis2, array.ndim, "diagonal")
    if row == column:
        raise shape_error(f"diagonal takes two axes, got {axis1} and {axis2}", array)
    matrix = moveaxis(array, (row, column), (-2, -1))
    *batch, m, n = matrix.shape
    top, left = max(-offset, 0), max(offset, 0)
    count = largest(smallest(m - top, n - left), 0)
    if count == 0:
        return reshape(slice_axis(slice_axis(matrix, len(batch), 0, 0), len(batch) + 1, 0, smallest(n, 1)), (*batch, 0))
    square = slice_axis(slice_axis(matrix, len(batch), top, top + count), len(batch) + 1, left, left + count)
    flat = reshape(square, (*batch, count * count))
    if isinstance(count, int):
        return slice_axis(flat, len(batch), 0, count * count, count + 1)
    rows = reshape(pad_axis(flat, len(batch), 0, count, 0), (*batch, count, count + 1))
    return reshape(slice_axis(rows, len(batch) + 1, 0, 1), (*batch, count))


@public("diag", method=True)
def diag(x: Any, k: int = 0) -> Array:
    """A matrix with the vector `x` on its diagonal `k`, zeros elsewhere; of a matrix, that diagonal. NumPy `diag`."""
    array = as_array(x)
    check_known("diag", "k", k)
    k = int(k)
    if array.ndim == 2:
        return diagonal(array, k)
    if array.ndim != 1:
        raise shape_error(f"diag takes a vector or a matrix, got {array.type}", array)
    # The column j of the matrix holds the element j - k of the vector.
    places = expand_dims(pad(array, (max(k, 0), max(-k, 0))), 0)
    zero = False if array.dtype.is_bool else 0
    return where(eye(array.shape[0] + abs(k), k=k, dtype=bool_), places, zero)


@public("diagflat")
def diagflat(x: Any, k: int = 0) -> Array:
    """A matrix with the elements of `x`, in row-major order, on its diagonal `k`. NumPy and torch `diagflat`."""
    return diag(reshape(x, (-1,)), k)


@public("trace", method=True)
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The sum of a diagonal, over the last axis of `diagonal`; dtypes as in `sum`. NumPy and torch `trace`."""
    return sum_(diagonal(x, offset, axis1, axis2), -1)


@public("block_diag")
def block_diag(*arrays: Any) -> Array:
    """A matrix with matrices along its diagonal, zeros elsewhere; a vector is a row. torch and SciPy `block_diag`."""
    if not arrays:
        raise shape_error("block_diag needs at least one array")
    blocks = [reshape(array, (1, -1)) if array.ndim < 2 else array for array in promoted(*arrays)]
    for block in blocks:
        if block.ndim != 2:
            raise shape_error(f"block_diag takes matrices, got {block.type}", block)
    widths: Sequence[Any] = [block.shape[1] for block in blocks]
    total = sum(widths)
    rows = []
    for number, block in enumerate(blocks):
        before = sum(widths[:number])
        rows.append(pad(block, ((0, 0), (before, total - before - widths[number]))))
    return concat(rows, 0)


@public("diag_embed", method=True)
def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices, in the axes `dim1` and `dim2`, with the last axis of `x` on their diagonals. torch `diag_embed`."""
    array = as_array(x)
    check_known("diag_embed", "offset", offset)
    offset = int(offset)
    if not array.ndim:
        raise shape_error(f"diag_embed takes rows, got {array.type}", array)
    none = ((0, 0),) * (array.ndim - 1)
    places = expand_dims(pad(array, (*none, (max(offset, 0), max(-offset, 0)))), -2)
    zero = False if array.dtype.is_bool else 0
    found = where(eye(array.shape[-1] + abs(offset), k=offset, dtype=bool_), places, zero)
    row, column = axis_of(dim1, found.ndim, "diag_embed"), axis_of(dim2, found.ndim, "diag_embed")
    if row == column:
        raise shape_error(f"diag_embed takes two axes, got {dim1} and {dim2}", array)
    return moveaxis(found, (-2, -1), (row, column))
