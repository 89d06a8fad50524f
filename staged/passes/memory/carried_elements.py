"""Carried values that are elements of a history: the loop carries an address, and copies none of them.

A reverse loop often needs the next value of a carried one. That is the element which the iteration before has read.

Tested by `tests/passes/memory/test_residual_slots.py`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from staged.ir.buffers import Buffer, Stack
from staged.ir.nodes import Function, Op, Value, free_values
from staged.ir.storage import is_tensor, root_of, structural_blocks, structural_ops
from staged.ir.structure import FOR, SEQUENCE_GET
from staged.ir.views import Loop
from staged.passes.memory.liveness import Liveness
from staged.passes.memory.offsets import merged


def carried_elements(
    function: Function, live: Liveness, places: Mapping[Value, Buffer | Stack], handles: Container[Value]
) -> dict[Value, Value]:
    """The parameters for carried values, each of which is an element that the iteration before has read, or the initial
    value. Returns the loops' results for them. Initial values live through the loop then.

    Exact: the history was complete before the loop and does not move. No op reads the loop's result. The initial value
    is an array of the program's own, and lives on, so nothing writes over it.
    """
    found: dict[Value, Value] = {}
    ops = list(structural_ops(function.block))
    used = {value for op in ops for value in op.operands}
    for block in structural_blocks(function.block):
        used.update(block.end.operands)
    for op in ops:
        if op.declared is not FOR or [block for block, _ in Loop(op).ends()] != [Loop(op).body]:
            continue
        loop = Loop(op)
        for index, (param, initial) in enumerate(zip(loop.carried, loop.initial, strict=True)):
            read, root = loop.body.end.operands[index].made_by(SEQUENCE_GET), root_of(initial)
            if read is None or not is_tensor(param) or loop.final[index] in used:
                continue
            history = read.operands[0]
            if (
                history in handles
                or not isinstance(places.get(history), Buffer)
                or history not in free_values(loop.body)
            ):
                continue
            if _is_own(root) and root in live.intervals:
                found[param] = loop.final[index]
                live.intervals[root] = merged([*live.intervals[root], (live.start[op], live.finish[op])])
    return found


def _is_own(value: Value) -> bool:
    """Return whether a kernel or a loop computes the value."""
    producer: Op | None = value.producer
    return producer is not None and (producer.declared.is_opaque or producer.declared is FOR)
