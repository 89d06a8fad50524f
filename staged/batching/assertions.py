"""Assertions in mapped code."""

from __future__ import annotations

from staged.batching.batch import BATCHED, Batch
from staged.batching.lanes import element
from staged.batching.values import emit, i64_scalar
from staged.ir.declaration import prims
from staged.ir.nodes import Op
from staged.ir.structure import ASSERT
from staged.ir.types import i32
from staged.ops.array import Array
from staged.ops.promote import cast
from staged.ops.reduction import all_


@BATCHED.rule(ASSERT)
def assertion(batch: Batch, op: Op) -> None:
    """An assertion holds if it holds for every element; its message speaks of the first for which it does not."""
    if batch.size == 0:
        return
    operands: list[Array] = [batch.context.handle(batch.value(operand)) for operand in op.operands]
    condition, *printed = operands
    flags = [operand in batch.batched for operand in op.operands]
    if any(flags[1:]):
        first = i64_scalar(0)
        if flags[0]:
            (first,) = emit(prims.ARGMIN, [cast(condition, i32)], {"axis": 0})
        printed = [element(x, first) if flag else x for x, flag in zip(printed, flags[1:], strict=True)]
    whole = all_(condition, 0) if flags[0] else condition
    batch.copied(op, [batch.context.value_of(value) for value in (whole, *printed)], [])
