"""Lists of numbers at an index that only the program knows: `weights[k]` reads a table of constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.ops.array import Array, StagedArray
from staged.ops.dtypes import result_dtype
from staged.ops.promote import as_array, cast, is_number, read, type_of
from staged.ops.subscript import get_item

_MAX_ROW = 64
"""Rows of more numbers than this are refused: a row is read number by number."""


def element_of(items: Sequence[Any], key: StagedArray) -> Any:
    """`items[key]` for a list of numbers or of rows of numbers; None for any other list, or a key that is no integer.

    A number is as weak as it was: the table has the kind of the numbers among themselves (f64 for floats), and what is
    read adopts the dtype of what it meets. Of a list of rows it is a list.
    """
    if key.shape or not key.dtype.is_integer or not items:
        return None
    elements = [read(item) for item in items]
    if all(isinstance(element, list | tuple) for element in elements):
        width = len(elements[0])
        if not 0 < width <= _MAX_ROW or any(len(row) != width for row in elements):
            return None
        columns = [element_of(column, key) for column in zip(*elements, strict=True)]
        return None if any(column is None for column in columns) else columns
    if not all(map(_is_scalar, elements)):
        return None
    if all(is_number(element) or (isinstance(element, Array) and element.type.weak) for element in elements):
        dtype, _ = result_dtype([type_of(element) for element in elements])
        return cast(get_item(as_array(elements, dtype), key), dtype, weak=True)
    return get_item(as_array(elements), key)


def _is_scalar(value: Any) -> bool:
    return is_number(value) or (isinstance(value, Array | np.generic) and value.ndim == 0)
