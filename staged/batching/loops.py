"""Loops in mapped code: kept where all elements go on alike, else run until the last element is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from staged.batching.masks import Mask, within
from staged.batching.values import index
from staged.ir.nodes import Block, Op, Value, free_values
from staged.ir.types import SequenceType
from staged.ops.array import Array
from staged.ops.elementwise import greater, greater_equal, less, less_equal, logical_and
from staged.ops.reduction import any_, max_, min_

if TYPE_CHECKING:
    from staged.batching.vmap import Batch


def loop(batch: Batch, op: Op) -> None:
    """Emit the batched form of a `for` or `while`."""
    if op.name == "while":
        if op.blocks[0].end.operands[0] in batch.batched:
            _while_any(batch, op)
        else:
            _alike(batch, op, [], lambda block: _condition(batch, block))
    elif any(bound in batch.batched for bound in op.operands[:3]):
        _for_any(batch, op)
    else:
        _alike(batch, op, [batch.value(bound) for bound in op.operands[:3]], None)


def _carried(op: Op) -> tuple[Sequence[Value], Sequence[Value]]:
    """(initial values, body parameters) of what a loop carries."""
    return (op.operands[3:], op.blocks[-1].params[1:]) if op.name == "for" else (op.operands, op.blocks[-1].params)


# ---- all elements go on alike -------------------------------------------------------------------


def _alike(batch: Batch, op: Op, bounds: list[Value], condition: Any) -> None:
    initial, params = _carried(op)
    operands = [
        *bounds, *(batch.wanted(value, param in batch.batched) for value, param in zip(initial, params, strict=True))
    ]  # fmt: skip
    blocks = [condition(op.blocks[0])] if condition is not None else []
    body = op.blocks[-1]
    with batch.opened(body.params) as opened:
        batch.define(body.params, opened.params)
        batch.ops(body)
        assert body.end.kind in ("yield", "raise"), "exits are normalised in the blocks of transforms"
        given = []
        if body.end.kind == "yield":
            kept = zip(body.end.operands, (*params, *op.results[len(params) :]), strict=True)
            given = [batch.wanted(value, like in batch.batched) for value, like in kept]
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
    condition, body = op.blocks
    where, device = op.where, op.device
    initial = [batch.full(value) for value in op.operands]
    active = _asked(batch, condition, initial)
    types = [value.type for value in (active, *initial)]
    with batch.builder.block(types, ["active", *(p.hint for p in condition.params)]) as ask:
        going = any_(batch.context.handle(ask.params[0]))
        batch.builder.end("yield", [batch.context.value_of(going)], None, condition.end.where)
    with batch.builder.block(types, ["active", *(p.hint for p in body.params)]) as run:
        mask = run.params[0]
        kept, collected = _masked_body(batch, op, mask, run.params[1:])
        again = _asked(batch, condition, kept)
        both = logical_and(batch.context.handle(mask), batch.context.handle(again))
        batch.builder.end("yield", [batch.context.value_of(both), *kept, *collected], None, body.end.where)
    batch.where, batch.builder.device = where, device
    made = batch.builder.op(
        "while",
        [active, *initial],
        [*types, *(batch.type_of(result) for result in op.results[len(initial) :])],
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
    """Counts through the indices of all elements; an element takes part while the index is one of its own."""
    bounds, active = _bounds(batch, op)
    where, device = op.where, op.device
    initial, params = _carried(op)
    carried = [batch.full(value) for value in initial]
    body = op.blocks[0]
    types = [value.type for value in carried]
    with batch.builder.block([body.params[0].type, *types], [p.hint for p in body.params]) as run:
        batch.define(body.params[:1], run.params[:1])
        mask = batch.context.value_of(active(batch.context.handle(run.params[0])))
        kept, collected = _masked_body(batch, op, mask, run.params[1:])
        batch.builder.end("yield", [*kept, *collected], None, body.end.where)
    batch.where, batch.builder.device = where, device
    made = batch.builder.op(
        "for",
        [*bounds, *carried],
        [batch.type_of(result) for result in op.results],
        attrs=batch.label(op),
        blocks=[run.block],
        where=where,
    )
    batch.define(op.results, made.results)


def _masked_body(
    batch: Batch, op: Op, active: Value, carried: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    """The body for the elements that are active: the carried values after it, and what is collected."""
    body = op.blocks[-1]
    if body.end.kind != "yield":
        raise batch.refuse(
            op,
            "a loop whose body always stops the program runs for different numbers of iterations under `vmap`",
            "write it as an `if`",
        )
    _, params = _carried(op)
    mask = Mask(batch, active)
    batch.define(params, carried)
    with within(batch, mask, [*params, *free_values(body)]):
        batch.ops(body)
        given = [batch.full(value) for value in body.end.operands]
    kept = [
        new if isinstance(new.type, SequenceType) else mask.choose(new, old)
        for new, old in zip(given, carried, strict=False)
    ]
    return kept, given[len(carried) :]


def _bounds(batch: Batch, op: Op) -> tuple[list[Value], Any]:
    """Bounds of a loop over the indices of all elements, and which elements an index belongs to."""
    start, stop, step = op.operands[:3]
    number = step.producer.attrs["value"] if step.producer is not None and step.producer.name == "constant" else None
    own_start, own_stop = start in batch.batched, stop in batch.batched
    if number is None or own_start == own_stop or (own_start and abs(number) != 1):
        raise batch.refuse(
            op,
            "a loop under `vmap` counts differently for each element",
            "let `start` and `step` be the same for all elements (`st.range(n)` may end at a mapped `n`)",
        )
    first, last = batch.context.handle(batch.value(start)), batch.context.handle(batch.value(stop))
    up = number > 0
    if own_start:
        mine: Any = (lambda i: greater_equal(i, first)) if up else (lambda i: less_equal(i, first))
        ends = [_outermost(batch, first, not up), last]
    else:
        mine = (lambda i: less(i, last)) if up else (lambda i: greater(i, last))
        ends = [first, _outermost(batch, last, up)]
    return [*(batch.context.value_of(end) for end in ends), batch.value(step)], mine


def _outermost(batch: Batch, bounds: Array, largest: bool) -> Array:
    if batch.size == 0:
        return index(0)
    return max_(bounds) if largest else min_(bounds)

