"""`if` in mapped code: kept where the condition is the same for all elements, else both branches and a choice."""

from __future__ import annotations

from staged.batching.batch import CONTROL_FLOW, Batch
from staged.batching.containers import placeholder
from staged.batching.masks import Mask, ZeroMask
from staged.batching.spread import SPREADS, Spread, is_container
from staged.ir.nodes import Block, Op, Value, free_values
from staged.ir.structure import COMPOSITE, FRAME_NULL, IF, SEQUENCE_EMPTY
from staged.ops.comparisons import logical_not
from staged.ops.composite import COMPOSITES
from staged.ops.reduction import any_


@SPREADS.rule(IF)
def spread_branches(spread: Spread, op: Op) -> None:
    """A result depends on what the branches yield for it, and on the condition that chose it."""
    for block in op.blocks:
        spread.block(block)
        if block.end.kind == "yield":
            for value, result in zip(block.end.operands, op.results, strict=True):
                spread.pass_on(value, result)
    if op.operands[0] in spread.batched:
        spread.mark(op.results)
        for block in op.blocks:
            if block.end.kind == "yield":
                spread.mark(tuple(value for value in block.end.operands if is_container(value)))


@CONTROL_FLOW.rule(IF)
def branches(batch: Batch, op: Op) -> None:
    """Emit the batched form of an `if`."""
    if op.operands[0] not in batch.batched:
        blocks = [_branch(batch, block, op) for block in op.blocks]
        types = [batch.type_of(result) for result in op.results]
        batch.copied(op, [batch.value(op.operands[0])], types, blocks=blocks)
        return
    condition = batch.value(op.operands[0])
    other = batch.context.value_of(logical_not(batch.context.handle(condition)))
    sides = [_side(batch, op, block, mask) for block, mask in zip(op.blocks, (condition, other), strict=True)]
    mask = ZeroMask(batch.context, batch.size, condition)
    results = []
    for number, result in enumerate(op.results):
        given = [side[number] for side in sides if side is not None]
        if len(given) == 1:
            results.append(given[0])
        elif is_container(result):
            results.append(_container_of(batch, op, number, given))
        else:
            results.append(mask.choose(*given))
    batch.define(op.results, results)


def _branch(batch: Batch, block: Block, op: Op) -> Block:
    """A branch that is taken for all elements alike."""
    with batch.builder.block() as opened:
        batch.ops(block)
        ends = block.end
        assert ends.kind == "yield" or ends.kind == "raise", "exits are normalised in the blocks of transforms"
        given = [
            batch.as_batched(value, result in batch.batched)
            for value, result in zip(ends.operands, op.results, strict=ends.kind == "yield")
        ]
        batch.builder.end(ends.kind, given, None, ends.where)
    return opened.block


def _side(batch: Batch, op: Op, block: Block, mask: Value) -> list[Value] | None:
    """The results of one branch for the elements of `mask`; None if it stops the program."""
    if block.end.kind == "yield" and all(map(_is_harmless, block.ops)):
        with batch.under(ZeroMask(batch.context, batch.size, mask), free_values(block) if block.ops else ()):
            batch.ops(block)
            return [batch.full(value) for value in block.end.operands]
    taken = batch.context.value_of(any_(batch.context.handle(mask)))
    taken.hint = "taken"
    types = [batch.type_of(result) for result in op.results]
    with batch.builder.block() as then:
        with batch.under(Mask(batch.context, batch.size, mask), free_values(block)):
            batch.ops(block)
            given = [batch.full(value) for value in block.end.operands]
        batch.builder.end(block.end.kind, given, None, block.end.where)
    with batch.builder.block() as orelse:
        batch.builder.end("yield", [placeholder(batch, result) for result in op.results], None, op.where)
    made = batch.builder.op(IF, [taken], types, blocks=[then.block, orelse.block], where=op.where)
    return list(made.results) if block.end.kind == "yield" else None


def _is_harmless(op: Op) -> bool:
    """Return whether an op of a branch may be computed for all elements, of zeros where it is not meant for one.

    Others run only if there is an element that they are meant for (see `masks.py`): NaN there times a cotangent of 0 is
    NaN.
    """
    if op.declared is COMPOSITE:
        return COMPOSITES[op.attrs["name"]].harmless
    return op.declared.harmless and not op.effects and not op.blocks


def _container_of(batch: Batch, op: Op, number: int, given: list[Value]) -> Value:
    """Residuals of a branch: the branch that made them gives them, the other an empty sequence or frame.

    A sequence that a branch adds to passes through the other as it is; what is added for masked elements is 0.
    """
    yielded = [block.end.operands[number] for block in op.blocks]
    for mine, (value, other) in zip(given, (yielded, yielded[::-1]), strict=True):
        if other.made_by(SEQUENCE_EMPTY, FRAME_NULL):
            return mine
        outside = other not in {result for block in op.blocks for inner in block.ops for result in inner.results}
        if outside and value is not other:
            return mine
    if yielded[0] is yielded[1]:
        return given[0]
    raise batch.refuse(
        op,
        "under `vmap` both branches of this `if` keep values for the reverse of a loop around it",
        "differentiate outside of the `vmap`: `st.grad` of a function that calls `st.vmap`",
    )
