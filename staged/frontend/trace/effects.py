"""Refusal of effects: a transform that would repeat, reorder or multiply them refuses them at the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from staged.errors import StagingError
from staged.source import here

RefusedEffect = Literal["write", "print", "random"]


@dataclass(frozen=True)
class Refusal:
    """The construct that refuses effects, and hints by kind of effect.

    Objects made inside may change there: `own`, which keeps them alive so that ids stay unique.
    """

    what: str
    hints: dict[RefusedEffect, str]
    own: dict[int, object] = field(default_factory=dict)


_refusals: ContextVar[tuple[Refusal, ...]] = ContextVar("staged_refusals", default=())


on_write: ContextVar[Callable[[Any], None] | None] = ContextVar("staged_on_write", default=None)
"""A function that is called with each value that eager mode writes to a Variable."""


@contextmanager
def refusing(refusal: Refusal) -> Iterator[None]:
    """Refuse the effects that `refusal` has hints for, in this extent."""
    token = _refusals.set((*_refusals.get(), refusal))
    try:
        yield
    finally:
        _refusals.reset(token)


def note_own(made: object) -> None:
    """Note that an object is made here."""
    for refusal in _refusals.get():
        refusal.own[id(made)] = made


def check_effect(kind: RefusedEffect, what: str, changed: object = None) -> None:
    """Raise StagingError where code around this refuses effects of this kind; `what` says which one it is.

    `changed` is the object that changes, which may have been made inside.
    """
    for refusal in _refusals.get():
        if kind in refusal.hints and id(changed) not in refusal.own:
            raise StagingError(f"{what} inside {refusal.what}", where=here(), hint=refusal.hints[kind])
