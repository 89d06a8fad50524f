"""Changes of objects older than the trace: staged values are taken out, and each call writes the plain ones again."""

from __future__ import annotations

from typing import Any

from staged.call.guards.expected import TooLargeError, expected
from staged.call.guards.guard import MISSING
from staged.errors import article
from staged.frontend.trace.bodies import Mutation
from staged.frontend.trace.context import TraceContext
from staged.frontend.values import trees
from staged.frontend.values.join import same_tree
from staged.ops.array import StagedArray
from staged.ops.assumptions import refuse
from staged.source import Position


def settle_changes(trace: TraceContext, where: Position | None) -> None:
    """At the end of a trace: nothing of it stays in objects that outlive it, but for what a call writes again.

    What it changed otherwise is a reason to trace at every call, which changes it again. `where` is the position of the
    function.
    """
    first: dict[tuple[int, str], Mutation] = {}
    for mutation in trace.log:
        if not trace.is_made(mutation.owner):
            first.setdefault((id(mutation.owner), mutation.text), mutation)
    for mutation in reversed(first.values()):
        now = mutation.current()
        if same_tree(mutation.before, now):
            continue
        if mutation.name is not None and holds_staged(now):
            _refuse_numbers(mutation.name, now, mutation.where or where)
            mutation.undo()
        elif mutation.name is None or not _write_again(trace, mutation.owner, mutation.name, now):
            trace.reads.reason(f"{mutation.text.format(name='')} changes while staging")
    for owner, contents, before in trace.reads.states:
        for name in {**before, **contents}:
            now, was = contents.get(name, MISSING), before.get(name, MISSING)
            if now is was or (now is not MISSING and was is not MISSING and same_tree(now, was)):
                continue
            if now is MISSING or holds_staged(now):
                _refuse_numbers(name, now, where)
                if was is MISSING:
                    contents.pop(name, None)
                else:
                    contents[name] = was
            elif not _write_again(trace, owner, name, now):
                trace.reads.reason(f"the attribute `{name}` of {article(type(owner).__name__)} changes while staging")


def take_back_changes(trace: TraceContext) -> None:
    """Undo what a trace has changed in Python: another trace of the same call follows."""
    for mutation in reversed(trace.log):
        mutation.undo()
    for _, contents, before in trace.reads.states:
        contents.clear()
        contents.update(before)


def holds_staged(value: Any) -> bool:
    """Return whether a tree holds what exists only in a program: staged values, and Variables that were made there."""
    leaves, _ = trees.flatten(value)
    return any(isinstance(leaf, StagedArray) or getattr(leaf, "is_inner", False) is True for leaf in leaves)


def _refuse_numbers(name: str, value: Any, where: Position | None) -> None:
    """Note that an attribute loses a number: in a program for one size, it may be one of Python."""
    if any(isinstance(leaf, StagedArray) and not leaf.shape and leaf.type.weak for leaf in trees.flatten(value)[0]):
        refuse(f"the attribute `{name}` of an object from outside has a number of the program", where)


def _write_again(trace: TraceContext, owner: object, name: str, value: Any) -> bool:
    """Have each call of the program write an attribute; False where the value is not the same in every trace."""
    try:
        wanted = expected(value, _refuse)
    except TooLargeError:
        return False
    trace.reads.writes_again(owner, name, value, wanted)
    return True


def _refuse(_: object) -> None:
    raise TooLargeError  # an object: another one in every trace
