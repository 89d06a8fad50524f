"""Prints and error messages of a program: the statements that put their parts together.

Tested by `tests/formatting/test_statements.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from staged.backends.c_family.expr import Expr
from staged.backends.c_family.support.format import Printed, Statements, put_parts
from staged.backends.c_family.writer import Writer, c_string
from staged.ir.nodes import Op, Value
from staged.ir.types import Extent

KINDS = {
    "assertion": "ST_ASSERTION_ERROR",
    "index": "ST_INDEX_ERROR",
    "zero_division": "ST_ZERO_DIVISION_ERROR",
    "value": "ST_VALUE_ERROR",
    "nan": "ST_NAN_ERROR",
    "memory": "ST_MEMORY_ERROR",
    "file": "ST_FILE_ERROR",
    "overflow": "ST_OVERFLOW_ERROR",
    "recursion": "ST_RECURSION_ERROR",
    "runtime": "ST_RUNTIME_ERROR",
    "type": "ST_TYPE_ERROR",
}


class Values(Protocol):
    """The expressions by which a program's text accesses values."""

    def operand(self, value: Value) -> Expr:
        """A scalar, or where an array starts."""

    def extent(self, extent: Extent) -> Expr:
        """The size of an axis."""


def statements(parts: Sequence[Any], values: Sequence[Value], text: Values) -> Statements:
    """The C statements that put `parts` into `text`; their values are written by `text`."""
    printed = [
        Printed(
            str(text.operand(value)),
            value.tensor.dtype,
            tuple(extent if isinstance(extent, int) else str(text.extent(extent)) for extent in value.tensor.shape),
        )
        for value in values
    ]
    return put_parts(parts, printed)


def emit_file_open(w: Writer, op: Op, text: Values, site: int, name: str) -> tuple[str, ...]:
    """Write the opening of a file, whose number becomes `name`; returns the support snippets that it needs."""
    mode = c_string(op.attrs["mode"])
    if not op.operands:
        path = c_string("".join(op.attrs["parts"]))
        w.line(f"const int64_t {name} = st_file_open(host, {site}, {path}, {mode});")
        return ("files",)
    made = statements(op.attrs["parts"], op.operands, text)
    w.line(f"int64_t {name};")
    with w.block(""):
        w.line("st_text text;")
        w.line("st_text_begin(&text, NULL);")
        for line in made.lines:
            w.line(line)
        w.line(f"{name} = st_file_open(host, {site}, st_text_message(&text), {mode});")
    return (*made.needs, "files")


def emit_file_print(w: Writer, op: Op, text: Values, site: int) -> tuple[str, ...]:
    """Write a `print` to a file, which stops the program where it fails; returns the support snippets that it needs."""
    *values, file = op.operands
    made = statements((*op.attrs["parts"], op.attrs["end"]), values, text)
    number = text.operand(file)
    with w.block(""):
        w.line("st_text text;")
        w.line(f"st_file_begin(&text, host, {site}, {number});")
        for line in made.lines:
            w.line(line)
        with w.block(f"if (!st_file_end(&text, host, {site}, {number}))"):
            w.line("return host->error_kind;")
    return (*made.needs, "files")


def emit_print(w: Writer, op: Op, text: Values) -> tuple[str, ...]:
    """Write a `print`; returns the support snippets that it needs."""
    made = statements((*op.attrs["parts"], op.attrs["end"]), op.operands, text)
    if len(made.lines) == 1 and not op.operands:
        words = "".join((*op.attrs["parts"], op.attrs["end"]))
        w.line(f"st_write(host, {c_string(words)}, {len(words.encode())});")
        return ("write",)
    with w.block(""):
        w.line("st_text text;")
        w.line("st_text_begin(&text, host);")
        for line in made.lines:
            w.line(line)
        w.line("st_text_end(&text);")
    return made.needs


def emit_failure(
    w: Writer, kind: str, parts: Sequence[Any], values: Sequence[Value], site: int, text: Values
) -> tuple[str, ...]:
    """Write what stops the program with an error of `kind`; returns the support snippets that it needs."""
    made = statements(parts, values, text)
    if not values:
        words = "".join(part for part in parts if isinstance(part, str))
        w.line(f'st_fail(host, {KINDS[kind]}, {site}, "%s", {c_string(words)});')
        return ("fail",)
    w.line("st_text text;")
    w.line("st_text_begin(&text, NULL);")
    for line in made.lines:
        w.line(line)
    w.line(f'st_fail(host, {KINDS[kind]}, {site}, "%s", st_text_message(&text));')
    return (*made.needs, "fail")
