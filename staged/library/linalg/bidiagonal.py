"""Square matrices as q b p' with an upper bidiagonal b, and its singular values and vectors: one matrix at a time.

Panels of columns and rows are reflected one by one, the matrix itself at the end of a panel, as in `tridiagonal.py`.
Singular values come from QR steps on b' b, which change b alone: their rotations turn neighbouring rows of the
transposed vectors of both sides.
Source: Golub and Kahan, 1965; Demmel and Kahan, 1990; Dongarra, Hammarling and Sorensen, 1989.
"""

from __future__ import annotations

import numpy as np

from staged.library.elementwise.complex_numbers import conj
from staged.library.linalg.matrices import block, part, product, size_of, turned, with_part
from staged.library.linalg.qr import reflection
from staged.library.linalg.tridiagonal import PANEL, at, parts_of, repeat_steps, rotation, tiny, with_element
from staged.library.sequences.loop import named, scan, with_window
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.elementwise import abs_, sqrt, square
from staged.ops.joining import concat
from staged.ops.reduction import max_, min_, sum_
from staged.ops.shape import pad, reshape, slice_axis
from staged.ops.source import eye, iota, zeros

Sides = tuple[tuple[Array, Array], tuple[Array, Array]]
"""The reflections of the columns and those of the rows."""


def _panel(a: Array, start: Array, d: Array, e: Array) -> tuple[Array, ...]:
    """The columns and rows from `start` on of a matrix with what is left of it.

    Return that, d, e, and the reflections of both sides.
    """
    size = size_of(a)
    places = iota((1, size), 1)
    least = tiny(d) ** 2

    def column(
        j: Array, d: Array, e: Array, vs: Array, ys: Array, us: Array, xs: Array, v_taus: Array, u_taus: Array
    ) -> list[Array]:
        (k,) = named(k=start + j)
        # What is left is a - v y' - x u', of which this is the turned column k.
        left = turned(part(a, k, -1))
        left = left - product(turned(conj(part(ys, k, -1))), vs) - product(turned(conj(part(us, k, -1))), xs)
        v, v_tau, beta = reflection(left, part(left, k, -1), places, k, least)
        named(left=left, v=v, v_tau=v_tau, beta=beta)
        d = with_part(d, k, -1, beta)
        y = conj(product(conj(v), a))
        y = y - product(product(v, vs, adjoint_b=True), ys) - product(product(v, xs, adjoint_b=True), us)
        vs, ys = with_part(vs, j, -2, v), with_part(ys, j, -2, y * v_tau)
        # And row k, whose adjoint is reflected.
        row = part(a, k, -2)
        row = row - product(turned(part(vs, k, -1)), conj(ys)) - product(turned(part(xs, k, -1)), conj(us))
        right, behind = conj(row), k + 1
        head = sum_(where(places == behind, right, 0.0), -1, keepdims=True)  # 0 behind the last column
        u, u_tau, beta = reflection(right, head, places, behind, least)
        named(row=row, behind=behind, u=u, u_tau=u_tau, beta=beta)
        e = with_part(e, k, -1, beta)
        x = product(u, conj(a), adjoint_b=True)
        x = x - product(product(u, ys, adjoint_b=True), vs) - product(product(u, us, adjoint_b=True), xs)
        us, xs = with_part(us, j, -2, u), with_part(xs, j, -2, x * u_tau)
        return [d, e, vs, ys, us, xs, with_part(v_taus, j, -1, v_tau), with_part(u_taus, j, -1, u_tau)]

    empty, numbers = zeros((PANEL, size), a.dtype), zeros((1, PANEL), a.dtype)
    hints = ("d", "e", "vs", "ys", "us", "xs", "v_taus", "u_taus")
    d, e, vs, ys, us, xs, *taus = scan(PANEL, [d, e, *[empty] * 4, *[numbers] * 2], column, hints, index="j")
    a = a - product(turned(concat([vs, xs], 0)), conj(concat([ys, us], 0)))
    return a, d, e, vs, us, *taus


def bidiagonal(a: Array) -> tuple[Array, Array, Sides]:
    """The diagonal (n,) and the numbers beside it (n - 1,) of b = q' a p, both real, and the reflections of q and p.

    `a` (n, n) has elements of about 1, n is at least 2.
    """
    n = size_of(a)
    panels = -(-n // PANEL)
    whole = panels * PANEL
    rest = pad(a, [(0, whole - n)] * 2)
    parts = []
    for first, end in parts_of(panels, a.dtype.is_complex):
        count, size = (end - first) * PANEL, whole - first * PANEL

        def step(
            p: Array, a: Array, d: Array, e: Array, vs: Array, us: Array, v_taus: Array, u_taus: Array
        ) -> list[Array]:
            start = p * PANEL
            a, d, e, *rows, v_tau, u_tau = _panel(a, start, d, e)
            vs, us = (with_window(x, [start, 0], some) for x, some in zip((vs, us), rows, strict=True))
            return [a, d, e, vs, us, with_window(v_taus, [0, start], v_tau), with_window(u_taus, [0, start], u_tau)]

        of_parts, rows, taus = (
            zeros(*given) for given in (((1, count), a.dtype.part), ((count, size), a.dtype), ((1, count), a.dtype))
        )
        hints = ("rest", "d", "e", "vs", "us", "v_taus", "u_taus")
        rest, d, e, vs, us, *both = scan(
            end - first, [rest, *[of_parts] * 2, *[rows] * 2, *[taus] * 2], step, hints, index="p"
        )
        rest = block(rest, (count, size), (count, size))
        parts.append([d, e, *(pad(x, [(0, 0), (whole - size, 0)]) for x in (vs, us)), *both])
    d, e, vs, us, v_taus, u_taus = (
        concat(found, axis) for found, axis in zip(zip(*parts, strict=True), (1, 1, 0, 0, 1, 1), strict=True)
    )
    d, e = (slice_axis(reshape(x, (whole,)), 0, 0, end) for x, end in ((d, n), (e, n - 1)))
    return d, e, ((slice_axis(vs, 1, 0, n), v_taus), (slice_axis(us, 1, 0, n), u_taus))


def _first_numbers(d: Array, e: Array, first: Array, last: Array) -> tuple[Array, Array]:
    """The numbers that the first rotation of a step makes one of: b' b less its shift, over the first of d.

    The shift is the eigenvalue of the last two rows of b b' that is nearer to the last element, or 0 where the block is
    singular: with a 0 on the diagonal a step ends there, and without a shift it makes the number before it 0.
    """
    places = iota(d.shape, 0)
    inside = (places >= first) & (places <= last)
    size = abs_(d)
    largest = max_(where(inside, size, 0.0))
    largest = where(largest > 0, largest, 1.0)
    is_singular = min_(where(inside, size, largest)) <= float(np.finfo(d.dtype.numpy).eps) * largest
    above, below, beside = (x / largest for x in (at(d, last - 1), at(d, last), at(e, last - 1)))
    half = ((above + below) * (above - below) + square(beside)) * 0.5
    size = sqrt(square(half) + square(below * beside))
    total = half + where(half < 0, -size, size)
    shift = square(below * beside) / where(total == 0, 1.0, total)
    f, g = at(d, first) / largest, at(e, first) / largest
    shifted = ((f + below) * (f - below) + shift) / where(is_singular, 1.0, f)
    return where(is_singular, f, shifted), g


def bidiagonal_svd(d: Array, e: Array) -> tuple[Array, Array, Array]:
    """The singular values (n,) of an upper bidiagonal matrix in no order, and the vectors of both sides as rows."""

    def step(first: Array, last: Array, d: Array, e: Array, us: Array, vs: Array) -> list[Array]:
        f, g = _first_numbers(d, e, first, last)

        def rotate(
            t: Array, d: Array, e: Array, us: Array, vs: Array, f: Array, g: Array, above: Array, beside: Array,
            u: Array, v: Array,
        ) -> list[Array]:  # fmt: skip
            (i,) = named(i=first + t)
            # Columns i and i + 1: what is left of them is (above beside; 0 below), with f and g for the rotation.
            c, s, r = rotation(f, g)
            e = with_element(e, where(t == 0, i, i - 1), r)
            below, v_below = at(d, i + 1), part(vs, i + 1, -2)
            f, beside, g, below = c * above + s * beside, c * beside - s * above, s * below, c * below
            vs, v = with_part(vs, i, -2, c * v + s * v_below), c * v_below - s * v
            # Rows i and i + 1.
            c, s, r = rotation(f, g)
            u_below, next_beside = part(us, i + 1, -2), at(e, where(i + 1 < last, i + 1, i))
            us, u = with_part(us, i, -2, c * u + s * u_below), c * u_below - s * u
            f, below = c * beside + s * below, c * below - s * beside
            return [with_element(d, i, r), e, us, vs, f, s * next_beside, below, c * next_beside, u, v]

        initial = [d, e, us, vs, f, g, at(d, first), at(e, first), part(us, first, -2), part(vs, first, -2)]
        hints = ("d", "e", "us", "vs", "f", "g", "above", "beside", "u", "v")
        d, e, us, vs, f, _, above, _, u, v = scan(last - first, initial, rotate, hints)
        us, vs = with_part(us, last, -2, u), with_part(vs, last, -2, v)
        return [with_element(d, last, above), with_element(e, last - 1, f), us, vs]

    unit = eye(size_of(d), dtype=d.dtype)
    d, _, us, vs = repeat_steps(step, [d, e, unit, unit], ("d", "e", "us", "vs"))
    return abs_(d), us * where(d < 0, -1.0, 1.0)[:, None], vs
