"""Equality of functions: trees that differ only in comments and in the names that they declare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from staged.code.dialect import C, Dialect
from staged.code.expr import Expr, Variable, Words, print_expr
from staged.code.printer import Printer
from staged.code.tree import Function


class Numbered(Words):
    """Variables by the order in which their names appear."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, str] = {}

    def number(self, name: str) -> str:
        """The number of a name."""
        return self.numbers.setdefault(name, f"${len(self.numbers)}")

    def variable(self, variable: Variable) -> str:
        return self.number(variable.text)


def shape_of(function: Function, dialect: Dialect = C) -> tuple[str, Callable[[Expr], str]]:
    """The function with its variables numbered, and what does the same to an expression of its parameters."""
    words = Numbered()
    printer = Printer(replace(dialect, words=words))
    printer.w.comment = lambda text: None  # type: ignore[method-assign]
    # Without the function's name, which may be that of a variable in it.
    head = f"{printer.head(function)} ({printer.parameters(function.parameters)})"
    printer.body(function.body)
    return "\n".join([head, *printer.w.lines]), lambda expr: print_expr(expr, 0, words)
