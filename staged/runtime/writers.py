"""Serialise calls that write the same variables."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

from staged.errors import ProgramError


class Owner(Protocol):
    """A call, with the thread that it runs on."""

    thread: int


class Writers:
    """The variables that running calls may write: calls that share one wait for each other, others run concurrently."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all calls; in the child of a fork, where they do not run."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._running: list[tuple[frozenset[Any], Owner]] = []
        """The variables of each call: addresses on the host, places on a device."""

    def acquire(self, variables: frozenset[Any], owner: Owner, program: str) -> None:
        """Wait until no other call has one of `variables`, then have them all."""
        thread = owner.thread = threading.get_ident()
        with self._lock:
            while others := self._others(variables):
                if any(other.thread == thread for other in others):
                    raise ProgramError(
                        f"`{program}` was called from inside a call that is writing the same variables",
                        hint="do not call it from what a running program's print reaches",
                    )
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            self._running.append((variables, owner))

    def _others(self, variables: frozenset[Any]) -> list[Owner]:
        return [other for held, other in self._running if not held.isdisjoint(variables)] if self._running else []

    def release(self, owner: Owner) -> None:
        """Release the variables of a call; also after an `acquire` that was interrupted."""
        with self._lock:
            self._running = [(held, other) for held, other in self._running if other is not owner]
            if self._waiting:
                self._changed.notify_all()


writers = Writers()
os.register_at_fork(after_in_child=writers.reset)
