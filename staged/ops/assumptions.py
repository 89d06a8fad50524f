"""Assumptions of a trace about the sizes that detection has found: relations that a call of the program must fulfil.

The sizes of the traced call decide a relation. Each later call checks it before the program runs. For declared
sizes, the program checks relations.

Tested by `tests/dynamic_sizes/test_detection.py` and `tests/dynamic_sizes/test_relations.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from staged.errors import CarriedValueError, ShapeError, UnboundNameError
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
    """True if a relation does not hold in the traced call."""
    refused: tuple[str, Position | None] | None = None
    """The first use of a size for which a program for all sizes may differ from Python, and its line."""

    def is_of_call(self, error: Exception) -> bool:
        """Return whether other sizes may have a program: the error may be one of a relation of the sizes."""
        return self.is_unmet or isinstance(error, ShapeError | CarriedValueError | UnboundNameError)

    def restart(self, sizes: Mapping[Dim, int]) -> None:
        """Begin another trace, with other dimensions."""
        self.sizes, self.relations, self.refused, self.is_unmet = sizes, {}, None, False

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


def is_assuming() -> bool:
    """Return whether the trace has found sizes."""
    return _CURRENT.get() is not None


def assume(answered: Any) -> None:
    """Assume a relation of found sizes; without assumptions do nothing.

    Raises: UndecidedSizeError if it does not hold in the traced call.
    """
    current = _CURRENT.get()
    if current is None or answered is True:
        return
    question = answered if isinstance(answered, Question) else None
    if question is None or current.holds(question) is False:
        current.is_unmet = True
        raise UndecidedSizeError("a relation of sizes", question)


_DECIDED: ContextVar[frozenset[Dim]] = ContextVar("decided", default=frozenset())


@contextmanager
def deciding(dims: Iterable[Dim]) -> Iterator[None]:
    """Trace with these dimensions of the arguments, whose sizes in the call decide questions."""
    token = _DECIDED.set(frozenset(dims))
    try:
        yield
    finally:
        _DECIDED.reset(token)


def decide(answered: Any) -> None:
    """Ask for one program for either answer if the sizes of arguments decide a question.

    Raises: UndecidedSizeError if they do; the function is then traced again.
    """
    if isinstance(answered, Question) and {*dims_in(answered.left), *dims_in(answered.right)} <= _DECIDED.get():
        bool(answered)


def assume_not_one(shape: Iterable[Extent]) -> None:
    """Assume that no size of arguments is 1: an op removes axes of one element."""
    for extent in shape:
        if isinstance(extent, Size):
            decide(extent > 1)
            decide(extent > 0)
            assume(extent > 1)


def refuse(use: str, where: Position | None = None) -> None:
    """Note a use of a value that a program for all sizes does not have."""
    current = _CURRENT.get()
    if current is not None and current.refused is None:
        current.refused = use, where or here(2)
