"""`if`, and the conditional expression."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from staged.frontend import trees
from staged.frontend.bodies import OpenBody
from staged.frontend.cleanup import note_exit
from staged.frontend.join import MismatchError, Template, is_staged, join, materialise, mismatch, same_tree
from staged.frontend.locals import NOTHING, Locals, Poison, all_names, default, poison, snapshot
from staged.frontend.mutation import check_body
from staged.frontend.objects import note_joined, replace_leaves, with_objects
from staged.frontend.signals import ENDED, BlockEndedError, Body, Signal
from staged.frontend.syntax import Converter, expression, operator, statement
from staged.frontend.targets import join_results, restore_all, target_of, tracked, unbound
from staged.frontend.tracing import TraceContext, current_trace
from staged.frontend.truth import truth
from staged.frontend.variable import Variable
from staged.ir.builder import OpenBlock
from staged.ir.nodes import End, Op, Value
from staged.ir.structure import IF
from staged.ir.types import TensorType
from staged.ops.array import Array, StagedArray
from staged.source import Position, here


@statement(ast.If)
def convert_if(converter: Converter, node: ast.If) -> list[ast.stmt]:
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
    condition = truth(test)
    if not is_staged(condition):
        if condition:
            return then()
        return orelse() if orelse is not None else None
    trace = current_trace()
    assert trace is not None
    return staged_if(trace, scope, condition, then, orelse or _nothing)


def _nothing() -> None:
    return None


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
    """A side of a conditional expression as a value: a Variable stands for what it holds; other objects stay themselves."""
    if not any(isinstance(leaf, Variable) for leaf in trees.flatten(chosen)[0]):
        return chosen
    return trees.map_leaves(lambda leaf: leaf.value if isinstance(leaf, Variable) else leaf, chosen)


def staged_if(trace: TraceContext, scope: Locals, condition: StagedArray, then: Body, orelse: Body) -> Signal | None:
    """Record an `if` of the program."""
    return with_objects(
        trace, lambda: tracked(trace, scope), lambda: StagedIf(trace, scope, condition).run(then, orelse)
    )


class StagedIf:
    """Traces both branches from the same state and joins what they leave."""

    def __init__(self, trace: TraceContext, scope: Locals, condition: StagedArray) -> None:
        self.trace = trace
        self.condition = condition
        self.where = here()
        self.line = self.where.line if self.where else 0
        self.scopes = tracked(trace, scope)
        self.entry = [snapshot(scope) for scope in self.scopes]

    def run(self, then: Body, orelse: Body) -> Signal | None:
        trace = self.trace
        condition = trace.value_of(self.condition)
        blocks: list[OpenBlock] = []
        signals: list[Signal | None] = []
        states: list[list[dict[str, Any]]] = []
        poisons: list[list[dict[str, Poison]]] = []
        for body in (then, orelse):
            block = trace.open_block()
            open_body = OpenBody(f"the `if` at line {self.line}", len(trace.log), is_loop=False)
            with trace.inside(block):
                trace.conditional += (open_body,)
                trace.bodies += (open_body,)
                try:
                    signals.append(body())
                except BlockEndedError:
                    signals.append(ENDED)
            check_body(trace, open_body)
            blocks.append(block)
            states.append([dict(scope.__dict__) for scope in self.scopes])
            poisons.append([dict(scope._staged_poison) for scope in self.scopes])
            if body is then:
                restore_all(self.scopes, self.entry)
        return self.meet(condition, blocks, signals, states, poisons)

    def meet(
        self,
        condition: Value,
        blocks: list[OpenBlock],
        signals: list[Signal | None],
        states: list[list[dict[str, Any]]],
        poisons: list[list[dict[str, Poison]]],
    ) -> Signal | None:
        first, second = signals
        going = [index for index in (0, 1) if not blocks[index].ended]
        alike = first is second or (
            first is not None and second is not None and first.kind == second.kind and first is not ENDED
        )
        if len(going) == 2 and not alike:
            # One goes on and the other leaves, or they leave in different ways: each leaving branch ends here.
            staying = [index for index in (0, 1) if signals[index] is None]
            for index in (0, 1):
                if index not in staying:
                    self.leave(blocks[index], signals[index], states[index], poisons[index])
            going = staying
        if not going:
            self.emit(condition, blocks, [])
            # What follows is never reached: the open block ends where the `if` does.
            self.trace.builder.end("raise", (), None, self.where)
            return ENDED
        if len(going) == 1:
            return self.continue_with(condition, blocks, signals, states, poisons, going[0])
        return self.join_both(condition, blocks, signals, states, poisons)

    def leave(
        self, block: OpenBlock, signal: Signal | None, state: list[dict[str, Any]], poisons: list[dict[str, Poison]]
    ) -> None:
        """End one branch by its exit, in the state that it left."""
        assert signal is not None
        now = [snapshot(scope) for scope in self.scopes]
        restore_all(self.scopes, list(zip(state, poisons, strict=True)))
        target = target_of(self.trace, signal)
        note_exit(self.trace, signal, target)
        with self.trace.entered(block):
            target.exit(signal)
        restore_all(self.scopes, now)

    def continue_with(
        self,
        condition: Value,
        blocks: list[OpenBlock],
        signals: list[Signal | None],
        states: list[list[dict[str, Any]]],
        poisons: list[list[dict[str, Poison]]],
        index: int,
    ) -> Signal | None:
        """Only one branch goes on: what it made inside its block is yielded, everything else stays as it left it."""
        signal = signals[index]
        made = {result for op in blocks[index].ops for result in op.results}
        inner: dict[Value, None] = {}

        def collect(leaf: Any) -> Any:
            if isinstance(leaf, StagedArray) and leaf.value in made:
                inner[leaf.value] = None
            return leaf

        restore_all(self.scopes, list(zip(states[index], poisons[index], strict=True)))
        for scope in self.scopes:
            for value in scope.__dict__.values():
                trees.map_leaves(collect, value)
        if signal is not None:
            trees.map_leaves(collect, signal.value)
        handles = self.emit(condition, blocks, [value.hint for value in inner], {index: list(inner)})
        replacement = dict(zip(inner, handles, strict=True))

        def replace(leaf: Any) -> Any:
            return replacement.get(leaf.value, leaf) if isinstance(leaf, StagedArray) else leaf

        done: dict[int, Any] = {}
        for scope in self.scopes:
            for name, value in list(scope.__dict__.items()):
                new = replace_leaves(value, replace, done)
                if new is not value:
                    scope.__dict__[name] = new
        if signal is not None and signal is not ENDED and signal.kind in ("return", "value"):
            return Signal(signal.kind, replace_leaves(signal.value, replace, done), signal.where)
        return signal

    def join_both(
        self,
        condition: Value,
        blocks: list[OpenBlock],
        signals: list[Signal | None],
        states: list[list[dict[str, Any]]],
        poisons: list[list[dict[str, Poison]]],
    ) -> Signal | None:
        """Both go on, or both leave alike: each name gets one value."""
        trace = self.trace
        templates: list[tuple[int, str, Template]] = []
        pairs: list[tuple[Any, Any, Template]] = []
        first, second = signals
        restore_all(self.scopes, self.entry)
        for number, scope in enumerate(self.scopes):
            for name in all_names([states[0][number], states[1][number]]):
                values = [state[number].get(name, NOTHING) for state in states]
                values = [default(scope, name) if value is NOTHING else value for value in values]
                if values[0] is not NOTHING and values[1] is not NOTHING:
                    if same_tree(*values):
                        scope.__dict__[name] = values[0]
                        scope._staged_poison.pop(name, None)
                        continue
                    if number == 0 and first is not None and first.kind == "return":
                        # The call is over; only a `finally` could still read the name.
                        poison(scope, name, unbound(name, f"the `if` at line {self.line}, which returns"))
                        continue
                    try:
                        template = join(*values)
                    except MismatchError as why:
                        labels = ("in the first branch", "in the other")
                        poison(scope, name, mismatch(scope, name, values[0], values[1], labels, str(why), self.where))
                        continue
                    templates.append((number, name, template))
                    pairs.append((values[0], values[1], template))
                else:
                    poison(scope, name, self.missing(name, number, values, poisons))
            for branch in poisons:
                for name, reason in branch[number].items():
                    if name not in scope.__dict__ and name not in scope._staged_poison:
                        poison(scope, name, reason)
        result: Template | None = None
        if first is not None and second is not None and first.kind in ("return", "value"):
            if not same_tree(first.value, second.value):
                what = self.result_name(first)
                result = join_results(first.value, second.value, what, self.where)
                pairs.append((first.value, second.value, result))
        yields: dict[int, list[Value]] = {0: [], 1: []}
        ends = [None if signal is None else signal.where for signal in signals]
        for index in (0, 1):
            with trace.entered(blocks[index]):
                trace.place = ends[index]
                for pair in pairs:
                    leaves, _ = trees.flatten(pair[index])
                    for leaf, slot in zip(leaves, pair[2].leaves, strict=True):
                        if isinstance(slot, TensorType):
                            yields[index].append(materialise(trace, leaf, slot))
                trace.place = None
        handles = self.emit(condition, blocks, [hint for _, name, t in templates for hint in t.hints(name)], yields, ends)
        rest = list(handles)
        for number, name, template in templates:
            value = self.scopes[number].__dict__[name] = template.rebuild(rest)
            note_joined(trace, value, *(state[number].get(name) for state in states))
            self.scopes[number]._staged_poison.pop(name, None)
        if first is None or first is ENDED:
            return first
        if result is not None:
            made = result.rebuild(rest)
            assert second is not None
            note_joined(trace, made, first.value, second.value)
            return Signal(first.kind, made, second.where or first.where)
        return first

    def result_name(self, signal: Signal) -> str:
        if signal.kind == "value":
            return "this conditional expression"
        return next(target.what for target in reversed(self.trace.targets) if target.kind == "function")

    def missing(self, name: str, number: int, values: list[Any], poisons: list[list[dict[str, Poison]]]) -> Poison:
        """Why a name that only one branch binds cannot be read after the `if`."""
        for branch, value in zip(poisons, values, strict=True):
            reason = branch[number].get(name)
            if value is NOTHING and reason is not None and reason is not self.entry[number][1].get(name):
                return reason  # that branch binds it too, inside a loop
        bound_in = 0 if values[1] is NOTHING else 1
        words = ("when its condition holds", "when its condition does not hold")[bound_in]
        return unbound(name, f"the `if` at line {self.line}", f", which binds it only {words}")

    def emit(
        self,
        condition: Value,
        blocks: list[OpenBlock],
        hints: list[str],
        yields: dict[int, list[Value]] | None = None,
        ends: Sequence[Position | None] = (None, None),
    ) -> list[StagedArray]:
        """End the open branches with their yields and append the op."""
        types: list[Any] = []
        for index, values in (yields or {}).items():
            types = [value.type for value in values]
            blocks[index].ending = End("yield", tuple(values), None, ends[index] or self.where)
        op = Op(
            IF,
            [condition],
            types,
            blocks=[block.block for block in blocks],
            device=self.trace.builder.device,
            where=self.where,
        )
        for index, result in enumerate(op.results):
            result.hint = hints[index] if index < len(hints) else ""
        return list(self.trace.emit_op(op))
