"""The structs with the addresses of a program's buffers, and the functions that set their fields.

The shapes and the lines of buffers are notes on the values, so that each field has one.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from staged.backends.host.buffer_groups import Group
from staged.code.expr import Cast, Expr, Name, Variable, call, names_in
from staged.code.printer import print_body
from staged.code.tree import DeclareStruct, Jump
from staged.code.types import word
from staged.code.writer import INDENT, WIDTH, Writer, broken
from staged.ir.buffers import Buffer
from staged.ir.types import CPU, Device, shape_text
from staged.source import Position

BASE = Name("base")
"""The start of the program's arena."""
BUFFERS = Variable("buffers", word("Buffers"))
FEW = 12
"""Buffers that the program's function places itself."""


@dataclass(frozen=True)
class State:
    """One field of `Buffers`: its C type up to the name, what the entry sets it to, a note for people, and the device
    that it is of.
    """

    c_type: str
    name: str
    value: Expr
    note: str
    device: Device = CPU

    @property
    def declaration(self) -> str:
        return f"{self.c_type}{self.name};"


def write_structs(w: Writer, state: Sequence[State], groups: Sequence[Group]) -> None:
    """Write the structs, and the functions that return them with addresses in the arena."""
    for group in groups:
        with w.block("typedef struct", f" {group.type};"):
            write_fields(w, fields_in(group, state))
        w.line()
    with w.block("typedef struct", f" {BUFFERS.type.text};"):
        write_fields(w, [each for each in state if "." not in each.name])
        for group in groups:
            w.line(f"{group.type} {group.field};")
    for group in groups:
        w.line()
        write_place(w, group, fields_in(group, state))
    placed, _ = divided_state(state, groups)
    if placed:
        w.line()
        write_place(w, Group(BUFFERS.text, BUFFERS.type.text, "place_buffers"), placed)


def write_place(w: Writer, group: Group, states: Sequence[State]) -> None:
    """Write the function that returns a struct of addresses."""
    struct = Variable(group.field, word(group.type))
    with w.block(f"static {group.type} {group.function}(unsigned char *base)"):
        w.lines += print_body([fields_of(struct, states), Jump("return", value=struct)])


def fields_in(group: Group, state: Sequence[State]) -> list[State]:
    """The fields of a struct inside of `Buffers`."""
    start = f"{group.field}."
    return [replace(each, name=each.name.removeprefix(start)) for each in state if each.name.startswith(start)]


def divided_state(state: Sequence[State], groups: Sequence[Group]) -> tuple[list[State], list[State]]:
    """The fields of `Buffers` that a separate function sets, if there are many, and all other fields."""
    own = [each for each in state if "." not in each.name]
    placed = [each for each in own if names_in(each.value) == {"base"}]
    if not groups and len(placed) <= FEW:
        return [], own
    structs = [State("", group.field, call(group.function, BASE), "") for group in groups]
    return [*placed, *structs], [each for each in own if each not in placed]


def fields_of(struct: Variable, states: Sequence[State]) -> DeclareStruct:
    """A struct with the values of its fields, and notes on them."""
    values = tuple((each.name, without_cast(each.value)) for each in states)
    return DeclareStruct(struct, values, tuple(each.note for each in states))


def write_fields(w: Writer, states: Sequence[State]) -> None:
    """Write the fields of a struct, those of one type together."""
    for type, members in groupby(states, lambda state: state.c_type):
        word, star, rest = type.partition("*")
        names = [f"{star}{rest}{each.name}" for each in members]
        for line in broken(word, names, ";", WIDTH - len(INDENT) * w.depth):
            w.line(line)


def without_cast(value: Expr) -> Expr:
    """The address of a buffer without its type, which C converts."""
    return value.operand if isinstance(value, Cast) and isinstance(value.operand, Cast) else value


def describe(buffer: Buffer) -> str:
    return note_of(shape_text(buffer.type.shape), buffer.purpose, buffer.where)


def note_of(type: str, role: str, where: Position | None) -> str:
    """The note on a field of `Buffers`: `(300, 450)  gradient  model.py:12  y = x @ w`."""
    return type + (f"  {role}" if role else "") + (f"  {where.short}  {where.text}" if where else "")
