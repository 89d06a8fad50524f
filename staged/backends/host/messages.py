"""Prints and error messages of a program: the statements that put their parts together.

Tested by `tests/formatting/test_statements.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from staged.backends.host.body import LEAVE, BodyEmitter
from staged.code.expr import (
    Argument,
    Cast,
    Conditional,
    Expr,
    Index,
    Items,
    Literal,
    Member,
    Name,
    Prefix,
    Variable,
    argument,
    call,
)
from staged.code.support.printf import printf_format
from staged.code.tree import Assign, CodeBuilder, Declare, Do, Jump
from staged.code.types import INDEX, scalar, word
from staged.code.writer import c_string
from staged.ir.nodes import Op, Value
from staged.ir.sizes import Extent
from staged.ir.storage import is_tensor
from staged.ir.types import COMPLEX_OF, DType, u64
from staged.ops.formatting import FormatSpec, parse_spec
from staged.source import Position

MESSAGE = Prefix("&", Name("message"))
"""The `st_text` into which a message is put piece by piece."""
ROOM = Name("text")
"""A buffer for a value as characters, or an array of buffers for several values."""


class Values(Protocol):
    """The expressions by which a program's text accesses values."""

    def operand(self, value: Value) -> Expr:
        """A scalar, or where an array starts."""

    def extent(self, extent: Extent) -> Expr:
        """The size of an axis."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A value to print: its C expression (of an array: a pointer to its first element) and type.

    `shape` is empty for a scalar; extents are numbers or C expressions. `imag` is the imaginary part of a complex
    scalar; a complex array's elements are pairs.
    """

    expr: Expr
    dtype: DType
    shape: tuple[int | Expr, ...] = ()
    imag: Expr | None = None


Part = str | tuple[int, str | FormatSpec, str]
"""Text, or (which value, its format spec, its conversion '', 'r' or 's')."""


@dataclass(slots=True)
class Message:
    """A message as C."""

    declared: list[Declare] = field(default_factory=list)
    """The locals that the pieces use."""
    pieces: list[tuple[str, tuple[Expr, ...]]] = field(default_factory=list)
    """For each piece, the function that puts it into an `st_text`, and the arguments after the `st_text`."""
    needs: dict[str, None] = field(default_factory=dict)
    """The support snippets that the values need."""

    def add(self, function: str, *arguments: Argument) -> None:
        """Add a piece."""
        self.pieces.append((function, tuple(map(argument, arguments))))

    @property
    def format(self) -> tuple[Expr, ...]:
        """The format and the values, if one format is the whole message; else nothing."""
        function, arguments = self.pieces[0] if len(self.pieces) == 1 else ("", ())
        return arguments if function == "st_put_format" else ()


def message(parts: Sequence[Part], values: Sequence[Printed], takes_floats: bool = True) -> Message:
    """A message as C. Adjacent text and scalars become one format, with floats as `%s` unless it `takes_floats`."""
    read = [part if isinstance(part, str) else _read(part, values) for part in parts]
    scalars = [each for each in read if not isinstance(each, str) and not each[0].shape]
    count = sum(_conversion(*each, takes_floats) is None for each in scalars)
    rooms: Iterator[Expr] = iter((ROOM,) if count == 1 else [Index(ROOM, Literal(str(k))) for k in range(count)])
    made = Message()
    if count:
        sizes = (*(Literal(str(count)),) * (count > 1), Name("ST_FORMATTED"))
        made.declared.append(Declare(Variable("text", word("char")), is_const=False, sizes=sizes))
    format, arguments = "", list[Expr]()
    for each in (*read, None):
        if isinstance(each, str) and "\0" not in each:
            format += each.replace("%", "%%")
            continue
        if isinstance(each, tuple) and not each[0].shape and each[1].type != "c":
            conversion = _conversion(*each, takes_floats)
            if conversion is None:
                written, needed = _text(*each, next(rooms))
                conversion = "%s", written
                made.needs[needed] = None
            format += conversion[0]
            arguments.append(conversion[1])
            continue
        if format:
            made.add("st_put_format", Literal(c_string(format)), *arguments)
            format, arguments = "", []
        if isinstance(each, str):
            made.add("st_put", Literal(c_string(each)), len(each.encode()))
        elif each is not None and each[0].shape:
            _add_array(made, *each)
        elif each is not None:
            _add_character(made, *each, next(rooms))
    return made


def _read(part: tuple[int, str | FormatSpec, str], values: Sequence[Printed]) -> tuple[Printed, FormatSpec]:
    """A value and its spec; the conversion of a plain one changes nothing."""
    index, spec, conversion = part
    value = values[index]
    if isinstance(spec, str):
        spec = parse_spec(spec, value.dtype.kind, conversion)
    return value, replace(spec, conversion="") if spec.is_plain else spec


def _conversion(value: Printed, spec: FormatSpec, takes_floats: bool) -> tuple[str, Expr] | None:
    """The conversion of C that prints a scalar as Python does, and the argument. None if C cannot do so."""
    dtype, expr = value.dtype, value.expr
    if dtype.is_bool and spec.is_plain:
        return "%s", Conditional(expr, Literal('"True"'), Literal('"False"'))
    if value.imag is not None or (dtype.is_float and not takes_floats):
        return None
    format = printf_format(dtype, spec)
    if not format:
        return None
    if not dtype.is_integer:
        return format, expr
    return format, Cast("unsigned long long" if dtype is u64 else "long long", expr)


def _text(value: Printed, spec: FormatSpec, room: Expr) -> tuple[Expr, str]:
    """The call that writes a scalar into `room` and returns it, and the support snippet that it needs."""
    dtype, given = value.dtype, Literal(spec_text(spec))
    if value.imag is not None:
        return call(f"st_{dtype}_text", room, value.expr, value.imag, given), "format_complex"
    if dtype.is_float:
        return call(f"st_{dtype}_text", room, value.expr, given), f"format_{dtype if dtype.is_half else 'float'}"
    if dtype.is_bool and spec.conversion:
        return call("st_bool_text", room, value.expr, given), "format_bool"
    return call(f"st_{'u64' if dtype is u64 else 'i64'}_text", room, value.expr, given), "format_integer"


def _add_character(made: Message, value: Printed, spec: FormatSpec, room: Expr) -> None:
    """Add the character of a code. Its bytes are counted, as that of code 0 is a zero byte."""
    sign = ("false",) if value.dtype is u64 else ()
    function = f"st_format_{'whole' if sign else 'integer'}"
    made.add("st_put", room, call(function, room, value.expr, *sign, Literal(spec_text(spec))))
    made.needs["format_integer"] = None


def _add_array(made: Message, value: Printed, spec: FormatSpec) -> None:
    name = "bool_as_integer" if value.dtype.is_bool and not spec.is_plain and not spec.conversion else value.dtype.name
    extents = Items(tuple(map(argument, value.shape)))
    shape: Expr = replace(extents, type="const int64_t[]")
    if not all(isinstance(extent, Literal) for extent in extents.items):
        # A compound literal of what is not constant is no C++.
        shape = Variable(f"st_shape_{len(made.declared)}", INDEX)
        made.declared.append(Declare(shape, extents, sizes=(Literal(""),)))
    given = Literal(spec_text(spec))
    made.add("st_put_array", value.expr, f"st_element_{name}", len(value.shape), shape, given)
    made.needs[f"format_elements_{name}"] = None


def spec_text(spec: FormatSpec) -> str:
    """A spec as C: `st_plain`, or `(st_spec){.precision = 4, .type = 'f'}`."""
    if spec.is_plain and not spec.conversion:
        return "st_plain"
    fields = []
    if spec.fill != " ":
        fields.append(f".fill = {c_string(spec.fill)}")
    if spec.width:
        fields.append(f".width = {spec.width}")
    fields.append(f".precision = {-1 if spec.precision is None else spec.precision}")
    characters = {
        "align": spec.align,
        "sign": "" if spec.sign == "-" else spec.sign,
        "group": spec.grouping,
        "type": spec.type if not spec.conversion else "",
        "conversion": spec.conversion,
    }
    fields += [f".{name} = '{character}'" for name, character in characters.items() if character]
    if spec.alternate:
        fields.append(".alternate = true")
    if spec.coerce_zero:
        fields.append(".coerce_zero = true")
    return f"(st_spec){{{', '.join(fields)}}}"


# ---- ops ----


def message_of(parts: Sequence[Any], values: Sequence[Value], text: Values, takes_floats: bool = True) -> Message:
    """The message of `parts`; their values are written by `text`."""
    printed = [_printed(value, text) for value in values]
    for part in parts:
        if isinstance(part, str) or not isinstance(part[1], FormatSpec) or part[1].kind != "c":
            continue
        # Of a complex scalar the imaginary part is the next value; an array's are in its last axis of 2.
        index = part[0]
        one = replace(printed[index], dtype=COMPLEX_OF[printed[index].dtype])
        printed[index] = replace(one, shape=one.shape[:-1]) if one.shape else replace(one, imag=printed[index + 1].expr)
    return message(parts, printed, takes_floats)


def _printed(value: Value, text: Values) -> Printed:
    shape = tuple(extent if isinstance(extent, int) else text.extent(extent) for extent in value.tensor.shape)
    return Printed(text.operand(value), value.tensor.dtype, shape)


def put_message(code: CodeBuilder, made: Message, begin: str, *arguments: Argument) -> None:
    """Declare an `st_text`, begun by the function `begin`, and put a message into it."""
    code.add(Declare(Variable("message", word("st_text")), is_const=False))
    code.body += made.declared
    code.do(begin, MESSAGE, *arguments)
    for function, given in made.pieces:
        code.do(function, MESSAGE, *given)


def message_arguments(code: CodeBuilder, made: Message) -> tuple[Expr, ...]:
    """The format and values of a message, for a function like `st_fail`. `code` declares the locals in them."""
    if made.format:
        code.body += made.declared
        return made.format
    shown: Expr = Literal('""')
    if made.pieces:
        put_message(code, made, "st_text_begin", "NULL")
        shown = call("st_text_message", MESSAGE)
    return Literal('"%s"'), shown


def emit_failure(body: BodyEmitter, error: str, where: Position | None, *given: Argument) -> None:
    """Stop the program with an error."""
    body.need("fail")
    failed, leaving = call("st_fail", "host", error, body.site_of(where), *given), body.leaving()
    body.code.body += [Jump("return", value=failed)] if leaving is LEAVE else [Do(failed), leaving]


def emit_file_open(code: CodeBuilder, op: Op, text: Values, site: int, name: str) -> tuple[str, ...]:
    """Write the opening of a file, whose number becomes `name`; returns the support snippets that it needs."""
    number, mode = Variable(name, INDEX), Literal(c_string(op.attrs["mode"]))
    if not op.operands:
        path, _ = path_text(code, op.attrs["parts"], (), text)
        code.add(Declare(number, call("st_file_open", "host", site, path, mode), has_effects=True))
        return ("files",)
    code.add(Declare(number, is_const=False))
    with code.block():
        path, needs = path_text(code, op.attrs["parts"], op.operands, text)
        code.add(Assign(number, call("st_file_open", "host", site, path, mode)))
    return (*needs, "files")


def path_text(
    code: CodeBuilder, parts: Sequence[Any], values: Sequence[Value], text: Values
) -> tuple[Expr, tuple[str, ...]]:
    """The path of a file, put together here if values are in it; and the support snippets for that."""
    if not values:
        return Literal(c_string("".join(parts))), ()
    made = message_of(parts, values, text)
    put_message(code, made, "st_text_begin", "NULL")
    return call("st_text_message", MESSAGE), ("put_format", *made.needs)


def address(code: CodeBuilder, value: Value, text: Values) -> Expr:
    """The address of a value; a number gets a place here."""
    if is_tensor(value):
        return text.operand(value)
    number = Variable(f"number_{len(code.body)}", scalar(value.tensor.dtype))
    code.add(Declare(number, text.operand(value)))
    return Prefix("&", number)


def emit_file_print(code: CodeBuilder, op: Op, text: Values, site: int) -> tuple[str, ...]:
    """Write a `print` to a file, which stops the program where it fails; returns the support snippets that it needs."""
    *values, file = op.operands
    made = message_of((*op.attrs["parts"], op.attrs["end"]), values, text)
    place = ("host", site, text.operand(file))
    with code.block():
        if made.format:
            code.body += made.declared
            is_printed = call("st_file_print", *place, *made.format)
        else:
            put_message(code, made, "st_file_begin", *place)
            is_printed = call("st_file_end", MESSAGE, *place)
        with code.branch(Prefix("!", is_printed)):
            code.add(Jump("return", value=Member(Name("host"), "error_kind")))
    return (*made.needs, "files")


def emit_print(code: CodeBuilder, op: Op, text: Values) -> tuple[str, ...]:
    """Write a `print`; returns the support snippets that it needs."""
    parts = *op.attrs["parts"], op.attrs["end"]
    if not op.operands:
        words = "".join(parts)
        code.do("st_write", "host", Literal(c_string(words)), len(words.encode()))
        return ("write",)
    made = message_of(parts, op.operands, text)
    function, arguments = made.pieces[0] if len(made.pieces) == 1 else ("", ())
    direct = {"st_put_format": "st_print", "st_put": "st_write"}.get(function)
    with code.block():
        if direct:
            code.body += made.declared
            code.do(direct, "host", *arguments)
        else:
            put_message(code, made, "st_text_begin", "host")
            code.do("st_text_end", MESSAGE)
    return (*made.needs, "print" if made.format else "put_format")
