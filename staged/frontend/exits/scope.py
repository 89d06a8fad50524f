"""Calls and unrolled loops that a staged path leaves early: traced as a `scope` op, or as the body of the program."""

from __future__ import annotations

from typing import Any

from staged.frontend.exits.targets import Carry, CarryingTarget, restore_all, target_of, tracked, unbound
from staged.frontend.trace.attempts import Attempt
from staged.frontend.trace.bodies import OpenBody
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.locals import Locals, snapshot
from staged.frontend.trace.signals import ENDED, Again, BlockEndedError, Body, Signal, SignalKind
from staged.frontend.values.join import Template
from staged.frontend.values.mutation import check_body
from staged.frontend.values.objects import note_joined, with_objects
from staged.ir.builder import OpenBlock
from staged.ir.nodes import Label, Op
from staged.ir.structure import SCOPE
from staged.source import Position, here


class ScopeTarget(CarryingTarget):
    """A block left by `break`: for an early return (with a value), a `break` or a `continue` of an unrolled loop."""

    def exit(self, signal: Signal) -> None:
        self.leave("break", signal.value, signal.where)


def traced_in_scope(
    trace: TraceContext, catches: SignalKind, scope: Locals, body: Body, what: str, also: tuple[SignalKind, ...] = ()
) -> Any:
    """`body` in a scope op that catches one kind of signal; gives what it returns, names rebound to what exits passed.

    `also` are further kinds of signal that it catches.
    """
    return with_objects(
        trace,
        lambda: tracked(trace, scope),
        lambda: _ScopeAttempts(trace, catches, scope, body, what, also).settled(),
    )


class _ScopeAttempts:
    """Attempts to trace one scope, with what is assumed of it: the names that its exits pass, and what they return."""

    def __init__(
        self,
        trace: TraceContext,
        catches: SignalKind,
        scope: Locals,
        body: Body,
        what: str,
        also: tuple[SignalKind, ...],
    ) -> None:
        self.trace = trace
        self.word = catches
        self.catches = frozenset({catches, *also})
        self.is_function = catches == "return"
        self.body = body
        self.what = what
        self.where = here()
        self.restored = tracked(trace, scope)
        # A function's own locals end with it; what nested functions write lives on.
        self.scopes = [other for other in trace.shared if other is not scope] if self.is_function else self.restored
        self.entry = [snapshot(other) for other in self.restored]
        self.carry: Carry = {}
        self.result: Template | None = None

    def settled(self) -> Any:
        """Trace the scope until the assumption holds; the value that it returns."""
        return self.trace.until_settled(self.what, lambda: self.restored, self.run, self.learn)

    def run(self, attempt: Attempt) -> Any:
        """Trace the body, and append the op."""
        trace = self.trace
        target = ScopeTarget(
            "function" if self.is_function else "loop",
            self.what,
            self.catches,
            attempt,
            trace,
            scopes=self.scopes,
            entry=[dict(other.__dict__) for other in self.scopes],
            carry=self.carry,
            joins_entry=False,
            label=Label(self.word),
            has_result=self.is_function,
            result=self.result,
        )
        block = trace.open_block()
        made = self.trace_body(target, block)
        if target.stale:
            raise Again(attempt, target)
        op = Op(
            SCOPE,
            [],
            target.types,
            attrs={"label": target.label},
            blocks=[block.block],
            device=trace.builder.device,
            where=self.where,
        )
        for hint, value in zip(target.hints(), op.results, strict=False):
            value.hint = hint
        handles = list(trace.emit_op(op))
        restore_all(self.restored, self.entry)
        target.bind(handles)
        target.forget_inner_names(made, lambda key: unbound(key[1], self.what))
        if target.exits == 0:
            trace.builder.end("raise", (), None, self.where)
            raise BlockEndedError
        if self.is_function and target.result is not None:
            value = target.result.rebuild(handles)
            note_joined(trace, value, *target.returned)
            return value
        return None

    def trace_body(self, target: ScopeTarget, block: OpenBlock) -> list[dict[str, Any]]:
        """Trace the body into `block`; gives the names bound at its end."""
        trace = self.trace
        open_body = OpenBody(self.what, len(trace.log), is_loop=False)
        with trace.inside(block):
            trace.targets += (target,)
            trace.bodies += (open_body,)
            try:
                signal = self.body()
            except BlockEndedError:
                signal = ENDED
            check_body(trace, open_body)
            if signal is None or signal.kind in target.catches:
                target.leave("yield", *left_with(signal))
            elif signal is not ENDED:
                target_of(trace, signal).exit(signal)
        return [dict(other.__dict__) for other in self.scopes]

    def learn(self, target: ScopeTarget) -> None:
        """Assume what the exits of `target` passed."""
        self.carry, self.result = target.next_carry(), target.result


def left_with(signal: Signal | None) -> tuple[Any, Position | None]:
    """The value of a body that has ended, and the statement that ended it."""
    return (None, None) if signal is None else (signal.value, signal.where)
