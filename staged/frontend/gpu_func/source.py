"""The syntax of a kernel, and what the names in it mean that it does not bind."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from types import FunctionType
from typing import Any, NoReturn

from staged.errors import StagingError, UnboundNameError
from staged.frontend.calls.convert import syntax_of
from staged.source import Position


class Source:
    """One function: its definition, positions, and the names around it."""

    def __init__(self, function: FunctionType) -> None:
        node = syntax_of(function)
        assert isinstance(node, ast.FunctionDef), "a decorated function is a `def`"
        self.node = node
        self.function = function
        self.name = function.__name__
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self.assigned = assignments(node)
        """The number of bindings of each name in the function."""

    def where(self, node: ast.AST) -> Position:
        """The position of a part of it."""
        line = getattr(node, "lineno", self.node.lineno)
        return Position(
            self.function.__code__.co_filename,
            line,
            getattr(node, "col_offset", 0),
            getattr(node, "end_lineno", line) or line,
            getattr(node, "end_col_offset", 0) or 0,
            self.name,
        )

    def refuse(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        """Raise the error for a part that a kernel cannot have."""
        raise StagingError(message, where=self.where(node), hint=hint)

    def outside(self, node: ast.Name) -> Any:
        """The value of a name that the kernel does not bind. Raises: UnboundNameError without one."""
        name = node.id
        if name in self.cells:
            try:
                return self.cells[name].cell_contents
            except ValueError:
                pass
        elif name in self.function.__globals__:
            return self.function.__globals__[name]
        elif hasattr(builtins, name):
            return getattr(builtins, name)
        raise UnboundNameError(f"`{name}` is not bound", where=self.where(node))


def assignments(node: ast.AST) -> Counter[str]:
    """The number of bindings of each name by the statements in `node`."""
    found: Counter[str] = Counter()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            found[part.id] += 1
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            found[part.target.id] += 1  # reads it too, so it is never bound by this alone
    return found


def loop_bindings(node: ast.AST) -> Counter[str]:
    """The number of bindings of each name by the `for` loops in `node`."""
    return Counter(
        part.target.id for part in ast.walk(node) if isinstance(part, ast.For) and isinstance(part.target, ast.Name)
    )
