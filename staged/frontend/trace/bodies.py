"""The bodies of staged constructs while they are traced, and the changes of Python objects in them."""

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
class OpenBody:
    """The body of a staged branch, loop, scope or function: Python state that it changes must be its own,
    or tracked."""

    what: str
    log_start: int
    is_loop: bool
    function: str | None = None
    """The name of a function of the program, which cannot change what is outside of it."""
    made: dict[int, object] = field(default_factory=dict)
