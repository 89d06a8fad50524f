"""Numbers at which rewrites go wrong, for each dtype: the ends of its range, zeros of both signs, infinities, NaN."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from staged.ir.types import DType, bool_, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

INTEGERS = (u8, i8, u16, i16, i32, u32, i64, u64)
FLOATS = (f32, f64)


def borders(dtype: DType) -> list[Any]:
    """The numbers of a dtype to try."""
    if dtype is bool_:
        return [False, True]
    if dtype.is_float:
        least, largest = (
            (2.0**-149, float(np.finfo(np.float32).max)) if dtype is f32 else (2.0**-1074, 1.7976931348623157e308)
        )
        return [0.0, -0.0, 1.0, -1.0, 0.1, -3.7, 49.0, least, -largest, largest, np.inf, -np.inf, np.nan]
    bits = 8 * dtype.size
    low, high = (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    inside = (-2, -1) if dtype.kind == "i" else (2 ** (bits - 1),)
    return [low, low + 1, *inside, 0, 1, 2, 3, 7, high - 1, high]


def combinations(*dtypes: DType) -> list[tuple[Any, ...]]:
    """Every combination of border numbers."""
    return list(itertools.product(*map(borders, dtypes)))


def spread(*dtypes: DType) -> list[np.ndarray[Any, Any]]:
    """The same as one array for each operand."""
    columns = zip(*combinations(*dtypes), strict=True)
    return [np.array(column, dtype.numpy) for column, dtype in zip(columns, dtypes, strict=True)]


def in_dtype(number: int, dtype: DType) -> int:
    """A Python integer as two's complement keeps it, by its bytes."""
    whole = number & (1 << 8 * dtype.size) - 1
    return int.from_bytes(whole.to_bytes(dtype.size, "little"), "little", signed=dtype.kind == "i")


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays are equal to the sign of zero; NaN is NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    return bool(
        np.array_equal(a, b, equal_nan=True)
        and np.array_equal(np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b))
    )
