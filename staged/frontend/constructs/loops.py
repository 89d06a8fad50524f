"""Staged loops: the common part of `for` and `while`, and loops that run while staging.

The body is traced with the names it assigns as carried values; an exit that does not fit widens the assumption, and the
body is traced again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from staged.errors import UnboundNameError
from staged.frontend.exits.scope import traced_in_scope
from staged.frontend.exits.targets import Carry, CarryingTarget, Key, fits, restore_all, target_of, tracked, unbound
from staged.frontend.trace.attempts import MAX_ATTEMPTS, Attempt
from staged.frontend.trace.bodies import OpenBody
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.lifetimes import OfTrace
from staged.frontend.trace.locals import NOTHING, Locals, Unbound, default, snapshot
from staged.frontend.trace.signals import ENDED, Again, BlockEndedError, Body, Signal, SignalKind, Target
from staged.frontend.values import trees
from staged.frontend.values.join import Static, Template, materialise, number_type, template_of
from staged.frontend.values.mutation import check_body
from staged.frontend.values.objects import check_passed, check_unnoticed, with_objects
from staged.frontend.values.trees import mutable_nodes
from staged.ir.builder import OpenBlock
from staged.ir.nodes import EndKind, Label, Op, Value
from staged.ir.types import TensorType
from staged.ops.array import StagedArray
from staged.ops.source import full
from staged.source import here


@dataclass(frozen=True)
class LoopNames:
    """The names of a loop by its syntax: those its body assigns, which of them by `op=`,
    and whether it has a `break`."""

    assigned: tuple[str, ...]
    augmented: tuple[str, ...]
    breaks: bool = False


_BREAK: frozenset[SignalKind] = frozenset({"break"})
_CONTINUE: frozenset[SignalKind] = frozenset({"continue"})
EXHAUSTED = Signal("exhausted")
"""The way out of a loop whose condition no longer holds, where that is found out in the body: `else` comes next."""


@dataclass
class Learned(OfTrace):
    """Findings of attempts to trace loops."""

    carried: dict[tuple[object, ...], Carry] = field(default_factory=dict)
    """The names that a loop at a path had to carry, so that tracing an outer loop again starts right."""
    read_later: set[tuple[object, ...]] = field(default_factory=set)
    """Names that a loop is certain to bind and that are read after it: its path, and the name among those that it
    tracks.
    """


class LoopTarget(CarryingTarget):
    """A staged loop."""


@dataclass
class StagedLoop:
    """One loop of the program: what its construct says of it."""

    trace: TraceContext
    scope: Locals
    names: LoopNames
    word: str
    """The label: the loop variable's name, or `while`."""
    body: Callable[[list[StagedArray]], Signal | None]
    """Traces one iteration, given the loop's indices."""
    build: Callable[[LoopTarget, OpenBlock, list[Value]], Op]
    """`build(target, block, initial)` makes the op from the traced body."""
    before_body: Callable[[LoopTarget], None] = lambda target: None
    index_types: tuple[TensorType, ...] = ()
    index_hints: tuple[str, ...] = ()
    catches: frozenset[SignalKind] = frozenset({"break", "continue"})
    """The exits that lead to the loop's own ends; `break` may lead further, past its `else`."""
    ends: frozenset[EndKind] = frozenset()
    """The exits after which the loop may end, where it is certain that one of them is met: those pass late names."""

    def run(self) -> LoopTarget:
        """Trace until the assumption holds; the names then have the values after the loop."""
        return with_objects(
            self.trace, lambda: tracked(self.trace, self.scope), lambda: _LoopAttempts(self, self.trace).settled()
        )


class _LoopAttempts:
    """Attempts to trace one loop, with what is assumed of it: the names that it carries, and their types."""

    def __init__(self, loop: StagedLoop, trace: TraceContext) -> None:
        self.loop = loop
        self.trace = trace
        self.where = here()
        self.line = self.where.line if self.where else 0
        self.what = f"the loop at line {self.line}"
        self.scopes = tracked(trace, loop.scope)
        self.entry = [snapshot(scope) for scope in self.scopes]
        self.numbers = itertools.count()
        self.dropped: set[Key] = set()
        """Names that were carried, and of which some leaf never changed."""
        # What an attempt has learned counts scopes, of which a function that takes Variables as state has one more.
        self.path = (*trace.path, len(trace.transforms), self.where)
        learned = trace.of(Learned)
        self.late = frozenset(
            (index, name)
            for index, scope in enumerate(self.scopes)
            for name in sorted(loop.names.assigned)
            if (self.path, index, name) in learned.read_later
        )
        self.carry = self.first_guess()
        for key, kept in learned.carried.get(self.path, {}).items():
            if key[0] < len(self.scopes) and (key in self.late or self._still_fits(key, kept)):
                self.carry[key] = kept

    def settled(self) -> LoopTarget:
        """The loop in the program, as soon as what was assumed of it holds."""
        return self.trace.until_settled(self.what, lambda: self.scopes, self.run, self.learn)

    def run(self, attempt: Attempt) -> LoopTarget:
        """Trace the body, and append the op."""
        trace, loop, number = self.trace, self.loop, next(self.numbers)
        target = LoopTarget(
            "loop",
            self.what,
            loop.catches,
            attempt,
            trace,
            scopes=self.scopes,
            entry=[dict(values) for values, _ in self.entry],
            carry=self.carry,
            label=Label(loop.word),
            late=self.late,
            ends=loop.ends,
            dims=trace.dims,
        )
        target.by = lambda name: ("before the loop", "after an iteration")
        initial = self.initial(target)
        loop.before_body(target)
        block = trace.open_block((*loop.index_types, *target.types), (*loop.index_hints, *target.hints()))
        made = self.trace_body(target, block)
        made[0] = {**dict.fromkeys(loop.names.assigned), **made[0]}  # also what is bound before a `break`
        if target.stale:
            check_unnoticed(trace)  # before it is traced again: then once for both reasons
        if target.stale or (number < MAX_ATTEMPTS // 2 and self.idle(target)):
            raise Again(attempt, target)
        trace.of(Learned).carried[self.path] = self.carry
        op = loop.build(target, block, initial)
        for hint, result in zip(target.hints(), op.results, strict=False):
            result.hint = hint
        handles = list(trace.emit_op(op))
        restore_all(self.scopes, self.entry)
        target.bind(handles)
        target.forget_inner_names(made, self.inner)
        return target

    def learn(self, target: LoopTarget) -> None:
        """Replace the assumption that `target` has shown to be wrong, or to be more than is needed."""
        if target.stale:
            self.carry = target.next_carry()
            return
        idle = self.idle(target)  # of lists and objects that hold what they held before this attempt
        self.dropped.update(idle)
        carry = {key: idle.get(key, kept) for key, kept in self.carry.items()}
        self.carry = {key: kept for key, kept in carry.items() if not (isinstance(kept, Template) and not kept.types)}

    def inner(self, key: Key) -> Unbound:
        """Why a name that is bound in the loop alone cannot be read after it."""
        index, name = key
        if self.loop.ends and key in self.late:
            return unbound(name, self.what)

        def retry() -> None:
            raise Again(self.trace.program, (self.path, index, name))

        return Unbound(
            UnboundNameError,
            f"`{name}` is bound only inside {self.what}, which may run zero times",
            hint=f"bind `{name}` before the loop",
            retry=retry if self.loop.ends and name in self.loop.names.assigned else None,
            construct=self.what,
        )

    def _still_fits(self, key: Key, kept: Template | Unbound) -> bool:
        """Return whether what another attempt at this loop carried is an assumption to start this one with."""
        scope = self.scopes[key[0]]
        value = scope.__dict__.get(key[1], NOTHING)
        value = default(scope, key[1]) if value is NOTHING else value
        if value is NOTHING or isinstance(kept, Unbound):
            return value is not NOTHING
        leaves, spec = trees.flatten(value)
        # The same place may be tracked for another object by now: one of a call that has ended, whose values are gone.
        return trees.same_structure(spec, kept.spec) and fits(leaves, kept) and all(map(self.trace.is_visible, leaves))

    def first_guess(self) -> Carry:
        """Carry what the body assigns: staged values, and numbers that it counts or sums up.

        Lists and dicts only where they turn out to be bound anew: their elements may be changed in place.
        """
        carry: Carry = {}
        names, values = self.loop.names, self.entry[0][0]
        for name in values:
            if name in names.assigned and not isinstance(values[name], list | dict):
                value = values[name]
                counts = name in names.augmented and number_type(value) is not None
                template = template_of(value, lift=counts)
                if template.types:
                    carry[0, name] = template
        return carry

    def initial(self, target: LoopTarget) -> list[Value]:
        """The carried values on entry."""
        out: list[Value] = []
        for key, template in target.carry.items():
            if key in target.late and isinstance(template, Template):
                out += [materialise(self.trace, full(slot.shape, 0, slot.dtype), slot) for slot in template.types]
            elif isinstance(template, Template):
                leaves, _ = trees.flatten(target.value_at_entry(key))
                for leaf, slot in zip(leaves, template.leaves, strict=True):
                    if isinstance(slot, TensorType):
                        out.append(materialise(self.trace, leaf, slot))
        return out

    def trace_body(self, target: LoopTarget, block: OpenBlock) -> list[dict[str, Any]]:
        """Trace the body into `block`; gives the names bound at its end."""
        trace = self.trace
        params = [StagedArray(param, trace, trace.builder.device) for param in block.params]
        number = indices = len(self.loop.index_types)
        for key, template in target.carry.items():
            if isinstance(template, Template):
                for position, slot in enumerate(template.leaves):
                    if isinstance(slot, TensorType):
                        target.params[key, position] = params[number].value
                        number += 1
        open_body = OpenBody(self.what, len(trace.log), is_loop=True)
        with trace.inside(block):
            trace.conditional += (open_body,)
            trace.bodies += (open_body,)
            trace.targets += (target,)
            trace.path += (self.line,)
            target.bind(params[indices:], inside=True)
            stand_ins = [node for key in target.carry for node in mutable_nodes(target.value_now(key))]
            try:
                signal = self.loop.body(params[:indices])
            except BlockEndedError:
                signal = ENDED
            if signal is None or signal.kind == "continue":
                target.leave("yield", None, None if signal is None else signal.where)
            elif signal is not ENDED:
                target_of(trace, signal).exit(signal)
        made = [dict(scope.__dict__) for scope in self.scopes]
        if not target.stale:
            check_body(trace, open_body)
            check_passed(trace, open_body, target.passed_nodes(), stand_ins)
        return made

    def idle(self, target: LoopTarget) -> Carry:
        """Carried names of which some leaf never changes, with that leaf not carried (each name is tried once)."""
        out: Carry = {}
        for key, template in target.carry.items():
            if not isinstance(template, Template) or key in self.dropped or key in target.late:
                continue
            leaves, _ = trees.flatten(target.value_at_entry(key))
            new = [
                Static(leaf) if isinstance(slot, TensorType) and (key, position) not in target.passed else slot
                for position, (leaf, slot) in enumerate(zip(leaves, template.leaves, strict=True))
            ]
            if any(a is not b for a, b in zip(new, template.leaves, strict=True)):
                out[key] = Template(template.spec, tuple(new))
        return out


def run_static(
    trace: TraceContext | None,
    scope: Locals,
    iterations: Callable[[], Iterable[Body]],
    what: str,
    orelse: Body | None = None,
) -> Signal | None:
    """Run a loop while staging, then its `else`: `iterations()` gives the body of each iteration.

    A staged `break` makes it a scope. Gives the signal that leads on outwards.
    """
    if trace is None:
        return finish(_first_signal(iterations()), orelse)
    with trace.attempt(tracked(trace, scope)) as attempt:
        trace.targets += (Target("loop", what, _BREAK, attempt),)
        signal = run_iterations(trace, scope, iterations(), what)
    if attempt.is_taken_back:
        return with_else(trace, scope, lambda: run_iterations(trace, scope, iterations(), what), orelse, what)
    return finish(signal, orelse)


def with_else(
    trace: TraceContext, scope: Locals, loop: Callable[[], Signal | None], orelse: Body | None, what: str
) -> Signal | None:
    """`loop()` and its `else` in a scope that a `break` of the loop leaves."""

    def whole() -> Signal | None:
        target = trace.targets[-1]
        signal = loop()
        if signal is not None or orelse is None:
            return signal
        target.catches = frozenset()  # from here on `break` is that of a loop around
        return orelse()

    traced_in_scope(trace, "break", scope, whole, what)
    return None


def finish(signal: Signal | None, orelse: Body | None) -> Signal | None:
    """After the iterations of a loop that ended with `signal`: its `else`, unless a `break` has left it."""
    if signal is not None and signal.kind == "break":
        return None
    if signal is None and orelse is not None:
        return orelse()
    return signal


def run_iterations(trace: TraceContext, scope: Locals, iterations: Iterable[Body], what: str) -> Signal | None:
    """The iterations of a loop one after the other; the `break` where one of them says so while staging."""
    return _first_signal(_iteration(trace, scope, body, what, number) for number, body in enumerate(iterations))


def _first_signal(iterations: Iterable[Body]) -> Signal | None:
    for body in iterations:
        signal = body()
        if signal is not None and signal.kind != "continue":
            return signal  # a `break` is seen by the caller, who runs or skips `else`
    return None


def _iteration(trace: TraceContext, scope: Locals, body: Body, what: str, number: int) -> Body:
    """The body of one iteration; a staged `continue` makes it a scope."""

    def run() -> Signal | None:
        with trace.attempt(tracked(trace, scope)) as attempt:
            trace.targets += (Target("loop", what, _CONTINUE, attempt),)
            trace.path += (number,)
            return body()
        traced_in_scope(trace, "continue", scope, body, what)
        return None

    return run
