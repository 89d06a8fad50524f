"""Residuals of an iteration are computed straight into its slot of the loop's sequence, where that can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from staged.ir.buffers import Buffer, Stack
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor, root_of
from staged.ir.types import CPU, Device
from staged.ir.views import Loop
from staged.passes.memory.groups import Groups
from staged.passes.memory.sequences import kept_name

DEVICE_MULTIPLE = 16
"""On a device a slot holds so many bytes, or a multiple: what is made there is written 16 bytes at a time."""


def join_residual_slots(
    loops: Iterable[Op], groups: Groups, devices: Mapping[Value, Device], places: Mapping[Value, Buffer | Stack]
) -> dict[Value, Buffer]:
    """Give values that a loop collects the place of this iteration's slot, so that the iteration's end copies nothing.

    A slot exists for one iteration, so a group of values goes there if all of them live inside the loop's body: what is
    carried, or comes from outside of the loop, is copied, and so is what is kept twice. A stack (for a loop without a
    bound, and for the loops inside of it) grows when the iteration ends, and may move: what goes there is copied too.

    Returns the buffer of each such slot, by the loop's result. `places` are those of the collected sequences.
    Exact: each group that goes to a slot lives inside of one iteration, whole; a loop of no iterations makes no slot.
    """
    kept = {}
    for op in loops:
        loop = Loop(op)
        if not loop.elements:
            continue
        for result, value in zip(loop.collected, loop.elements, strict=True):
            if is_tensor(value) and not isinstance(places.get(result), Stack):  # an array, or a handle with a bound
                slot = _join_slot(op, result, value, groups, devices)
                if slot is not None:
                    kept[result] = slot
    return kept


def _join_slot(op: Op, result: Value, value: Value, groups: Groups, devices: Mapping[Value, Device]) -> Buffer | None:
    group = groups.of.get(root_of(value))
    if group is None or group.buffer is not None or group.variable is not None:
        return None
    device, size = devices.get(result, CPU), value.tensor.nbytes
    if device != CPU and size % DEVICE_MULTIPLE:
        return None
    if group.nbytes != size or device != devices.get(root_of(value), CPU):
        return None
    body = Loop(op).body
    first, last = groups.live.block_start[body], groups.live.block_end[body]
    if any(start < first or end > last for (start, end), _ in group.members):
        return None
    named = kept_name(result) or next((other.hint for other in group.values if other.hint), "")
    group.buffer = Buffer(named or "kept", value.tensor, "slot", size, device, where=op.where)
    return group.buffer
