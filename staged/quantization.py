"""Numbers in eight bits: symmetric, with zero as zero, and one scale for an array or for each of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.ir.types import DType, i8, i32, i64
from staged.ops.choice import inference_only, where
from staged.ops.comparisons import clip
from staged.ops.elementwise import abs_, round_
from staged.ops.promote import cast
from staged.ops.reduction import max_

MOST = 127
"""The largest of the integers: there are as many negative ones, so that -x is -q."""
LONGEST_SUM = (2**31 - 1) // MOST**2
"""Terms of products that a sum in i32 holds."""


def sums_in(terms: int) -> DType:
    """The dtype that holds sums of so many products."""
    return i32 if terms <= LONGEST_SUM else i64


def rows_in_i8(weight: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(the integers, a scale for each row) of a weight, whose first axis counts its output channels."""
    largest = np.abs(weight).max(axis=tuple(range(1, weight.ndim)), initial=0.0)
    scales = (largest / MOST).astype(weight.dtype)
    scales[scales == 0] = 1
    steps = np.rint(weight / scales.reshape(-1, *(1,) * (weight.ndim - 1)))
    return np.clip(steps, -MOST, MOST).astype(np.int8), scales


def in_i8(x: Any, scale: Any = None) -> tuple[Any, Any]:
    """(the integers, the scale) of an input: that of its largest element, where none is given.

    NaN and infinities make the scale of their own array NaN or infinite, and so are in every result. Elements beyond a
    given scale's reach become its largest. No derivative goes through: its rounding has none.
    """
    x = inference_only(x)
    if scale is None:
        scale = max_(abs_(x)) / MOST if 0 not in x.shape else 1.0
        scale = where(scale == 0, 1.0, scale)
    steps = clip(round_(x / scale), -MOST, MOST)
    return cast(cast(steps, i32), i8), scale  # by way of i32: processors convert vectors to that
