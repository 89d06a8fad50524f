"""QR factors by Householder's reflections.

Panels of columns are reflected one column at a time by a loop of the program; the product of a panel's reflections is
applied to the rest as matrix products: 1 - v' t v, with the rows v of a panel and t^-1 = diagonal(1 / tau) + triu(v
v').
Source: Schreiber and Van Loan, 1989; Puglisi, 1992.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from staged.ir.sizes import largest, smallest
from staged.library.elementwise.complex_numbers import conj, imag, real
from staged.library.linalg import numpy_factors
from staged.library.linalg.diagonals import diagonal
from staged.library.linalg.matrices import (
    BATCHES,
    adjoint,
    block,
    greatest,
    leaf,
    matrix,
    part,
    product,
    squared,
    turned,
    with_part,
    with_real_diagonal,
)
from staged.library.linalg.triangular import triangular
from staged.library.sequences.loop import scan
from staged.ops.array import Array
from staged.ops.checks import stop_unless
from staged.ops.choice import stop_gradient, where
from staged.ops.composite import composite
from staged.ops.dimension import real_number
from staged.ops.elementwise import abs_, sqrt, square
from staged.ops.joining import concat
from staged.ops.primitive import Sample
from staged.ops.promote import broadcast, check_argument
from staged.ops.public import public
from staged.ops.reduction import all_, any_, sum_
from staged.ops.shape import expand_dims, pad, slice_axis, squeeze
from staged.ops.source import eye, iota, tril, triu, zeros

PANEL = 32
"""The columns that are reflected one by one."""

Reflections = tuple[Array, Array]
"""The rows v, of complex numbers their conjugates, and t^-1."""


def reflection(x: Array, head: Array, places: Array, at: Array, least: float = 0.0) -> tuple[Array, Array, Array]:
    """The v and tau of 1 - tau v v', whose adjoint makes vectors 0 behind place `at`, and the real numbers there.

    The vectors are rows (..., 1, n) with `head` at the place, where v is 1; v is 0 before it. A vector that is 0 behind
    it already, or has squares that add up to no more than `least`, is not reflected: v is 0. The number at the place is
    real.
    """
    rest = where(places > at, x, 0.0)
    below = sum_(squared(rest), -1, keepdims=True)
    if least:
        plain = (below + square(imag(head)) if x.dtype.is_complex else below) <= least
    else:
        plain = below == 0
        if x.dtype.is_complex:
            plain = plain & (imag(head) == 0)
    size = sqrt(where(plain, 1.0, squared(head) + below))
    beta = where(plain, real(head), where(real(head) >= 0, -size, size))
    apart = where(plain, 1.0, head - beta)
    v = where(places == at, where(plain, 0.0, 1.0), rest / apart)
    return v, where(plain, 1.0, -apart / where(plain, 1.0, beta)), beta


def _reflect(a: Array) -> tuple[Array, Reflections]:
    """A panel (..., m, n), m >= n, with zeros below its diagonal, and what it was reflected by."""
    n, rows, batch = a.shape[-1], a.shape[-2], a.shape[:-2]
    places = iota((1, rows), 1)

    def step(t: Array, x: Array, vs: Array, taus: Array) -> list[Array]:
        column = part(x, t, -2)
        v, tau, beta = reflection(column, part(column, t, -1), places, t)
        x = x - product(x, v, adjoint_b=True) * conj(tau) * v
        done = where(places == t, beta, where(places > t, 0.0, column))
        return [with_part(x, t, -2, done), with_part(vs, t, -2, v), with_part(taus, t, -1, tau)]

    x = turned(a)
    initial = [x, zeros(x.shape, x.dtype), zeros((*batch, 1, n), x.dtype)]
    x, vs, taus = scan(n, initial, step, ("reflected", "vs", "taus"))
    vs = conj(vs)
    crossed = triu(product(vs, vs, adjoint_b=True), 1)
    return turned(x), (vs, crossed + eye(n, dtype=x.dtype) / taus)


def reflected(x: Array, by: Reflections, is_adjoint: bool) -> Array:
    """The product of the reflections, or its adjoint, times x."""
    vs, inverse = by
    inner = product(vs, x)
    inner = triangular(adjoint(inverse) if is_adjoint else inverse, inner, not is_adjoint)
    return x - product(vs, inner, adjoint_a=True)


def _scales(a: Array) -> Array:
    """1 for each column, but its largest number if squares of its numbers are infinite or round to 0."""
    numbers = np.finfo(a.dtype.numpy)
    least, most = float(numbers.tiny**0.5 / numbers.eps), float(numbers.max**0.5 * numbers.eps)
    largest = greatest(abs_(a), -2)
    is_outside = ((largest > 0) & (largest <= least)) | ((largest >= most) & (largest < float("inf")))
    return where(is_outside, largest, 1.0)


def _factors(a: Array, wide: bool) -> tuple[Array, Array]:
    """q (..., m, n) and r (..., n, n), or with `wide` q (..., m, m) and r (..., m, n), for m >= n."""
    if a.shape[-1] == 0:
        return _scaled_factors(a, wide)
    scales = _scales(a)
    q, r = _scaled_factors(a / scales, wide)
    return q, r * scales


def _scaled_factors(a: Array, wide: bool) -> tuple[Array, Array]:
    n, rows, batch, last = a.shape[-1], a.shape[-2], a.shape[:-2], a.ndim - 1
    width = leaf(n, PANEL)
    starts = range(0, n, width) if isinstance(n, int) and isinstance(width, int) else (0,)
    panels, tops, rest = [], [], a
    for start in starts:
        count = smallest(width, n - start)
        triangle, by = _reflect(slice_axis(rest, last, 0, count))
        others = slice_axis(rest, last, count, n - start)
        row = triangle if start + count == n else concat([triangle, reflected(others, by, True)], last)
        top = slice_axis(row, last - 1, 0, count)
        tops.append(pad(top, [(0, 0)] * last + [(start, 0)]))
        rest = block(row, (count, rows - start), (count, n - start))
        panels.append(by)
    columns = rows if wide else n
    q = broadcast(eye(rows - n, columns - n, dtype=a.dtype), (*batch, rows - n, columns - n))
    for start, by in zip(reversed(starts), reversed(panels), strict=True):
        count = smallest(width, n - start)
        q = pad(q, [(0, 0)] * (last - 1) + [(count, 0), (count, 0)])
        unit = eye(rows - start, columns - start, dtype=a.dtype)
        q = reflected(where(iota((rows - start, columns - start), 1) < count, unit, q), by, False)
    if wide:
        tops.append(zeros((*batch, rows - n, n), a.dtype))
    return q, concat(tops, last - 1) if tops else zeros((*batch, 0, 0), a.dtype)


def _is_dependent(r: Array) -> Array:
    """Test whether a column is, up to rounding, a sum of those before it: one result for each matrix."""
    size = abs_(r)
    least = float(np.finfo(r.dtype.numpy).eps) * real_number(largest(r.shape[-1], 64))
    return any_(diagonal(size, 0, -2, -1) <= least * squeeze(greatest(size, -2), -2), -1)


def _qr_vjp(cts: Any, results: Any, a: Array) -> list[Array]:
    (q, r), (d_q, d_r) = results, cts
    inner = zeros(r.shape, r.dtype)
    inner = inner if d_r is None else product(r, d_r, adjoint_b=True)
    inner = inner if d_q is None else inner - product(d_q, q, adjoint_a=True)
    # The symmetric matrix with the lower triangle of `inner`.
    inner = with_real_diagonal(tril(inner) + adjoint(tril(inner, -1)))
    total = product(q, inner)
    total = total if d_q is None else d_q + total
    if r.shape[-1] != 0:
        stop_unless(
            ~_is_dependent(r) | all_(total == 0, (-2, -1)),
            "linalg.qr: a column is a sum of those before it, and such factors have no derivative",
            in_rules=True,
        )
    return [adjoint(triangular(r, adjoint(total), True))]


def _qr_jvp(tangents: Sequence[Any], results: Any, operands: Sequence[Array]) -> tuple[Array, Array]:
    q, r = results
    if r.shape[-1] != 0:  # forward mode, whose result may be unused, gives NaN
        is_lost = _is_dependent(r) & any_(tangents[0] != 0, (-2, -1))
        tangents = [where(expand_dims(expand_dims(is_lost, -1), -1), float("nan"), tangents[0])]
    d_a = turned(triangular(turned(r), turned(tangents[0]), False))
    inner = product(q, d_a, adjoint_a=True)
    lower = tril(inner, -1)
    upper = with_real_diagonal(inner - lower + adjoint(lower))
    return d_a - product(q, upper), product(upper, r)


@composite("qr", vjp=_qr_vjp, jvp=_qr_jvp, reference=numpy_factors.qr, **BATCHES, samples=[Sample(((4, 3),))])
def _qr(a: Array) -> tuple[Array, ...]:
    return _factors(a, wide=False)


@composite("qr_complete", reference=numpy_factors.qr_complete, **BATCHES, samples=[Sample(((4, 2),))])
def _qr_complete(a: Array) -> tuple[Array, ...]:
    return _factors(a, wide=True)


def _beside_vjp(cts: Any, results: Any, q: Array, rest: Array, factors: str) -> list[Array | None]:
    """The columns turn by -q d_q' rest: as little as those of `q` require."""
    turns = product(results, cts, adjoint_a=True)
    skew = abs_(turns - adjoint(turns))
    most = greatest(abs_(cts), -2, -1)
    stop_unless(
        skew <= float(np.finfo(q.dtype.numpy).eps) ** 0.5 * most,
        f"linalg.{factors}: the columns that complete a basis are arbitrary up to rotations, so what depends on the "
        "rotation has no derivative",
        in_rules=True,
    )
    return [-product(results, product(cts, q, adjoint_a=True)), None]


def _beside_jvp(tangents: Sequence[Any], results: Any, operands: Sequence[Array], factors: str) -> Array:
    return -product(operands[0], product(tangents[0], results, adjoint_a=True))


@composite(
    "basis_beside",
    vjp=_beside_vjp,
    jvp=_beside_jvp,
    **BATCHES,
    samples=[Sample((np.eye(3, 2), np.eye(3)[:, 2:]), {"factors": "qr"}, differentiate=())],
)
def _beside(q: Array, rest: Array, *, factors: str) -> Array:
    """The columns `rest`, which complete the basis `q`, as a function of `q`."""
    return rest


def tall_qr(a: Array) -> tuple[Array, Array]:
    """q (..., m, n) and r (..., n, n) of a matrix with at least as many rows as columns."""
    q, r = _qr(a)
    return q, r


class QR(NamedTuple):
    """The result of `qr`."""

    Q: Array
    R: Array


@overload
def qr(a: Any, mode: Literal["reduced", "complete"] = "reduced") -> QR: ...
@overload
def qr(a: Any, mode: Literal["r"]) -> Array: ...
@public("linalg.qr")
def qr(a: Any, mode: str = "reduced") -> QR | Array:
    """The q, r of a = q r: orthonormal columns, and an upper triangular matrix. NumPy and Array API `linalg.qr`.

    Shapes: a (..., m, n); q (..., m, k) and r (..., k, n) for k = min(m, n), with `mode` "complete" k = m; with "r"
    only r, as in "reduced". Signs are LAPACK's: the diagonal of r is real. The derivative needs independent columns:
    else the reverse stops the program with a ValueError, and forward mode gives NaN.
    The columns that "complete" adds are arbitrary up to rotations: if a loss depends on the rotation, the reverse stops
    the program.
    """
    known = ("reduced", "complete", "r")
    check_argument(mode in known, f"linalg.qr: the mode is 'reduced', 'complete' or 'r', got {mode!r}")
    matrices = matrix("qr", a)
    rows, n, last = matrices.shape[-2], matrices.shape[-1], matrices.ndim - 1
    if rows < n:
        q, r = tall_qr(slice_axis(matrices, last, 0, rows))
        beside = product(q, slice_axis(matrices, last, rows, n), adjoint_a=True)
        wide = concat([r, beside], last)
        return wide if mode == "r" else QR(q, wide)
    q, r = tall_qr(matrices)
    if mode == "r":
        return r
    if mode == "reduced" or rows == n:
        return QR(q, r)
    return QR(completed("qr", q, matrices), pad(r, [(0, 0)] * (last - 1) + [(0, rows - n), (0, 0)]))


def completed(name: str, q: Array, a: Array) -> Array:
    """The columns `q` of the tall matrices `a`, and those that complete the basis."""
    whole, _ = _qr_complete(stop_gradient(a))
    rest = slice_axis(whole, q.ndim - 1, q.shape[-1], whole.shape[-1])
    return concat([q, _beside(q, rest, factors=name)[0]], q.ndim - 1)
