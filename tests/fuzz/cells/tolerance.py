"""Tolerances of results by their dtype: a few units of the last place, more where roundings add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Tolerance:
    """The bounds of a float dtype, relative but for `smallest`."""

    epsilon: float
    each: float
    """Of an element by itself: a few roundings."""
    loose: float
    """Of an element by the size of the largest: sums and products."""
    derivative: float
    """Of a derivative in another mode, which rounds elsewhere."""
    torch: float
    """Of a gradient by PyTorch's in f64."""
    differences: float
    """Of a derivative by differences in f64, beyond what differences themselves round."""
    smallest: float
    """Absolute: what may be lost below the smallest normal number."""

    @classmethod
    def of_half(cls, dtype: Any) -> Tolerance:
        """The bounds of f16 or bf16, each of whose results is rounded once: in units of the last place, as few as there can be."""
        kind = ml_dtypes.finfo(dtype)
        unit = float(kind.eps)
        return cls(unit, 2 * unit, 8 * unit, 8 * unit, 8 * unit, 8 * unit, 2 * float(kind.smallest_subnormal))


OF = {
    "float64": Tolerance(float(np.finfo(np.float64).eps), 1e-12, 1e-9, 1e-8, 1e-7, 0.0, 1e-300),
    "float32": Tolerance(float(np.finfo(np.float32).eps), 3e-6, 2e-5, 2e-4, 1e-3, 5e-4, 1e-36),
    "float16": Tolerance.of_half(np.float16),
    "bfloat16": Tolerance.of_half(ml_dtypes.bfloat16),
}
OF |= {"complex64": OF["float32"], "complex128": OF["float64"]}


def tolerance_of(arrays: Iterable[Any]) -> Tolerance:
    """The bounds of the coarsest dtype among these arrays, f64's if none has floats."""
    found = [OF[array.dtype.name] for array in arrays if array.dtype.name in OF]
    return max(found, key=lambda tolerance: tolerance.epsilon, default=OF["float64"])
