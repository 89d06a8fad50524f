"""Variables in the state of a program: its own numbers, and families that it creates.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from staged.backends.host.body import BodyEmitter
from staged.code.expr import Name
from staged.ir.nodes import VariableRef


def family_fields(entry: BodyEmitter) -> dict[VariableRef, str]:
    """By family that the program has in the arena: the field of `Buffers` for its members, which are one array."""
    arrays = {buffer.variable: entry.fields[buffer] for buffer in entry.plan.arena_buffers()}
    return {family: arrays[family] for family in entry.function.variables if family.members and family in arrays}


def declare_inner_scalars(entry: BodyEmitter) -> list[tuple[VariableRef, str]]:
    """Name the numeric Variables that the program creates, unless they are results: C locals of its function."""
    inner = []
    for variable in entry.function.variables:
        is_known = variable.outer or variable in entry.argument_fields
        if not is_known and not variable.type.shape and not variable.members:
            name = entry.name(variable.name)
            entry.scalar_variables[variable] = Name(name)
            inner.append((variable, name))
    return inner
