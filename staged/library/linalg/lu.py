"""LU factors with partial pivoting, and what follows from them: systems, inverses, determinants.

Columns are halved down to `PANEL`, which a loop of the program eliminates one by one; what joins the halves is a
triangular system and a matrix product. `order` names the row of the matrix that each row of the factors comes from:
a[order] = l u. Derivatives use the factors that are there, and are of any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from staged.ir.sizes import Extent
from staged.ir.types import i32, i64
from staged.library.elementwise.complex_numbers import conj, imag, real
from staged.library.linalg.diagonals import diagonal
from staged.library.linalg.matrices import (
    BATCHES,
    adjoint,
    block,
    halves,
    leaf,
    part,
    product,
    rows_at,
    rows_to,
    square,
    turned,
    with_batch,
    with_part,
)
from staged.library.linalg.triangular import columns, triangular
from staged.library.sequences.loop import scan
from staged.library.statistics.products import prod
from staged.ops.array import Array
from staged.ops.checks import stop_unless
from staged.ops.choice import stop_gradient, where
from staged.ops.composite import composite
from staged.ops.contraction import matmul
from staged.ops.elementwise import abs_, exp, log, sign
from staged.ops.joining import concat, roll
from staged.ops.primitive import Sample
from staged.ops.promote import broadcast, cast, check_known, promoted
from staged.ops.public import public
from staged.ops.reduction import all_, argmax, sum_
from staged.ops.shape import flip, reshape, slice_axis, squeeze
from staged.ops.source import eye, iota, tril, triu, zeros

PANEL = 32
"""The columns up to which elimination goes column by column."""

Factors = tuple[Array, Array, Array]
"""Both factors in one array, the order of the rows, and the row that each step exchanged its own with."""


def _eliminate(a: Array) -> Factors:
    """Column by column, on turned matrices, whose columns are contiguous. Rows are put in order at the end."""
    n, rows, batch = a.shape[-1], a.shape[-2], a.shape[:-2]
    places, steps = iota((1, rows), 1), iota((n, 1), 0)

    def step(t: Array, x: Array, is_left: Array, order: Array, pivots: Array) -> list[Array]:
        column = part(x, t, -2)
        pivot = argmax(where(is_left, _size(column), -1.0), -1, keepdims=True)
        place = argmax(order == pivot, -1, keepdims=True)
        row = _column_at(x, pivot, places)
        order = where(places == place, part(order, t, -1), where(places == t, pivot, order))
        divisor, is_left = part(row, t, -2), is_left & (places != pivot)
        factors = where(is_left, column / where(divisor == 0, 1.0, divisor), 0.0)
        x = with_part(x - where(steps > t, row, 0.0) * factors, t, -2, where(is_left, factors, column))
        return [x, is_left, order, with_part(pivots, t, -1, place)]

    order = broadcast(iota((1, rows), 1), (*batch, 1, rows))
    initial = [turned(a), order >= 0, order, zeros((*batch, 1, n), i64)]
    x, _, order, pivots = scan(n, initial, step, ("factors", "is_left", "order", "pivots"))
    order = squeeze(order, -2)
    return rows_at(turned(x), order), order, squeeze(pivots, -2)


def _size(x: Array) -> Array:
    """Absolute values; of complex numbers the sum of those of both parts, by which LAPACK compares pivots."""
    return abs_(x) if not x.dtype.is_complex else abs_(real(x)) + abs_(imag(x))


def _column_at(x: Array, place: Array, places: Array) -> Array:
    """The column (..., n, 1) of each matrix at its own place."""
    if x.ndim == 2:
        return part(x, reshape(place, ()), -1)
    return sum_(where(places == place, x, 0.0), -1, keepdims=True)


def _factor_halves(a: Array, least: Extent) -> Factors:
    n, rows, last = a.shape[-1], a.shape[-2], a.ndim - 1
    if n <= least:
        return _eliminate(a)
    middle = halves(n)
    left, order, pivots = _factor_halves(block(a, (0, rows), (0, middle)), least)
    right = rows_at(block(a, (0, rows), (middle, n)), order)
    top = triangular(_unit(block(left, (0, middle), (0, middle))), slice_axis(right, last - 1, 0, middle), False)
    low = slice_axis(left, last - 1, middle, rows)
    below, later, more = _factor_halves(slice_axis(right, last - 1, middle, rows) - product(low, top), least)
    parts = [
        concat([slice_axis(left, last - 1, 0, middle), top], last),
        concat([rows_at(low, later), below], last),
    ]
    kept, moved = (slice_axis(order, last - 1, *span) for span in ((0, middle), (middle, rows)))
    moved = squeeze(rows_at(moved[..., None], later), -1)
    return concat(parts, last - 1), concat([kept, moved], last - 1), concat([pivots, more + middle], last - 1)


def _unit(factors: Array) -> Array:
    """The lower factor of both: its diagonal is 1."""
    return tril(factors, -1) + eye(factors.shape[-1], dtype=factors.dtype)


# ---- the factors ------------------------------------------------------------------------------------


def _lu_vjp(cts: Any, results: Any, a: Array) -> list[Array]:
    (factors, order, _), ct = results, cts[0]
    if ct is None:
        return [zeros(a.shape, a.dtype)]
    lower, upper = _unit(factors), triu(factors)
    inner = tril(product(lower, tril(ct, -1), adjoint_a=True), -1)
    inner = inner + triu(product(triu(ct), upper, adjoint_b=True))
    inner = triangular(adjoint(lower), inner, True)
    return [rows_to(adjoint(triangular(upper, adjoint(inner), True)), order)]


def _lu_jvp(tangents: Sequence[Any], results: Any, operands: Sequence[Array]) -> tuple[Any, ...]:
    factors, order, _ = results
    lower, upper = _unit(factors), triu(factors)
    inner = triangular(lower, rows_at(tangents[0], order), False)
    inner = turned(triangular(turned(upper), turned(inner), False))
    return product(lower, tril(inner, -1)) + product(triu(inner), upper), None, None


@composite("lu", vjp=_lu_vjp, jvp=_lu_jvp, **BATCHES, samples=[Sample(((3, 3),))])
def _lu(a: Array) -> tuple[Array, ...]:
    return _factor_halves(a, leaf(a.shape[-1], PANEL))


@public("linalg.lu_factor")
def lu_factor(a: Any) -> tuple[Array, Array]:
    """Both LU factors of square matrices in one array, and the pivots: i32, counted from 1. torch `linalg.lu_factor`.

    Rows are exchanged so that each pivot is the largest of its column. Singular matrices have factors too, with zeros
    on the diagonal.
    """
    factors, _, pivots = _lu(square("lu_factor", a))
    return factors, cast(pivots + 1, i32)


@public("linalg.lu")
def lu(a: Any) -> tuple[Array, Array, Array]:
    """The p, l, u of a = p l u: a permutation, a unit lower and an upper triangular matrix. torch `linalg.lu`.

    Shapes: (..., n, n), square.
    """
    factors, order, _ = _lu(square("lu", a))
    permutation = cast(iota((factors.shape[-1], 1), 0) == order[..., None, :], factors.dtype)
    return permutation, _unit(factors), triu(factors)


# ---- systems ----------------------------------------------------------------------------------------


def _solve_vjp(
    ct: Array, x: Array, a: Array, b: Array, factors: Array, order: Array, of_adjoint: bool
) -> list[Array | None]:
    d_b = _solved(a, ct, factors, order, not of_adjoint)
    left, right = (x, d_b) if of_adjoint else (d_b, x)
    return [-product(left, right, adjoint_b=True), d_b, None, None]


def _solve_jvp(tangents: Sequence[Any], x: Array, operands: Sequence[Array], of_adjoint: bool) -> Array | None:
    a, _, factors, order = operands
    right = None if tangents[0] is None else -product(tangents[0], x, adjoint_a=of_adjoint)
    if tangents[1] is not None:
        right = tangents[1] if right is None else tangents[1] + right
    return None if right is None else _solved(a, right, factors, order, of_adjoint)


_FACTORED = ((np.eye(3)[::-1] * 2.0, (3, 2), np.eye(3) * 2.0, np.array([2, 1, 0])), {"of_adjoint": False})


@composite("lu_solve", vjp=_solve_vjp, jvp=_solve_jvp, **BATCHES, samples=[Sample(*_FACTORED, differentiate=())])
def _lu_solve(a: Array, b: Array, factors: Array, order: Array, *, of_adjoint: bool) -> Array:
    # By the factors of `a`, which is there for its derivative.
    if of_adjoint:
        return rows_to(triangular(adjoint(_unit(factors)), triangular(adjoint(triu(factors)), b, False), True), order)
    return triangular(triu(factors), triangular(_unit(factors), rows_at(b, order), False), True)


def _solved(a: Array, b: Array, factors: Array, order: Array, of_adjoint: bool = False) -> Array:
    return _lu_solve(a, b, factors, order, of_adjoint=of_adjoint)[0]


def solved(a: Array, b: Array) -> Array:
    """The x of a x = b for matrices that are not singular, as operands of one batch."""
    factors, order, _ = _lu(a)
    return _solved(a, b, factors, order)


def _factored(name: str, a: Array) -> tuple[Array, Array]:
    """The factors and the order of a matrix that is not singular: constants to derivatives, which go through `a`."""
    factors, order, _ = _lu(stop_gradient(a))
    message = f"linalg.{name}: the matrix is singular"
    stop_unless(diagonal(factors, 0, -2, -1) != 0, message)
    return factors, order


@public("linalg.solve")
def solve(a: Any, b: Any) -> Array:
    """The x of a x = b, by LU factors with partial pivoting. NumPy and Array API `linalg.solve`.

    Shapes: a (..., n, n), b (..., n, m), or (n,) for one vector; leading axes broadcast. A singular matrix stops the
    program with a ValueError.
    """
    matrices, sides = promoted(a, b, floats=True)
    matrices, sides, is_vector = columns("solve", square("solve", matrices), sides)
    found = _solved(matrices, sides, *_factored("solve", matrices))
    return squeeze(found, -1) if is_vector else found


@public("linalg.inv")
def inv(a: Any) -> Array:
    """The inverse matrices. NumPy and Array API `linalg.inv`. A singular matrix stops the program with a ValueError."""
    matrices = square("inv", a)
    unit = with_batch(matrices.shape[:-2], eye(matrices.shape[-1], dtype=matrices.dtype))
    return _solved(matrices, unit, *_factored("inv", matrices))


# ---- determinants -----------------------------------------------------------------------------------


def _inverse_of_adjoint(a: Array, factors: Array, order: Array) -> Array:
    unit = with_batch(a.shape[:-2], eye(a.shape[-1], dtype=a.dtype))
    return _solved(a, unit, factors, order, of_adjoint=True)


def _regular(factors: Array) -> Array:
    """The factors with a tiny number for each 0 on the diagonal: their determinant times their inverse is finite."""
    n = factors.shape[-1]
    tiny = float(np.finfo(factors.dtype.numpy).tiny) ** 0.5
    return where((eye(n, dtype=factors.dtype) != 0) & (factors == 0), tiny, factors)


def _minors(a: Array) -> Array:
    """The cofactors of matrices of up to three rows, as products: they need no inverse."""
    n = a.shape[-1]
    if n == 1:
        return with_batch(a.shape[:-2], eye(1, dtype=a.dtype))
    if n == 2:
        return flip(a, (-2, -1)) * where(eye(2, dtype=a.dtype) != 0, 1.0, -1.0)
    first, second = roll(a, -1, -2), roll(a, -2, -2)  # row i of the cofactors is row i + 1 times row i + 2, as vectors
    return roll(first, -1, -1) * roll(second, -2, -1) - roll(first, -2, -1) * roll(second, -1, -1)


_OF_SINGULAR = "linalg.det: of a singular matrix of more than three rows, the second derivative is not known"


def _once_vjp(ct: Array, out: Array, cofactors: Array, y: Array) -> list[Array | None]:
    stop_unless((y != 0) | all_(ct == 0, (-2, -1)), _OF_SINGULAR, in_rules=True)
    return [ct, None]


def _once_jvp(tangents: Sequence[Any], out: Array, operands: Sequence[Array]) -> Array | None:
    """Forward mode, whose result may be unused, has NaN where the reverse stops."""
    if tangents[0] is None:
        return None
    return where(operands[1][..., None, None] == 0, float("nan"), tangents[0])


@composite(
    "once_differentiable",
    vjp=_once_vjp,
    jvp=_once_jvp,
    **BATCHES,
    samples=[Sample((np.eye(2), np.array(2.0)), differentiate=())],
)
def _once(cofactors: Array, y: Array) -> Array:
    """The cofactors, which have no derivative where the determinant is 0: differences of numbers that are too large."""
    return cofactors * 1


def _cofactors(y: Array, a: Array, factors: Array, order: Array, signs: Array) -> Array:
    """The derivative of the determinant: conj(y) times the adjoint's inverse, or the limit of this."""
    if a.shape[-1] in (1, 2, 3):
        return conj(_minors(a))
    regular = _regular(factors)
    limit = prod(diagonal(regular, 0, -2, -1), -1) * signs
    found = conj(where(y == 0, limit, y))[..., None, None] * _inverse_of_adjoint(a, regular, order)
    return _once(found, stop_gradient(y))[0]


def _det_vjp(ct: Array, y: Array, *operands: Array) -> list[Array | None]:
    return [ct[..., None, None] * _cofactors(y, *operands), None, None, None]


def _det_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array]) -> Array | None:
    return None if tangents[0] is None else sum_(conj(_cofactors(y, *operands)) * tangents[0], (-2, -1))


_OF_FACTORS = Sample((np.eye(3)[::-1] * 2.0, np.eye(3) * 2.0, np.array([2, 1, 0]), np.array(-1.0)), differentiate=())


@composite("det", vjp=_det_vjp, jvp=_det_jvp, **BATCHES, samples=[_OF_FACTORS])
def _det(a: Array, factors: Array, order: Array, signs: Array) -> Array:
    return prod(diagonal(factors, 0, -2, -1), -1) * signs


def _logdet_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array]) -> Array | None:
    return None if tangents[0] is None else sum_(conj(_inverse_of_adjoint(*operands)) * tangents[0], (-2, -1))


@composite(
    "logabsdet",
    vjp=lambda ct, y, a, factors, order: [ct[..., None, None] * _inverse_of_adjoint(a, factors, order), None, None],
    jvp=_logdet_jvp,
    **BATCHES,
    samples=[Sample(_OF_FACTORS.operands[:3], differentiate=())],
)
def _logabsdet(a: Array, factors: Array, order: Array) -> Array:
    """Of complex matrices the logarithm of the determinant, but for the sign of the order."""
    pivots = diagonal(factors, 0, -2, -1)
    return sum_(log(pivots if a.dtype.is_complex else abs_(pivots)), -1)


def _with_signs(name: str, a: Any) -> tuple[Array, Array, Array, Array]:
    """The matrices, their factors and orders, and the signs of the orders."""
    matrices = square(name, a)
    factors, order, pivots = _lu(stop_gradient(matrices))
    swaps = where(pivots == iota((matrices.shape[-1],), 0), 1.0, -1.0)
    return matrices, factors, order, cast(prod(swaps, -1), matrices.dtype)


@public("linalg.det")
def det(a: Any) -> Array:
    """The determinants (...) of square matrices (..., n, n). NumPy and Array API `linalg.det`.

    The derivative exists for singular matrices too, of up to three rows that of any order. Of larger ones the second
    derivative stops the program.
    """
    return _det(*_with_signs("det", a))[0]


class SlogDet(NamedTuple):
    """The result of `slogdet`."""

    sign: Array
    logabsdet: Array


@public("linalg.slogdet")
def slogdet(a: Any) -> SlogDet:
    """The sign and the logarithm of the absolute value of the determinant. NumPy and Array API `linalg.slogdet`.

    The sign of a complex determinant is det / abs(det), which has a derivative.
    0 and -inf for singular matrices, where the logarithm has no finite derivative.
    """
    matrices, factors, order, signs = _with_signs("slogdet", a)
    held = stop_gradient(prod(sign(diagonal(factors, 0, -2, -1)), -1) * signs)
    (log_size,) = _logabsdet(matrices, factors, order)
    if not matrices.dtype.is_complex:
        return SlogDet(held, log_size)
    angle = imag(log_size)
    # A turn by nothing, which has the derivative of the sign's angle.
    return SlogDet(held * exp((angle - stop_gradient(angle)) * 1j), real(log_size))


# ---- powers -----------------------------------------------------------------------------------------


@public("linalg.matrix_power")
def matrix_power(a: Any, n: int) -> Array:
    """`a` multiplied by itself, `n` times in all; of its inverse for a negative `n`. NumPy `linalg.matrix_power`."""
    check_known("linalg.matrix_power", "n", n)
    base = square("matrix_power", inv(a) if n < 0 else a)
    result, left = None, abs(n)
    while left:
        if left & 1:
            result = base if result is None else matmul(result, base)
        left >>= 1
        base = matmul(base, base) if left else base
    return with_batch(base.shape[:-2], eye(base.shape[-1], dtype=base.dtype)) if result is None else result
