"""Facts about loops: their jumps in C, the place of an iteration, and the loops that are part of an optimiser's step.

Tested by `tests/backends/native/test_histories.py` and `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.code.expr import Expr, Infix, Literal, Name, infix_sum
from staged.ir.nodes import Block, Op, Value
from staged.ir.structure import FOR, VARIABLE_WRITE
from staged.ir.views import Loop


@dataclass
class LoopFrame:
    """The loop or scope that an `End` leaves or continues."""

    op: Op
    carried: tuple[Value, ...]
    depth: int
    """The number of C loops around it, its own included."""
    counter: Name | None = None
    """The counter that each iteration increments at its end, or None."""
    exit_label: str = ""
    next_label: str = ""
    is_scope: bool = False
    used_exit: bool = False
    used_next: bool = False


def position_of(index: Name, start: int | None, step: int | None) -> Expr | None:
    """The number of iterations before that with this index; None if the index does not show it."""
    if start is None or step not in (1, -1):
        return None
    if step == -1:
        return Infix("-", Literal(str(start)), index)
    return infix_sum([index, Literal(str(-start))]) if start else index


def layer_of(op: Op, index: Name) -> tuple[str, Expr, str] | None:
    """Of a loop over layers: the number of the present one, and what is before and after it in the layer's name."""
    before, first, after = op.attrs.get("layer", ("", 0, ""))
    return (before, infix_sum([index, Literal(str(first))]) if first else index, after) if before else None


def step_of(block: Block) -> range:
    """The numbers of the ops of a block's step: from its first loop that updates layers to its last write."""
    first = next((number for number, op in enumerate(block.ops) if updates_layers(op)), None)
    if first is None:
        return range(0)
    writes = [n for n, op in enumerate(block.ops) if updates_layers(op) or op.declared is VARIABLE_WRITE]
    return range(first, writes[-1] + 1)


def updates_layers(op: Op) -> bool:
    """Return whether an op is a loop that writes the members of families, one in each iteration."""
    if op.declared is not FOR:
        return False
    writes = (inner for inner in op.blocks[0].ops if inner.declared is VARIABLE_WRITE)
    return any(write.operands[1:] == (Loop(op).index,) for write in writes)
