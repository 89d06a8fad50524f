"""The refusal of a dtype of NumPy that no staged array has."""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.errors import DTypeError
from staged.ir.types import shape_text
from staged.source import Position

_CASTS = {"e": "np.float32", "f": "np.float64", "i": "np.int64", "u": "np.int64"}


def unsupported_dtype(what: str, array: Any, where: Position | None) -> DTypeError:
    """The refusal of a NumPy dtype, with the cast to write."""
    cast = _CASTS.get("e" if array.dtype == np.float16 else array.dtype.kind, "np.float32")
    return DTypeError(
        f"{what} has dtype {array.dtype}, shape {shape_text(tuple(array.shape))}, which has no staged type",
        where=where,
        hint=f"pass `.astype({cast})` of it"
        if array.dtype.kind not in "USOMm"
        else "pass numbers, such as codes or indices; a single string is static",
    )
