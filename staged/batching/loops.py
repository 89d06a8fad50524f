"""Loops in mapped code: kept where all elements go on alike, else run until the last element is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.batching.batch import CONTROL_FLOW, Batch
from staged.batching.masks import Mask
from staged.batching.spread import SPREADS, Spread, is_container
from staged.batching.values import i64_scalar, spread_to_all, unchecked
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value, free_values
from staged.ir.structure import FOR, WHILE
from staged.ir.trips import constant_of
from staged.ir.types import TensorType, i64
from staged.ir.views import Loop
from staged.ops.array import Array
from staged.ops.comparisons import greater, greater_equal, less, less_equal
from staged.ops.reduction import any_, max_, min_


@SPREADS.rule(FOR, WHILE)
def spread_loop(spread: Spread, op: Op) -> None:
    """Carried values are alike from iteration to iteration; all of it depends on the bounds, or on the condition."""
    loop = Loop(op)
    body, params = loop.body, loop.carried
    chains = list(zip(loop.initial, params, loop.final, strict=True))
    for initial, param, result in chains:
        spread.pass_on(initial, param)
        spread.pass_on(param, result)
    condition = loop.condition
    if condition is not None:
        for param, asked in zip(params, condition.params, strict=True):
            spread.pass_on(param, asked)
    for block in op.blocks:
        spread.block(block)
    depends = spread.any(loop.bounds if condition is None else condition.end.operands)
    if depends:
        # Elements go on for different numbers of iterations.
        spread.mark(params)
        spread.mark(op.results)
    if op.declared is FOR and counts_by_trips(op, spread.batched):
        spread.mark(loop.indices)
    if body.end.kind == "yield":
        for yielded, (_, param, _) in zip(body.end.operands, chains, strict=False):
            spread.pass_on(yielded, param)
        for element, collected in zip(loop.elements, loop.collected, strict=True):
            # The elements are the same ones, for whichever reason the sequence is batched.
            if element in spread.batched:
                spread.batched.add(collected)
            elif collected in spread.batched and is_container(element):
                spread.batched.add(element)


def counts_by_trips(op: Op, batched: set[Value]) -> bool:
    """Return whether a `for` whose bounds differ counts iterations, and each element has an index of its own.

    Else it counts through the indices of all elements, each of which takes part while the index is one of its own; then
    the index is the same for all, but what an element collects need not begin with the first iteration.
    """
    loop = Loop(op)
    start, stop, step = loop.bounds
    if start not in batched:
        return False
    return stop in batched or constant_of(step) not in (1, -1) or loop.collecting > 0


@CONTROL_FLOW.rule(FOR, WHILE)
def loop(batch: Batch, op: Op) -> None:
    """Emit the batched form of a `for` or `while`."""
    condition = Loop(op).condition
    if condition is not None and condition.end.operands[0] in batch.batched:
        _while_any(batch, op)
    elif any(bound in batch.batched for bound in Loop(op).bounds):
        _for_any(batch, op)
    else:
        _alike(batch, op)


# ---- all elements go on alike -------------------------------------------------------------------


def _alike(batch: Batch, op: Op) -> None:
    loop = Loop(op)
    body, params = loop.body, loop.carried
    operands = [batch.value(bound) for bound in loop.bounds]
    operands += [batch.as_batched(v, param in batch.batched) for v, param in zip(loop.initial, params, strict=True)]
    blocks = [] if loop.condition is None else [_condition(batch, loop.condition)]
    with batch.opened(body.params) as opened:
        batch.define(body.params, opened.params)
        batch.ops(body)
        assert body.end.kind == "yield" or body.end.kind == "raise", "exits are normalised in the blocks of transforms"
        given = []
        if body.end.kind == "yield":
            kept = zip(body.end.operands, (*params, *op.results[len(params) :]), strict=True)
            given = [batch.as_batched(value, like in batch.batched) for value, like in kept]
        batch.builder.end(body.end.kind, given, None, body.end.where)
    types = [batch.type_of(result) for result in op.results]
    batch.copied(op, operands, types, blocks=[*blocks, opened.block], attrs=batch.label(op))


def _condition(batch: Batch, block: Block) -> Block:
    with batch.opened(block.params) as opened:
        batch.define(block.params, opened.params)
        batch.ops(block)
        batch.builder.end("yield", [batch.value(block.end.operands[0])], None, block.end.where)
    return opened.block


# ---- until the last one is done -----------------------------------------------------------------


def _while_any(batch: Batch, op: Op) -> None:
    """Goes on while any element does; an element that is done keeps its values."""
    loop, where, device = Loop(op), op.where, op.device
    condition, body = loop.condition, loop.body
    assert condition is not None
    initial = [batch.full(value) for value in loop.initial]
    active = _asked(batch, condition, initial)
    types = [value.type for value in (active, *initial)]
    with batch.builder.block(types, ["active", *(p.hint for p in condition.params)]) as ask:
        going = any_(batch.context.handle(ask.params[0]))
        batch.builder.end("yield", [batch.context.value_of(going)], None, condition.end.where)
    with batch.builder.block(types, ["active", *(p.hint for p in body.params)]) as run:
        mask, *carried = run.params
        kept, collected = _masked_body(batch, op, mask, carried)
        # An element that is done keeps its values, and so stays done.
        again = _asked(batch, condition, kept)
        batch.builder.end("yield", [again, *kept, *collected], None, body.end.where)
    batch.where, batch.builder.device = where, device
    made = batch.builder.op(
        WHILE,
        [active, *initial],
        [*types, *map(batch.type_of, loop.collected)],
        attrs=batch.label(op),
        blocks=[ask.block, run.block],
        where=where,
    )
    batch.define(op.results, made.results[1:])


def _asked(batch: Batch, condition: Block, values: Sequence[Value]) -> Value:
    """The condition on these carried values, for each element."""
    batch.define(condition.params, values)
    batch.ops(condition)
    return batch.full(condition.end.operands[0])


def _for_any(batch: Batch, op: Op) -> None:
    """Runs until the last element is done; see `counts_by_trips` for the two ways of counting."""
    loop, where, device = Loop(op), op.where, op.device
    if loop.bounds[2] in batch.batched:
        raise batch.refuse(
            op, "the step of a loop under `vmap` differs between the elements", "use a `while`, or one step for all"
        )
    by_trips = counts_by_trips(op, batch.batched)
    bounds, mine = (_by_trips if by_trips else _by_indices)(batch, op)
    initial = [batch.full(value) for value in loop.initial]
    number = TensorType(i64) if by_trips else loop.index.type
    hints = ["" if by_trips else loop.index.hint, *(param.hint for param in loop.carried)]
    with batch.builder.block([number, *(value.type for value in initial)], hints) as run:
        index, *carried = run.params
        active, own_index = mine(batch.context.handle(index))
        batch.define(loop.indices, [batch.context.value_of(own_index)])
        kept, collected = _masked_body(batch, op, batch.context.value_of(active), carried)
        batch.builder.end("yield", [*kept, *collected], None, loop.body.end.where)
    batch.where, batch.builder.device = where, device
    made = batch.builder.op(
        FOR,
        [*bounds, *initial],
        [batch.type_of(result) for result in op.results],
        attrs=batch.label(op),
        blocks=[run.block],
        where=where,
    )
    batch.define(op.results, made.results)


def _masked_body(batch: Batch, op: Op, active: Value, carried: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """The body for the elements that are active: the carried values after it, and what is collected."""
    body = Loop(op).body
    if body.end.kind != "yield":
        raise batch.refuse(
            op,
            "a loop whose body always stops the program runs for different numbers of iterations under `vmap`",
            "write it as an `if`",
        )
    params = Loop(op).carried
    mask = Mask(batch.context, batch.size, active)
    batch.define(params, carried)
    with batch.under(mask, [*params, *free_values(body)]):
        batch.ops(body)
        given = [batch.full(value) for value in body.end.operands]
    kept = [new if is_container(new) else mask.choose(new, old) for new, old in zip(given, carried, strict=False)]
    return kept, given[len(carried) :]


Counting = tuple[list[Value], Callable[[Array], tuple[Array, Array]]]
"""The bounds of the loop, and for its index: which elements are active, and the index that the body sees."""


def _by_indices(batch: Batch, op: Op) -> Counting:
    """From the outermost start to the outermost stop."""
    own_start = Loop(op).bounds[0] in batch.batched
    first, last, step = (batch.context.handle(batch.value(bound)) for bound in Loop(op).bounds)
    up = _is_up(batch, op)
    if own_start:
        bounds = [_outermost(batch, first, not up), last, step]
        return _values(batch, bounds), lambda i: ((greater_equal if up else less_equal)(i, first), i)
    bounds = [first, _outermost(batch, last, up), step]
    return _values(batch, bounds), lambda i: ((less if up else greater)(i, last), i)


def _by_trips(batch: Batch, op: Op) -> Counting:
    """From 0 to the largest number of iterations."""
    first, last, step = (batch.context.handle(batch.value(bound)) for bound in Loop(op).bounds)
    span = last - first + step - (1 if _is_up(batch, op) else -1)
    trips = unchecked(prims.FLOOR_DIVIDE, [span, spread_to_all(step, span)])
    bounds = [i64_scalar(0), _outermost(batch, trips, True), i64_scalar(1)]
    return _values(batch, bounds), lambda k: (less(k, trips), first + k * step)


def _values(batch: Batch, bounds: Sequence[Array]) -> list[Value]:
    return [batch.context.value_of(bound) for bound in bounds]


def _is_up(batch: Batch, op: Op) -> bool:
    step = constant_of(Loop(op).bounds[2])
    if step is None:
        raise batch.refuse(
            op,
            "a loop under `vmap` counts differently for each element, by a step that is not known while staging",
            "use a step that is a Python number",
        )
    return step > 0


def _outermost(batch: Batch, bounds: Array, largest: bool) -> Array:
    if batch.size == 0:
        return i64_scalar(0)
    return max_(bounds) if largest else min_(bounds)
