"""Calls and unrolled loops that a staged path leaves early: traced as a `scope` op, or as the body of the program."""

from __future__ import annotations

from typing import Any

from staged.frontend.attempts import Attempt
from staged.frontend.bodies import OpenBody
from staged.frontend.join import Template
from staged.frontend.locals import Locals, snapshot
from staged.frontend.mutation import check_body
from staged.frontend.objects import with_objects
from staged.frontend.signals import ENDED, Again, BlockEndedError, Body, Signal
from staged.frontend.targets import Carry, StateTarget, restore_all, target_of, tracked, unbound
from staged.frontend.tracing import TraceContext
from staged.ir.nodes import Label, Op
from staged.ir.structure import SCOPE
from staged.source import Position, here


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
    result: Template | None = None

    def run(attempt: Attempt) -> Any:
        target = ScopeTarget(
            "function" if is_function else "loop",
            what,
            frozenset({catches, *also}),
            attempt,
            trace,
            scopes=scopes,
            entry=[dict(other.__dict__) for other in scopes],
            carry=carry,
            joins_entry=False,
            label=Label(catches),
            has_result=is_function,
            result=result,
        )
        block = trace.open_block()
        open_body = OpenBody(what, len(trace.log), is_loop=False)
        with trace.inside(block):
            trace.targets += (target,)
            trace.bodies += (open_body,)
            try:
                signal = body()
            except BlockEndedError:
                signal = ENDED
            check_body(trace, open_body)
            if signal is None or signal.kind in target.catches:
                target.leave("yield", *left_with(signal))
            elif signal is not ENDED:
                target_of(trace, signal).exit(signal)
            made = [dict(other.__dict__) for other in scopes]
        if target.stale:
            raise Again(attempt, target)
        op = Op(
            SCOPE,
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

    def learn(target: ScopeTarget) -> None:
        nonlocal carry, result
        carry, result = target.next_carry(), target.result

    return trace.until_settled(what, lambda: restored, run, learn)


def left_with(signal: Signal | None) -> tuple[Any, Position | None]:
    """The value of a body that has ended, and the statement that ended it."""
    return (None, None) if signal is None else (signal.value, signal.where)
