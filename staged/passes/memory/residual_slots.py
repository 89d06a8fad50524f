"""Residuals of an iteration are computed straight into its slot of the loop's sequence, where that can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from staged.ir.buffers import Buffer, Chain, Stack
from staged.ir.names import element_name
from staged.ir.nodes import Function, Op, Value
from staged.ir.sizes import bounds_of
from staged.ir.storage import is_tensor, root_of, structural_ops
from staged.ir.structure import FOR
from staged.ir.trips import trip_count
from staged.ir.types import CPU, Device
from staged.ir.views import Loop
from staged.passes.memory.buckets import is_in_bucket
from staged.passes.memory.groups import Group, Groups
from staged.passes.memory.offsets import merged

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
    if any(is_in_bucket(each) for each in group.values):
        return None  # the arrays of one message are adjacent, and slots are not
    device, size = devices.get(result, CPU), value.tensor.nbytes
    if device != CPU and size % DEVICE_MULTIPLE:
        return None
    if group.nbytes != size or device != devices.get(root_of(value), CPU):
        return None
    body = Loop(op).body
    first, last = groups.live.block_start[body], groups.live.block_end[body]
    if any(start < first or end > last for (start, end), _ in group.members):
        return None
    hints = [value.hint, result.hint, *(other.hint for other in group.values)]
    name = next(filter(None, map(element_name, hints)), "kept")
    group.buffer = Buffer(name, value.tensor, "slot", size, device, where=op.where)
    return group.buffer


# ---- carried values that a loop collects ----------------------------------------------------------


def chain_carried(
    loops: Iterable[Op], groups: Groups, devices: Mapping[Value, Device], places: Mapping[Value, Buffer | Stack]
) -> dict[Value, Chain]:
    """Find the carried values that a loop also collects. Each iteration computes the next value in the slot of the next
    iteration, so it copies neither.

    The last iteration computes the loop's result in the buffer of the result. A history has one slot per iteration.
    Returns the chains by the parameters of the loops' bodies. Call it before other values are put into one buffer.

    Exact: the number of iterations is known before the loop, and nothing leaves the loop early. If there may be none,
    the program copies the initial value to the result. The next value lives in
    the body alone, and is in none of the buffers yet.
    """
    chained: dict[Value, Chain] = {}
    for op in loops:
        loop = Loop(op)
        trips = trip_count(op) if op.declared is FOR else None
        ends = loop.ends()
        if trips is None or bounds_of(trips)[1] < 2 or loop.by_index or [block for block, _ in ends] != [loop.body]:
            continue
        span = groups.live.block_start[loop.body], groups.live.block_end[loop.body]
        for result, value in zip(loop.collected, loop.elements, strict=True):
            param, history = root_of(value), places.get(result)
            if param not in loop.carried or param in chained:
                continue
            if not isinstance(history, Buffer):
                continue
            number = loop.carried.index(param)
            final, coming = loop.final[number], root_of(loop.body.end.operands[number])
            group, after = groups.of.get(param), groups.of.get(coming)
            if group is None or after is None or final not in groups.of or coming in loop.carried:
                continue
            size = param.tensor.nbytes
            if value.tensor.nbytes != size or coming.tensor.nbytes != size:
                continue
            device = devices.get(result, CPU)
            if any(devices.get(each, CPU) != device for each in (param, coming, final)):
                continue
            if device != CPU and ("layer" not in op.attrs or size % DEVICE_MULTIPLE):
                continue  # a graph of an iteration has the addresses of one iteration
            if after.buffer is not None or after.variable is not None or not _lives_in(after, span):
                continue
            name, first = element_name(value.hint) or element_name(result.hint) or "kept", None
            slot, following = (
                Buffer(n, param.tensor, "slot", size, device, where=op.where) for n in (name, f"next_{name}")
            )
            if history.values == [result]:  # and not a part of the history of a loop around this one
                first = Buffer(name, param.tensor, "slot", size, device, where=op.where, history=history)
            group.buffer, group.span = slot, span
            after.buffer, after.span = following, span
            chained[param] = Chain(result, slot, first, following, final, trips)
    return chained


def make_first_in_slots(function: Function, chained: Mapping[Value, Chain], groups: Groups) -> None:
    """Compute the initial value of a chain in the slot of the first iteration, if lifetimes allow it.

    Exact: from then on the history is in use, and until its last read only the initial value is written to the slot.
    No loop or branch comes between, so the history is not in memory much longer than needed.
    """
    live = groups.live
    carriers = [op for op in structural_ops(function.block) if op.blocks and not op.declared.is_opaque]
    borders = [position for op in carriers for position in (live.start[op], live.finish[op])]
    for op in carriers if chained else ():
        if not op.declared.is_loop:
            continue
        for param, initial in zip(Loop(op).carried, Loop(op).initial, strict=True):
            value = root_of(initial)
            group = groups.of.get(value)
            slot = chained[param].first if param in chained else None
            if slot is None or group is None or group.buffer is not None or group.variable is not None:
                continue
            history = slot.history
            assert history is not None
            begin, last = live.start[op], history.intervals[-1][1]
            defined = min(start for (start, _), _ in group.members)
            others = [interval for interval, member in group.members if member is not value]
            if (
                group.nbytes == param.tensor.nbytes
                and max(end for (_, end), _ in group.members) <= last
                and not any(end >= begin for _, end in others)
                and not any(defined < position < begin for position in borders)
            ):
                group.buffer = slot
                history.intervals = merged([*history.intervals, *(interval for interval, _ in group.members)])


def _lives_in(group: Group, span: tuple[int, int]) -> bool:
    return all(span[0] <= start and end <= span[1] for (start, end), _ in group.members)
