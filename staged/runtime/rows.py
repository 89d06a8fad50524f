"""Arrays whose elements do not follow one another. Dispatch needs these functions before a program is loaded.

Tested by `tests/runtime/test_native.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def is_spread(array: Any) -> bool:
    """Return whether a NumPy array's elements are not in C order without gaps, as programs need them."""
    return type(array) is np.ndarray and not array.flags.c_contiguous


def in_rows(array: Any) -> Any:
    """Return a C-ordered copy of a spread array, and every other value unchanged."""
    return np.ascontiguousarray(array) if is_spread(array) else array
