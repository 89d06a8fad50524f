"""Make arrays of the host read-only while a region keeps copies of them on a device."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_lock = threading.Lock()
_held: dict[int, list[Array]] = {}
"""By id, the array once for each region that names it, whichever thread that is in; those alone that were writable
before.
"""
_waiting: list[Array] = []
"""Views that no region names any more, of arrays that one does: NumPy lets them be written after these alone."""


def freeze(array: Array) -> bool:
    """Make `array` read-only until `thaw` has been called as often as this gave True.

    False for one that is read-only anyway, and for one of memory of which NumPy does not know that it may be written:
    it would stay read-only for ever.
    """
    with _lock:
        if id(array) in _held:
            _held[id(array)].append(array)
        elif any(array is view for view in _waiting):
            _waiting[:] = [view for view in _waiting if view is not array]
            _held[id(array)] = [array]
        elif array.flags.writeable and _may_be_written_again(array):
            _held[id(array)] = [array]
            array.flags.writeable = False
        else:
            return False
        return True


def thaw(array: Array) -> None:
    """Take back one `freeze`."""
    with _lock:
        holders = _held[id(array)]
        holders.pop()
        if holders:
            return
        del _held[id(array)]
        _waiting.append(array)
        for each in sorted(_waiting, key=lambda each: each.base is not None):  # what owns its elements first
            if not _is_of_one_held(each):
                each.flags.writeable = True
                _waiting[:] = [other for other in _waiting if other is not each]


def _may_be_written_again(array: Array) -> bool:
    """Return whether NumPy would let a read-only `array` be written,
    as soon as no region holds what it is a view of."""
    base: Any = array.base
    if base is None:
        return True
    if isinstance(base, np.ndarray):
        return base.flags.writeable or _is_of_one_held(array)
    try:
        with memoryview(base) as memory:
            return not memory.readonly
    except TypeError:
        return False


def _is_of_one_held(array: Array) -> bool:
    """Return whether an array that it is a view of is read-only because of a region."""
    base = array.base
    while isinstance(base, np.ndarray):
        if id(base) in _held or any(base is view for view in _waiting):
            return True
        base = base.base
    return False
