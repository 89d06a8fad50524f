"""Where effects are refused: a transform that would repeat, reorder or multiply them says so at the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from staged.errors import StagingError
from staged.source import here


@dataclass(frozen=True)
class Refusal:
    """What refuses effects, and what to do instead: hints by kind of effect ('write', 'print', 'random')."""

    what: str
    hints: dict[str, str]


_refusals: ContextVar[tuple[Refusal, ...]] = ContextVar("staged_refusals", default=())


@contextmanager
def refusing(refusal: Refusal) -> Iterator[None]:
    """Refuse the effects that `refusal` has hints for, in this extent."""
    token = _refusals.set((*_refusals.get(), refusal))
    try:
        yield
    finally:
        _refusals.reset(token)


def check_effect(kind: str, what: str) -> None:
    """Raise StagingError where code around this refuses effects of this kind; `what` says which one it is."""
    for refusal in _refusals.get():
        if kind in refusal.hints:
            raise StagingError(f"{what} inside {refusal.what}", where=here(), hint=refusal.hints[kind])
