"""Sequences of different lengths, padded to one number of steps: arrays (T, N, ...) with `lengths` (N,) from 1 to T.

Tested by `tests/nn/test_recurrent.py` and `tests/dynamic_sizes/test_cases.py`.
"""

from __future__ import annotations

from typing import Any

from staged.ir.types import i64
from staged.ops.array import Array
from staged.ops.checks import stop_unless
from staged.ops.choice import where
from staged.ops.comparisons import logical_and
from staged.ops.index import take
from staged.ops.promote import as_array, cast, dtype_error, shape_error
from staged.ops.reduction import sum_
from staged.ops.shape import flatten, reshape
from staged.ops.source import arange


def checked_lengths(name: str, lengths: Any, x: Array) -> Array:
    """The lengths of the sequences of x as i64. The program stops if one is outside of 1 to T."""
    found = as_array(lengths)
    if not found.dtype.is_integer:
        raise dtype_error(
            f"{name}: `lengths` must be integers, got {found.type}",
            found,
            hint="cast them: `st.astype(lengths, st.i64)`",
        )
    steps, batch = x.shape[:2]
    if found.shape != (batch,):
        raise shape_error(
            f"{name}: `lengths` must be ({batch},), the number of steps of each sequence, got {found.type}",
            x,
            found,
            hint="write `lengths=[len(one) for one in sequences]`",
        )
    numbers = cast(found, i64)
    fits = logical_and(numbers >= 1, numbers <= as_array(steps))
    stop_unless(fits, f"{name}: `lengths` are from 1 to {steps}, the number of steps")
    return numbers


def without_padding(x: Array, lengths: Array, value: Any = 0) -> Array:
    """x with `value` beyond the length of each sequence."""
    return _chosen(_steps(x) < lengths, x, value)


def last(x: Array, lengths: Array) -> Array:
    """(N, ...): the last element of each sequence."""
    return sum_(_chosen(_steps(x) == lengths - 1, x, 0), 0)


def turned(x: Array, lengths: Array) -> Array:
    """x with the elements of each sequence in reverse order. The padding stays."""
    batch, steps = x.shape[1], _steps(x)
    places = where(steps < lengths, lengths - 1 - steps, steps)
    return take(flatten(x, 0, 1), places * as_array(batch) + arange(batch), 0)


def _steps(x: Array) -> Array:
    """(T, 1): the numbers of the steps."""
    return reshape(arange(x.shape[0]), (-1, 1))


def _chosen(condition: Array, x: Array, otherwise: Any) -> Array:
    """x if the condition (T, N) holds."""
    return where(reshape(condition, (*x.shape[:2], *(1,) * (x.ndim - 2))), x, as_array(otherwise, x.dtype))
