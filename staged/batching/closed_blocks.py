"""Ops with closed blocks in mapped code: composites, and what a derivative around the `vmap` has yet to open."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from staged.batching.batch import BATCHED, Batch
from staged.batching.spread import batched_values
from staged.batching.values import batched_type, repeat
from staged.ir.builder import OpenBlock
from staged.ir.nodes import Block, Op, Value
from staged.ir.structure import CHECKPOINT, COMPOSITE, CUSTOM_VJP
from staged.ir.views import CustomVjp
from staged.ops.array import Array
from staged.ops.composite import COMPOSITES
from staged.ops.context import use_context
from staged.ops.promote import cast
from staged.ops.reduction import sum_


@BATCHED.rule(COMPOSITE)
def composite(batch: Batch, op: Op) -> None:
    """A composite stays one where its attributes say all; else its body is batched."""
    declared = COMPOSITES[op.attrs["name"]]
    shift = declared.shift
    flags = [operand in batch.batched for operand in op.operands]
    if shift is None or (any(flags[1:]) and not declared.has_batches):
        body = op.blocks[0]
        for param, operand in zip(body.params, op.operands, strict=True):
            batch.values[param] = batch.value(operand)
            if operand in batch.batched:
                batch.batched.add(param)
        batch.batched |= batched_values(body, {param for param in body.params if param in batch.batched})
        batch.ops(body)
        results = [batch.full(value) for value in body.end.operands]
    else:
        handles: list[Array] = [batch.context.handle(batch.value(operand)) for operand in op.operands]
        if declared.has_batches:
            handles = [x if flag else repeat(x, batch.size) for x, flag in zip(handles, flags, strict=True)]
        attrs = {key: value for key, value in op.attrs.items() if key != "name"}
        made = COMPOSITES[op.attrs["name"]](*handles, **shift(attrs, batch.size))
        results = [batch.context.value_of(result) for result in made]
    batch.define(op.results, results)


@BATCHED.rule(CHECKPOINT, CUSTOM_VJP)
def differentiable(batch: Batch, op: Op) -> None:
    """A `checkpoint` or `custom_vjp` whose blocks are batched in place: a derivative around needs them."""
    mapped = [operand in batch.batched for operand in op.operands]
    operands = [batch.value(operand) for operand in op.operands]
    types = [batched_type(result.type, batch.size, batch.pool) for result in op.results]
    blocks = [_batched_block(batch, block, mapped) for block in op.blocks[:2]]
    if op.declared is CUSTOM_VJP:
        blocks.append(_batched_backward(batch, op, mapped))
    batch.copied(op, operands, types, blocks=blocks)


def _batched_block(batch: Batch, block: Block, mapped: Sequence[bool]) -> Block:
    """A closed block with these parameters batched, and all that it yields."""
    inner, opened = _inside(batch, block, mapped)
    with opened as made:
        inner.values.update(zip(block.params, made.params, strict=True))
        with use_context(inner.context):
            inner.ops(block)
            batch.builder.end("yield", [inner.full(value) for value in block.end.operands], None, block.end.where)
    return made.block


def _batched_backward(batch: Batch, op: Op, mapped: Sequence[bool]) -> Block:
    """The backward block: the cotangent of a capture without the axis is the sum over it."""
    block = CustomVjp(op).backward
    inner, opened = _inside(batch, block, [True] * len(block.params))
    with opened as made:
        inner.values.update(zip(block.params, made.params, strict=True))
        with use_context(inner.context):
            inner.ops(block)
            found = []
            for number, value in zip(CustomVjp(op).wrt, block.end.operands, strict=True):
                cotangent = inner.full(value)
                found.append(cotangent if mapped[number] else _summed(inner, cotangent, op.operands[number]))
            batch.builder.end("yield", found, None, block.end.where)
    return made.block


def _inside(batch: Batch, block: Block, mapped: Sequence[bool]) -> tuple[Batch, AbstractContextManager[OpenBlock]]:
    params = {param for param, is_mapped in zip(block.params, mapped, strict=True) if is_mapped}
    inner = Batch(batch.builder, batch.pool, batch.size, batched_values(block, params), batch.where)
    types = [inner.type_of(param) for param in block.params]
    return inner, batch.builder.block(types, [param.hint for param in block.params])


def _summed(batch: Batch, value: Value, like: Value) -> Value:
    """The sum over the leading axis, in the type of `like`."""
    total = sum_(batch.context.handle(value), 0)
    return batch.context.value_of(cast(total, like.tensor.dtype, like.tensor.weak))
