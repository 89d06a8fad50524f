"""The uses of a function's values: they determine which values get a C variable, and which sequence is part of which.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

from staged.ir.nodes import Block, Function, Op, Value
from staged.ir.storage import structural_blocks, structural_ops
from staged.ir.structure import IF
from staged.ir.types import SequenceType, TensorType
from staged.ir.views import Loop


def count_uses(function: Function) -> dict[Value, int]:
    """The number of uses of each value."""
    counts: dict[Value, int] = {}
    for block in structural_blocks(function.block):
        for operand in block.end.operands:
            counts[operand] = counts.get(operand, 0) + 1
    for op in structural_ops(function.block):
        for operand in op.operands:
            counts[operand] = counts.get(operand, 0) + 1
    return counts


def only_uses(function: Function) -> dict[Value, tuple[Block, bool]]:
    """For values used once: the block of the use, and whether it is the block's end."""
    found: dict[Value, tuple[Block, bool]] = {}
    for block in structural_blocks(function.block):
        for op in block.ops:
            for operand in op.operands:
                found[operand] = (block, False)
        for operand in block.end.operands:
            found[operand] = (block, True)
    return found


def joined_numbers(function: Function) -> dict[Value, Value]:
    """By number that a branch of an `if` computes and yields: the result, whose variable has the number at once."""
    found: dict[Value, Value] = {}
    for op in structural_ops(function.block):
        for block in op.blocks if op.declared is IF else ():
            own = {value for inner in block.ops for value in inner.results}
            given = block.end.operands if block.end.kind == "yield" else ()
            for result, value in zip(op.results, given, strict=False):
                if value in own and isinstance(result.type, TensorType) and not result.type.shape:
                    found.setdefault(value, result)
    return found


def collected_into(function: Function) -> dict[Value, tuple[Op, Value]]:
    """For a sequence that an outer loop collects: that loop, and its sequence of sequences."""
    into: dict[Value, tuple[Op, Value]] = {}
    for op in structural_ops(function.block):
        if op.declared.is_loop:
            for result, value in zip(Loop(op).collected, Loop(op).elements, strict=True):
                if isinstance(value.type, SequenceType):
                    _enter(value, (op, result), into)
    return into


def _enter(value: Value, collector: tuple[Op, Value], into: dict[Value, tuple[Op, Value]]) -> None:
    """Note who collects `value`, and with it what it is in the branches of an `if`."""
    into[value] = collector
    choice = value.made_by(IF)
    if choice is not None:
        for block in choice.blocks:
            if block.end.kind == "yield":
                _enter(block.end.operands[value.index], collector, into)
