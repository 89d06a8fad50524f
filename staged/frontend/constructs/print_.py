"""`print`: always recorded, whatever it prints."""

from __future__ import annotations

import sys
from typing import Any

from staged.errors import StagingError
from staged.frontend.calls.call import builtin
from staged.frontend.constructs.files import StagedFile, emit_write
from staged.frontend.constructs.strings import Part, encode, parts_of
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import check_effect
from staged.ir.nodes import IO, Op
from staged.ir.structure import PRINT
from staged.source import here


@builtin(print)
def print_(*values: Any, sep: str | None = None, end: str | None = None, file: Any = None, flush: bool = False) -> None:
    """Python's `print` for converted code."""
    check_effect("print", "`print`")
    trace = current_trace()
    if trace is None:
        print(*values, sep=sep, end=end, file=file, flush=flush)
        return
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
            PRINT,
            operands,
            [],
            attrs={"parts": attr, "end": end, "file": "stdout"},
            effects=IO,
            device=trace.builder.device,
            where=here(),
        )
    )
