"""Assumptions of a trace about the sizes that detection has found: relations that a call of the program must fulfil.

The sizes of the traced call decide a relation. Each later call checks it before the program runs. For declared
sizes, the program checks relations.

Tested by `tests/dynamic_sizes/test_detection.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from staged.ir.size_questions import Question, UndecidedSizeError
from staged.ir.sizes import Dim, Extent, Size, dims_in, value_of
from staged.source import Position, here

_ORDERS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass
class Assumptions:
    """The found dimensions, their sizes in the traced call, and what the trace has assumed about them."""

    sizes: Mapping[Dim, int]
    relations: dict[str, Question] = field(default_factory=dict)
    """By their source code."""
    is_unmet: bool = False
    """True if a relation does not hold in the traced call: other calls may have a program for all sizes."""
    refused: tuple[str, Position | None] | None = None
    """The first use of a size for which a program for all sizes may differ from Python, and its line."""

    def holds(self, question: Question) -> bool | None:
        """Assume a relation if it holds in the traced call; None if it is not about found sizes alone."""
        if not {*dims_in(question.left), *dims_in(question.right)} <= self.sizes.keys():
            return None
        compare = _ORDERS[question.sign]
        if not compare(value_of(question.left, self.sizes), value_of(question.right, self.sizes)):
            self.is_unmet = True
            return False
        self.relations[f"{question.left} {question.sign} {question.right}"] = question
        return True


_CURRENT: ContextVar[Assumptions | None] = ContextVar("assumptions", default=None)


@contextmanager
def assuming(assumptions: Assumptions | None) -> Iterator[None]:
    """Trace with these assumptions."""
    token = _CURRENT.set(assumptions)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def assumed(question: Question) -> bool | None:
    """The answer to a question in the traced call, which later calls check; None without assumptions."""
    current = _CURRENT.get()
    return None if current is None else current.holds(question)


def assume(answered: Any) -> None:
    """Assume a relation of found sizes; without assumptions do nothing.

    Raises: UndecidedSizeError if it does not hold in the traced call.
    """
    current = _CURRENT.get()
    if current is None or answered is True:
        return
    if not isinstance(answered, Question) or current.holds(answered) is False:
        current.is_unmet = True
        raise UndecidedSizeError("a relation of sizes")


def assume_not_one(shape: Iterable[Extent]) -> None:
    """Assume that no found size is 1: an op removes axes of one element."""
    for extent in shape:
        if isinstance(extent, Size):
            assume(extent > 1)


def refuse_text() -> None:
    """Note that Python reads a value of the program as text, which a program for all sizes does not have."""
    current = _CURRENT.get()
    if current is not None and current.refused is None:
        current.refused = "Python converts a value to text", here(2)
