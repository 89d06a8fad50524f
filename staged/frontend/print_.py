"""`print`: always recorded, whatever it prints."""

from __future__ import annotations

import sys
from typing import Any

from staged.errors import StagingError
from staged.frontend.effects import check_effect
from staged.frontend.strings import Part, fstring, parts_of
from staged.frontend.tracing import TraceContext, current_trace
from staged.ir.nodes import IO, Op, Value
from staged.ops.array import Array
from staged.source import here


def print_(*values: Any, sep: str | None = None, end: str | None = None, file: Any = None, flush: bool = False) -> None:
    """Python's `print` for converted code."""
    check_effect("print", "`print`")
    trace = current_trace()
    if trace is None:
        print(*values, sep=sep, end=end, file=file, flush=flush)
        return
    from staged.frontend.files import StagedFile, emit_write

    if file is not None and not isinstance(file, StagedFile) and file not in (sys.stdout, sys.__stdout__):
        raise StagingError(
            "a staged `print` goes to standard output, or to a file that the program has opened",
            where=here(),
            hint='open the file in the staged function: `with open("log.txt", "w") as f: print(x, file=f)`',
        )
    separator = " " if sep is None else sep
    parts: list[Part] = []
    for index, value in enumerate(values):
        if index:
            parts.append(separator)
        parts += parts_of(value)
    if isinstance(file, StagedFile):
        emit_write(trace, file, parts, "\n" if end is None else end)
        return
    emit_print(trace, parts, "\n" if end is None else end)


def emit_print(trace: TraceContext, parts: list[Part], end: str) -> None:
    """Record a `print` op."""
    operands, attr = encode(trace, parts)
    trace.emit_op(
        Op(
            "print",
            operands,
            [],
            attrs={"parts": attr, "end": end, "file": "stdout"},
            effects=IO,
            device=trace.builder.device,
            where=here(),
        )
    )


def encode(trace: TraceContext, parts: list[Part]) -> tuple[list[Value], tuple[Any, ...]]:
    """Parts as operands and the attribute that places them: text, or (operand, spec, conversion)."""
    operands: list[Value] = []
    attr: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            if attr and isinstance(attr[-1], str):
                attr[-1] += part
            elif part:
                attr.append(part)
        else:
            value, spec, conversion = part
            attr.append((len(operands), spec, conversion))
            operands.append(trace.value_of(value))
    return operands, tuple(attr)


def message_parts(message: Any) -> list[Part]:
    """The parts of an assertion's or exception's message."""
    if message is None:
        return []
    if isinstance(message, str):
        return [message]
    if isinstance(message, Array):
        return parts_of(message)
    made = fstring((message, "", ""))
    return [made] if isinstance(made, str) else list(made.parts)
