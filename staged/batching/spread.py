"""The values of a mapped block that depend on a mapped one: they get a leading axis, all others stay as they are."""

from __future__ import annotations

from collections.abc import Callable

from staged.ir.nodes import Block, Op, Value
from staged.ir.op_table import OpTable
from staged.ir.types import FrameType, SequenceType


def batched_values(block: Block, mapped: set[Value]) -> set[Value]:
    """`mapped`, and every value in `block` and the blocks inside it that depends on them.

    A result depends on each operand, on the condition that chose it, and on the bounds of the loop that made it. A
    sequence or frame is batched as a whole: together with all that it is added to, carried as or chosen from.
    """
    spread = Spread(set(mapped))
    while True:
        before = len(spread.batched)
        spread.block(block)
        if len(spread.batched) == before:
            return spread.batched


def is_container(value: Value) -> bool:
    """Return whether a value is batched where it is made, and not repeated where it is used."""
    return isinstance(value.type, SequenceType | FrameType)


SpreadRule = Callable[["Spread", Op], None]
"""Adds to the batched values those that an op makes, and those that it makes batched."""

SPREADS: OpTable[SpreadRule] = OpTable()
"""The rules of structured ops; results of others depend on every operand."""


class Spread:
    """Finds batched values: walks a block again and again, until nothing changes."""

    def __init__(self, batched: set[Value]) -> None:
        self.batched = batched

    def any(self, values: tuple[Value, ...]) -> bool:
        return any(value in self.batched for value in values)

    def mark(self, values: tuple[Value, ...]) -> None:
        self.batched.update(values)

    def pass_on(self, source: Value, target: Value) -> None:
        """`target` is `source` later on; sequences and frames are alike in both directions."""
        if source in self.batched:
            self.batched.add(target)
        elif is_container(target) and target in self.batched:
            self.batched.add(source)

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        rule = SPREADS.get(op.declared)
        if rule is not None:
            rule(self, op)
        elif self.any(op.operands):
            self.mark(op.results)
