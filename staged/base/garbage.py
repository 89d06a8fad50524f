"""Python's garbage collector while staging. It traverses the whole IR of a program, and finds almost nothing.

Tested by `tests/test_garbage.py`.
"""

from __future__ import annotations

import gc
import threading
from contextlib import ContextDecorator

_OBJECTS = 500_000
"""The number of new objects before a collection. They occupy about 100 MB."""

_lock = threading.Lock()
_open = 0
_before = (0, 0, 0)
_kept = 0
"""The number of new objects that have become old ones since a collection."""
_limit = _OBJECTS
"""More of them are a reason for a collection."""


class RareCollections(ContextDecorator):
    """Let Python collect garbage rarely. The threshold belongs to the process, and the last thread resets it."""

    def __enter__(self) -> None:
        global _open, _before
        with _lock:
            if _open == 0:
                _before = gc.get_threshold()
                if 0 < _before[0] < _OBJECTS:  # 0 switches the collector off
                    gc.set_threshold(_OBJECTS, *_before[1:])
            _open += 1

    def __exit__(self, *error: object) -> None:
        global _open, _kept
        with _lock:
            _open -= 1
            if _open:
                return
            new = gc.get_count()[0]
            # With the threshold of before, Python would traverse all new objects now: they become old ones instead.
            # Not if the caller has frozen objects: these would become ordinary ones.
            if new > _before[0] > 0 and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
                _kept += new
            gc.set_threshold(*_before)
        if _kept > _limit and gc.isenabled():
            _collect()


def _collect() -> None:
    """Collect garbage among all objects: as rarely as Python does, once a quarter of them is new."""
    global _kept, _limit
    _kept = 0
    gc.collect()
    _limit = max(_OBJECTS, len(gc.get_objects()) // 4)
