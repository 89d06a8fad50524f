"""Eigenvalues of symmetric and Hermitian matrices, and singular values, in one of two ways.

From `LEAST` columns on a program of the CPU makes matrices tridiagonal or bidiagonal by reflections, and takes QR steps
(`tridiagonal.py`, `bidiagonal.py`). Elsewhere there are one-sided Jacobi rotations: rotations of pairs of rows make all
rows orthogonal, half as many pairs as there are rows at a time, each row meeting each other one once in a sweep, and
sweeps until no pair is rotated. Source: Hestenes, 1958; Brent and Luk, 1985; Veselic and Hari, 1989; derivatives:
Giles, 2008; Townsend, 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from staged.ir.size_questions import Question
from staged.ir.sizes import Extent, largest, smallest, surely
from staged.ir.types import CPU, TensorType, bool_, i64
from staged.library.elementwise.complex_numbers import conj, imag, real
from staged.library.linalg import numpy_factors
from staged.library.linalg.bidiagonal import bidiagonal, bidiagonal_svd
from staged.library.linalg.diagonals import diagonal
from staged.library.linalg.matrices import (
    BATCHES,
    adjoint,
    greatest,
    matrix,
    product,
    rows_to,
    size_of,
    squared,
    turned,
    with_real_diagonal,
)
from staged.library.linalg.matrices import square as square_matrix
from staged.library.linalg.qr import completed, tall_qr
from staged.library.linalg.triangular import cholesky_rows, symmetric
from staged.library.linalg.tridiagonal import each_matrix, reflected_by, tridiagonal, tridiagonal_eigh
from staged.library.sequences.loop import repeat_while, scan
from staged.ops.array import Array
from staged.ops.assumptions import decide
from staged.ops.checks import stop_unless
from staged.ops.choice import where
from staged.ops.composite import composite
from staged.ops.context import current_context
from staged.ops.dimension import answer, real_number
from staged.ops.elementwise import abs_, maximum, sign, sqrt, square
from staged.ops.joining import concat
from staged.ops.primitive import Sample
from staged.ops.promote import broadcast, cast, check_argument, constant
from staged.ops.public import public
from staged.ops.record import RecordContext
from staged.ops.reduction import any_, max_, sum_
from staged.ops.shape import expand_dims, pad, slice_axis, squeeze
from staged.ops.source import eye, iota, tril, zeros

LEAST = 16
"""The columns from which on reflections and QR steps are faster than rotations, in a batch five times: on one core."""

SWEEPS = 40
"""The most sweeps: some 6 to 10 are enough."""


def precision(x: Array) -> float:
    """The relative distance of neighbouring numbers."""
    return float(np.finfo(x.dtype.numpy).eps)


# ---- rotations --------------------------------------------------------------------------------------


def _orthogonal_rows(x: Array, width: Extent) -> Array:
    """Rows (..., n, m) rotated so that they are orthogonal in their first `width` columns."""
    n, axis = x.shape[-2], x.ndim - 2
    if isinstance(n, int) and n < 2:
        return x
    half = largest((n + 1) // 2, 1)
    x = pad(x, [(0, 0)] * axis + [(0, 2 * half - n), (0, 0)])
    last = x.ndim - 1
    enough = precision(x) * real_number(largest(width, 1)) ** 0.5

    def step(t: Array, x: Array, is_rotated: Array) -> list[Array]:
        above, below = slice_axis(x, axis, 0, half), slice_axis(x, axis, half, 2 * half)
        first, second = slice_axis(above, last, 0, width), slice_axis(below, last, 0, width)
        a, b, c = (sum_(p * conj(q), -1, keepdims=True) for p, q in ((first, first), (second, second), (first, second)))
        if x.dtype.is_complex:  # the second row times a number of size 1 has a real product with the first
            below = below * where(c == 0, 1.0, sign(c))
            a, b, c = real(a), real(b), abs_(c)
        rotates = abs_(c) > enough * sqrt(a) * sqrt(b)
        zeta = (b - a) / where(rotates, 2.0 * c, 1.0)
        tangent = where(zeta < 0, -1.0, 1.0) / (abs_(zeta) + sqrt(1.0 + square(zeta)))
        tangent = where(rotates, tangent, 0.0)
        cosine = 1.0 / sqrt(1.0 + square(tangent))
        sine = cosine * tangent
        above, below = cosine * above - sine * below, sine * above + cosine * below
        # The first row stays, the others go round: each meets each.
        parts = [
            slice_axis(above, axis, 0, 1),
            slice_axis(below, axis, 0, 1),
            slice_axis(above, axis, 1, largest(half - 1, 1)),
            slice_axis(below, axis, 1, half),
            slice_axis(above, axis, largest(half - 1, 1), half),
        ]
        return [concat(parts, axis), is_rotated | any_(rotates)]

    def sweep(x: Array, count: Array, is_rotated: Array) -> list[Array]:
        x, is_rotated = scan(2 * half - 1, [x, constant(False, TensorType(bool_))], step, ("rows", "is_rotated"))
        return [x, count + 1, is_rotated]

    initial = [x, constant(0, TensorType(i64)), constant(True, TensorType(bool_))]
    x, _, _ = repeat_while(
        lambda x, count, is_rotated: is_rotated & (count < SWEEPS), initial, sweep, ("rows", "sweeps", "is_rotated")
    )
    return slice_axis(x, axis, 0, n)


def _sorted(keys: Array, rows: Array) -> tuple[Array, Array]:
    """Keys (..., n) in ascending order, and rows (..., n, m) in the order of their keys."""
    n = size_of(keys)
    mine, other = expand_dims(keys, -1), expand_dims(keys, -2)
    # So that NaN, which no number is above, keeps its place.
    is_before = (other < mine) | (~(other > mine) & (iota((1, n), 1) < iota((n, 1), 0)))
    place = sum_(cast(is_before, i64), -1)
    return squeeze(rows_to(mine, place), -1), rows_to(rows, place)


def _norms(rows: Array) -> Array:
    return sqrt(sum_(squared(rows), -1))


def _is_reduced(a: Array) -> bool:
    """Return whether reflections and QR steps are used for matrices of these columns.

    Their steps are many and small: fast in programs of the CPU, and nowhere else.
    """
    return _has_small_steps() and surely(lambda: size_of(a) >= LEAST)


def _has_small_steps() -> bool:
    context = current_context()
    return isinstance(context, RecordContext) and context.builder.device == CPU


def _decide_way(n: Extent) -> None:
    """Ask for one program for each way."""
    if _has_small_steps():
        decide(n >= LEAST)


# ---- what has no derivative --------------------------------------------------------------------------


def _check_phases(name: str, turns: Array, *cotangents: Array | None) -> None:
    """Stop the reverse if a result depends on the vectors' phases, which are arbitrary in complex matrices."""
    if not turns.dtype.is_complex or size_of(turns) == 0:
        return
    phases = imag(diagonal(turns, 0, -2, -1))
    sizes = (greatest(abs_(given), -2, -1)[..., 0] for given in cotangents if given is not None)
    stop_unless(
        abs_(phases) <= precision(turns) ** 0.5 * reduce(maximum, sizes),
        f"linalg.{name}: the phases of complex vectors are arbitrary, so what depends on them has no derivative",
        in_rules=True,
    )


# ---- what equal values have no derivative of ----------------------------------------------------------


def _tolerance(x: Array) -> float | Array:
    """The relative distance up to which values count as equal: their vectors are the result of rounding."""
    columns: float | Array = real_number(largest(size_of(x), 64))
    return precision(x) * columns


def _matters(x: Array, scale: Array) -> Array:
    """Test which elements of matrices are more than the rounding of matrices like `scale`."""
    return abs_(x) > _tolerance(x) * greatest(abs_(scale), -2, -1)


def _over(x: Array, divisor: Array, is_zero: Array, lost: Array | None = None) -> Array:
    """x / divisor; 0 if the divisor counts as 0, and NaN if `lost`: forward mode, whose result may be unused."""
    rest = 0.0 if lost is None else where(lost, float("nan"), 0.0)
    return where(is_zero, rest, x / where(is_zero, 1.0, divisor))


def _equal(values: Array) -> tuple[Array, Array]:
    """The pairs (i, j) of values that count as equal, and the values that count as 0."""
    least = _tolerance(values) * _largest(values)
    gaps = expand_dims(values, -2) - expand_dims(values, -1)
    return abs_(gaps) <= expand_dims(least, -1), abs_(values) <= least


def _stop_at_equal(name: str, values: str, lost: Array) -> None:
    """Stop the reverse if the derivative needs vectors of equal values."""
    stop_unless(
        ~lost,
        f"linalg.{name}: of equal {values}, vectors have no derivative. If the loss is a function of the matrix, "
        "compute it without them (`a @ a`, `linalg.expm`)",
        in_rules=True,
    )


def _on_diagonal(x: Array) -> Array:
    """Matrices with the last axis on their diagonal."""
    return eye(size_of(x), dtype=x.dtype) * expand_dims(x, -2)


def _off_diagonal(values: Array) -> Array:
    return ~eye(size_of(values), dtype=bool_)


def _differ(d_values: Array) -> Array:
    """The pairs of values whose cotangents differ by more than rounding."""
    return _matters(expand_dims(d_values, -2) - expand_dims(d_values, -1), expand_dims(d_values, -1))


def _largest(values: Array) -> Array:
    if size_of(values) == 0:
        return zeros((*values.shape[:-1], 1), values.dtype)
    return greatest(abs_(values), -1)


# ---- eigenvalues ------------------------------------------------------------------------------------


def _eigh_vjp(cts: Any, results: Any, a: Array) -> list[Array]:
    (values, vectors), (d_values, d_vectors) = results, cts
    inner = zeros(a.shape, a.dtype) if d_values is None else cast(_on_diagonal(d_values), a.dtype)
    if d_vectors is not None and size_of(a) != 0:
        turns = product(vectors, d_vectors, adjoint_a=True)
        _check_phases("eigh", turns, d_vectors)
        gaps = expand_dims(values, -2) - expand_dims(values, -1)
        is_equal, _ = _equal(values)
        skew = turns - adjoint(turns)
        # A function of the vectors alone does not depend on rotations among equal values. With the values, the quotient
        # 0 / 0 may be any number.
        lost = _matters(skew, turns) if d_values is None else _matters(turns, turns) | _differ(d_values)
        _stop_at_equal("eigh", "eigenvalues", is_equal & lost & _off_diagonal(values))
        # Half of the pairs (i, j) and (j, i), which the symmetric part below adds up.
        inner = inner + _over(skew * 0.5, gaps, is_equal)
    return [symmetric(product(product(vectors, inner), vectors, adjoint_b=True))]


def _eigh_jvp(tangents: Sequence[Any], results: Any, operands: Sequence[Array]) -> tuple[Array, Array]:
    values, vectors = results
    inner = product(vectors, product(symmetric(tangents[0]), vectors), adjoint_a=True)
    gaps = expand_dims(values, -2) - expand_dims(values, -1)
    turns = inner
    if size_of(values) != 0:
        is_equal, _ = _equal(values)
        turns = _over(inner, gaps, is_equal, _matters(inner, inner) & _off_diagonal(values))
    return real(diagonal(inner, 0, -2, -1)), product(vectors, turns)


_SYMMETRIC = Sample((np.array([[2.0, 0.3, 0.1], [0.3, -1.0, 0.7], [0.1, 0.7, 0.5]]),), differentiate=())


@composite("eigh", vjp=_eigh_vjp, jvp=_eigh_jvp, reference=numpy_factors.eigh, **BATCHES, samples=[_SYMMETRIC])
def _eigh(a: Array) -> tuple[Array, ...]:
    if size_of(a) == 0:
        return zeros(a.shape[:-1], a.dtype.part), a
    a = with_real_diagonal(tril(a) + adjoint(tril(a, -1)))
    if not _is_reduced(a):
        return _eigh_by_rotations(a)
    results = zeros(a.shape[:-1], a.dtype.part), zeros(a.shape, a.dtype)
    return each_matrix(_eigh_by_reflections, a, results, ("values", "vectors"))


def _eigh_by_rotations(a: Array) -> tuple[Array, Array]:
    """Of a + s > 0 = l l', the rotated rows of l' are eigenvectors, times roots of the shifted eigenvalues."""
    n = size_of(a)
    size = greatest(abs_(a), -2, -1)
    scaled = a / where(size == 0, 1.0, size)
    # The fourth root of the norm of the fourth power is little above the largest eigenvalue.
    twice = product(scaled, scaled)
    largest = sqrt(sqrt(sqrt(sum_(squared(product(twice, twice)), (-2, -1), keepdims=True))))
    shifted = scaled + eye(n, dtype=a.dtype) * where(size == 0, 1.0, 1.05 * largest)
    rows = _orthogonal_rows(cholesky_rows(shifted), n)
    rows = rows / expand_dims(_norms(rows), -1)
    values, rows = _sorted(real(sum_(conj(rows) * product(rows, a), -1)), rows)
    return values, adjoint(rows)


def _eigh_by_reflections(a: Array) -> tuple[Array, Array]:
    size = max_(abs_(a))
    size = where(size == 0, 1.0, size)
    d, e, reflections = tridiagonal(a / size)
    values, rows = _sorted(*tridiagonal_eigh(d, e))
    return values * size, reflected_by(reflections, cast(turned(rows), a.dtype))


class Eigh(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Array
    eigenvectors: Array


@public("linalg.eigh")
def eigh(a: Any, UPLO: str = "L") -> Eigh:
    """The eigenvalues (..., n), ascending, and eigenvectors (..., n, n), as columns, of symmetric matrices.

    Complex matrices are Hermitian. NumPy and Array API `linalg.eigh`. The lower triangle is read, or with `UPLO="U"`
    the upper; the derivative is that of symmetric matrices, itself symmetric. Eigenvectors of equal eigenvalues have no
    derivative: if one is needed, the reverse stops the program with a ValueError, and forward mode gives NaN. A loss
    that reads both vectors and values needs one, even if it is a smooth function of the matrix. A loss of the vectors
    alone that does not depend on rotations among them (`v[:, :2] @ v[:, :2].T`) has its derivative. Signs of
    eigenvectors are arbitrary, phases of complex ones too. If a loss depends on phases, the reverse stops the program,
    and forward mode has the derivative of vectors that turn as little as they can.
    """
    values, vectors = _eigh(_lower("eigh", a, UPLO))
    return Eigh(values, vectors)


@public("linalg.eigvalsh")
def eigvalsh(a: Any, UPLO: str = "L") -> Array:
    """The eigenvalues (..., n) of symmetric matrices, ascending. NumPy and Array API `linalg.eigvalsh`; see `eigh`."""
    return _eigh(_lower("eigvalsh", a, UPLO))[0]


def _lower(name: str, a: Any, UPLO: str) -> Array:
    """Square matrices with the triangle that is to be read as the lower one."""
    check_argument(UPLO in ("L", "U"), f"linalg.{name}: UPLO is 'L' or 'U', got {UPLO!r}")
    matrices = square_matrix(name, a)
    _decide_way(size_of(matrices))
    return matrices if UPLO == "L" else adjoint(matrices)


class SVD(NamedTuple):
    """The result of `svd`."""

    U: Array
    S: Array
    Vh: Array


# ---- singular values ----------------------------------------------------------------------------------


def _svd_vjp(cts: Any, results: Any, a: Array) -> list[Array]:
    (u, values, v), (d_u, d_values, d_v) = results, cts
    inner = zeros((*values.shape, size_of(values)), a.dtype)
    inner = inner if d_values is None else cast(_on_diagonal(d_values), a.dtype)
    if size_of(a) == 0 or (d_u is None and d_v is None):
        return [product(product(u, inner), v, adjoint_b=True)]
    row, column = expand_dims(values, -2), expand_dims(values, -1)
    left = zeros(inner.shape, a.dtype) if d_u is None else product(u, d_u, adjoint_a=True)
    right = zeros(inner.shape, a.dtype) if d_v is None else product(v, d_v, adjoint_a=True)
    both = abs_(left) + abs_(right)
    _check_phases("svd", left + right, d_u, d_v)
    left_skew, right_skew = left - adjoint(left), right - adjoint(right)
    together, against = left_skew + right_skew, left_skew - right_skew
    is_equal, is_zero = _equal(values)
    is_tall = a.shape[-2] != size_of(a)
    both_zero = expand_dims(is_zero, -2) & expand_dims(is_zero, -1)
    lost = is_equal & _off_diagonal(values) & _matters(together, both)
    lost = lost | (both_zero & _matters(against, both))
    if d_values is not None:  # see `_eigh_vjp`; singular values of 0 have no slope beside vectors
        lost = lost | (is_equal & _off_diagonal(values) & (_matters(both, both) | _differ(d_values)))
        slopes = expand_dims(d_values, -1)
        among = both_zero if is_tall or a.dtype.is_complex else both_zero & _off_diagonal(values)
        beyond: bool | Question = a.shape[-2] > size_of(a)
        if isinstance(beyond, Question) and not a.dtype.is_complex:
            among = both_zero & (_off_diagonal(values) | answer(beyond))
        lost = lost | (among & _matters(slopes, slopes))
    inner = inner + 0.5 * (_over(together, row - column, is_equal) + _over(against, row + column, both_zero))
    total = product(u, inner)
    if d_u is not None and is_tall:
        beside = d_u - product(u, left)
        column_is_zero = expand_dims(is_zero, -2)
        lost = lost | any_(column_is_zero & _matters(beside, d_u), -2, keepdims=True)
        total = total + _over(beside, row, column_is_zero)
    _stop_at_equal("svd", "singular values, or of those that are 0", lost)
    return [product(total, v, adjoint_b=True)]


def _svd_jvp(tangents: Sequence[Any], results: Any, operands: Sequence[Array]) -> tuple[Array, ...]:
    (u, values, v), (t,), (a,) = results, tangents, operands
    row, column = expand_dims(values, -2), expand_dims(values, -1)
    sides = product(t, v)
    inner = product(u, sides, adjoint_a=True)
    if size_of(a) == 0:
        return product(u, inner), real(diagonal(inner, 0, -2, -1)), product(v, inner)
    is_equal, is_zero = _equal(values)
    both_zero = expand_dims(is_zero, -2) & expand_dims(is_zero, -1)
    together, against = 0.5 * (inner + adjoint(inner)), 0.5 * (inner - adjoint(inner))
    together = _over(together, row - column, is_equal, _matters(together, inner) & _off_diagonal(values))
    against = _over(against, row + column, both_zero, _matters(against, inner))
    d_u, d_v = product(u, together + against), product(v, together - against)
    if a.shape[-2] != size_of(a):
        beside = sides - product(u, inner)
        d_u = d_u + _over(beside, row, expand_dims(is_zero, -2), _matters(beside, sides))
    return d_u, real(diagonal(inner, 0, -2, -1)), d_v


_TALL = Sample(((4, 3),), differentiate=())


@composite("svd", vjp=_svd_vjp, jvp=_svd_jvp, reference=numpy_factors.svd, **BATCHES, samples=[_TALL])
def _svd(a: Array) -> tuple[Array, ...]:
    """u, the values, and v (not turned) of matrices with at least as many rows as columns."""
    n = size_of(a)
    if n == 0:
        q, r = tall_qr(a)
        return q, zeros(r.shape[:-1], a.dtype.part), r
    if not _is_reduced(a):
        return _svd_by_rotations(a)
    batch, part = a.shape[:-2], a.dtype.part
    results = zeros(a.shape, a.dtype), zeros((*batch, n), part), zeros((*batch, n, n), a.dtype)
    return each_matrix(_svd_by_reflections, a, results, ("u", "values", "v"))


def _svd_by_rotations(a: Array) -> tuple[Array, Array, Array]:
    n, last = size_of(a), a.ndim - 1
    size = greatest(abs_(a), -2, -1)
    size = where(size == 0, 1.0, size)
    q, r = tall_qr(a / size)  # squares of what is large would be infinite, of what is small 0
    unit = broadcast(eye(n, dtype=a.dtype), r.shape)
    rows = _orthogonal_rows(concat([r, unit], last), n)
    values, rows = _sorted(-_norms(slice_axis(rows, last, 0, n)), rows)
    # Columns that are orthogonal, or 0, of descending size: their q are right singular vectors.
    basis, signs = tall_qr(adjoint(slice_axis(rows, last, 0, n)))
    signs = where(real(diagonal(signs, 0, -2, -1)) < 0, -1.0, 1.0)
    turns = slice_axis(rows, last, n, 2 * n)
    turns = turns / expand_dims(_norms(turns), -1)  # products of many rotations drift away from length 1
    u = product(q, turns, adjoint_b=True)
    return u, abs_(values) * squeeze(size, -1), basis * expand_dims(signs, -2)


def _svd_by_reflections(a: Array) -> tuple[Array, Array, Array]:
    n = size_of(a)
    size = max_(abs_(a))
    size = where(size == 0, 1.0, size)
    scaled = a / size
    q, r = (None, scaled) if a.shape[0] == n else tall_qr(scaled)
    d, e, (columns, rows) = bidiagonal(r)
    values, us, vs = bidiagonal_svd(d, e)
    values, both = _sorted(-values, concat([us, vs], 1))
    u, v = (cast(turned(slice_axis(both, 1, *span)), a.dtype) for span in ((0, n), (n, 2 * n)))
    u, v = reflected_by(columns, u), reflected_by(rows, v)
    return u if q is None else product(q, u), -values * size, v


def thin_svd(a: Array) -> tuple[Array, Array, Array]:
    """u (..., m, k), the values (..., k) and v (..., n, k), not turned, for k = min(m, n)."""
    _decide_way(smallest(*a.shape[-2:]))
    if _is_wide(a):
        v, values, u = _svd(adjoint(a))
    else:
        u, values, v = _svd(a)
    return u, values, v


def _is_wide(a: Array) -> bool:
    """Return whether matrices have fewer rows than columns; if the program finds the sizes, no more rows."""
    rows, n = a.shape[-2:]
    return rows != n and (surely(lambda: rows <= n) or not rows >= n)


@overload
def svd(a: Any, full_matrices: bool = True, compute_uv: Literal[True] = True) -> SVD: ...
@overload
def svd(a: Any, full_matrices: bool = True, *, compute_uv: Literal[False]) -> Array: ...
@public("linalg.svd")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> SVD | Array:
    """The u, s, vh of a = u diag(s) vh: orthonormal columns, singular values in descending order, orthonormal rows.

    NumPy and Array API `linalg.svd`. Shapes: a (..., m, n), u (..., m, m), s (..., k), vh (..., n, n) for k = min(m,
    n); without `full_matrices` u (..., m, k) and vh (..., k, n). Singular vectors of equal singular values, or
    of several that are 0, have no derivative: if one is needed, the reverse stops the program with a ValueError, and
    forward mode gives NaN (see `eigh`). Columns that `full_matrices` adds have derivatives, if the loss does not depend
    on rotations among them. Phases of complex vectors are arbitrary, as those of `eigh`.
    Without `compute_uv` only the values s, as `svdvals` gives them.
    """
    matrices = matrix("svd", a)
    if not compute_uv:
        return thin_svd(matrices)[1]
    u, values, v = thin_svd(matrices)
    if full_matrices and matrices.shape[-2] != size_of(matrices):
        if _is_wide(matrices):
            v = completed("svd", v, v)
        else:
            u = completed("svd", u, u)
    return SVD(u, values, adjoint(v))


@public("linalg.svdvals")
def svdvals(a: Any, /) -> Array:
    """The singular values (..., min(m, n)), in descending order. Array API and torch `linalg.svdvals`."""
    return thin_svd(matrix("svdvals", a))[1]
