"""Divisors and multiples of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.ir.types import i32, i64
from staged.library.sequences.loop import repeat_while
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import not_equal
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, remainder
from staged.ops.primitive import Sample
from staged.ops.promote import dtype_error, together
from staged.ops.public import public
from staged.ops.reduction import any_

_SAMPLES = [
    Sample((np.array([[12, -18, 0], [7, 0, 2]], dtype), np.array([[8, 24, 0], [-7, 5, np.iinfo(dtype).min]], dtype)))
    for dtype in (i32.numpy, i64.numpy)
]


@composite("gcd", samples=_SAMPLES)
def _gcd(a: Array, b: Array) -> Array:
    def step(a: Array, b: Array) -> list[Array]:
        is_done = b == 0
        return [where(is_done, a, b), where(is_done, 0, remainder(a, where(is_done, 1, b)))]

    # By Euclid: at most 92 steps for 64 bits.
    found, _ = repeat_while(lambda a, b: any_(not_equal(b, 0)), [abs_(a), abs_(b)], step, ("divisor", "rest"))
    return abs_(found)  # the remainder by the lowest number may be negative


def _integers(a: Any, b: Any, name: str) -> list[Array]:
    left, right = together(a, b, name=name)
    if not left.dtype.is_integer:
        raise dtype_error(f"{name} needs integers, got {left.type}", left, hint="cast them: `st.astype(x, st.i64)`")
    return [left, right]


@public("gcd", method=True)
def gcd(a: Any, b: Any) -> Array:
    """The greatest common divisor of integers, element by element; that of 0 and 0 is 0. NumPy and torch `gcd`."""
    return _gcd(*_integers(a, b, "gcd"))[0]


@public("lcm", method=True)
def lcm(a: Any, b: Any) -> Array:
    """The least common multiple of integers, element by element, 0 where one is 0. NumPy and torch `lcm`."""
    left, right = _integers(a, b, "lcm")
    divisor = gcd(left, right)
    return abs_(left) // where(divisor == 0, 1, divisor) * abs_(right)  # which may wrap around, as NumPy's does
