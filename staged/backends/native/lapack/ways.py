"""The choice of composites of `st.linalg` that a LAPACK computes: matrices of fixed sizes, from a size on.

LAPACK has its matrices by columns. Where a matrix is symmetric, or its factors may be had the other way round, the same
memory serves; LU and QR take a turned copy, which is an op of the program. Complex matrices are in memory what LAPACK's
are, pairs of floats; a Hermitian one by rows is its own conjugate by columns.

Tested by `tests/runtime/test_lapack.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from staged.ir.machine import Machine
from staged.ir.nodes import Block, Function, Op
from staged.ir.structure import COMPOSITE
from staged.ir.types import TensorType, bound, c64, c128, f32, f64
from staged.ir.users import users_of
from staged.library.linalg.matrices import adjoint, turned
from staged.ops.array import Array
from staged.ops.library_calls import FindWay, Way, is_sized, library_call
from staged.ops.record import RecordContext
from staged.ops.source import zeros

LARGEST = 20_000
"""Rows and columns up to which the workspace of every function has a size that its integers hold."""

Write = Callable[..., Sequence[Array]]


class Offer(NamedTuple):
    """A library's way for a composite."""

    least: int
    """The columns from which on its call pays: measured on one core against OpenBLAS."""
    least_complex: int
    """The same of complex matrices."""
    write: Write


OFFERS: dict[str, Offer] = {}
"""By composite; filled by `_computes`."""


def _computes(composite: str, least: int, least_complex: int) -> Callable[[Write], Write]:
    """The function below writes a library's call in place of a composite of so many columns or more."""

    def noted(write: Write) -> Write:
        OFFERS[composite] = Offer(least, least_complex, write)
        return write

    return noted


def find_ways(function: Function, machine: Machine) -> FindWay | None:
    """The ways of a function's ops; None on a machine for which no library is chosen."""
    if machine.blas is None:
        return None
    users = users_of(function.block)

    def find(op: Op, block: Block) -> Way | None:
        if op.declared is not COMPOSITE or is_sized(op) or not _fits(op):
            return None
        name = op.attrs["name"]
        write = _OF_VALUES[name] if name in _OF_VALUES and not _reads_vectors(op) else OFFERS[name].write
        return Way(lambda context, *operands: write(context, op, *operands))

    def _reads_vectors(op: Op) -> bool:
        return any(users.get(result) for result in op.results if result.tensor.ndim == op.operands[0].tensor.ndim)

    return find


def _fits(op: Op) -> bool:
    """Return whether a library has the function for these operands, and is faster than our own kernels."""
    offer = OFFERS.get(op.attrs["name"])
    if offer is None:
        return False
    types = [operand.tensor for operand in op.operands]
    extents = [extent for type in types for extent in type.shape]
    dtype = types[0].dtype
    if dtype not in (f32, f64, c64, c128) or not all(isinstance(extent, int) for extent in extents):
        return False
    sizes = [bound(extent) for type in types for extent in type.shape[-2:]]
    least = offer.least_complex if dtype.is_complex else offer.least
    return sizes[1] >= least and max(sizes) <= LARGEST and prod(map(bound, extents)) > 0


# ---- what is written in place of each ---------------------------------------------------------------


def _call(
    name: str, operands: Sequence[Array], types: Sequence[TensorType], hints: Sequence[str], **attrs: bool
) -> tuple[Array, ...]:
    """A library's call; complex operands and results, which become floats with a last axis of 2, are noted in it."""
    if operands[0].dtype.is_complex:
        attrs["is_complex"] = True
    return library_call(name, operands, types, hints, **attrs)


def _turned(type: TensorType) -> TensorType:
    *batch, rows, columns = type.shape
    return TensorType(type.dtype, (*batch, columns, rows))


@_computes("cholesky", least=256, least_complex=32)
def _cholesky(context: RecordContext, op: Op, x: Array) -> Sequence[Array]:
    return _call("potrf", [x], [x.type], ["factor"])


@_computes("lu", least=64, least_complex=64)
def _lu(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    types = [result.tensor for result in op.results]
    factors, order, pivots = _call("getrf", [turned(a)], types, ["factors", "order", "pivots"])
    return turned(factors), order, pivots


@_computes("qr", least=512, least_complex=512)
@_computes("qr_complete", least=512, least_complex=512)
def _qr(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    q, r = (result.tensor for result in op.results)
    by_columns, upper = _call("geqrf", [turned(a)], [_turned(q), r], ["q", "r"])
    return turned(by_columns), upper


def _eigen(a: Array) -> str:
    return "heevd" if a.dtype.is_complex else "syevd"


@_computes("eigh", least=80, least_complex=80)
def _eigh(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    values, vectors = _call(_eigen(a), [a], [result.tensor for result in op.results], ["values", "vectors"])
    # Of the conjugate, by columns: that is what a Hermitian matrix by rows is.
    return values, adjoint(vectors)


def _eigenvalues(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    (values,) = _call(_eigen(a), [a], [op.results[0].tensor], ["values"])
    return values, zeros(a.shape, a.dtype)  # unused


@_computes("svd", least=80, least_complex=80)
def _svd(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    u, values, vh = _call("gesdd", [a], [result.tensor for result in op.results], ["u", "values", "vh"])
    return u, values, adjoint(vh)


def _singular_values(context: RecordContext, op: Op, a: Array) -> Sequence[Array]:
    u, values, v = (result.tensor for result in op.results)
    (found,) = _call("gesdd", [a], [values], ["values"])
    return zeros(u.shape, u.dtype), found, zeros(v.shape, v.dtype)  # unused


@_computes("solve_triangular", least=768, least_complex=256)
def _solve_triangular(context: RecordContext, op: Op, a: Array, b: Array) -> Sequence[Array]:
    return _call("trsm", [a, b], [b.type], ["x"], upper=op.attrs["upper"])


_OF_VALUES: Mapping[str, Write] = {"eigh": _eigenvalues, "svd": _singular_values}
"""The writers where no vectors are used."""
