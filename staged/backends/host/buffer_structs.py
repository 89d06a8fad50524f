"""The structs with the addresses of a program's buffers, and the functions that set their fields.

The shapes and the lines of buffers are notes on the values, so that each field has one.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from staged.backends.host.buffer_groups import Group
from staged.code.expr import (
    Cast,
    Expr,
    Index,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    Variable,
    call,
    infix_sum,
    names_in,
)
from staged.code.printer import print_body
from staged.code.tree import Assign, DeclareStruct, DeclareTable, Do, For, Jump
from staged.code.types import INDEX, word
from staged.code.writer import INDENT, WIDTH, Writer, broken
from staged.ir.buffers import Buffer
from staged.ir.types import CPU, DTYPES, Device, shape_text
from staged.source import Position

BASE = Name("base")
"""The start of the program's arena."""
BUFFERS = Variable("buffers", word("Buffers"))
OFFSETS, SIZES = Name("offsets"), Name("sizes")
ELEMENT_BYTES = {dtype.c_name: dtype.size for dtype in DTYPES.values() if not dtype.is_complex}
"""The bytes of an element, by C type."""
LONGEST = 120
"""Lines of the function that sets all fields, above which a separate function sets the structs of loops."""
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
    kinds = {group.type: group for group in reversed(groups)}
    firsts = [group for group in groups if kinds[group.type] is group]
    for group in firsts:
        with w.block("typedef struct", f" {group.type};"):
            write_fields(w, ((each.c_type, each.name) for each in fields_in(group, state)))
        w.line()
    with w.block("typedef struct", f" {BUFFERS.type.text};"):
        write_fields(w, ((each.c_type, each.name) for each in state if "." not in each.name))
        for first in firsts:
            names = [_declared(group) for group in groups if group.type == first.type]
            for line in broken(f"{first.type} ", names, ";", WIDTH - len(INDENT)):
                w.line(line)
    for group in firsts:
        w.line()
        write_place(w, group, fields_in(group, state), _is_alone(group, groups))
    placed, _ = divided_state(state, groups)
    if placed:
        w.line()
        loops = [group for group in groups if group.loop is not None]
        others = [group for group in groups if group.loop is None]
        tables, loop_tables = ([*_tables(each, groups, state)] for each in (others, loops))
        buffers = replace(fields_of(BUFFERS, placed), use="variable" if loops else "returned")
        end = [Jump("return", value=BUFFERS)] if loops else []
        body = print_body([*tables, *loop_tables, buffers, *_filled(loops, groups), *end])
        if loops and len(body) > LONGEST:
            with w.block("static void place_layers(unsigned char *base, Buffers *buffers)"):
                w.lines += print_body([*loop_tables, *_filled(loops, groups, is_pointer=True)])
            w.line()
            fill = Do(call("place_layers", BASE, Prefix("&", BUFFERS)))
            body = print_body([*tables, buffers, fill, *end])
        with w.block("static Buffers place_buffers(unsigned char *base)"):
            w.lines += body


def write_place(w: Writer, group: Group, states: Sequence[State], is_alone: bool) -> None:
    """Write the function that returns a struct of addresses; one for several structs has a parameter for offsets."""
    struct = Variable(group.function.removeprefix("place_"), word(group.type))
    values = [_place_of(group, each, None if is_alone else Literal(str(n))) for n, each in enumerate(states)]
    taken = ["unsigned char *base"]
    if not is_alone:
        taken += [f"const int64_t *{table}" for table in ((OFFSETS, SIZES) if group.loop else (OFFSETS,))]
    if group.loop is not None:
        taken.append(f"int64_t {group.loop.index}")
    with w.function(f"static {group.type} {group.function}", taken):
        w.lines += print_body([replace(fields_of(struct, values), use="returned")])


def _place_of(group: Group, state: State, number: Literal | None) -> State:
    """A field with its address in a function for one struct; in a function for several, its `number` in tables."""
    offset, note = _offset(state.value) if number is None else Index(OFFSETS, number), state.note
    terms: list[Expr] = [BASE] if str(offset) == "0" else [BASE, offset]
    if group.loop is not None:
        array = group.loop.arrays[state.name]
        size = Literal(str(group.loop.nbytes(state.name))) if number is None else Index(SIZES, number)
        terms.append(Infix("*", Name(group.loop.index), size))
        note = note_of(shape_text(array.type.shape[1:]), "", group.loop.lines[state.name])
    if number is not None:
        note = note.partition("  ")[2]
    return replace(state, value=Cast("void *", infix_sum(terms)), note=note)


def _declared(group: Group) -> str:
    """The field of `Buffers` with a struct, or with those of a loop."""
    return group.field if group.loop is None else f"{group.field}[{group.loop.count}]"


def _filled(loops: Sequence[Group], groups: Sequence[Group], is_pointer: bool = False) -> Iterator[For]:
    """The loops that set the structs of loops, one for those with equal numbers of iterations."""
    for index, count in dict.fromkeys((each.loop.index, each.loop.count) for each in loops if each.loop):
        number = Variable(index, INDEX)
        filled = [each for each in loops if each.loop and (each.loop.index, each.loop.count) == (index, count)]
        body = (Assign(Index(Member(BUFFERS, each.field, is_pointer), number), _place(each, groups)) for each in filled)
        yield For(number, Literal("0"), Literal(str(count)), tuple(body))


def _is_alone(group: Group, groups: Sequence[Group]) -> bool:
    """Return whether no other struct has the type of this one."""
    return sum(each.type == group.type for each in groups) == 1


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
    structs = [State("", group.field, _place(group, groups), "") for group in groups if group.loop is None]
    return [*placed, *structs], [each for each in own if each not in placed]


def _place(group: Group, groups: Sequence[Group]) -> Expr:
    """The call of the function that returns a struct."""
    tables = [] if _is_alone(group, groups) else [_table(group, OFFSETS), _table(group, SIZES)]
    loop = [] if group.loop is None else [Name(group.loop.index)]
    return call(group.function, BASE, *(tables if loop else tables[:1]), *loop)


def _table(group: Group, content: Name) -> Variable:
    """A table with the offsets, or the sizes, of a struct's fields."""
    return Variable(f"{group.field}_{content}", INDEX)


def _tables(of: Sequence[Group], groups: Sequence[Group], state: Sequence[State]) -> Iterator[DeclareTable]:
    """The offsets in the arena of the fields of structs, and the sizes for those of loops, in the order of the type."""
    for group in of:
        if _is_alone(group, groups):
            continue
        first = next(each for each in groups if each.type == group.type)
        names = [each.name for each in fields_in(first, state)]
        offsets = {each.name: _offset(each.value) for each in fields_in(group, state)}
        yield DeclareTable(_table(group, OFFSETS), tuple(offsets[name] for name in names), is_flat=True)
        if group.loop is not None:
            sizes = tuple(Literal(str(group.loop.nbytes(name))) for name in names)
            yield DeclareTable(_table(group, SIZES), sizes, is_flat=True)


def _offset(value: Expr) -> Expr:
    """The offset of an address in the arena."""
    while isinstance(value, Cast):
        value = value.operand
    return value.right if isinstance(value, Infix) else Literal("0")


def fields_of(struct: Variable, states: Sequence[State]) -> DeclareStruct:
    """A struct with the values of its fields, and notes on them."""
    values = tuple((each.name, without_cast(each.value)) for each in states)
    return DeclareStruct(struct, values, tuple(each.note for each in states))


def write_fields(w: Writer, fields: Iterable[tuple[str, str]]) -> None:
    """Write the fields of a struct, (C type, name), those of one type together."""
    for type, members in groupby(fields, lambda each: each[0]):
        word, star, rest = type.partition("*")
        names = [f"{star}{rest}{name}" for _, name in members]
        for line in broken(word, names, ";", WIDTH - len(INDENT) * w.depth):
            w.line(line)


def places_of(state: Iterable[State]) -> dict[str, tuple[int, int]]:
    """By C expression of an array of the host: its offset in the arena, and the bytes of an element."""
    sizes = {f"{type} *": size for type, size in ELEMENT_BYTES.items()}
    arrays = [
        each for each in state if each.device == CPU and each.c_type in sizes and names_in(each.value) == {"base"}
    ]
    return {f"m->{each.name}": (int(str(_offset(each.value))), sizes[each.c_type]) for each in arrays}


def place_in(start: Expr, c_type: str, offset: int | None) -> Expr:
    """The address of something at an offset, or at the very start."""
    place = start if offset is None else Infix("+", start, Literal(str(offset)))
    return Cast(f"{c_type} *", Cast("void *", place))


def without_cast(value: Expr) -> Expr:
    """The address of a buffer without its type, which C converts."""
    return value.operand if isinstance(value, Cast) and isinstance(value.operand, Cast) else value


def describe(buffer: Buffer) -> str:
    return note_of(shape_text(buffer.type.shape), buffer.purpose, buffer.where)


def note_of(type: str, role: str, where: Position | None) -> str:
    """The note on a field of `Buffers`: `(300, 450)  gradient  model.py:12  y = x @ w`."""
    return type + (f"  {role}" if role else "") + (f"  {where.short}  {where.text}" if where else "")
