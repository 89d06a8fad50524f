"""Numbers as dtypes represent them: the range of integers, wrap-around, and equality by bits."""

from __future__ import annotations

import numpy as np

from staged.ir.types import DType

Number = bool | int | float


def limits(dtype: DType) -> tuple[int, int]:
    """The lowest and the highest integer of a dtype that is no float."""
    if dtype.is_bool:
        return 0, 1
    bits = 8 * dtype.size
    return (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def fits(span: tuple[int, int] | None, dtype: DType) -> bool:
    """Return whether a dtype has all integers of a range."""
    low, high = limits(dtype)
    return span is not None and low <= span[0] and span[1] <= high


def wrapped(number: int, dtype: DType) -> int:
    """The integer of a dtype with the same lowest bits as `number`."""
    low, high = limits(dtype)
    return (number - low) % (high - low + 1) + low


def as_held(number: Number, dtype: DType) -> Number:
    """`number` as a dtype represents it: integers wrap around, floats are rounded once, a bool is `number != 0`."""
    if dtype.is_bool:
        return bool(number)
    if dtype.is_integer:
        return wrapped(int(number), dtype)
    with np.errstate(over="ignore"):
        return float(np.asarray(number).astype(dtype.numpy))


def same_number(a: Number, b: Number) -> bool:
    """Return whether two numbers of one dtype are the same, which 0.0 and -0.0 are not, and NaN and NaN are."""
    return repr(a) == repr(b)
