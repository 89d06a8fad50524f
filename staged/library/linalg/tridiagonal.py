"""Hermitian matrices as q t q' with a tridiagonal t, and its eigenvalues and eigenvectors: one matrix at a time.

Panels of columns are reflected one by one. A panel leaves the matrix as it is, and notes the rows v and w of a - v w' -
w v', which is a product at its end; the part that is left becomes smaller after some panels. The eigenvalues of t come
from QR steps with Wilkinson's shifts, whose rotations turn neighbouring rows of the transposed vectors.
Source: Francis, 1961; Wilkinson, 1968; Dongarra, Hammarling and Sorensen, 1989.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from staged.ir.sizes import Extent, Size
from staged.ir.types import TensorType, i64
from staged.library.elementwise.complex_numbers import conj, real
from staged.library.linalg.matrices import block, part, product, size_of, squared, turned, with_part
from staged.library.linalg.qr import reflected, reflection
from staged.library.sequences.loop import named, repeat_while, scan, window, with_window
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.elementwise import abs_, sqrt, square
from staged.ops.joining import concat
from staged.ops.promote import as_array, constant
from staged.ops.reduction import any_, max_, sum_
from staged.ops.shape import pad, reshape, slice_axis
from staged.ops.source import eye, iota, triu, zeros

PANEL = 16
"""The columns that are reflected before the rest of the matrix is."""
SHRINKS_AT = 128
"""The columns after which the part that is left is an array of its own, each of which is text in the program."""
MOST_PARTS = 3
"""The most such parts; of complex matrices, whose text is twice as long, two."""
STEPS = 30
"""The most steps for each eigenvalue: two are enough."""


def tiny(x: Array) -> float:
    """A number that vanishes beside roundings of 1, and whose square is one of full precision."""
    info = np.finfo(x.dtype.numpy)
    return math.sqrt(float(info.tiny)) / float(info.eps)


def parts_of(panels: Extent, is_complex: bool) -> list[tuple[Extent, Extent]]:
    """The first panel and the end of each part of a loop over panels."""
    if isinstance(panels, Size):
        return [(0, panels)]
    count = max(1, min(2 if is_complex else MOST_PARTS, panels * PANEL // SHRINKS_AT))
    ends: list[Extent] = [panels * place // count for place in range(count + 1)]
    return list(zip(ends, ends[1:], strict=False))


def each_matrix(
    compute: Callable[[Array], Sequence[Array]], x: Array, results: Sequence[Array], hints: Sequence[str]
) -> tuple[Array, ...]:
    """The results of `compute` for each matrix of a batch, in place of those of `results`, which are any."""
    axes = x.ndim - 2

    def run(places: list[Array], found: Sequence[Array]) -> Sequence[Array]:
        axis = len(places)
        if axis == axes:
            made = compute(window(x, [*places, 0, 0], x.shape[-2:]))
            return [with_window(y, [*places, *[0] * one.ndim], one) for y, one in zip(found, made, strict=True)]
        extent = x.shape[axis]
        count = extent if isinstance(extent, int) else as_array(extent)
        return scan(count, found, lambda t, *found: run([*places, t], found), hints, index="matrix")

    return tuple(run([], results) if axes else compute(x))


# ---- elements of vectors ------------------------------------------------------------------------------


def at(x: Array, place: Array) -> Array:
    """x[place], for an index that is in range."""
    return reshape(window(x, [place], (1,)), ())


def with_element(x: Array, place: Array, new: Array) -> Array:
    """`x` with `new` in place of x[place]."""
    return with_window(x, [place], reshape(new, (1,)))


# ---- tridiagonal form -------------------------------------------------------------------------------


def _panel(a: Array, start: Array, d: Array, e: Array) -> tuple[Array, ...]:
    """The columns from `start` on of a matrix with what is left of it; return that, d, e, and the reflections."""
    size = size_of(a)
    places = iota((1, size), 1)

    def column(j: Array, d: Array, e: Array, vs: Array, ws: Array, taus: Array) -> list[Array]:
        (k,) = named(k=start + j)
        # Row k of a - v w' - w v', whose adjoint is the column.
        row = part(a, k, -2)
        row = row - product(turned(part(vs, k, -1)), conj(ws)) - product(turned(part(ws, k, -1)), conj(vs))
        below, behind = conj(row), k + 1
        head = sum_(where(places == behind, below, 0.0), -1, keepdims=True)  # 0 behind the last column
        v, tau, beta = reflection(below, head, places, behind, tiny(d) ** 2)
        named(row=row, behind=behind, v=v, tau=tau, beta=beta)
        w = conj(product(conj(v), a))
        w = w - product(product(v, ws, adjoint_b=True), vs) - product(product(v, vs, adjoint_b=True), ws)
        half = real(sum_(conj(v) * w, -1, keepdims=True)) * squared(tau) * 0.5
        (w,) = named(w=w * tau - half * v)
        return [
            with_part(d, k, -1, real(part(row, k, -1))),
            with_part(e, k, -1, beta),
            with_part(vs, j, -2, v),
            with_part(ws, j, -2, w),
            with_part(taus, j, -1, tau),
        ]

    empty = zeros((PANEL, size), a.dtype)
    initial = [d, e, empty, empty, zeros((1, PANEL), a.dtype)]
    d, e, vs, ws, taus = scan(PANEL, initial, column, ("d", "e", "vs", "ws", "taus"), index="j")
    a = a - product(turned(concat([vs, ws], 0)), conj(concat([ws, vs], 0)))
    return a, d, e, vs, taus


def tridiagonal(a: Array) -> tuple[Array, Array, tuple[Array, Array]]:
    """The diagonal (n,) and the numbers beside it (n - 1,) of t = q' a q, both real, and the reflections of q.

    `a` (n, n) is Hermitian, n at least 2, and has elements of about 1.
    """
    n = size_of(a)
    panels = -(-n // PANEL)
    whole = panels * PANEL
    left = pad(a, [(0, whole - n)] * 2)
    diagonals, besides, rows, factors = [], [], [], []
    for first, end in parts_of(panels, a.dtype.is_complex):
        count, size = (end - first) * PANEL, whole - first * PANEL

        def step(p: Array, a: Array, d: Array, e: Array, vs: Array, taus: Array) -> list[Array]:
            start = p * PANEL
            a, d, e, some, numbers = _panel(a, start, d, e)
            return [a, d, e, with_window(vs, [start, 0], some), with_window(taus, [0, start], numbers)]

        of_parts, numbers = zeros((1, count), a.dtype.part), zeros((1, count), a.dtype)
        initial = [left, of_parts, of_parts, zeros((count, size), a.dtype), numbers]
        left, d, e, vs, taus = scan(end - first, initial, step, ("left", "d", "e", "vs", "taus"), index="p")
        left = block(left, (count, size), (count, size))
        diagonals.append(d)
        besides.append(e)
        rows.append(pad(vs, [(0, 0), (whole - size, 0)]))
        factors.append(taus)
    d, e = (slice_axis(reshape(concat(x, 1), (whole,)), 0, 0, end) for x, end in ((diagonals, n), (besides, n - 1)))
    return d, e, (slice_axis(concat(rows, 0), 1, 0, n), concat(factors, 1))


def reflected_by(reflections: tuple[Array, Array], x: Array) -> Array:
    """The product of all reflections, times x (n, m)."""
    rows, taus = reflections
    count, n = rows.shape

    def step(p: Array, x: Array) -> list[Array]:
        start = p * PANEL
        vs = conj(window(rows, [start, 0], (PANEL, n)))
        crossed = triu(product(vs, vs, adjoint_b=True), 1)
        unit = eye(PANEL, dtype=bool)
        return [reflected(x, (vs, where(unit, 1.0 / window(taus, [0, start], (1, PANEL)), crossed)), False)]

    return scan(count // PANEL, [x], step, ("x",), backwards=True, index="p")[0]


# ---- eigenvalues of tridiagonal matrices ----------------------------------------------------------------


def rotation(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """The c, s and r with c x + s y = r and c y - s x = 0; for numbers that vanish c is 1."""
    squares, least = square(x) + square(y), tiny(x) ** 2
    is_any = squares > least
    r = sqrt(where(is_any, squares, 1.0))
    c, s, r = named(c=where(is_any, x / r, 1.0), s=where(is_any, y / r, 0.0), r=where(is_any, r, x))
    return c, s, r


def is_open(d: Array, e: Array) -> Array:
    """Return whether each number beside the diagonal matters. NaN does not, so that steps end."""
    size = abs_(d)
    beside = slice_axis(size, 0, 0, size_of(e)) + slice_axis(size, 0, 1, size_of(d))
    return (abs_(e) > float(np.finfo(d.dtype.numpy).eps) * beside) & (abs_(e) > tiny(d))


def last_block(opened: Array) -> tuple[Array, Array]:
    """The first and the last row of the last block whose numbers beside the diagonal all matter."""
    places = iota(opened.shape, 0)
    (last,) = named(last=max_(where(opened, places + 1, 0)))
    (first,) = named(first=max_(where(~opened & (places < last), places + 1, 0)))
    return first, last


def repeat_steps(step: Callable[..., Sequence[Array]], initial: Sequence[Array], hints: Sequence[str]) -> list[Array]:
    """The result of steps `step(first, last, d, e, ...)` on last blocks, until there is no block of two rows left."""

    def body(*carried: Array) -> list[Array]:
        d, e, *rest, count = carried
        opened = is_open(d, e)
        first, last = last_block(opened)
        return [*step(first, last, d, where(opened, e, 0.0), *rest), count + 1]

    def goes_on(*carried: Array) -> Array:
        d, e, count = carried[0], carried[1], carried[-1]
        return any_(is_open(d, e)) & (count < STEPS * size_of(d))

    start = constant(0, TensorType(i64))
    return list(repeat_while(goes_on, [*initial, start], body, [*hints, "qr_steps"])[:-1])


def _wilkinson(d: Array, e: Array, last: Array) -> Array:
    """The eigenvalue of the last two rows that is nearer to the last element."""
    above, below, beside = at(d, last - 1), at(d, last), at(e, last - 1)
    half = (above - below) * 0.5
    size = sqrt(square(half) + square(beside))
    return below - square(beside) / (half + where(half < 0, -size, size))


def tridiagonal_eigh(d: Array, e: Array) -> tuple[Array, Array]:
    """The eigenvalues (n,) of a symmetric tridiagonal matrix in no order, and its eigenvectors as rows (n, n)."""

    def step(first: Array, last: Array, d: Array, e: Array, rows: Array) -> list[Array]:
        beside, above = at(e, first), at(d, first)

        def rotate(
            t: Array, d: Array, e: Array, rows: Array, x: Array, bulge: Array, above: Array, beside: Array, row: Array
        ) -> list[Array]:
            (i,) = named(i=first + t)
            c, s, r = rotation(x, bulge)
            e = with_element(e, where(t == 0, i, i - 1), r)
            below, row_below = at(d, i + 1), part(rows, i + 1, -2)
            (turn,) = named(turn=s * (below - above) + 2.0 * c * beside)
            next_beside = at(e, where(i + 1 < last, i + 1, i))
            return [
                with_element(d, i, above + s * turn),
                e,
                with_part(rows, i, -2, c * row + s * row_below),
                c * turn - beside,
                s * next_beside,
                below - s * turn,
                c * next_beside,
                c * row_below - s * row,
            ]

        (shift,) = named(shift=_wilkinson(d, e, last))
        initial = [d, e, rows, above - shift, beside, above, beside, part(rows, first, -2)]
        hints = ("d", "e", "rows", "x", "bulge", "above", "beside", "row")
        d, e, rows, x, _, above, _, row = scan(last - first, initial, rotate, hints)
        return [with_element(d, last, above), with_element(e, last - 1, x), with_part(rows, last, -2, row)]

    d, _, rows = repeat_steps(step, [d, e, eye(size_of(d), dtype=d.dtype)], ("d", "e", "rows"))
    return d, rows
