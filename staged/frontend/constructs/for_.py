"""`for`: over what exists while staging it unrolls, over staged iterables it is one loop of the program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from types import GeneratorType
from typing import Any

from staged.frontend.constructs.iterables import SeesLocals, StagedIterable, as_staged_iterable, count_on, counted
from staged.frontend.constructs.loops import (
    LoopNames,
    LoopTarget,
    StagedLoop,
    run_static,
    with_else,
)
from staged.frontend.constructs.pieces import enter_range
from staged.frontend.constructs.unrolling import OF_FOR, copies
from staged.frontend.syntax.assign import assign
from staged.frontend.syntax.converter import Converter, operator, statement, text
from staged.frontend.syntax.names import Bindings, bindings_of, breaks_out
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.signals import Body, Signal, SignalKind
from staged.frontend.values import trees
from staged.frontend.values.join import WEAK_INT, Template, is_staged, materialise, number_type
from staged.frontend.values.operands import note_operand
from staged.frontend.values.size_questions import asked
from staged.ir.builder import OpenBlock
from staged.ir.nodes import EndKind, Op, Value
from staged.ir.size_questions import Question
from staged.ir.structure import FOR
from staged.ir.types import TensorType
from staged.ops.array import Array, StagedArray
from staged.ops.assumptions import assume
from staged.ops.context import context_or_none
from staged.ops.dimension import as_extent
from staged.source import here


@statement(ast.For)
def convert_for(converter: Converter, node: ast.For) -> list[ast.stmt]:
    iterable = converter.expr(node.iter)
    found = bindings_of([node.target, *node.body])
    item = converter.fresh("item")
    stores = assign(converter, node.target, ast.Name(item, ast.Load()), node.target)
    target_definition, target = converter.raw_function(stores, [], node.target)
    assert isinstance(target_definition[0], ast.FunctionDef)
    target_definition[0].args.args.append(ast.copy_location(ast.arg(item), node.target))
    body_definition, body = converter.body_function(node.body, node)
    else_definition, orelse = converter.body_function(node.orelse, node)
    word = node.target.id if isinstance(node.target, ast.Name) else "loop"
    names = names_of(found, node.body)
    call = converter.call("for_", converter.locals(), iterable, target, body, orelse, text(word), *names)
    return [
        *target_definition,
        *body_definition,
        *else_definition,
        *converter.propagate(call, node.iter),
    ]


def names_of(found: Bindings, body: list[ast.stmt]) -> list[ast.expr]:
    """The contents of `LoopNames`, as literals in a fixed order."""
    assigned, augmented = sorted(found.bound | found.stored), sorted(found.augmented)
    return [text(tuple(assigned)), text(tuple(augmented)), text(breaks_out(body))]


@operator
def for_(
    scope: Locals,
    iterable: Any,
    assign_item: Callable[[Any], None],
    body: Body,
    orelse: Body | None,
    word: str,
    assigned: tuple[str, ...],
    augmented: tuple[str, ...],
    breaks: bool,
) -> Signal | None:
    """Runs the loop now, or records it."""
    if isinstance(iterable, SeesLocals):
        iterable.scope = scope
    trace = current_trace()
    staged = as_staged_iterable(iterable) if trace is not None else None
    if staged is None or trace is None:
        return _run_now(trace, scope, iterable, assign_item, body, orelse)
    names = LoopNames(assigned, augmented, breaks)
    return record_for(trace, scope, staged, assign_item, body, orelse, word, names)


def _run_now(
    trace: TraceContext | None,
    scope: Locals,
    iterable: Any,
    assign_item: Callable[[Any], None],
    body: Body,
    orelse: Body | None,
) -> Signal | None:
    note_operand(iterable)
    where = here()
    line = where.line if where else 0
    # A generator gives its items once; keep them, for the loop may be traced a second time.
    items: Any = list(iterable) if trace is not None and isinstance(iterable, Iterator) else iterable

    def iterations() -> Iterator[Body]:
        is_eager = trace is None and context_or_none() is not None
        is_loop = is_eager and isinstance(items, StagedIterable | Array)  # what would be one loop of the program
        is_counted = is_eager and not isinstance(items, GeneratorType)  # the user's, which counts by itself
        for item in counted(items) if is_counted else items:
            numbers = dict(scope.__dict__) if is_loop else {}

            def run(item: Any = item) -> Signal | None:
                assign_item(item)
                return body()

            try:
                yield run
            finally:
                count_on(scope, numbers)

    limited = iterations if trace is None else lambda: copies(trace, iterations(), where, OF_FOR)
    return run_static(trace, scope, limited, f"the loop at line {line}", orelse)


def _has_index(bounds: Iterable[Any]) -> bool | Question | None:
    """Return whether a range between sizes has an index; None for a range between other numbers of the program."""
    start, stop, step = map(as_extent, bounds)
    if start is None or stop is None or not isinstance(step, int):
        return None
    return start < stop if step > 0 else start > stop


def _replaces_numbers(target: LoopTarget) -> bool:
    """Return whether a loop carries an array in the place of a number of Python."""
    return any(
        isinstance(slot, TensorType) and not slot.weak and (number_type(leaf) or (is_staged(leaf) and leaf.type.weak))
        for key, template in target.carry.items()
        if isinstance(template, Template) and key not in target.late
        for slot, leaf in zip(template.leaves, trees.flatten(target.value_at_entry(key))[0], strict=True)
    )


def record_for(
    trace: TraceContext,
    scope: Locals,
    staged: StagedIterable,
    assign_item: Callable[[Any], None],
    body: Body,
    orelse: Body | None,
    word: str,
    names: LoopNames,
) -> Signal | None:
    """One loop of the program over `staged`, then `orelse`."""
    where = here()
    given = staged.bounds()
    has_index = _has_index(given)
    if isinstance(has_index, Question):
        asked.append(has_index)  # an error may be one of no iterations
    # After a loop that is certain to run, a name is bound where every iteration binds it.
    ends: frozenset[EndKind] = frozenset({"yield", "continue", "break"} if has_index is True else ())
    bounds = [materialise(trace, bound, WEAK_INT) for bound in given]
    staged.begin()
    breaks_further = names.breaks and orelse is not None
    hint = staged.index_hint or (word if word != "loop" else "index")

    def one_iteration(indices: list[StagedArray]) -> Signal | None:
        enter_range(trace, indices[0], given)
        assign_item(staged.element(indices[0]))
        signal = body()
        if signal is None:
            staged.end_iteration(indices[0], scope.__dict__)
        return signal

    def build(target: LoopTarget, block: OpenBlock, initial: list[Value]) -> Op:
        return Op(
            FOR,
            [*bounds, *initial],
            target.types,
            attrs={"label": target.label},
            blocks=[block.block],
            device=trace.builder.device,
            where=where,
        )

    def loop() -> Signal | None:
        catches: frozenset[SignalKind] = frozenset({"continue"} if breaks_further else {"continue", "break"})
        if has_index is not False:
            target = StagedLoop(
                trace,
                scope,
                names,
                word,
                one_iteration,
                build,
                index_types=(WEAK_INT,),
                index_hints=(hint,),
                catches=catches,
                ends=ends,
            ).run()
            if isinstance(has_index, Question) and _replaces_numbers(target):
                assume(has_index)  # after no iterations Python has the number
        return None

    if breaks_further:
        with_else(trace, scope, loop, orelse, f"the loop at line {where.line if where else 0}")
        staged.end()
        return None
    loop()
    if not trace.block.ended:
        staged.end()
    return None if orelse is None else orelse()
