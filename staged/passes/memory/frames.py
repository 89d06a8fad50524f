"""Residuals of a call are computed straight into the call's frame, where that can be.

Tested by `tests/passes/memory/test_plan.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.ir.buffers import Buffer
from staged.ir.nodes import Function, Op, Value
from staged.ir.storage import is_tensor
from staged.ir.structure import FRAME_SAVE
from staged.ir.types import CPU, Device
from staged.passes.memory.groups import Groups


def join_frames(function: Function, groups: Groups, devices: Mapping[Value, Device]) -> dict[tuple[Op, int], Buffer]:
    """Give values that a frame holds the place of its fields, so that saving the frame copies nothing.

    The frame then exists from the function's start, and its fields keep what they hold until long after its end. So a
    group of values goes there if none of its others is needed when the frame is saved or later. Parameters, results of
    the function and values of Variables have places already: those are copied, as is one that is kept twice. A
    `frame_save` inside of control flow copies: whether it runs, and how often, is not known at the start.

    Returns the buffer of each such field, by the `frame_save` and the field's number.
    Exact: one value alone is needed from the save on; whatever else shares its buffer is dead by then.
    """
    fields = {}
    for op in function.block.ops:
        if op.declared is FRAME_SAVE:
            for number, value in enumerate(op.operands):
                group = groups.of.get(value)
                if group is None or group.buffer is not None or group.variable is not None or not is_tensor(value):
                    continue
                saved, size = groups.live.start[op], value.tensor.nbytes
                if group.nbytes != size or any(end >= saved for (_, end), other in group.members if other is not value):
                    continue
                groups.hold(value, saved, groups.live.length)
                device = devices.get(value, CPU)
                buffer = Buffer(value.hint or "kept", value.tensor, "frame", size, device, where=op.where, index=number)
                group.buffer = fields[op, number] = buffer
    return fields
