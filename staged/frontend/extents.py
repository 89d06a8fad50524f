"""What a staged branch or loop body changes in Python, and where its extent begins in the trace's log of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from staged.source import Position


@dataclass
class Mutation:
    """A Python object changed by converted code: what it held before, and how to compare and restore it."""

    owner: object
    text: str
    before: Any
    current: Callable[[], Any]
    undo: Callable[[], None]
    where: Position | None = None
    name: str | None = None
    """Of an attribute."""


@dataclass
class Region:
    """The extent of a staged branch or loop body: Python state that it changes must be its own, or tracked."""

    what: str
    log_start: int
    is_loop: bool
    function: str | None = None
    """The name of a function of the program, which cannot change what is outside of it."""
    made: dict[int, object] = field(default_factory=dict)
