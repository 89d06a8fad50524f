"""Remove writes of Variables whose values nothing sees.

    weight = uniform(...)       # the constructor of a layer
    weight = kaiming(...)       # the initialiser of the model

Tested by `tests/passes/test_dead_writes.py`.
"""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.nodes import Block, Function, Op, VariableRef
from staged.ir.rewrite import Copier
from staged.ir.structure import CALL, VARIABLE_WRITE


def eliminate_dead_writes(function: Function) -> Function:
    """Drop a write of a Variable that a later write in the same block replaces, if nothing between may look at it.

    Why: a model that initialises its parameters twice draws the first ones in vain. Leaves: what computed the values,
    for `eliminate_dead_code`; writes of members of a family.

    Exact: reads, calls, loops, branches, and all that may stop the program or is seen outside end the search.
    """
    dead = set[Op]()
    _search(function.block, dead)
    return function.with_block(_Sweep(dead).block(function.block)) if dead else function


def _search(block: Block, dead: set[Op]) -> None:
    """Add the dead writes of a block, the last one first, and of the blocks inside."""
    replaced = set[VariableRef]()
    for op in reversed(block.ops):
        if op.declared is VARIABLE_WRITE and not op.attrs["variable"].members:
            variable: VariableRef = op.attrs["variable"]
            if variable in replaced:
                dead.add(op)
            replaced.add(variable)
            continue
        inner = () if op.declared.is_opaque else op.blocks
        if inner or op.declared is CALL or any(effect.is_ordered for effect in op.effects):
            replaced.clear()
        for effect in op.effects:
            if effect.target is not None:
                replaced -= {effect.target, *effect.target.members}
        for each in inner:
            _search(each, dead)


class _Sweep(Copier):
    """Copies all ops but dead ones."""

    def __init__(self, dead: set[Op]) -> None:
        super().__init__(Builder())
        self.dead = dead

    def op(self, op: Op) -> None:
        if op not in self.dead:
            super().op(op)
