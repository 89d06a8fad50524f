"""The choice of factors of matrices that are calls of cuSOLVER, and of triangular systems that are calls of cuBLAS: of
real matrices of a fixed size, from a size on.

Both have matrices by columns, so the memory of a matrix is that of its turned one. Where a matrix is symmetric, or a
system may be had the other way round, the same memory serves; LU factors, QR factors and singular values take a turned
copy, which is an op of the program.

The matrices of a batch are factored one after the other, where our own kernels take a row of all of them: so larger
batches are theirs. No device has measured either bound.

Tested by `tests/backends/cublas_cudnn/test_factors.py` and `tests/backends/cublas_cudnn/test_cusolver.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan, prod

from staged.ir.nodes import Block, Op
from staged.ir.op_table import entered
from staged.ir.options import DeviceOptions
from staged.ir.types import Shape, TensorType, bound, f32, f64, i32, i64
from staged.ir.users import Users
from staged.library.linalg.matrices import turned
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.elementwise import isfinite
from staged.ops.library_calls import FindWay, Way, library_call
from staged.ops.promote import broadcast, cast
from staged.ops.reduction import all_
from staged.ops.shape import pad, slice_axis, squeeze
from staged.ops.source import iota, tril, triu, zeros

GEQRF, GESVD, GETRF, LASWP, ORGQR, POTRF, SYEVD = (
    f"cusolver_{name}" for name in ("geqrf", "gesvd", "getrf", "laswp", "orgqr", "potrf", "syevd")
)
TRSM = "cublas_trsm"
"""The calls of `library` ops, by the function of the library."""
LEAST, LARGEST = 32, 20_000
"""Columns of the matrices that they are given; rows and columns of all operands are at most `LARGEST`."""
ROWS_PER_MATRIX = 8
"""A batch has at most one matrix for so many columns."""

Call = Callable[..., tuple[Array, ...]]
"""`library_call` with the program's options."""
Write = Callable[[Call, Op, Array], Sequence[Array]]


class Factors:
    """The ways of the composites of `st.linalg` in a function."""

    def __init__(self, users: Users, options: DeviceOptions) -> None:
        self.users = users
        self.options = options
        self.ways: dict[str, FindWay] = dict.fromkeys((*_WRITERS, "solve_triangular"), self.way)

    def way(self, op: Op, block: Block) -> Way | None:
        """The call in place of a composite, where a library has it and probably is faster than our own kernels."""
        if not _fits(op):
            return None
        name = op.attrs["name"]
        if name == "solve_triangular":
            return Way(lambda context, a, b: self.solved(op, a, b))
        write = _OF_VALUES[name] if name in _OF_VALUES and not self.reads_vectors(op) else _WRITERS[name]
        call = partial(library_call, deterministic=self.options.deterministic)
        return Way(lambda context, a: write(call, op, a))

    def reads_vectors(self, op: Op) -> bool:
        """Return whether any of the matrices that `eigh` and `svd` give besides values is used."""
        return any(self.users.get(result) for result in op.results if result.tensor.ndim == op.operands[0].tensor.ndim)

    def solved(self, op: Op, a: Array, b: Array) -> Sequence[Array]:
        """The solution of triangular systems, in the place of their right sides."""
        upper, tf32 = bool(op.attrs["upper"]), self.options.tf32
        return library_call(TRSM, [a, b], [b.type], ("solution",), upper=upper, tf32=tf32)


_WRITERS: dict[str, Write] = {}
"""By composite."""


def _computes(*composites: str) -> Callable[[Write], Write]:
    """Declare the function below it as that which computes composites by calls of a library."""
    return entered(_WRITERS, *composites)


def _fits(op: Op) -> bool:
    types = [operand.tensor for operand in op.operands]
    if types[0].dtype not in (f32, f64) or not all(isinstance(extent, int) for type in types for extent in type.shape):
        return False
    sizes = [bound(extent) for type in types for extent in type.shape[-2:]]
    n, batch = sizes[1], prod(map(bound, types[0].shape[:-2]))
    return n >= LEAST and 0 < min(sizes) and max(sizes) <= LARGEST and 0 < batch <= max(1, n // ROWS_PER_MATRIX)


# ---- what is written in place of each ---------------------------------------------------------------


def _batch(x: Array) -> Shape:
    return x.shape[:-2]


def _info(x: Array) -> TensorType:
    """A number for each matrix: how its factorization went."""
    return TensorType(i32, (*_batch(x), 1, 1))


@_computes("cholesky")
def _cholesky(call: Call, op: Op, x: Array) -> Sequence[Array]:
    # The lower triangle by rows is the upper one by columns; the other triangle, which is left alone, is 0.
    factor, minor = call(POTRF, [tril(x)], [x.type, _info(x)], ("factor", "info"))
    n = bound(x.shape[-1])
    rows, columns = iota((n, 1), 0), iota((1, n), 1)
    # Not positive definite: NaN from there on, which the check of the diagonal finds.
    return [where((minor > 0) & (columns >= minor - 1) & (columns <= rows), nan, factor)]


@_computes("lu")
def _lu(call: Call, op: Op, a: Array) -> Sequence[Array]:
    batch, n = _batch(a), bound(a.shape[-1])
    types = [a.type, TensorType(i32, (*batch, n)), _info(a)]
    # A singular matrix has factors with a 0 on the diagonal, whose number is unused.
    factors, chosen, _ = call(GETRF, [turned(a)], types, ("lu_factors", "pivots", "info"))
    steps, chosen = iota((n,), 0), cast(chosen, i64)
    # Counted from 1. It is not documented what is named where a column has NaN: no row, perhaps.
    pivots = where((chosen > steps) & (chosen <= n), chosen - 1, steps)
    # Rows are exchanged of floats alone: numbers of rows, all of which a float holds.
    numbers = broadcast(iota((n,), 0, a.dtype), (*batch, n))
    (order,) = call(LASWP, [numbers, cast(pivots + 1, i32)], [numbers.type], ("row_order",))
    return turned(factors), cast(order, i64), pivots


@_computes("qr", "qr_complete")
def _qr(call: Call, op: Op, a: Array) -> Sequence[Array]:
    batch, n, last = _batch(a), bound(a.shape[-1]), a.ndim - 1
    width, height = (bound(extent) for extent in (op.results[0].tensor.shape[-1], op.results[1].tensor.shape[-2]))
    by_columns = turned(a)
    types = [by_columns.type, TensorType(a.dtype, (*batch, n)), _info(a)]
    reflected, scales, _ = call(GEQRF, [by_columns], types, ("qr_factors", "scales", "info"))
    r = triu(slice_axis(turned(reflected), last - 1, 0, height))
    # `width` columns of q, the first n of which are made of the reflections below the diagonal.
    reflections = pad(reflected, [(0, 0)] * (last - 1) + [(0, width - n), (0, 0)])
    q, _ = call(ORGQR, [reflections, scales], [reflections.type, _info(a)], ("q_columns", "info"))
    return turned(q), r


@_computes("eigh")
def _eigh(call: Call, op: Op, a: Array) -> Sequence[Array]:
    values, vectors, is_right = _eigenvalues_of(call, a, True)
    return values, where(is_right, turned(vectors), nan)


def _eigenvalues(call: Call, op: Op, a: Array) -> Sequence[Array]:
    values, _, _ = _eigenvalues_of(call, a, False)
    return values, zeros(a.shape, a.dtype)  # unused


def _eigenvalues_of(call: Call, a: Array, with_vectors: bool) -> tuple[Array, Array, Array]:
    """The values, the vectors as rows, and a flag for each matrix that has them."""
    lower = tril(a)
    is_finite = _is_finite(lower)
    types = [TensorType(a.dtype, a.shape[:-1]), a.type, _info(a)]
    values, vectors, info = call(
        SYEVD,
        [where(is_finite, lower, 0.0)],
        types,
        ("eigenvalues", "vectors" if with_vectors else "spoilt", "info"),
        with_vectors=with_vectors,
        partly_made=() if with_vectors else (1,),
    )
    is_right = is_finite & (info == 0)
    return where(squeeze(is_right, -1), values, nan), vectors, is_right


@_computes("svd")
def _svd(call: Call, op: Op, a: Array) -> Sequence[Array]:
    u, _, v = (result.tensor for result in op.results)
    values, is_right, by_columns, right = _singular(call, a, [_turned_type(u), v])
    return where(is_right, turned(by_columns), nan), values, where(is_right, right, nan)


def _singular_values(call: Call, op: Op, a: Array) -> Sequence[Array]:
    u, _, v = (result.tensor for result in op.results)
    values, _ = _singular(call, a, [])
    return zeros(u.shape, u.dtype), values, zeros(v.shape, v.dtype)  # unused


def _singular(call: Call, a: Array, vectors: Sequence[TensorType]) -> list[Array]:
    """The values, a flag for each matrix that has them, and vectors of these types, if there are any."""
    is_finite = _is_finite(a)
    given = where(is_finite, turned(a), 0.0)
    types = [TensorType(a.dtype, (*_batch(a), a.shape[-1])), given.type, *vectors, _info(a)]
    hints = ("singular_values", "spoilt", *("u", "v")[: len(vectors)], "info")
    values, _, *found, info = call(GESVD, [given], types, hints, partly_made=(1,))
    is_right = is_finite & (info == 0)
    return [where(squeeze(is_right, -1), values, nan), is_right, *found]


def _turned_type(type: TensorType) -> TensorType:
    """The type of the turned matrices."""
    *batch, rows, columns = type.shape
    return TensorType(type.dtype, (*batch, columns, rows))


def _is_finite(x: Array) -> Array:
    """Find the matrices that are finite: with NaN or infinity an iteration might not end."""
    return all_(isfinite(x), (-2, -1), keepdims=True)


_OF_VALUES: Mapping[str, Write] = {"eigh": _eigenvalues, "svd": _singular_values}
"""The writers where no vectors are used."""
