"""`while`: a staged condition, or one that is constantly true, makes it a loop of the program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Literal

from staged.frontend.constructs.boolean import not_
from staged.frontend.constructs.for_ import names_of
from staged.frontend.constructs.if_ import if_
from staged.frontend.constructs.iterables import count_on
from staged.frontend.constructs.loops import EXHAUSTED, LoopNames, LoopTarget, StagedLoop, finish, run_static, with_else
from staged.frontend.constructs.unrolling import OF_WHILE, copies
from staged.frontend.exits.scope import traced_in_scope
from staged.frontend.exits.targets import tracked
from staged.frontend.syntax.converter import Converter, operator, statement, text
from staged.frontend.syntax.names import bindings_of
from staged.frontend.trace.attempts import Attempt
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.signals import ENDED, Again, BlockEndedError, Body, Signal, SignalKind
from staged.frontend.values.join import WEAK_BOOL, is_staged, materialise
from staged.frontend.values.truth import truth
from staged.ir.builder import OpenBlock
from staged.ir.nodes import Block, EndKind, Op, Value
from staged.ir.structure import WHILE
from staged.ops.array import Array, StagedArray
from staged.ops.context import context_or_none
from staged.source import here


@statement(ast.While)
def convert_while(converter: Converter, node: ast.While) -> list[ast.stmt]:
    found = bindings_of([node.test, *node.body])
    is_forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
    binds = bool(bindings_of([node.test]).bound)
    test = converter.lambda_(node.test)
    body_definition, body = converter.body_function(node.body, node)
    # Nothing comes after a loop without a condition.
    else_definition, orelse = converter.body_function([] if is_forever else node.orelse, node)
    kind = text("forever" if is_forever else "binds" if binds else "")
    call = converter.call("while_", converter.locals(), test, body, orelse, kind, *names_of(found, node.body))
    return [*body_definition, *else_definition, *converter.propagate(call, node.test)]


LoopKind = Literal["forever", "binds", ""]
"""'forever' is `while True`; the condition of 'binds' has a `:=`."""


@operator
def while_(
    scope: Locals,
    test: Callable[[], Any],
    body: Body,
    orelse: Body | None,
    kind: LoopKind,
    assigned: tuple[str, ...],
    augmented: tuple[str, ...],
    breaks: bool,
) -> Signal | None:
    """Runs the loop now, or records it."""
    trace = current_trace()
    where = here()
    what = f"the loop at line {where.line if where else 0}"
    if trace is None:
        return run_static(None, scope, lambda: _eager_iterations(scope, test, body, kind), what, orelse)
    names = LoopNames(assigned, augmented, breaks)
    with trace.attempt(tracked(trace, scope)) as attempt:
        first = True if kind == "forever" else truth(test())
        attempt.take_back()  # the first question is asked again
        if kind != "forever" and not is_staged(first):
            # Taken back where it runs for some iterations with values known while staging, and then depends on a staged
            # one.
            return run_static(
                trace, scope, lambda: copies(trace, _iterations(test, body, attempt), where, OF_WHILE), what, orelse
            )
    return _record(trace, scope, test, body, orelse, names, kind)


def _eager_iterations(scope: Locals, test: Callable[[], Any], body: Body, kind: LoopKind) -> Iterator[Body]:
    """The iterations in eager mode and in plain Python; what would be a loop of the program carries numbers as that
    does.
    """
    while True:
        asked = test()
        if not truth(asked):
            return
        is_loop = context_or_none() is not None and (kind == "forever" or isinstance(asked, Array))
        numbers = dict(scope.__dict__) if is_loop else {}
        try:
            yield body
        finally:
            count_on(scope, numbers)


def _iterations(test: Callable[[], Any], body: Body, attempt: Attempt) -> Iterator[Body]:
    while True:
        condition = truth(test())
        if is_staged(condition):
            raise Again(attempt)
        if not condition:
            return
        yield body


def _record(
    trace: TraceContext,
    scope: Locals,
    test: Callable[[], Any],
    body: Body,
    orelse: Body | None,
    names: LoopNames,
    kind: LoopKind,
) -> Signal | None:
    where = here()
    what = f"the loop at line {where.line if where else 0}"
    breaks_further = names.breaks and orelse is not None
    conditions: list[Block] = []

    def ask(target: LoopTarget) -> None:
        """The condition block, over its own copies of the carried values."""
        outer = trace.block
        block = trace.open_block(target.types, target.hints())
        with trace.entered(block):
            target.bind([StagedArray(param, trace, trace.builder.device) for param in block.params], inside=True)
            try:
                condition = truth(test()) if kind == "" else True
            except BlockEndedError:
                # The question is never answered: the loop is as far as any path gets.
                with trace.entered(outer):
                    trace.builder.end("raise", (), None, where)
                raise
            trace.builder.end("yield", [materialise(trace, condition, _condition_type(condition))], None, where)
        conditions[:] = [block.block]

    def one_iteration(_: list[StagedArray]) -> Signal | None:
        if kind == "binds":
            # The body sees what the condition binds: so the question is part of the body.
            signal = if_(scope, not_(test()), lambda: EXHAUSTED, None)
            if signal is not None:
                return signal
        return body()

    def build(target: LoopTarget, block: OpenBlock, initial: list[Value]) -> Op:
        return Op(
            WHILE,
            initial,
            target.types,
            attrs={"label": target.label},
            blocks=[conditions[0], block.block],
            device=trace.builder.device,
            where=where,
        )

    def loop() -> Signal | None:
        catches: set[SignalKind] = {"continue"} if kind == "binds" or breaks_further else {"continue", "break"}
        # After `while True` a name is bound where every `break` has bound it.
        ends: frozenset[EndKind] = frozenset({"break"} if kind == "forever" else ())
        staged = StagedLoop(
            trace, scope, names, "while", one_iteration, build, ask, catches=frozenset(catches), ends=ends
        )
        target = staged.run()
        if kind and not target.breaks:
            # It is left by other ways only: nothing comes after it.
            trace.builder.end("raise", (), None, where)
            return ENDED
        return None

    def bound() -> Signal | None:
        # What the condition binds is bound after the loop, however it ends: its end is that of a scope, which the paths
        # out of the loop agree on.
        if kind == "binds":
            traced_in_scope(trace, "exhausted", scope, loop, what, () if breaks_further else ("break",))
            return None
        return loop()

    if breaks_further:
        return with_else(trace, scope, bound, orelse, what)
    return finish(bound(), orelse)


def _condition_type(condition: Any) -> Any:
    return condition.type if is_staged(condition) else WEAK_BOOL
