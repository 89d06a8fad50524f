"""Parts of readings: NumPy's functions in the operands' dtype, or in f64 with one rounding at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.plain.core import Plain, common, plain, together, wide, widest_of


def exact(function: Callable[..., Any], floats: bool = False) -> Callable[..., Plain]:
    """The reading of a function that NumPy computes in the operands' dtype."""

    def reading(*operands: Any) -> Plain:
        arrays, weak = together(*operands, floats=floats)
        with np.errstate(all="ignore"):
            return Plain(function(*arrays), weak)

    return reading


def smooth(function: Callable[..., Any]) -> Callable[..., Plain]:
    """The reading of a function of floats: computed in f64 and rounded once."""

    def reading(*operands: Any) -> Plain:
        arrays, weak = together(*operands, floats=True)
        with np.errstate(all="ignore"):
            return Plain(np.asarray(function(*map(widest_of, arrays))).astype(arrays[0].dtype), weak)

    return reading


def each(function: Callable[..., float]) -> Callable[..., Any]:
    """A function of Python's floats, applied to each element."""
    return lambda *x: np.vectorize(function, otypes=[float])(*x) if x[0].size else x[0]


def floats(function: Callable[..., Any]) -> Callable[..., Plain]:
    """The reading of a function of one array and numbers, computed in f64."""

    def reading(x: Any, *rest: Any, **options: Any) -> Plain:
        array, dtype = wide(x)
        with np.errstate(all="ignore"):
            return Plain(np.asarray(function(array, *rest, **options)).astype(dtype))

    return reading


def product(function: Any, a: Any, b: Any) -> Plain:
    """A product of two arrays: of floats in f64, of others in their dtype."""
    (x, y), _ = together(a, b)
    if x.dtype.kind in "fc":
        return Plain(np.asarray(function(widest_of(x), widest_of(y))).astype(x.dtype))
    return Plain(np.asarray(function(x, y)).astype(x.dtype))


def f64(x: Any) -> Any:
    return widest_of(plain(x).a)


def reduced(losses: Any, reduction: str, dtype: Any) -> Plain:
    with np.errstate(all="ignore"):
        if reduction == "mean":
            losses = np.sum(losses) / np.float64(losses.size)
        elif reduction == "sum":
            losses = np.sum(losses)
        return Plain(np.asarray(losses).astype(dtype))


def pair(a: Any, b: Any) -> tuple[Any, Any, Any]:
    dtype, weak = common(a, b)
    return f64(a), f64(b), wide(Plain(np.zeros((), dtype), weak))[1]
