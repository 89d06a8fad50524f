"""Loops whose iterations threads share, and the memory of their bodies: a copy for each thread.

A loop is shared where no iteration touches what another one writes (`ir/loop_windows.py`), and where the plan keeps
what it carries in place: a copy of a whole array would be one of other threads' work. All else that the body makes is
in buffers that live within one iteration.

Tested by `tests/backends/native/test_shared_loops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from staged.ir.buffers import Buffer, SharedLoop, Sharing
from staged.ir.loop_windows import LoopWindows, made_inside
from staged.ir.nodes import Function, Op, Value
from staged.ir.ranges import Ranges
from staged.ir.storage import is_tensor, structural_blocks, structural_ops
from staged.ir.structure import FOR, KERNEL
from staged.ir.types import CPU, TensorType, u8
from staged.ir.views import Loop
from staged.passes.memory.liveness import Liveness
from staged.passes.memory.offsets import assign_offsets

MOST_BYTES = 4 << 20
"""The most that a thread has for itself in a loop: kernels of larger arrays are worth a team each."""


@dataclass
class LoopMemory:
    """The shared loops of a function, and where their threads' arrays are."""

    shared: dict[Op, SharedLoop] = field(default_factory=dict)
    unfilled: frozenset[Op] = frozenset()
    regions: dict[Op, Buffer] = field(default_factory=dict)
    """By loop, the memory for the arrays of all threads."""

    def owned(self) -> set[Buffer]:
        """The buffers that each thread has for itself."""
        return {buffer for loop in self.shared.values() for buffer in loop.own}

    def outside(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The buffers of an arena, each region in place of the buffers in it."""
        inside = self.owned()
        return [*(buffer for buffer in buffers if buffer not in inside), *self.regions.values()]

    def settle(self) -> None:
        """Move the buffers of each region to where the region has its place."""
        for op, region in self.regions.items():
            for buffer in self.shared[op].own:
                buffer.offset += region.offset


def plan_shared_loops(
    function: Function, live: Liveness, place: Mapping[Value, Buffer], buffers: Sequence[Buffer], sharing: Sharing
) -> LoopMemory:
    """Find the loops that threads share, and the fills of arrays that loops write as a whole."""
    loops = [op for op in structural_ops(function.block) if op.declared is FOR]
    ranges = Ranges()
    for op in loops:
        span = ranges.of_index(Loop(op).bounds)
        if span is not None:
            ranges.known[Loop(op).index] = span
    uses = _uses(function)
    found: list[Op] = []
    unfilled: set[Op] = set()
    for op in loops:
        windows = LoopWindows(op, ranges)
        if windows.arrays is None:
            continue
        places = [{place.get(version) for version in array.versions} for array in windows.arrays]
        for number, initial in enumerate(Loop(op).initial):
            fill = initial.made_by(KERNEL)
            if (
                fill is not None
                and len(fill.results) == 1
                and not fill.effects
                and fill.device == CPU
                and uses[initial] == 1
                and places[number] == {place.get(initial)}
                and windows.is_written(number)
            ):
                unfilled.add(fill)
        versions = {version for array in windows.arrays for version in array.versions}
        own = {buffer for buffer in buffers if _is_within(op, buffer, live)}
        if (
            sharing.threads > 1
            and all(len(each) == 1 for each in places)
            and all(value in versions or place.get(value) in own for value in made_inside(op) if is_tensor(value))
            and windows.are_apart()
            and sharing.is_worth(op)
        ):
            found.append(op)
    memory = LoopMemory(unfilled=frozenset(unfilled))
    while True:
        owned = _by_loop(found, buffers, live)
        strides = {op: assign_offsets(own) for op, own in owned.items()}
        large = [op for op in found if strides[op] > MOST_BYTES]
        if not large:
            break
        found = [op for op in found if op not in large]
    for op in found:
        memory.shared[op] = SharedLoop(tuple(owned[op]), strides[op])
        if strides[op]:
            outermost = next(other for other in found if live.start[other] <= live.start[op] <= live.finish[other])
            nbytes = strides[op] * sharing.threads
            region = Buffer("threads", TensorType(u8, (nbytes,)), "arena", nbytes)
            region.intervals = [(live.start[outermost], live.finish[outermost])]
            memory.regions[op] = region
    return memory


def _is_within(op: Op, buffer: Buffer, live: Liveness) -> bool:
    """Return whether a buffer is in use in the body of a loop alone."""
    return (
        buffer.kind == "arena"
        and buffer.variable is None
        and bool(buffer.intervals)
        and live.start[op] < buffer.intervals[0][0]
        and buffer.intervals[-1][1] < live.finish[op]
    )


def _by_loop(loops: Sequence[Op], buffers: Sequence[Buffer], live: Liveness) -> dict[Op, list[Buffer]]:
    """The buffers that each loop's body has for itself: of loops in one another, the innermost one's."""
    owned: dict[Op, list[Buffer]] = {op: [] for op in loops}
    for buffer in buffers:
        around = [op for op in loops if _is_within(op, buffer, live)]
        if around:
            owned[max(around, key=lambda op: live.start[op])].append(buffer)
    return owned


def _uses(function: Function) -> dict[Value, int]:
    """The number of times that each value is an operand, of an op or of a block's end."""
    counts: dict[Value, int] = {}
    for block in structural_blocks(function.block):
        for operands in (*(op.operands for op in block.ops), block.end.operands):
            for operand in operands:
                counts[operand] = counts.get(operand, 0) + 1
    return counts
