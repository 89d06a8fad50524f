"""Calls and unrolled loops that a staged path leaves early: traced as a `scope` op, or as the body of the program."""

from __future__ import annotations

from typing import Any

from staged.errors import StagingError
from staged.frontend import trees
from staged.frontend.extents import Region
from staged.frontend.iterables import StagedIterable
from staged.frontend.locals import Locals, snapshot
from staged.frontend.mutation import check_region
from staged.frontend.objects import with_objects
from staged.frontend.strings import StagedString
from staged.frontend.targets import Carry, StateTarget, restore_all, target_of, tracked, unbound
from staged.frontend.tracing import ENDED, BlockEndedError, Body, Signal, TraceContext
from staged.frontend.variable import Variable
from staged.ir.nodes import Label, Op
from staged.ops.array import StagedArray
from staged.source import Position, here

MAX_TRIES = 30
"""More tries than names and types can change: reaching it is a bug of ours."""


class ScopeTarget(StateTarget):
    """A block left by `break`: for an early return (with a value), a `break` or a `continue` of an unrolled loop."""

    def exit(self, signal: Signal) -> None:
        self.leave("break", signal.value, signal.where)


def traced_in_scope(
    trace: TraceContext, catches: str, scope: Locals, body: Body, what: str, also: tuple[str, ...] = ()
) -> Any:
    """`body` in a scope op that catches one kind of signal; gives what it returns, names rebound to what exits passed.

    `also` are further kinds of signal that it catches.
    """
    return with_objects(
        trace, lambda: tracked(trace, scope), lambda: _traced_in_scope(trace, catches, scope, body, what, also)
    )


def _traced_in_scope(
    trace: TraceContext, catches: str, scope: Locals, body: Body, what: str, also: tuple[str, ...]
) -> Any:
    is_function = catches == "return"
    where = here()
    # A function's own locals end with it; what nested functions write lives on.
    scopes = [other for other in trace.shared if other is not scope] if is_function else tracked(trace, scope)
    restored = tracked(trace, scope)
    entry = [snapshot(other) for other in restored]
    carry: Carry = {}
    result = None
    for _ in range(MAX_TRIES):
        mark = trace.mark(restored)
        target = ScopeTarget(
            trace,
            "function" if is_function else "loop",
            what,
            frozenset({catches, *also}),
            scopes=scopes,
            entry=[dict(other.__dict__) for other in scopes],
            carry=carry,
            joins_entry=False,
            label=Label(catches),
            has_result=is_function,
            result=result,
        )
        block = trace.open_block()
        trace.targets.append(target)
        made: list[dict[str, Any]] = []
        region = Region(what, len(trace.log), is_loop=False)
        try:
            with trace.entered(block), trace.extent(region):
                try:
                    signal = body()
                except BlockEndedError:
                    signal = ENDED
                check_region(trace, region)
                if signal is None or signal.kind in target.catches:
                    target.leave("yield", *_left_with(signal))
                elif signal is not ENDED:
                    target_of(trace, signal).exit(signal)
                made = [dict(other.__dict__) for other in scopes]
        finally:
            trace.targets.pop()
        if target.stale:
            trace.rollback(mark)
            carry, result = target.next_carry(), target.result
            continue
        op = Op(
            "scope",
            [],
            target.types,
            attrs={"label": target.label},
            blocks=[block.block],
            device=trace.builder.device,
            where=where,
        )
        for hint, value in zip(target.hints(), op.results, strict=False):
            value.hint = hint
        handles = list(trace.emit_op(op))
        restore_all(restored, entry)
        target.bind(handles)
        target.forget_inner_names(made, lambda key: unbound(key[1], what))
        if target.exits == 0:
            trace.builder.end("raise", (), None, where)
            raise BlockEndedError
        if is_function and target.result is not None:
            return target.result.rebuild(handles)
        return None
    raise AssertionError(f"tracing {what} does not settle")


def _left_with(signal: Signal | None) -> tuple[Any, Position | None]:
    """The value of a body that has ended, and the statement that ended it."""
    return (None, None) if signal is None else (signal.value, signal.where)


class ProgramTarget(StateTarget):
    """The staged function itself: exits return from the program."""

    def exit(self, signal: Signal) -> None:
        self.leave("return", signal.value, signal.where)

    def leave(self, kind: str, value: Any = None, where: Position | None = None) -> None:
        # A Variable that lives in the program only leaves it as what it holds.
        _check_result(value)
        super().leave(kind, trees.map_leaves(self._held, value), where)

    def _held(self, leaf: Any) -> Any:
        return leaf.value if isinstance(leaf, Variable) and leaf.is_inner else leaf


def _check_result(value: Any) -> None:
    """Raise where a result holds staged values in what cannot be given back: a text, a set, the keys of a dict, an iterator."""
    what = None
    for leaf in trees.flatten(value)[0]:
        if isinstance(leaf, StagedString):
            what = "a text with staged parts", "print it, write it to a file, or return its numbers"
        elif isinstance(leaf, set | frozenset) and any(isinstance(item, StagedArray) for item in leaf):
            what = "a set of staged values", "return a list, or an array: `st.stack([...])`"
        elif isinstance(leaf, StagedIterable):
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
    result = None
    for _ in range(MAX_TRIES):
        mark = trace.mark([scope, *trace.shared])
        target = ProgramTarget(trace, "function", what, frozenset({"return"}), has_result=True, result=result)
        trace.targets.append(target)
        try:
            try:
                signal = body()
            except BlockEndedError:
                signal = ENDED
            if signal is not ENDED:
                target.leave("return", *_left_with(signal))
        finally:
            trace.targets.pop()
        if not target.stale:
            return target
        trace.rollback(mark)
        result = target.result
    raise AssertionError(f"tracing {what} does not settle")
