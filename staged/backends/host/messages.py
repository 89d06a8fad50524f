"""Prints and error messages of a program: the statements that put their parts together.

Tested by `tests/formatting/test_statements.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from staged.base.artifact import ErrorKind, FailureKind
from staged.code.expr import (
    Expr,
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
from staged.code.tree import Assign, CodeBuilder, Declare, Do, Jump, Statement
from staged.code.types import INDEX, scalar, word
from staged.code.writer import c_string
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import COMPLEX_OF, DType, Extent, u64
from staged.ops.formatting import FormatSpec, parse_spec

TEXT = Prefix("&", Name("text"))
"""The `st_text` that a message is put into."""


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


@dataclass(frozen=True, slots=True)
class Statements:
    """C statements, and the support snippets that they call."""

    body: tuple[Statement, ...]
    needs: tuple[str, ...]


def put_parts(parts: Sequence[Part], values: Sequence[Printed]) -> Statements:
    """The statements that put a message into the `st_text` named `text`; adjacent pieces of text become one."""
    body: list[Statement] = []
    needs: dict[str, None] = {"text": None}
    pending = ""
    for part in (*parts, ""):
        if isinstance(part, str):
            pending += part
            continue
        if pending:
            body.append(_put_text(pending))
            pending = ""
        index, spec, conversion = part
        value = values[index]
        if isinstance(spec, str):
            spec = parse_spec(spec, value.dtype.kind, conversion)
        extents = Items(tuple(map(argument, value.shape)))
        shape: Expr = replace(extents, type="const int64_t[]")
        if not all(isinstance(extent, Literal) for extent in extents.items):
            # A compound literal of what is not constant is no C++.
            shape = Variable(f"st_shape_{len(body)}", INDEX)
            body.append(Declare(shape, extents, sizes=(Literal(""),)))
        put, needed = _put_value(value, spec, shape)
        body.append(Do(put))
        needs[needed] = None
    if pending:
        body.append(_put_text(pending))
    return Statements(tuple(body), tuple(needs))


def _put_text(text: str) -> Statement:
    return Do(call("ST_PUT", TEXT, Literal(c_string(text))))


def _put_value(value: Printed, spec: FormatSpec, shape: Expr) -> tuple[Expr, str]:
    dtype = value.dtype
    as_integer = dtype.is_bool and not spec.is_plain and not spec.conversion
    given = Literal(spec_text(spec))
    if value.imag is not None:
        return call(f"st_put_{dtype.name}", TEXT, value.expr, value.imag, given), "format_complex"
    if value.shape:
        name = "bool_as_integer" if as_integer else dtype.name
        element, rank = f"st_element_{name}", len(value.shape)
        return call("st_put_array", TEXT, value.expr, element, rank, shape, given), f"format_elements_{name}"
    if format := printf_format(dtype, spec):
        put = "put_integer" if dtype.is_integer else "put_real"
        return call(f"st_{put}", TEXT, Literal(c_string(format)), value.expr), put
    if dtype.is_float:
        needed = f"format_{dtype}" if dtype.is_half else "format_float"
        return call(f"st_put_{dtype.name}", TEXT, value.expr, given), needed
    if dtype.is_bool and not as_integer:
        return call("st_put_bool", TEXT, value.expr, given), "format_bool"
    if dtype is u64:
        return call("st_put_u64", TEXT, value.expr, given), "format_integer"
    return call("st_put_i64", TEXT, value.expr, given), "format_integer"


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


def statements(parts: Sequence[Any], values: Sequence[Value], text: Values) -> Statements:
    """The C statements that put `parts` into `text`; their values are written by `text`."""
    printed = [_printed(value, text) for value in values]
    for part in parts:
        if isinstance(part, str) or not isinstance(part[1], FormatSpec) or part[1].kind != "c":
            continue
        # Of a complex scalar the imaginary part is the next value; an array's are in its last axis of 2.
        index = part[0]
        one = replace(printed[index], dtype=COMPLEX_OF[printed[index].dtype])
        printed[index] = replace(one, shape=one.shape[:-1]) if one.shape else replace(one, imag=printed[index + 1].expr)
    return put_parts(parts, printed)


def _printed(value: Value, text: Values) -> Printed:
    shape = tuple(extent if isinstance(extent, int) else text.extent(extent) for extent in value.tensor.shape)
    return Printed(text.operand(value), value.tensor.dtype, shape)


def declare_text(code: CodeBuilder, note: str = "") -> None:
    """Add the `st_text` that a message is put into."""
    code.add(Declare(Variable("text", word("st_text")), is_const=False, note=note))


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
    made = statements(parts, values, text)
    declare_text(code)
    code.do("st_text_begin", TEXT, "NULL")
    code.body += made.body
    return call("st_text_message", TEXT), made.needs


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
    made = statements((*op.attrs["parts"], op.attrs["end"]), values, text)
    number = text.operand(file)
    with code.block():
        declare_text(code)
        code.do("st_file_begin", TEXT, "host", site, number)
        code.body += made.body
        with code.branch(Prefix("!", call("st_file_end", TEXT, "host", site, number))):
            code.add(Jump("return", value=Member(Name("host"), "error_kind")))
    return (*made.needs, "files")


def emit_print(code: CodeBuilder, op: Op, text: Values) -> tuple[str, ...]:
    """Write a `print`; returns the support snippets that it needs."""
    made = statements((*op.attrs["parts"], op.attrs["end"]), op.operands, text)
    if len(made.body) == 1 and not op.operands:
        words = "".join((*op.attrs["parts"], op.attrs["end"]))
        code.do("st_write", "host", Literal(c_string(words)), len(words.encode()))
        return ("write",)
    with code.block():
        declare_text(code)
        code.do("st_text_begin", TEXT, "host")
        code.body += made.body
        code.do("st_text_end", TEXT)
    return made.needs


def emit_failure(
    code: CodeBuilder, kind: FailureKind, parts: Sequence[Any], values: Sequence[Value], site: int, text: Values
) -> tuple[str, ...]:
    """Write what stops the program with an error of `kind`; returns the support snippets that it needs."""
    made = statements(parts, values, text)
    error = f"ST_{ErrorKind[f'{kind.upper()}_ERROR'].name}"
    if not values:
        words = "".join(part for part in parts if isinstance(part, str))
        code.do("st_fail", "host", error, site, Literal('"%s"'), Literal(c_string(words)))
        return ("fail",)
    declare_text(code)
    code.do("st_text_begin", TEXT, "NULL")
    code.body += made.body
    code.do("st_fail", "host", error, site, Literal('"%s"'), call("st_text_message", TEXT))
    return (*made.needs, "fail")
