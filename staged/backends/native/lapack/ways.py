"""The choice of composites of `st.linalg` that a LAPACK computes: real matrices of fixed sizes, from a size on.

LAPACK has its matrices by columns. Where a matrix is symmetric, or its factors may be had the other way round, the same
memory serves; LU and QR take a turned copy, which is an op of the program.

Tested by `tests/runtime/test_lapack.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from staged.ir.machine import Machine
from staged.ir.nodes import Block, Function, Op
from staged.ir.structure import COMPOSITE
from staged.ir.types import TensorType, bound, f32, f64
from staged.ir.users import users_of
from staged.ops.array import Array
from staged.ops.library import FindWay, Way, library_call
from staged.ops.matrices import turned
from staged.ops.record import RecordContext
from staged.ops.source import zeros

LEAST: dict[str, int] = {
    "cholesky": 256,
    "eigh": 32,
    "lu": 64,
    "qr": 512,
    "qr_complete": 512,
    "solve_triangular": 768,
    "svd": 32,
}
"""By composite, the columns from which on a call pays: measured on one core against OpenBLAS."""
LARGEST = 20_000
"""Rows and columns up to which the workspace of every function has a size that its integers hold."""

Write = Callable[..., Sequence[Array]]


def find_ways(function: Function, machine: Machine) -> FindWay | None:
    """The ways of a function's ops; None on a machine for which no library is chosen."""
    if machine.blas is None:
        return None
    users = users_of(function.block)

    def find(op: Op, block: Block) -> Way | None:
        if op.declared is not COMPOSITE or not _fits(op):
            return None
        writers = _OF_VALUES if op.attrs["name"] in _OF_VALUES and not _reads_vectors(op) else _WRITERS
        write = writers[op.attrs["name"]]
        return Way(lambda context, *operands: write(context, op, *operands))

    def _reads_vectors(op: Op) -> bool:
        return any(users.get(result) for result in op.results if result.tensor.ndim == op.operands[0].tensor.ndim)

    return find


def _fits(op: Op) -> bool:
    """Return whether a library has the function for these operands, and is faster than our own kernels."""
    name = op.attrs["name"]
    if name not in LEAST:
        return False
    types = [operand.tensor for operand in op.operands]
    extents = [extent for type in types for extent in type.shape]
    if types[0].dtype not in (f32, f64) or not all(isinstance(extent, int) for extent in extents):
        return False
    sizes = [bound(extent) for type in types for extent in type.shape[-2:]]
    return sizes[1] >= LEAST[name] and max(sizes) <= LARGEST and prod(map(bound, extents)) > 0


# ---- what is written in place of each ---------------------------------------------------------------


def _call(
    op: Op, operands: Sequence[Array], types: Sequence[TensorType], hints: Sequence[str], **attrs: object
) -> tuple[Array, ...]:
    return library_call(op.attrs["name"], operands, types, hints, **attrs)


def _turned(type: TensorType) -> TensorType:
    *batch, rows, columns = type.shape
    return TensorType(type.dtype, (*batch, columns, rows))


def _cholesky(context: RecordContext, op: Op, x: Array) -> Sequence[Array]:
    return _call(op, [x], [x.type], ["factor"])


def _lu(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    types = [result.tensor for result in op.results]
    factors, order, pivots = _call(op, [turned(a)], types, ["factors", "order", "pivots"])
    return turned(factors), order, pivots


def _qr(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    q, r = (result.tensor for result in op.results)
    by_columns, upper = _call(op, [turned(a)], [_turned(q), r], ["q", "r"])
    return turned(by_columns), upper


def _eigh(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    values, vectors = _call(op, [a], [result.tensor for result in op.results], ["values", "vectors"])
    return values, turned(vectors)


def _eigenvalues(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    (values,) = _call(op, [a], [op.results[0].tensor], ["values"])
    return values, zeros(a.shape, a.dtype)  # unused


def _svd(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    u, values, vh = _call(op, [a], [result.tensor for result in op.results], ["u", "values", "vh"])
    return u, values, turned(vh)


def _singular_values(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    u, values, v = (result.tensor for result in op.results)
    (found,) = _call(op, [a], [values], ["values"])
    return zeros(u.shape, u.dtype), found, zeros(v.shape, v.dtype)  # unused


def _solve_triangular(context: RecordContext, op: Op, a: Array, b: Array) -> Sequence[Array]:
    return _call(op, [a, b], [b.type], ["x"], upper=op.attrs["upper"])


_WRITERS: Mapping[str, Write] = {
    "cholesky": _cholesky,
    "eigh": _eigh,
    "lu": _lu,
    "qr": _qr,
    "qr_complete": _qr,
    "solve_triangular": _solve_triangular,
    "svd": _svd,
}
_OF_VALUES: Mapping[str, Write] = {"eigh": _eigenvalues, "svd": _singular_values}
"""The writers where no vectors are used."""
