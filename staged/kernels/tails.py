"""Tails of reductions: what a program computes from the totals of rows alone, such as the update of a weight.

    d_weight = sum(d_y * xhat, rows); mean = 0.9 * mean + 0.1 * d_weight; ...; weight = weight - step

These ops have so few elements that a separate kernel costs nothing on a CPU. All updates then share one function, and
the kernel of the sums has few parameters.

Tested by `tests/kernels/test_groups.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value
from staged.ir.types import TensorType
from staged.kernels.kinds import extents, is_elementwise, is_scalar

LONG = 64
"""The fewest elements of a row that are much more work than its total."""


def tails_of(block: Block, users: dict[Value, list[Op | None]]) -> set[Op]:
    """The elementwise ops of a block that arrays `LONG` times as large do not depend on."""
    found: set[Op] = set()
    largest: dict[Value, int] = {}

    def reach(value: Value) -> int:
        """The size of the largest array that is computed from a value."""
        if value not in largest:
            results = [result for user in users.get(value, ()) if user is not None for result in user.results]
            largest[value] = max((max(size_of(result), reach(result)) for result in results), default=0)
        return largest[value]

    for op in reversed(block.ops):
        if len(op.results) == 1 and is_elementwise(op) and not is_scalar(op.result):
            if reach(op.result) < LONG * size_of(op.result):
                found.add(op)
        else:
            for value in op.results:
                reach(value)
    return found


def size_of(value: Value) -> int:
    return prod(extents(value)) if isinstance(value.type, TensorType) else 0


def reads_totals(tail: Sequence[Op], ops: Sequence[Op]) -> bool:
    """Return whether `ops` compute several totals of rows of `LONG` elements or more, and a tail reads one of these."""
    totals = {
        op for op in ops if op.declared.kind == "reduction" and size_of(op.operands[0]) >= LONG * size_of(op.results[0])
    }
    made = (operand.behind(prims.RESHAPE).producer for op in tail for operand in op.operands)
    return len(totals) > 1 and not totals.isdisjoint(made)
