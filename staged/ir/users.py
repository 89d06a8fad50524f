"""The users of each value of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staged.ir.nodes import Block, Op, Value

Users = Mapping[Value, Sequence[Op | None]]
"""The ops that read each value, in program order and as often as they do; None for the end of a block."""


def users_of(block: Block) -> Users:
    """The users of all values of a block, and of those that it reads from around it, inner blocks included."""
    users: dict[Value, list[Op | None]] = {}
    _find(block, users)
    return users


def _find(block: Block, users: dict[Value, list[Op | None]]) -> None:
    for op in block.ops:
        for operand in op.operands:
            users.setdefault(operand, []).append(op)
        for inner in op.blocks:
            _find(inner, users)
    for operand in block.end.operands:
        users.setdefault(operand, []).append(None)
