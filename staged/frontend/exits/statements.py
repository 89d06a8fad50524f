"""`return`, `break`, `continue`: signals that the construct around them takes, or passes outwards."""

from __future__ import annotations

import ast
from typing import Any, Literal

from staged.frontend.syntax.converter import Converter, operator, place, statement, text
from staged.frontend.trace.context import current_trace
from staged.frontend.trace.signals import Signal
from staged.source import Position, here


@statement(ast.Return)
def convert_return(converter: Converter, node: ast.Return) -> list[ast.stmt]:
    value = converter.expr(node.value) if node.value is not None else text(None)
    return [ast.Return(place(converter.call("returned", value), node))]


@statement(ast.Break)
def convert_break(converter: Converter, node: ast.Break) -> list[ast.stmt]:
    return [ast.Return(converter.call("leave_loop", text("break")))]


@statement(ast.Continue)
def convert_continue(converter: Converter, node: ast.Continue) -> list[ast.stmt]:
    return [ast.Return(converter.call("leave_loop", text("continue")))]


# ---- what the calls do --------------------------------------------------------------------------


@operator
def returned(value: Any) -> Signal:
    """`return value`."""
    return Signal("return", value, _here())


@operator
def leave_loop(kind: Literal["break", "continue"]) -> Signal:
    """`break` or `continue`."""
    return Signal(kind, None, _here())


def _here() -> Position | None:
    """The statement, for the text of the program; nothing where nothing is recorded."""
    return here() if current_trace() is not None else None
