"""Polynomials in f64 for special functions: the fits of these are of f64, and f32 is rounded once, at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.ir.types import f64
from staged.ops.array import Array
from staged.ops.promote import cast


def horner(x: Array, coefficients: Sequence[float]) -> Array:
    """c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule."""
    total = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * x + coefficient
    return total


def in_f64(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` of arrays of one dtype, computed in f64; its result has their dtype."""

    def wide(*arrays: Array, **attrs: int) -> Array:
        first = arrays[0]
        if first.dtype is f64:
            return function(*arrays, **attrs)
        return cast(function(*(cast(x, f64) for x in arrays), **attrs), first.dtype, first.type.weak)

    return wide
