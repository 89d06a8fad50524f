"""`if`, and the conditional expression."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from staged.frontend.exits.cleanup import note_exit
from staged.frontend.exits.targets import join_results, restore_all, target_of, tracked, unbound
from staged.frontend.syntax.converter import Converter, expression, operator, place, statement
from staged.frontend.syntax.names import binding_tests
from staged.frontend.trace.bodies import OpenBody
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.locals import NOTHING, Locals, Snapshot, Unbound, all_names, default, snapshot, unbind
from staged.frontend.trace.signals import ENDED, BlockEndedError, Body, Signal
from staged.frontend.values import trees
from staged.frontend.values.join import MismatchError, Template, is_staged, join, materialise, mismatch, same_tree
from staged.frontend.values.mutation import check_body
from staged.frontend.values.objects import check_order, either_of, note_joined, replace_leaves, with_objects
from staged.frontend.values.truth import truth
from staged.frontend.values.variable import Variable
from staged.ir.builder import OpenBlock
from staged.ir.nodes import End, Op, Value
from staged.ir.structure import IF
from staged.ir.types import TensorType
from staged.ops.array import Array, StagedArray
from staged.source import Position, here


@statement(ast.If)
def convert_if(converter: Converter, node: ast.If) -> list[ast.stmt]:
    if tests := binding_tests(node):
        # `if a and (y := b): ...` is `if a: if y := b: ...`: where the body runs, `y` is bound
        body = node.body
        for each in reversed(tests[1:]):
            body = [place(ast.If(each, body, []), node)]
        node = place(ast.If(tests[0], body, []), node)
    test = converter.expr(node.test)
    then_definition, then = converter.body_function(node.body, node)
    else_definition, orelse = converter.body_function(node.orelse, node)
    call = converter.call("if_", converter.locals(), test, then, orelse)
    return [*then_definition, *else_definition, *converter.propagate(call, node.test)]


@expression(ast.IfExp)
def convert_conditional(converter: Converter, node: ast.IfExp) -> ast.expr:
    test = converter.expr(node.test)
    return converter.call(
        "conditional", converter.locals(), test, converter.lambda_(node.body), converter.lambda_(node.orelse)
    )


# ---- what the call does -------------------------------------------------------------------------


@operator
def if_(scope: Locals, test: Any, then: Body, orelse: Body | None) -> Signal | None:
    """Runs one branch now for a static condition; records both for a staged one."""
    return branch(scope, test, then, orelse)


@dataclass(frozen=True)
class Named:
    """The words of errors for a construct that runs one of two branches."""

    place: str
    """The construct and its line."""
    conditions: tuple[str, str] = ("its condition holds", "its condition does not hold")
    """The words for when its first branch runs, and for when the other does."""


def branch(scope: Locals, test: Any, then: Body, orelse: Body | None, named: Named | None = None) -> Signal | None:
    """An `if`, or a construct that behaves as one."""
    condition = truth(test)
    if not is_staged(condition):
        if condition:
            return then()
        return orelse() if orelse is not None else None
    trace = current_trace()
    assert trace is not None
    return staged_if(trace, scope, condition, then, orelse or (lambda: None), named)


@operator
def conditional(scope: Locals, test: Any, then: Any, orelse: Any) -> Any:
    """`a if test else b`: only the chosen side is evaluated, or both are branches of the program."""
    condition = truth(test)
    if not is_staged(condition):
        chosen = then() if condition else orelse()
        # Eager mode decides as the program would: what an array chooses between are values.
        return _held(chosen) if isinstance(test, Array) else chosen
    trace = current_trace()
    assert trace is not None
    return choose(trace, scope, condition, then, orelse)


def choose(trace: TraceContext, scope: Locals, condition: StagedArray, then: Any, orelse: Any) -> Any:
    """The value of `then()` or `orelse()`, as an `if` of the program."""
    signal = staged_if(
        trace, scope, condition, lambda: Signal("value", _held(then())), lambda: Signal("value", _held(orelse()))
    )
    if signal is ENDED:
        raise BlockEndedError
    assert signal is not None
    return signal.value


def _held(chosen: Any) -> Any:
    """A side of a conditional expression as a value: a Variable stands for what it holds; other objects stay
    themselves.
    """
    if not any(isinstance(leaf, Variable) for leaf in trees.flatten(chosen)[0]):
        return chosen
    return trees.map_leaves(lambda leaf: leaf.value if isinstance(leaf, Variable) else leaf, chosen)


def staged_if(
    trace: TraceContext, scope: Locals, condition: StagedArray, then: Body, orelse: Body, named: Named | None = None
) -> Signal | None:
    """Record an `if` of the program."""
    return with_objects(
        trace, lambda: tracked(trace, scope), lambda: StagedIf(trace, scope, condition, named).run(then, orelse)
    )


@dataclass
class Branch:
    """A branch whose body has been traced."""

    block: OpenBlock
    signal: Signal | None
    """The way in which the body ended; None where it ran to its end."""
    states: list[Snapshot]
    """The tracked scopes as it left them."""
    yields: list[Value] | None = None
    """The values that it yields; None where it has left."""
    yields_at: Position | None = None
    """The statement that ended it, where the `if` takes its signal on."""

    def value(self, scope: int, name: str) -> Any:
        """The value that it left in a name, or NOTHING."""
        return self.states[scope][0].get(name, NOTHING)


@dataclass
class Joined:
    """The values of the two branches that become one, and the template that holds both."""

    values: tuple[Any, Any]
    template: Template
    scope: int = -1
    name: str = ""
    """The name that has them; none for what the branches return."""


class StagedIf:
    """Traces both branches from the same state and joins what they leave."""

    def __init__(self, trace: TraceContext, scope: Locals, condition: StagedArray, named: Named | None) -> None:
        self.trace = trace
        self.condition = trace.value_of(condition)
        self.where = here()
        self.named = named or Named(f"the `if` at line {self.where.line if self.where else 0}")
        self.scopes = tracked(trace, scope)
        self.entry = [snapshot(scope) for scope in self.scopes]

    def run(self, then: Body, orelse: Body) -> Signal | None:
        first = self.traced(then)
        restore_all(self.scopes, self.entry)
        return self.meet([first, self.traced(orelse)])

    def traced(self, body: Body) -> Branch:
        """Trace one branch; the scopes are left as it leaves them."""
        trace = self.trace
        block = trace.open_block()
        open_body = OpenBody(self.named.place, len(trace.log), is_loop=False)
        with trace.inside(block):
            trace.conditional += (open_body,)
            trace.bodies += (open_body,)
            try:
                signal = body()
            except BlockEndedError:
                signal = ENDED
        check_body(trace, open_body)
        return Branch(block, signal, [snapshot(scope) for scope in self.scopes])

    def meet(self, branches: list[Branch]) -> Signal | None:
        first, second = (branch.signal for branch in branches)
        going = [branch for branch in branches if not branch.block.ended]
        alike = first is second or (
            first is not None and second is not None and first.kind == second.kind and first is not ENDED
        )
        if len(going) == 2 and not alike:
            # One goes on and the other leaves, or they leave in different ways: each leaving branch ends here.
            going = [branch for branch in branches if branch.signal is None]
            for branch in branches:
                if branch.signal is not None:
                    self.leave(branch, branch.signal)
        if not going:
            self.emit(branches, [])
            # What follows is never reached: the open block ends where the `if` does.
            self.trace.builder.end("raise", (), None, self.where)
            return ENDED
        if len(going) == 1:
            return self.continue_with(branches, going[0])
        return self.join_both(branches)

    def leave(self, branch: Branch, signal: Signal) -> None:
        """End one branch by its exit, in the state that it left."""
        now = [snapshot(scope) for scope in self.scopes]
        restore_all(self.scopes, branch.states)
        target = target_of(self.trace, signal)
        note_exit(self.trace, signal, target)
        with self.trace.entered(branch.block):
            target.exit(signal)
        restore_all(self.scopes, now)

    def continue_with(self, branches: list[Branch], staying: Branch) -> Signal | None:
        """Only one branch goes on: what it made inside its block is yielded, everything else stays as it left it."""
        signal = staying.signal
        made = {result for op in staying.block.ops for result in op.results}
        inner: dict[Value, None] = {}

        def collect(leaf: Any) -> Any:
            if isinstance(leaf, StagedArray) and leaf.value in made:
                inner[leaf.value] = None
            return leaf

        restore_all(self.scopes, staying.states)
        for scope in self.scopes:
            for value in scope.__dict__.values():
                trees.map_leaves(collect, value)
        if signal is not None:
            trees.map_leaves(collect, signal.value)
        staying.yields = list(inner)
        handles = self.emit(branches, [value.hint for value in inner])
        replacement = dict(zip(inner, handles, strict=True))

        def replace(leaf: Any) -> Any:
            return replacement.get(leaf.value, leaf) if isinstance(leaf, StagedArray) else leaf

        done: dict[int, Any] = {}
        for scope in self.scopes:
            for name, value in list(scope.__dict__.items()):
                new = replace_leaves(value, replace, done)
                if new is not value:
                    scope.__dict__[name] = new
        if signal is not None and signal is not ENDED and signal.has_value:
            return Signal(signal.kind, replace_leaves(signal.value, replace, done), signal.where)
        return signal

    def join_both(self, branches: list[Branch]) -> Signal | None:
        """Both go on, or both leave alike: each name gets one value."""
        trace = self.trace
        first, second = (branch.signal for branch in branches)
        restore_all(self.scopes, self.entry)
        names = [joined for number in range(len(self.scopes)) for joined in self.join_names(number, branches)]
        result = self.join_result(first, second)
        for index, branch in enumerate(branches):
            branch.yields, branch.yields_at = [], None if branch.signal is None else branch.signal.where
            with trace.entered(branch.block):
                trace.fixed_position = branch.yields_at
                for joined in names if result is None else [*names, result]:
                    leaves, _ = trees.flatten(joined.values[index])
                    for leaf, slot in zip(leaves, joined.template.leaves, strict=True):
                        if isinstance(slot, TensorType):
                            branch.yields.append(materialise(trace, leaf, slot))
                trace.fixed_position = None
        rest = self.emit(branches, [hint for joined in names for hint in joined.template.hints(joined.name)])
        for joined in names:
            scope = self.scopes[joined.scope]
            value = scope.__dict__[joined.name] = joined.template.rebuild(rest)
            left = [branch.states[joined.scope][0].get(joined.name) for branch in branches]
            note_joined(trace, value, *left)
            scope._staged_unbound.pop(joined.name, None)
        if first is None or second is None or not first.has_value:
            return first
        if result is None:
            return Signal(first.kind, either_of(trace, first.value, second.value), first.where)
        made = result.template.rebuild(rest)
        note_joined(trace, made, *result.values)
        return Signal(first.kind, made, second.where or first.where)

    def join_names(self, number: int, branches: list[Branch]) -> list[Joined]:
        """The names of one scope to which the branches have given different values; others are bound,
        or unbound, here."""
        scope = self.scopes[number]
        entry, *states = (state[number][0] for state in (self.entry, *(branch.states for branch in branches)))
        for state in states:
            check_order(scope, entry, state)
        check_order(scope, *states)
        first = branches[0].signal
        out: list[Joined] = []
        for name in all_names([branch.states[number][0] for branch in branches]):
            found = [branch.value(number, name) for branch in branches]
            before, after = (default(scope, name) if value is NOTHING else value for value in found)
            if before is NOTHING or after is NOTHING:
                unbind(scope, name, self.missing(name, number, (before, after), branches))
            elif same_tree(before, after):
                scope.__dict__[name] = either_of(self.trace, before, after)
                scope._staged_unbound.pop(name, None)
            elif number == 0 and first is not None and first.kind == "return":
                # The call is over; only a `finally` could still read the name.
                unbind(scope, name, unbound(name, f"{self.named.place}, which returns", construct=self.named.place))
            else:
                try:
                    out.append(Joined((before, after), join(before, after), number, name))
                except MismatchError as why:
                    labels = ("in the first branch", "in the other")
                    unbind(scope, name, mismatch(scope, name, before, after, labels, str(why), self.where))
        for branch in branches:
            for name, reason in branch.states[number][1].items():
                if name not in scope.__dict__ and name not in scope._staged_unbound:
                    unbind(scope, name, reason)
        return out

    def join_result(self, first: Signal | None, second: Signal | None) -> Joined | None:
        """The result of both branches, where they return different values."""
        if first is None or second is None or not first.has_value:
            return None
        if same_tree(first.value, second.value):
            return None
        template = join_results(first.value, second.value, self.result_name(first), self.where)
        return Joined((first.value, second.value), template)

    def result_name(self, signal: Signal) -> str:
        if signal.kind == "value":
            return "this conditional expression"
        return next(target.what for target in reversed(self.trace.targets) if target.kind == "function")

    def missing(self, name: str, number: int, values: tuple[Any, Any], branches: list[Branch]) -> Unbound:
        """Why a name that only one branch binds cannot be read after the `if`."""
        for branch, value in zip(branches, values, strict=True):
            reason = branch.states[number][1].get(name)
            if value is NOTHING and reason is not None and reason is not self.entry[number][1].get(name):
                return reason  # that branch binds it too, inside a loop
        bound_in = 0 if values[1] is NOTHING else 1
        return unbound(name, self.named.place, f", which binds it only when {self.named.conditions[bound_in]}")

    def emit(self, branches: list[Branch], hints: list[str]) -> list[StagedArray]:
        """End the open branches with their yields and append the op."""
        types: list[Any] = []
        for branch in branches:
            if branch.yields is not None:
                types = [value.type for value in branch.yields]
                branch.block.ending = End("yield", tuple(branch.yields), None, branch.yields_at or self.where)
        op = Op(
            IF,
            [self.condition],
            types,
            blocks=[branch.block.block for branch in branches],
            device=self.trace.builder.device,
            where=self.where,
        )
        for index, result in enumerate(op.results):
            result.hint = hints[index] if index < len(hints) else ""
        return list(self.trace.emit_op(op))
