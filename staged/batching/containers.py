"""Sequences and frames in mapped code: batched where they are made, all of what they hold."""

from __future__ import annotations

from collections.abc import Sequence

from staged.batching.batch import BATCHED, CONTROL_FLOW, Batch
from staged.batching.masks import Mask
from staged.batching.spread import SPREADS, Spread, is_container
from staged.batching.values import batched_type
from staged.ir.nodes import Op, Value
from staged.ir.structure import (
    ABSENT,
    FRAME_LOAD,
    FRAME_NULL,
    FRAME_SAVE,
    SEQUENCE_ADD,
    SEQUENCE_EMPTY,
    SEQUENCE_GET,
    SEQUENCE_SUM,
    SEQUENCE_ZEROS,
)
from staged.ir.types import FrameType, SequenceType, TensorType
from staged.ops.source import zeros

GRAD_HINT = "differentiate outside of the `vmap`, or loop a number of times that is the same for all elements"


@SPREADS.rule(SEQUENCE_ADD, SEQUENCE_SUM, SEQUENCE_ZEROS)
def spread_sequence(spread: Spread, op: Op) -> None:
    """Sequences are batched together with those that they are made of."""
    if spread.any(op.operands) or spread.any(op.results):
        spread.mark(tuple(value for value in (*op.operands, *op.results) if isinstance(value.type, SequenceType)))


@BATCHED.rule(SEQUENCE_GET)
def sequence_get(batch: Batch, op: Op) -> None:
    """An element for each element; where only some are meant, the others have that of one of these."""
    sequence, index = op.operands
    if index in batch.batched:
        raise batch.refuse(
            op, "under `vmap` the iterations of a loop that is differentiated depend on what is mapped", GRAD_HINT
        )
    masks = masks_around(batch, sequence)
    batch.copied(op, [batch.full(sequence), batch.value(index)], [batch.type_of(op.result)])
    substitute(batch, op.results, masks)


@BATCHED.rule(SEQUENCE_ADD)
def sequence_add(batch: Batch, op: Op) -> None:
    """The elements that are not meant add zero."""
    sequence, index, element = op.operands
    operands = [batch.full(sequence), batch.value(index), batch.full(element)]
    for mask in masks_around(batch, sequence):
        if is_container(operands[2]):
            raise batch.refuse(
                op, "under `vmap` an inner loop is differentiated that runs for some elements only", GRAD_HINT
            )
        operands[2] = mask.zeroed(operands[2])
        mask.containers.update(op.results)
    batch.copied(op, operands, [batch.type_of(op.result)])


@BATCHED.rule(SEQUENCE_SUM, SEQUENCE_ZEROS, SEQUENCE_EMPTY, FRAME_SAVE, FRAME_NULL)
def container(batch: Batch, op: Op) -> None:
    """The same op on what is batched whole."""
    batch.copied(op, [batch.full(operand) for operand in op.operands], [batch.type_of(op.result)])


@BATCHED.rule(FRAME_LOAD)
def frame_load(batch: Batch, op: Op) -> None:
    """Every field of a batched frame is batched."""
    (frame,) = op.operands
    masks = masks_around(batch, frame)
    batch.copied(op, [batch.full(frame)], [batch.type_of(result) for result in op.results])
    substitute(batch, op.results, masks)


def masks_around(batch: Batch, container: Value) -> list[Mask]:
    """The masks of the branches and loops that stand between here and where a container was made."""
    return [mask for mask in batch.masks if container in mask.containers]


def substitute(batch: Batch, results: Sequence[Value], masks: Sequence[Mask]) -> None:
    """Replace what was read from a container of outside, for the elements that are not meant."""
    for result in results:
        for mask in masks:
            if is_container(result):
                mask.containers.add(result)
            else:
                batch.values[result] = mask.substitute(batch.values[result])


# ---- stand-ins ----------------------------------------------------------------------------------


@CONTROL_FLOW.rule(ABSENT)
def absent(batch: Batch, op: Op) -> None:
    """Zeros: where elements differ in the branches that they take, it takes part in a choice."""
    type = batch.type_of(op.result)
    batch.define(op.results, [batch.context.value_of(zeros(type.shape, type.dtype))])


def placeholder(batch: Batch, result: Value) -> Value:
    """A batched value of the type of `result`, which no element has."""
    type = batched_type(result.type, batch.size, batch.pool)
    if isinstance(type, FrameType):
        return batch.builder.op(FRAME_NULL, [], [type], where=batch.where).result
    if isinstance(type, SequenceType):
        return batch.builder.op(SEQUENCE_EMPTY, [], [type], where=batch.where).result
    assert isinstance(type, TensorType)
    return batch.context.value_of(zeros(type.shape, type.dtype))
