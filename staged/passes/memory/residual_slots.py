"""What a loop keeps of each turn is made in its slot of the loop's history, where that can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from staged.ir.buffers import Buffer, Stack
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor, root_of
from staged.ir.types import CPU
from staged.passes.memory.sequences import kept_name

if TYPE_CHECKING:
    from staged.passes.memory.plan import _Planner


DEVICE_MULTIPLE = 16
"""On a device a slot holds so many bytes, or a multiple: what is made there is written 16 bytes at a time."""


def join_histories(planner: _Planner, places: Mapping[Value, Buffer | Stack]) -> None:
    """Give values that a loop collects the place of this turn's slot, so that nothing is copied when the turn ends.

    A slot exists for one turn, so a group of values goes there if all of them live inside the loop's body: what is carried, or
    comes from outside of the loop, is copied, and so is what is kept twice. A stack (for a loop without a bound, and for
    the loops inside of it) grows when the turn ends, and may move: what goes there is copied too.

    Exact: each group that goes to a slot lives inside of one turn, whole; a loop of no turns makes no slot.
    """
    for op in planner.loops():
        collected = op.attrs.get("collected", 0)
        if not collected or op.blocks[-1].end.kind != "yield":
            continue
        for result, value in zip(op.results[-collected:], op.blocks[-1].end.operands[-collected:], strict=True):
            if is_tensor(value) and not isinstance(places.get(result), Stack):  # an array, or a handle with a bound
                _join_slot(planner, op, result, value)


def _join_slot(planner: _Planner, op: Op, result: Value, value: Value) -> None:
    group = planner.group.get(root_of(value))
    if group is None or group.buffer is not None or group.variable is not None:
        return
    device = planner.devices.get(result, CPU)
    if device != CPU and value.tensor.nbytes % DEVICE_MULTIPLE:
        return
    if group.nbytes != value.tensor.nbytes or device != planner.devices.get(root_of(value), CPU):
        return
    body = op.blocks[-1]
    first, last = planner.live.block_start[body], planner.live.block_end[body]
    if any(start < first or end > last for (start, end), _ in group.members):
        return
    named = kept_name(result) or next((other.hint for other in group.values if other.hint), "")
    slot = Buffer(named or "kept", value.tensor, "slot", group.nbytes, device, where=op.where)
    group.buffer = planner.kept[result] = slot
