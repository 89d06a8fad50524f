"""`with`."""

from __future__ import annotations

import ast

from staged.frontend import cleanup  # noqa: F401  (its operator)
from staged.frontend.syntax import Converter, place, statement, text


@statement(ast.With)
def convert_with(converter: Converter, node: ast.With) -> list[ast.stmt]:
    """Stays a `with`: a signal that returns through it runs its exit, as an exception does."""
    from staged.frontend.assign import assign

    items = []
    header: list[ast.stmt] = []
    for item in node.items:
        name = None
        if item.optional_vars is not None:
            fresh = converter.fresh("entered")
            name = ast.Name(fresh, ast.Store())
            header += assign(converter, item.optional_vars, ast.Name(fresh, ast.Load()), node)
        items.append(ast.withitem(converter.expr(item.context_expr), name))
    whole = converter.fresh("cleanup")
    inside = ast.Attribute(ast.Name(whole, ast.Load()), "inside", ast.Load())
    body = ast.With([*items, ast.withitem(inside, None)], [*header, *converter.block(node.body)], None)
    guard = ast.withitem(converter.call("cleanup", text("with")), ast.Name(whole, ast.Store()))
    return [ast.With([guard], [place(body, node)], None)]
