"""Variables in the state of a program: its own numbers, and families.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from staged.backends.host.body import BodyEmitter
from staged.backends.host.buffer_structs import State, note_of
from staged.backends.host.interface import written_variables
from staged.code.expr import Member, Name, Variable
from staged.code.tree import DeclareTable
from staged.code.types import Space, pointer, scalar
from staged.code.writer import Names
from staged.ir.nodes import VariableRef
from staged.ir.types import shape_text


def declare_families(
    entry: BodyEmitter, names: Names, fields: dict[VariableRef, str]
) -> tuple[list[DeclareTable], list[State]]:
    """The tables of a program's families, and the fields of `Buffers` for these tables.

    Enters into `fields` the field of each family. The members of families that the program creates are one array of the
    arena, whose field exists already.
    """
    tables, state = [], []
    written = written_variables(entry.function)
    for family in entry.function.variables:
        if family.members and not family.outer:
            array = next(buffer for buffer in entry.plan.arena_buffers() if buffer.variable is family)
            fields[family] = entry.fields[array]
        elif family.members:
            fields[family] = names.fresh(family.name)
            element, is_const = scalar(family.type.dtype), family not in written
            table = Variable(entry.name(family.name), pointer(element, Space.GLOBAL, is_const))
            members = [Member(Name("args"), entry.variable_fields[member]) for member in family.members]
            tables.append(DeclareTable(table, tuple(members), is_of_pointers=True))
            note = f"{len(members)} of {note_of(shape_text(family.type.shape), family.purpose, family.where)}"
            state.append(
                State(f"{'const ' * is_const}{family.type.dtype.c_name} *const *", fields[family], table, note)
            )
    return tables, state


def declare_inner_scalars(entry: BodyEmitter) -> list[tuple[VariableRef, str]]:
    """Name the numeric Variables that the program creates: C locals of its function."""
    inner = []
    for variable in entry.function.variables:
        if not variable.outer and not variable.type.shape and not variable.members:
            name = entry.name(variable.name)
            entry.scalar_variables[variable] = Name(name)
            inner.append((variable, name))
    return inner
