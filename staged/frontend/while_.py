"""`while`: a staged condition, or one that is constantly true, makes it a loop of the program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from staged.errors import StagingError
from staged.frontend.boolean import truth
from staged.frontend.for_ import names_of
from staged.frontend.join import WEAK_BOOL, is_staged, materialise
from staged.frontend.locals import Locals
from staged.frontend.loops import LoopNames, LoopTarget, StagedLoop, run_static
from staged.frontend.names import bindings_of
from staged.frontend.syntax import Converter, operator, statement, text
from staged.frontend.targets import tracked
from staged.frontend.tracing import BREAK, ENDED, Body, Signal, TraceContext, current_trace
from staged.ir.builder import OpenBlock
from staged.ir.nodes import Block, Op, Value
from staged.ops.array import StagedArray
from staged.source import here


@statement(ast.While)
def convert_while(converter: Converter, node: ast.While) -> list[ast.stmt]:
    if bindings_of([node.test]).bound:
        # `:=` in the condition: the body sees the name, so the test becomes part of the body.
        negated = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        leave = ast.copy_location(ast.If(negated, [ast.copy_location(ast.Break(), node.test)], []), node.test)
        forever = ast.copy_location(ast.Constant(True), node.test)
        node = ast.copy_location(ast.While(forever, [leave, *node.body], node.orelse), node)
    found = bindings_of(node.body)
    is_forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
    test = converter.lambda_(node.test)
    body_definition, body = converter.body_function(node.body, node)
    else_definition, orelse = converter.body_function(node.orelse, node)
    call = converter.call("while_", converter.locals(), test, body, orelse, text(is_forever), *names_of(found))
    return [*body_definition, *else_definition, *converter.propagate(call, node.test)]


class _TurnedStagedError(BaseException):
    """The condition of a loop that ran while staging has become staged."""


@operator
def while_(
    scope: Locals,
    test: Callable[[], Any],
    body: Body,
    orelse: Body | None,
    is_forever: bool,
    assigned: tuple[str, ...],
    augmented: tuple[str, ...],
) -> Signal | None:
    """Runs the loop now, or records it."""
    trace = current_trace()
    if trace is None:
        return _finish(run_static(None, scope, lambda: _turns(test, body), "the loop"), orelse)
    names = LoopNames(assigned, augmented)
    mark = trace.mark(tracked(trace, scope))
    first = True if is_forever else truth(test())
    if is_forever or is_staged(first):
        trace.rollback(mark)
        return _record(trace, scope, test, body, orelse, names, is_forever)
    where = here()
    what = f"the loop at line {where.line if where else 0}"
    targets, regions = len(trace.targets), len(trace.regions)
    try:
        return _finish(run_static(trace, scope, lambda: _turns(test, body), what), orelse)
    except _TurnedStagedError:
        # It ran for some turns with values known while staging, and then depends on a staged one: from the start, then.
        del trace.targets[targets:], trace.regions[regions:]
        trace.rollback(mark)
        return _record(trace, scope, test, body, orelse, names, False)


def _turns(test: Callable[[], Any], body: Body) -> Iterator[Body]:
    while True:
        condition = truth(test())
        if is_staged(condition):
            raise _TurnedStagedError
        if not condition:
            return
        yield body


def _finish(signal: Signal | None, orelse: Body | None) -> Signal | None:
    if signal is BREAK:
        return None
    if signal is None and orelse is not None:
        return orelse()
    return signal


def _record(
    trace: TraceContext,
    scope: Locals,
    test: Callable[[], Any],
    body: Body,
    orelse: Body | None,
    names: LoopNames,
    is_forever: bool,
) -> Signal | None:
    where = here()
    if orelse is not None:
        raise StagingError(
            "`else` on a staged loop cannot be staged",
            where=where,
            hint="set a flag before `break` and test it after the loop",
        )
    loop = StagedLoop(trace, scope, names, "while")
    conditions: list[Block] = []

    def trace_condition(target: LoopTarget) -> None:
        """The condition block, over its own copies of the carried values."""
        block = trace.open_block(target.types, target.hints())
        with trace.entered(block):
            target.bind([StagedArray(param, trace, trace.builder.device) for param in block.params])
            condition = truth(test())
            trace.builder.end("yield", [materialise(trace, condition, _condition_type(condition))], None, where)
        conditions[:] = [block.block]

    def one_turn(_: list[StagedArray]) -> Signal | None:
        return body()

    def build(target: LoopTarget, block: OpenBlock, initial: list[Value]) -> Op:
        return Op(
            "while",
            initial,
            target.types,
            attrs={"label": target.label},
            blocks=[conditions[0], block.block],
            device=trace.builder.device,
            where=where,
        )

    target = loop.run((), (), one_turn, build, trace_condition)
    if is_forever and not target.breaks:
        # It is left by `return` or `raise` only: nothing comes after it.
        trace.builder.end("raise", (), None, where)
        return ENDED
    return None


def _condition_type(condition: Any) -> Any:
    return condition.type if is_staged(condition) else WEAK_BOOL
