"""Arrays that one message reduces over ranks: they are next to one another, and keep their buffers.

Tested by `tests/ranks/test_sharded_optimizers.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from staged.ir.buffers import Buffer, aligned
from staged.ir.declaration import prims
from staged.ir.nodes import Function, Op, Value
from staged.ir.storage import is_tensor, root_of, structural_ops
from staged.ir.structure import REDUCE_START, REDUCE_WAIT
from staged.ir.types import TensorType, u8
from staged.passes.memory.offsets import merged


@dataclass
class BucketMemory:
    """The region of memory of each bucket, with the buffers in it."""

    regions: dict[Op, Buffer] = field(default_factory=dict)

    def outside(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The buffers of an arena, each region in place of the buffers in it."""
        inside = {buffer for region in self.regions.values() for buffer in region.parts}
        return [*(buffer for buffer in buffers if buffer not in inside), *self.regions.values()]

    def settle(self) -> None:
        """Place the members of each region one after another."""
        for region in self.regions.values():
            offset = region.offset
            for buffer in region.parts:
                buffer.offset = offset
                offset += aligned(buffer.nbytes)


def is_in_bucket(value: Value) -> bool:
    """Return whether a message with several arrays reduces this one."""
    op = value.made_by(prims.ALL_REDUCE, REDUCE_START, REDUCE_WAIT)
    return op is not None and len(op.operands) > 1 + (op.declared is REDUCE_WAIT)


def plan_buckets(function: Function, place: Mapping[Value, Buffer], owned: Collection[Buffer]) -> BucketMemory:
    """Find the arrays of each reduction that may be adjacent: those of the arena that keep their buffers."""
    found = BucketMemory()
    taken = set(owned)
    for op in structural_ops(function.block):
        if op.declared not in (prims.ALL_REDUCE, REDUCE_START) or len(op.operands) == 1:
            continue
        members: dict[Buffer, None] = {}
        for operand, result in zip(op.operands, op.results[-len(op.operands) :], strict=True):
            buffer = place.get(result)
            is_own = buffer is not None and buffer.kind == "arena" and buffer.variable is None and buffer not in taken
            if is_own and is_tensor(operand) and place.get(root_of(operand)) is buffer and buffer is not None:
                members[buffer] = None
        if len(members) < 2:
            continue
        nbytes = sum(aligned(buffer.nbytes) for buffer in members)
        intervals = merged([interval for buffer in members for interval in buffer.intervals])
        region = Buffer("bucket", TensorType(u8, (nbytes,)), "arena", nbytes, op.device, intervals=intervals)
        region.parts = tuple(members)
        taken.update(members)
        found.regions[op] = region
    return found
