"""Byte offsets of the fields of NumPy's arrays and Python's tuples.

A call passes C one tuple of arrays, and C reads the address of each one's elements from the objects: creating a buffer
object for each in Python costs more than everything else in a small call. Nothing is remembered between calls, as the
caller may change anything of an array. The fields are of the objects themselves, which the tuple keeps alive; shapes
are behind a pointer and checked in Python. NumPy's fields are those of `PyArrayObject_fields`, part of its C ABI.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from staged.runtime.guard import ffi

_WORD = ffi.sizeof("void *")


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes from where an object begins, which is its `id`."""

    type: int
    items: int
    """Of a tuple."""
    data: int
    dtype: int
    flags: int


@cache
def layout() -> Layout | None:
    """The offsets in this process; None if objects are not laid out as in CPython and NumPy."""
    if sys.implementation.name != "cpython":
        return None
    head = object.__basicsize__
    # After the head: data, number of dimensions, dimensions, strides, base, dtype, flags.
    found = Layout(head - _WORD, tuple.__basicsize__, head, head + 5 * _WORD, head + 6 * _WORD)
    return found if _is_so(found) else None


def _is_so(at: Layout) -> bool:
    """Return whether the offsets give the right values on arrays of several kinds."""
    read_only = np.arange(6.0).reshape(2, 3)
    read_only.flags.writeable = False
    strided = np.arange(8, dtype=np.int64)[1::3]
    arrays: tuple[Any, ...] = (np.zeros((2, 3), np.float32), strided, np.zeros((3, 2)).T, np.array(1.0), read_only)
    if np.ndarray.__basicsize__ < at.flags + ffi.sizeof("int32_t"):
        return False
    for place, array in enumerate(arrays):
        if (
            _word(arrays, at.items + place * _WORD) != id(array)
            or _word(array, at.type) != id(np.ndarray)
            or _word(array, at.data) != array.__array_interface__["data"][0]
            or _word(array, at.dtype) != id(array.dtype)
            or ffi.cast("int32_t *", id(array) + at.flags)[0] != array.flags.num
        ):
            return False
    return True


def _word(of: Any, offset: int) -> int:
    return int(ffi.cast("uintptr_t *", id(of) + offset)[0])
