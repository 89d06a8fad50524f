"""Calls that write the same variables take turns."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from staged.errors import ProgramError
from staged.runtime.printing import Printer


class Writers:
    """Which variable buffers running calls may write: calls that share one take turns, others run side by side."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all calls; in the child of a fork, where they do not run."""
        self._changed = threading.Condition(threading.Lock())
        self._owners: dict[Any, Printer] = {}  # by buffer, which compares by address

    def acquire(self, buffers: Sequence[Any], printer: Printer, program: str) -> None:
        """Wait until no other call has one of `buffers`, then have them all."""
        thread = printer.thread = threading.get_ident()
        with self._changed:
            while not self._owners.keys().isdisjoint(buffers):
                owners = [self._owners[buffer] for buffer in buffers if buffer in self._owners]
                if any(owner.thread == thread for owner in owners):
                    raise ProgramError(
                        f"`{program}` was called from inside a call that is writing the same variables",
                        hint="do not call it from what a running program's print reaches",
                    )
                self._changed.wait()
            self._owners.update(dict.fromkeys(buffers, printer))

    def release(self, buffers: Sequence[Any], printer: Printer) -> None:
        """Give back what the call that prints there has; also after an `acquire` that was interrupted."""
        with self._changed:
            for buffer in buffers:
                if self._owners.get(buffer) is printer:
                    del self._owners[buffer]
            self._changed.notify_all()


writers = Writers()
os.register_at_fork(after_in_child=writers.reset)
