"""The structs with the addresses of a program's buffers, and the functions that set their fields.

A program with many buffers has separate structs for its Variables, gradients and residuals. The shapes and the lines of
buffers are notes on the values, so that each field has one.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from staged.code.expr import Cast, Expr, Name, Variable, call, names_in
from staged.code.printer import print_body
from staged.code.tree import DeclareStruct, Jump
from staged.code.types import word
from staged.code.writer import INDENT, WIDTH, Writer, broken
from staged.ir.buffers import Buffer, Plan
from staged.ir.types import CPU, Device, shape_text
from staged.source import Position

BASE = Name("base")
"""The start of the program's arena."""
BUFFERS = Variable("buffers", word("Buffers"))
FEW = 12
"""Buffers that the program's function places itself."""
MOST_FIELDS = 60
"""Fields of a struct that does not have structs inside of it."""
GROUPS = "variables", "gradients", "residuals"
"""Structs inside of `Buffers`."""


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


def has_groups(plan: Plan) -> bool:
    """Return whether `Buffers` has structs inside of it: programs without a device that have many buffers."""
    return not plan.device_bytes and len(plan.arena_buffers()) > MOST_FIELDS


def group_of(buffer: Buffer, plan: Plan) -> str:
    """The struct inside of `Buffers` that has a buffer, with a dot, or nothing."""
    if not has_groups(plan):
        return ""
    if buffer.variable is not None:
        return "variables."
    if buffer.purpose == "gradient" or buffer.name.startswith("d_"):
        return "gradients."
    return "residuals." if buffer.purpose == "residuals of a loop" else ""


def write_structs(w: Writer, state: Sequence[State]) -> None:
    """Write the structs, and the functions that return them with addresses in the arena."""
    groups = grouped(state)
    for group, states in groups.items():
        with w.block("typedef struct", f" {group.capitalize()};"):
            write_fields(w, states)
        w.line()
    with w.block("typedef struct", " Buffers;"):
        write_fields(w, [each for each in state if "." not in each.name])
        for group in groups:
            w.line(f"{group.capitalize()} {group};")
    placed, _ = divided_state(state)
    for group, states in (groups | ({BUFFERS.text: placed} if placed else {})).items():
        w.line()
        write_place(w, group, states)


def write_place(w: Writer, group: str, states: Sequence[State]) -> None:
    """Write the function that returns a struct of addresses."""
    struct = Variable(group, word(group.capitalize()))
    with w.block(f"static {struct.type.text} place_{group}(unsigned char *base)"):
        w.lines += print_body([fields_of(struct, states), Jump("return", value=struct)])


def grouped(state: Sequence[State]) -> dict[str, list[State]]:
    """The fields of `Buffers` that are in separate structs, by the names of the structs."""
    groups: dict[str, list[State]] = {}
    for each in state:
        group, dot, field = each.name.partition(".")
        if dot:
            groups.setdefault(group, []).append(replace(each, name=field))
    return dict(sorted(groups.items()))


def divided_state(state: Sequence[State]) -> tuple[list[State], list[State]]:
    """The fields of `Buffers` that a separate function sets, if there are many, and all other fields."""
    own = [each for each in state if "." not in each.name]
    placed = [each for each in own if names_in(each.value) == {"base"}]
    groups = [State("", group, call(f"place_{group}", BASE), "") for group in grouped(state)]
    if not groups and len(placed) <= FEW:
        return [], own
    return [*placed, *groups], [each for each in own if each not in placed]


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
