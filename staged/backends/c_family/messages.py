"""Prints and error messages of a program: the statements that put their parts together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.backends.c_family.expr import Expr
from staged.backends.c_family.support.format import Printed, Statements, put_parts
from staged.backends.c_family.writer import Writer, c_string
from staged.ir.nodes import Op, Value

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


def statements(parts: Sequence[Any], values: Sequence[Value], operand: Callable[[Value], Expr]) -> Statements:
    """The C statements that put `parts` into `text`; their values are written by `operand`."""
    printed = [Printed(str(operand(value)), value.tensor.dtype, _extents(value)) for value in values]
    return put_parts(parts, printed)


def _extents(value: Value) -> tuple[int | str, ...]:
    return tuple(extent if isinstance(extent, int) else extent.name for extent in value.tensor.shape)


def emit_print(w: Writer, op: Op, operand: Callable[[Value], Expr]) -> tuple[str, ...]:
    """Write a `print`; returns the support snippets that it needs."""
    made = statements((*op.attrs["parts"], op.attrs["end"]), op.operands, operand)
    if len(made.lines) == 1 and not op.operands:
        text = "".join((*op.attrs["parts"], op.attrs["end"]))
        w.line(f"st_write(host, {c_string(text)}, {len(text.encode())});")
        return ("write",)
    with w.block(""):
        w.line("st_text text;")
        w.line("st_text_begin(&text, host);")
        for line in made.lines:
            w.line(line)
        w.line("st_text_end(&text);")
    return made.needs


def emit_failure(
    w: Writer, kind: str, parts: Sequence[Any], values: Sequence[Value], site: int, operand: Callable[[Value], Expr]
) -> tuple[str, ...]:
    """Write what stops the program with an error of `kind`; returns the support snippets that it needs."""
    made = statements(parts, values, operand)
    if not values:
        text = "".join(part for part in parts if isinstance(part, str))
        w.line(f'st_fail(host, {KINDS[kind]}, {site}, "%s", {c_string(text)});')
        return ("fail",)
    w.line("st_text text;")
    w.line("st_text_begin(&text, NULL);")
    for line in made.lines:
        w.line(line)
    w.line(f'st_fail(host, {KINDS[kind]}, {site}, "%s", st_text_message(&text));')
    return (*made.needs, "fail")
