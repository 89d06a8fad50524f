"""The readers of an op's residuals: in the same iteration of a loop, or after a loop has collected them.

    for k in ...:                        for k in ... backwards:
        y, kept = composite(x)               kept = sequence_get(history, k)
        collect kept in history              d_x = composite_backward(ct, x, .., kept)

A library that can do without what an op keeps may take the op, if it takes all that read it as well.

Tested by `tests/backends/cublas_cudnn/test_recurrent.py` and `tests/backends/cublas_cudnn/test_batch_norm.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from staged.ir.nodes import Block, Op, Value, walk_ops
from staged.ir.storage import is_absent
from staged.ir.structure import IF, SEQUENCE_GET
from staged.ir.users import Users
from staged.ir.views import Loop


@dataclass(slots=True)
class Route:
    """The route of a value from the op that makes it to its readers."""

    values: dict[Value, None] = field(default_factory=dict)
    """The value, the sequences it is collected in, and what is read out of these."""
    ends: set[tuple[Block, int]] = field(default_factory=set)
    """The ends of blocks that pass it on, and as which of their operands."""


@dataclass(slots=True)
class Kept:
    """The readers of one op's residuals."""

    reverses: list[Op] = field(default_factory=list)
    """In program order."""
    route: Route = field(default_factory=Route)


def reverses_of(block: Block, kept_by: Callable[[Op], Collection[Value]]) -> Mapping[Op, Kept]:
    """For each op, the reverse ops that read its residuals. `kept_by(reverse)` returns those operands."""
    found: dict[Op, Kept] = {}
    for op in walk_ops(block):
        for value in kept_by(op):
            route = Route()
            source = _source(value, route).producer
            if source is not None:
                kept = found.setdefault(source, Kept())
                kept.route.values |= route.values
                kept.route.ends |= route.ends
                if op not in kept.reverses:
                    kept.reverses.append(op)
    return found


def nobody_else_reads(values: Collection[Value], kept: Kept, users: Users) -> bool:
    """Return whether all that reads these kept values of an op is its reverses, by the way that was found."""
    own = dict.fromkeys(values) | kept.route.values
    for value in own:
        passed_on = 0
        for user in users.get(value, ()):
            if user is None:
                passed_on += 1
            elif user not in kept.reverses and not (user.declared is SEQUENCE_GET and user.result in own):
                return False
        if passed_on != sum(block.end.operands[number] is value for block, number in kept.route.ends):
            return False
    return True


def source_of(value: Value) -> Value:
    """The value that a block reads, as the block that made it knows it."""
    return _source(value, Route())


def _source(value: Value, route: Route) -> Value:
    """The value that a reverse reads, as the block that made it knows it; notes the way there."""
    while True:
        route.values[value] = None
        op = value.producer
        if op is None:
            return value
        if op.declared is SEQUENCE_GET:
            value = op.operands[0]
            continue
        blocks = [block for block in op.blocks if block.end.kind == "yield"]
        if op.declared.is_loop and value in Loop(op).collected:
            blocks = blocks[-1:]
        elif op.declared is IF:
            blocks = [block for block in blocks if not is_absent(block.end.operands[value.index])]
        else:
            return value
        if len(blocks) != 1:
            return value
        route.ends.add((blocks[0], value.index))
        value = blocks[0].end.operands[value.index]
