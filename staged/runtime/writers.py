"""Calls that write the same variables take turns."""

from __future__ import annotations

import os
import threading
from typing import Any

from staged.errors import ProgramError
from staged.runtime.printing import Printer


class Writers:
    """Which variables running calls may write: calls that share one take turns, others run side by side."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all calls; in the child of a fork, where they do not run."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._running: list[tuple[frozenset[Any], Printer]] = []
        """The variables of each call: addresses on the host, places on a device."""

    def acquire(self, variables: frozenset[Any], printer: Printer, program: str) -> None:
        """Wait until no other call has one of `variables`, then have them all."""
        thread = printer.thread = threading.get_ident()
        with self._changed:
            while owners := [owner for held, owner in self._running if not held.isdisjoint(variables)]:
                if any(owner.thread == thread for owner in owners):
                    raise ProgramError(
                        f"`{program}` was called from inside a call that is writing the same variables",
                        hint="do not call it from what a running program's print reaches",
                    )
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            self._running.append((variables, printer))

    def release(self, printer: Printer) -> None:
        """Give back what the call that prints there has; also after an `acquire` that was interrupted."""
        with self._changed:
            self._running = [(held, owner) for held, owner in self._running if owner is not printer]
            if self._waiting:
                self._changed.notify_all()


writers = Writers()
os.register_at_fork(after_in_child=writers.reset)
