"""Small statements: `pass`, expressions, imports, `global`."""

from __future__ import annotations

import ast
import sys
from importlib.util import resolve_name

from staged.frontend.constructs.attributes import attribute
from staged.frontend.syntax.converter import Converter, operator, place, statement, text
from staged.frontend.trace.context import current_trace


@statement(ast.Pass, ast.Global, ast.Nonlocal)
def convert_nothing(converter: Converter, node: ast.stmt) -> list[ast.stmt]:
    return [ast.Pass()]


@statement(ast.Expr)
def convert_expression(converter: Converter, node: ast.Expr) -> list[ast.stmt]:
    return [ast.Expr(converter.expr(node.value))]


@statement(ast.Import, ast.ImportFrom)
def convert_import(converter: Converter, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
    names = text(tuple(alias.name for alias in node.names))
    module = text("." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else None)
    out: list[ast.stmt] = [node, ast.Expr(converter.call("imported", module, names))]
    for alias in node.names:
        name = (alias.asname or alias.name).split(".")[0]
        home = converter.resolve(name)
        if home is not None:
            target = ast.Attribute(ast.Name(home, ast.Load()), name, ast.Store())
            out.append(place(ast.Assign([target], ast.Name(name, ast.Load())), node))
    return out


# ---- what the call does -------------------------------------------------------------------------


@operator
def imported(module: str | None, names: tuple[str, ...]) -> None:
    """Notes what `import a, b` (no module) or `from module import a, b` has found."""
    trace = current_trace()
    if trace is None:
        return
    if module is None:
        for name in names:
            trace.reads.name(sys.modules, name)
            trace.reads.name(sys.modules, name.split(".")[0])
        return
    found = resolve_name(module, sys._getframe(1).f_globals.get("__package__"))
    trace.reads.name(sys.modules, found)
    for name in names:
        attribute(sys.modules[found], name)
