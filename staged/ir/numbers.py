"""Numbers as dtypes represent them: the range of integers, wrap-around, and equality by bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staged.ir.declaration import Declaration
from staged.ir.types import DType, bf16

Number = bool | int | float


def limits(dtype: DType) -> tuple[int, int]:
    """The lowest and the highest integer of a dtype that is no float."""
    if dtype.is_bool:
        return 0, 1
    bits = 8 * dtype.size
    return (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def initial_value(reduction: Declaration, dtype: DType) -> Number:
    """Return the value that a reduction starts with: 0 for a sum, the lowest value for a maximum."""
    value = reduction.identity
    assert value is not None, f"{reduction.name} declares its identity"
    if isinstance(value, str):
        lowest, highest = (-math.inf, math.inf) if dtype.is_float else limits(dtype)
        return as_held({"lowest": lowest, "highest": highest}[value], dtype)
    return as_held(value, dtype)


def fits(span: tuple[float, float] | None, dtype: DType) -> bool:
    """Return whether a dtype has all integers of a range."""
    low, high = limits(dtype)
    return span is not None and low <= span[0] and span[1] <= high


def with_limits(dtype: DType) -> str:
    """An integer dtype and its range, for messages: `u8 (0 to 255)`."""
    low, high = limits(dtype)
    return f"{dtype} ({low} to {high})"


def does_not_fit(number: Any, dtype: DType) -> str:
    """The message for a number that an integer dtype cannot hold; `number` may be its place in a format of C."""
    return f"{number} does not fit {with_limits(dtype)}"


def wrapped(number: int, dtype: DType) -> int:
    """The integer of a dtype with the same lowest bits as `number`."""
    low, high = limits(dtype)
    return (number - low) % (high - low + 1) + low


def converted(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Numbers in a float dtype, each rounded once to the nearest, to the even one of two that are equally near.

    i64 and u64 go into f16 and bf16 by way of f64. `ml_dtypes` rounds an f64 to f32 first, and then once more.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.is_half and x.dtype.kind in "iu":
            x = x.astype(np.float64)
        if dtype is bf16 and x.dtype == np.float64:
            x = _rounded_to_odd(x)
        return x.astype(dtype.numpy)


def _rounded_to_odd(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """f64 as f32: of the two neighbours of a number between, the one whose last bit is 1.

    Rounding that once more gives what rounding x at once gives. Source: Boldo and Melquiond, "When double rounding is
    odd", 2005.
    """
    near = np.asarray(x.astype(np.float32))
    bits = np.array(near.view(np.uint32))
    bits -= np.abs(near.astype(np.float64)) > np.abs(x)
    bits |= near.astype(np.float64) != x
    return np.where(np.isnan(x), near, bits.view(np.float32)).astype(np.float32)


def as_held(number: Number, dtype: DType) -> Number:
    """`number` as a dtype represents it: integers wrap around, floats are rounded once, a bool is `number != 0`."""
    if dtype.is_bool:
        return bool(number)
    if dtype.is_integer:
        return wrapped(int(number), dtype)
    held: Number = converted(np.asarray(number), dtype).item()
    return held


def same_number(a: Number, b: Number) -> bool:
    """Return whether two numbers of one dtype are the same, which 0.0 and -0.0 are not, and NaN and NaN are."""
    return repr(a) == repr(b)
