"""What a call keeps for its reverse is made in the call's frame, where that can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from staged.ir.buffers import Buffer
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import CPU

if TYPE_CHECKING:
    from staged.passes.memory.plan import _Planner


def join_frames(planner: _Planner) -> None:
    """Give values that a frame holds the place of its fields, so that nothing is copied when it is saved.

    The frame then exists from the function's start, and its fields keep what they hold until long after its end. So a group of
    values goes there if none of its others is needed when the frame is saved or later. Parameters, results of the function
    and values of Variables have places already: those are copied, as is one that is kept twice. A `frame_save` inside of
    control flow copies: whether it runs, and how often, is not known at the start.

    Exact: one value alone is needed from the save on; whatever else shares its buffer is dead by then.
    """
    for op in planner.function.block.ops:
        if op.name == "frame_save":
            for number, value in enumerate(op.operands):
                _join_field(planner, op, number, value)


def _join_field(planner: _Planner, op: Op, number: int, value: Value) -> None:
    group = planner.group.get(value)
    if group is None or group.buffer is not None or group.variable is not None or not is_tensor(value):
        return
    if group.nbytes != value.tensor.nbytes:
        return
    saved = planner.live.start[op]
    if any(end >= saved for (_, end), other in group.members if other is not value):
        return
    planner.hold(value, saved, planner.live.length)
    device = planner.devices.get(value, CPU)
    buffer = Buffer(value.hint or "kept", value.tensor, "frame", group.nbytes, device, where=op.where, index=number)
    group.buffer = planner.fields[op, number] = buffer
