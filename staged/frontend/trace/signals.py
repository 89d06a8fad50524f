"""Signals with which bodies end, targets that exits lead to, and the exception that takes an attempt back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from staged.source import Position

SignalKind = Literal["value", "return", "break", "continue", "exhausted", "ended"]


class Signal:
    """The end of a body that did not run to its end; `where` is the statement that ended it."""

    __slots__ = ("kind", "value", "where")

    def __init__(self, kind: SignalKind, value: Any = None, where: Position | None = None) -> None:
        self.kind: SignalKind = kind
        self.value = value
        self.where = where

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    @property
    def has_value(self) -> bool:
        """Return whether the value of the body is `value`."""
        return self.kind == "return" or self.kind == "value"


ENDED = Signal("ended")
"""Every path has left already: the open block has its end, what follows is not traced."""

Body = Callable[[], Signal | None]


@dataclass
class Target:
    """The destination of `break`, `continue` or `return`.

    One without a block of its own has its attempt taken back when a staged path leaves towards it: a scope takes its
    place.
    """

    kind: Literal["loop", "function"]
    what: str
    """`the loop at line 5`, for messages."""
    catches: frozenset[SignalKind]
    """The signals that end here."""
    attempt: object
    """The attempt in which it is open."""

    def exit(self, signal: Signal) -> None:
        """End the current block by leaving towards this target."""
        raise Again(self.attempt)


class BlockEndedError(BaseException):
    """Carries ENDED through an expression: a call in it never returns. Not an Exception: users do not catch it."""


class Again(BaseException):
    """Takes `attempt` back, which is traced again in another way: `reason` says how. Not an Exception: users do not
    catch it.
    """

    def __init__(self, attempt: object, reason: object = None) -> None:
        super().__init__(reason)
        self.attempt = attempt
        self.reason = reason
