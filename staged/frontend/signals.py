"""How a body ends, and what an exit leads to: signals between constructs, and the exceptions that have a try traced again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from staged.source import Position


class Signal:
    """How a body ended, where it did not run to its end; `where` is the statement that ended it."""

    __slots__ = ("kind", "value", "where")

    def __init__(self, kind: str, value: Any = None, where: Position | None = None) -> None:
        self.kind = kind
        self.value = value
        self.where = where

    def __repr__(self) -> str:
        return f"<{self.kind}>"


ENDED = Signal("ended")
"""Every path has left already: the open block has its end, what follows is not traced."""

Body = Callable[[], Signal | None]


@dataclass
class Target:
    """Where `break`, `continue` or `return` lead. `kind` is 'loop' or 'function'.

    One without a block of its own asks for a scope when a staged path leaves towards it.
    """

    kind: str
    what: str
    """`the loop at line 5`, for messages."""
    catches: frozenset[str]
    """The signals that end here."""

    def exit(self, signal: Signal) -> None:
        """End the current block by leaving towards this target."""
        raise NeedsScopeError(self, signal.kind)


class BlockEndedError(BaseException):
    """Carries ENDED through an expression: a call in it never returns. Not an Exception: users do not catch it."""


class NeedsScopeError(BaseException):
    """A staged exit met a target without a block of its own; `target` catches this and is traced again in a scope."""

    def __init__(self, target: Target, kind: str) -> None:
        super().__init__(kind)
        self.target = target
        self.kind = kind


class NeedsFunctionError(BaseException):
    """A call inside itself, under staged control: the open `activation` is taken back and becomes a function of the program.

    `slots` say which leaves of its arguments are staged there, with which types; `with_state`, that it takes and returns what
    Variables hold.
    """

    def __init__(self, activation: object, slots: tuple[Any, ...], with_state: bool = False) -> None:
        super().__init__(activation)
        self.activation = activation
        self.slots = slots
        self.with_state = with_state


class NeedsNameError(BaseException):
    """What a loop binds is read after it, and the loop is certain to bind it: the program is traced again from its start.

    `place` is the loop's path, and the name among those that it tracks.
    """

    def __init__(self, place: tuple[object, ...]) -> None:
        super().__init__(place)
        self.place = place


class NeedsTrackingError(BaseException):
    """An object that is older than a staged construct changes in it; the construct at `depth` is traced again."""

    def __init__(self, owner: object, label: str, depth: int) -> None:
        super().__init__(label)
        self.owner = owner
        self.label = label
        self.depth = depth
