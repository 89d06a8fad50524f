"""Small statements: `pass`, expressions, imports, `global`."""

from __future__ import annotations

import ast

from staged.frontend.syntax import Converter, place, statement


@statement(ast.Pass, ast.Global, ast.Nonlocal)
def convert_nothing(converter: Converter, node: ast.stmt) -> list[ast.stmt]:
    return [ast.Pass()]


@statement(ast.Expr)
def convert_expression(converter: Converter, node: ast.Expr) -> list[ast.stmt]:
    return [ast.Expr(converter.expr(node.value))]


@statement(ast.Import, ast.ImportFrom)
def convert_import(converter: Converter, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
    out: list[ast.stmt] = [node]
    for alias in node.names:
        name = (alias.asname or alias.name).split(".")[0]
        home = converter.resolve(name)
        if home is not None:
            target = ast.Attribute(ast.Name(home, ast.Load()), name, ast.Store())
            out.append(place(ast.Assign([target], ast.Name(name, ast.Load())), node))
    return out
