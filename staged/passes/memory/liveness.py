"""Liveness: every op gets a position in program order, every value the intervals in which it must exist.

Positions are laid out linearly; a value's life is a list of closed intervals of positions:

- A loop's body runs many times, so a value from outside that is used inside lives through the whole loop.
- Of the two branches of an `if` only one runs. A value that one branch needs, and nothing after the `if`, lives in that
  branch alone: the other may write over it. This is what lets both branches leave their result in the same buffer.

Tested by `tests/passes/memory/test_plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from staged.ir.nodes import Block, Function, Op, Value, free_values

Interval = tuple[int, int]
"""First and last position at which a value is live, both included."""


@dataclass(slots=True)
class Liveness:
    """Positions and live intervals of one function."""

    block_start: dict[Block, int] = field(default_factory=dict)
    block_end: dict[Block, int] = field(default_factory=dict)
    start: dict[Op, int] = field(default_factory=dict)
    """Position at which an op begins (reads its operands)."""
    finish: dict[Op, int] = field(default_factory=dict)
    """Position at which its results exist: the same for plain ops, after the blocks for control flow."""
    intervals: dict[Value, list[Interval]] = field(default_factory=dict)
    length: int = 0

    def defined(self, value: Value) -> int:
        """The position at which a value is made."""
        return self.intervals[value][0][0]


def liveness(function: Function) -> Liveness:
    """Positions and live intervals of every value of `function`.

    Exact: no interval is too short: a loop's body is taken to run again, either branch to be the one that runs.
    """
    result = Liveness()
    _number(function.block, result)
    _Backward(result).block(function.block, {})
    return result


def _number(block: Block, result: Liveness) -> None:
    result.length += 1
    result.block_start[block] = result.length
    for op in block.ops:
        result.length += 1
        result.start[op] = result.finish[op] = result.length
        if op.blocks and not op.declared.is_opaque:
            for inner in op.blocks:
                _number(inner, result)
            result.length += 1
            result.finish[op] = result.length
    result.length += 1
    result.block_end[block] = result.length


class _Backward:
    """Walks blocks from the end; `live` maps each live value to the end of the interval that is open for it."""

    def __init__(self, result: Liveness) -> None:
        self.result = result

    def close(self, value: Value, start: int, live: dict[Value, int]) -> None:
        end = live.pop(value, start)
        self.result.intervals.setdefault(value, []).insert(0, (start, end))

    def block(self, block: Block, live: dict[Value, int]) -> None:
        """Process `block`; on return `live` holds the values that are live at its start."""
        r = self.result
        end = r.block_end[block]
        for operand in block.end.operands:
            live.setdefault(operand, end)
        for op in reversed(block.ops):
            for value in op.results:
                self.close(value, r.finish[op], live)
            if op.blocks and not op.declared.is_opaque:
                if op.declared.is_loop:
                    self.loop(op, live)
                else:
                    self.branches(op, live)
            for operand in op.operands:
                live.setdefault(operand, r.start[op])
        start = r.block_start[block]
        for param in block.params:
            self.close(param, start, live)

    def loop(self, op: Op, live: dict[Value, int]) -> None:
        r = self.result
        for inner in op.blocks:
            for value in free_values(inner):
                live.setdefault(value, r.finish[op])
        for inner in op.blocks:
            # What comes from outside is live all through the loop already; only what is made inside matters here.
            self.block(inner, dict(live))

    def branches(self, op: Op, live: dict[Value, int]) -> None:
        r = self.result
        needed: set[Value] = set()
        for inner in op.blocks:
            inside: dict[Value, int] = dict(live)
            self.block(inner, inside)
            for value, end in inside.items():
                if value not in live:
                    # Used in this branch and not after: one interval for the branch, another up to the `if`.
                    r.intervals.setdefault(value, []).insert(0, (r.block_start[inner], end))
                    needed.add(value)
        for value in needed:
            live.setdefault(value, r.start[op])
