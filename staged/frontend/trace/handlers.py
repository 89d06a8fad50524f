"""The `try`s with handlers around what is being traced, and the calls in them that Python may leave by an exception."""

from __future__ import annotations

from dataclasses import dataclass

from staged.frontend.trace.lifetimes import OfAttempt, OfBody
from staged.source import Position

Raiser = tuple[tuple[type[BaseException], ...], str, Position | None]
"""A call that Python may leave by one of these exceptions, and the program does not: which, by what, where."""


@dataclass(frozen=True)
class Handlers(OfBody):
    """The number of `try`s with handlers around."""

    depth: int = 0


@dataclass(frozen=True)
class Raisers(OfAttempt):
    """The calls in `try`s with handlers that Python may leave by an exception."""

    calls: tuple[Raiser, ...] = ()
