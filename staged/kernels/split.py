"""Long reductions to one number are cut in two, so that threads can share the first part.

sum over all of (4096, 4096)  ->  sum over the last axis, then over the 4096 results

The cut depends on shapes alone: the order of additions is the same for any number of threads. Shorter partial sums also
round less.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from staged.ir.builder import Builder
from staged.ir.declaration import prims, reductions
from staged.ir.nodes import Function, Op, Value, walk_ops
from staged.ir.rewrite import rewrite
from staged.ir.types import TensorType
from staged.kernels.kinds import extents

LONG = 1 << 17
"""Elements from which on a reduction is cut."""
PIECE = 1 << 8
"""The least number of elements in a piece."""


def split_long_reductions(function: Function) -> Function:
    """`function` with every long reduction to one number in two steps.

    Exact: integers, extremes and bools; sums and products of floats in another order, which sizes alone decide. Never
    of symbolic sizes.
    """
    return rewrite(function, _split) if any(map(_is_long, walk_ops(function.block))) else function


def _is_long(op: Op) -> bool:
    if op.declared.kind != "reduction" or op.declared not in reductions():
        return False
    x = op.operands[0]
    is_whole = not op.results[0].tensor.shape and len(op.attrs["axes"]) == x.tensor.ndim
    return is_whole and x.tensor.is_static and prod(extents(x)) >= LONG


def _split(op: Op, builder: Builder) -> Sequence[Value] | None:
    if not _is_long(op):
        return None
    x = op.operands[0]
    shape = extents(x)
    if len(shape) == 1:
        piece = _piece_of(shape[0])
        if piece is None:
            return None
        shape = (shape[0] // piece, piece)
        type = TensorType(x.tensor.dtype, shape)
        x = builder.op(prims.RESHAPE, [x], [type], attrs={"shape": shape}, device=op.device, where=op.where).result
    first = next(axis for axis in reversed(range(len(shape))) if prod(shape[axis:]) >= PIECE)
    if first == 0:
        return None
    partial = TensorType(x.tensor.dtype, shape[:first])
    parts = _reduce(op, builder, x, partial, tuple(range(first, len(shape))))
    return [_reduce(op, builder, parts, op.results[0].tensor, tuple(range(first)))]


def _reduce(op: Op, builder: Builder, x: Value, type: TensorType, axes: tuple[int, ...]) -> Value:
    return builder.op(op.declared, [x], [type], attrs={"axes": axes}, device=op.device, where=op.where).result


def _piece_of(extent: int) -> int | None:
    """A divisor of about the square root, at least `PIECE` and leaving at least 16 pieces."""
    found = [d for d in range(PIECE, min(extent // 16, 64 * PIECE) + 1) if extent % d == 0]
    return min(found, key=lambda d: abs(d - extent**0.5), default=None)
