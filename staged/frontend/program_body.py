"""The body of a program: its exits return from the program, with values that a caller can be given."""

from __future__ import annotations

from typing import Any

from staged.errors import StagingError
from staged.frontend.constructs.iterables import StagedIterable
from staged.frontend.constructs.strings import StagedString
from staged.frontend.exits.scope import left_with
from staged.frontend.exits.targets import CarryingTarget
from staged.frontend.trace.attempts import Attempt
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.signals import ENDED, Again, BlockEndedError, Body, Signal
from staged.frontend.values import trees
from staged.frontend.values.join import Template
from staged.frontend.values.variable import Variable
from staged.ir.nodes import EndKind
from staged.ops.array import StagedArray
from staged.ops.exchange import UnevenPart
from staged.ops.promote import read
from staged.source import Position, here


class ProgramTarget(CarryingTarget):
    """The staged function itself: exits return from the program."""

    def exit(self, signal: Signal) -> None:
        self.leave("return", signal.value, signal.where)

    def leave(self, kind: EndKind, value: Any = None, where: Position | None = None) -> None:
        # A Variable that lives in the program only leaves it as what it holds.
        _check_result(value)
        super().leave(kind, trees.map_leaves(self._held, value), where)

    def _held(self, leaf: Any) -> Any:
        return leaf.value if isinstance(leaf, Variable) and leaf.is_inner else leaf


_NOT_RESULTS = (StagedIterable, UnevenPart)


def _check_result(value: Any) -> None:
    """Raise where a result holds staged values in what cannot be given back: a text, a set, the keys of a dict, an
    iterator.
    """
    what = None
    for leaf in trees.flatten(value)[0]:
        if isinstance(leaf, StagedString):
            what = "a text with staged parts", "print it, write it to a file, or return its numbers"
        elif isinstance(leaf, set | frozenset) and any(isinstance(item, StagedArray) for item in leaf):
            what = "a set of staged values", "return a list, or an array: `st.stack([...])`"
        elif isinstance(leaf, _NOT_RESULTS):
            read(leaf)  # an uneven part raises its own error
            what = "an iterator over staged values", "return the array, or the bounds"
    if what is None and _has_staged_key(value):
        what = "a dict with staged keys", "return keys and values as arrays"
    if what is not None:
        raise StagingError(
            f"{what[0]} cannot be a result: it exists only when the program runs", where=here(), hint=what[1]
        )


def _has_staged_key(value: Any) -> bool:
    if isinstance(value, dict):
        return any(isinstance(key, StagedArray) or _has_staged_key(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(map(_has_staged_key, value))


def traced_as_program(trace: TraceContext, scope: Locals, body: Body, what: str) -> ProgramTarget:
    """The body of the program, in the open block, which this ends; its result template is in the target."""
    result: Template | None = None

    def run(attempt: Attempt) -> ProgramTarget:
        target = ProgramTarget("function", what, frozenset({"return"}), attempt, trace, has_result=True, result=result)
        trace.targets += (target,)
        try:
            signal = body()
        except BlockEndedError:
            signal = ENDED
        if signal is not ENDED:
            target.leave("return", *left_with(signal))
        if target.stale:
            raise Again(attempt, target)
        return target

    def learn(target: ProgramTarget) -> None:
        nonlocal result
        result = target.result

    return trace.until_settled(what, lambda: [scope, *trace.shared], run, learn)
