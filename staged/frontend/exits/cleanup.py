"""Refuse a staged exit out of a `finally`, or out of a `with` that records something as it ends.

A `break`, `continue` or `return` under a staged condition is recorded where it stands; a `finally` around it would be
recorded after it, for the path that stays. So it is refused, and so is one out of a `with` that records something as it
ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from staged.errors import StagingError
from staged.frontend.syntax.converter import operator
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.lifetimes import OfBody
from staged.frontend.trace.signals import Signal, Target
from staged.source import Position, here


class cleanup:
    """A `try` with `finally`, or a `with`: whether a staged exit left it, and what it did at its end."""

    def __init__(self, kind: Literal["with", "finally"]) -> None:
        self.kind = kind
        self.trace = current_trace()
        self.depth = 0
        """The number of targets that were open when it began: an exit to one of these leaves it."""
        self.left: tuple[str, Position | None] | None = None
        self.recorded_before = (0, 0)

    def __enter__(self) -> cleanup:
        if self.trace is not None:
            self.depth = len(self.trace.targets)
            self.trace.put(Cleanups((*self.trace.of(Cleanups).open, self)))
        return self

    @property
    @contextmanager
    def inside(self) -> Iterator[None]:
        """The body of a `with`: what is recorded between its end and the end of the whole is the exit's doing."""
        yield
        if self.trace is not None:
            self.recorded_before = self.recorded(self.trace)

    def expect(self, ops: int) -> None:
        """Count `ops` recorded at the end as done by every exit,
        too (`files` closes where an exit leaves its `with`)."""
        before, log = self.recorded_before
        self.recorded_before = before + ops, log

    def recorded(self, trace: TraceContext) -> tuple[int, int]:
        """The number of ops in the block, and of changes of objects that the program carries."""
        return len(trace.block.ops), sum(id(mutation.owner) in trace.made for mutation in trace.log)

    def __exit__(self, kind: Any, *_: object) -> None:
        trace = self.trace
        if trace is None:
            return
        trace.put(Cleanups(tuple(guard for guard in trace.of(Cleanups).open if guard is not self)))
        if kind is not None or self.left is None:
            return
        if self.kind == "with" and self.recorded(trace) == self.recorded_before:
            return
        word, where = self.left
        name = "a `try` with `finally`" if self.kind == "finally" else "a `with` that does something as it ends"
        raise StagingError(
            f"`{word}` under a staged condition cannot leave {name}",
            where=where,
            hint="do what has to be done before the exit, and again after the block",
        )


operator(cleanup)


@dataclass(frozen=True)
class Cleanups(OfBody):
    """The `finally`s and `with`s around what is being traced, innermost last."""

    open: tuple[cleanup, ...] = ()


def note_exit(trace: TraceContext, signal: Signal, target: Target) -> None:
    """A staged exit to `target` is being recorded, with code after it that other paths go on with."""
    position = next(index for index, other in enumerate(trace.targets) if other is target)
    for guard in trace.of(Cleanups).open:
        if guard.depth > position:
            guard.left = guard.left or (signal.kind, here())
