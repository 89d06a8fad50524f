"""Triangular systems and Cholesky factors.

Both halve their matrices down to some tens of rows, which a loop of the program takes row by row; what joins the halves
is a matrix product. Derivatives are closed formulas of the same functions, of any order, and go through no loop.
Source: Smith, Differentiation of the Cholesky algorithm, 1995; Murray, 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.ir.sizes import Extent
from staged.library.elementwise.complex_numbers import real
from staged.library.linalg.diagonals import diagonal
from staged.library.linalg.matrices import (
    BATCHES,
    adjoint,
    block,
    halves,
    leaf,
    part,
    product,
    same_batch,
    square,
    turned,
    with_part,
    with_real_diagonal,
)
from staged.library.sequences.loop import scan
from staged.ops.array import Array
from staged.ops.checks import stop_unless
from staged.ops.choice import where
from staged.ops.composite import composite
from staged.ops.elementwise import sqrt
from staged.ops.joining import concat
from staged.ops.primitive import Sample
from staged.ops.promote import promoted, shape_error
from staged.ops.public import public
from staged.ops.shape import expand_dims, slice_axis, squeeze
from staged.ops.source import eye, iota, tril, triu, zeros

# ---- triangular systems -----------------------------------------------------------------------------


def _solve_rows(a: Array, b: Array, upper: bool) -> Array:
    """Substitution, row by row: rows that are not solved yet are 0."""

    def step(t: Array, x: Array) -> list[Array]:
        row = part(a, t, -2)
        return [with_part(x, t, -2, (part(b, t, -2) - product(row, x)) / part(row, t, -1))]

    (x,) = scan(a.shape[-1], [zeros(b.shape, b.dtype)], step, ("x",), backwards=upper)
    return x


def _solve_halves(a: Array, b: Array, upper: bool, least: Extent) -> Array:
    n, rows = a.shape[-1], b.ndim - 2
    if n <= least:
        return _solve_rows(a, b, upper)
    middle = halves(n)
    spans = ((middle, n), (0, middle)) if upper else ((0, middle), (middle, n))
    first = _solve_halves(block(a, spans[0], spans[0]), slice_axis(b, rows, *spans[0]), upper, least)
    rest = slice_axis(b, rows, *spans[1]) - product(block(a, spans[1], spans[0]), first)
    second = _solve_halves(block(a, spans[1], spans[1]), rest, upper, least)
    return concat([second, first] if upper else [first, second], rows)


def _triangle(x: Array, upper: bool) -> Array:
    return triu(x) if upper else tril(x)


def _solve_vjp(ct: Array, x: Array, a: Array, b: Array, upper: bool) -> list[Array]:
    d_b = triangular(adjoint(a), ct, not upper)
    return [-_triangle(product(d_b, x, adjoint_b=True), upper), d_b]


def _solve_jvp(tangents: Sequence[Any], x: Array, operands: Sequence[Array], upper: bool) -> Array | None:
    d_a, d_b = tangents
    right = None if d_a is None else -product(_triangle(d_a, upper), x)
    if d_b is not None:
        right = d_b if right is None else d_b + right
    return None if right is None else triangular(operands[0], right, upper)


@composite(
    "solve_triangular",
    vjp=_solve_vjp,
    jvp=_solve_jvp,
    **BATCHES,
    samples=[Sample(((3, 3), (3, 2)), {"upper": upper}, low=0.5) for upper in (False, True)],
)
def _solve_triangular(a: Array, b: Array, *, upper: bool) -> Array:
    return _solve_halves(a, b, upper, leaf(a.shape[-1]))


def triangular(a: Array, b: Array, upper: bool) -> Array:
    """The solution of a x = b, for triangular matrices whose other triangle is 0 and columns of one batch."""
    return _solve_triangular(a, b, upper=upper)[0]


def columns(name: str, a: Array, b: Array, left: bool = True) -> tuple[Array, Array, bool]:
    """A system's matrices and right sides in one batch; return whether the sides were a vector, now a column."""
    is_vector = b.ndim == 1
    b = expand_dims(b, 1) if is_vector else b
    if b.ndim < 2 or b.shape[-2 if left else -1] != a.shape[-1] or (is_vector and not left):
        side = "rows" if left else "columns"
        raise shape_error(f"linalg.{name}: {b.type} has not the {side} that belong to {a.type}", a, b)
    return *same_batch(a, b), is_vector


@public("linalg.solve_triangular")
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Array:
    """The x of a x = b, for a triangular `a`; of x a = b without `left`. torch `linalg.solve_triangular`.

    Shapes: a (..., n, n), b (..., n, m), or (n,) for one system; leading axes broadcast. The other triangle is unused,
    with `unitriangular` the diagonal too, which is 1. A zero on the diagonal gives infinities and NaN.
    """
    matrices, sides = promoted(a, b, floats=True)
    matrices, sides, is_vector = columns("solve_triangular", square("solve_triangular", matrices), sides, left)
    beside = 1 if unitriangular else 0
    matrices = triu(matrices, beside) if upper else tril(matrices, -beside)
    if unitriangular:
        matrices = matrices + eye(matrices.shape[-1], dtype=matrices.dtype)
    if not left:
        return turned(triangular(turned(matrices), turned(sides), not upper))
    found = triangular(matrices, sides, upper)
    return squeeze(found, -1) if is_vector else found


# ---- Cholesky ---------------------------------------------------------------------------------------


def _cholesky_rows(a: Array) -> Array:
    """The upper factor of u' u, row by row: a row of what is left, over the root of its first element.

    That is real, so the imaginary part of the diagonal is unused.
    """
    n = a.shape[-1]
    places = iota((1, n), 1)

    def step(t: Array, u: Array) -> list[Array]:
        row = part(a, t, -2) - product(part(u, t, -1), u, adjoint_a=True)
        return [with_part(u, t, -2, where(places >= t, row / sqrt(real(part(row, t, -1))), 0.0))]

    (u,) = scan(n, [zeros(a.shape, a.dtype)], step, ("u",))
    return with_real_diagonal(u)


def _cholesky_halves(a: Array, least: Extent) -> Array:
    n = a.shape[-1]
    if n <= least:
        return _cholesky_rows(a)
    first, second = (0, halves(n)), (halves(n), n)
    top = _cholesky_halves(block(a, first, first), least)
    right = triangular(adjoint(top), block(a, first, second), False)
    below = _cholesky_halves(block(a, second, second) - product(right, right, adjoint_a=True), least)
    empty = zeros(turned(right).shape, right.dtype)
    return concat([concat([top, right], a.ndim - 1), concat([empty, below], a.ndim - 1)], a.ndim - 2)


def cholesky_rows(a: Array) -> Array:
    """The u of a = u' u, of the upper triangle; NaN where that is not positive definite."""
    return _cholesky_halves(a, leaf(a.shape[-1]))


def _half_triangle(x: Array) -> Array:
    """The lower triangle, with half the diagonal."""
    n = x.shape[-1]
    return tril(x) * (1.0 - 0.5 * eye(n, dtype=x.dtype))


def symmetric(x: Array) -> Array:
    """The symmetric part, of complex matrices the Hermitian one."""
    return (x + adjoint(x)) * 0.5


def _cholesky_vjp(ct: Array, y: Array, x: Array) -> list[Array]:
    inner = _half_triangle(product(y, ct, adjoint_a=True))
    upper = adjoint(y)
    return [symmetric(triangular(upper, adjoint(triangular(upper, adjoint(inner), True)), True))]


def _cholesky_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array]) -> Array:
    half = triangular(y, symmetric(tangents[0]), False)
    return product(y, _half_triangle(triangular(y, adjoint(half), False)))


_SYMMETRIC = Sample((np.array([[3.0, 1.0, 0.5], [1.0, 2.0, -0.4], [0.5, -0.4, 1.5]]),), differentiate=())
"""The derivative is that of symmetric matrices, the body's that of their lower triangle."""


@composite("cholesky", vjp=_cholesky_vjp, jvp=_cholesky_jvp, **BATCHES, samples=[_SYMMETRIC])
def _cholesky(x: Array) -> Array:
    # The rows of the turned matrix are columns of its lower triangle.
    return turned(cholesky_rows(turned(x)))


@public("linalg.cholesky")
def cholesky(a: Any, /, *, upper: bool = False) -> Array:
    """The lower triangular l of a = l l', or with `upper` the u of u' u. NumPy `linalg.cholesky`.

    Shapes: (..., n, n). The lower triangle is read (with `upper` the upper one), and the derivative is that of
    symmetric matrices, itself symmetric, as torch's. Of complex matrices l' is the adjoint, they are Hermitian, and the
    imaginary part of their diagonal is unused. A matrix that is not positive definite stops the program with a
    ValueError.
    """
    matrices = square("cholesky", a)
    (factor,) = _cholesky(adjoint(matrices) if upper else matrices)
    stop_unless(real(diagonal(factor, 0, -2, -1)) > 0, "linalg.cholesky: the matrix is not positive definite")
    return adjoint(factor) if upper else factor
