"""Python's garbage collector while staging. It traverses the whole IR of a program, and finds almost nothing.

Tested by `tests/test_garbage.py`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 500_000
"""The number of new objects before a collection. They occupy about 100 MB."""

_lock = threading.Lock()
_open = 0
_before = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python collect garbage rarely. The threshold belongs to the process, and the last thread resets it."""
    global _open, _before
    with _lock:
        if _open == 0:
            _before = gc.get_threshold()
            if _before[0]:  # 0 switches the collector off
                gc.set_threshold(max(_before[0], _OBJECTS), *_before[1:])
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                gc.set_threshold(*_before)
