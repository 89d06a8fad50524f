"""Small statements: `return`, `break`, `continue`, `pass`, expressions, imports, `with`, `try`, `global`."""

from __future__ import annotations

import ast
from typing import Any

from staged.frontend import cleanup  # noqa: F401  (its operator)
from staged.frontend.syntax import Converter, operator, place, statement, text
from staged.frontend.tracing import BREAK, CONTINUE, Signal, current_trace


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


@statement(ast.Try)
def convert_try(converter: Converter, node: ast.Try) -> list[ast.stmt]:
    """Stays a `try`: it catches what Python raises while staging."""
    from staged.frontend.assign import assign

    guard = converter.call("in_try", text(bool(node.handlers)))
    guarded = ast.With([ast.withitem(guard, None)], converter.block(node.body), None)
    handlers = []
    for handler in node.handlers:
        body = converter.block(handler.body)
        name = None
        if handler.name is not None:
            name = converter.fresh("error")
            target = ast.copy_location(ast.Name(handler.name, ast.Store()), handler)
            body = [*assign(converter, target, ast.Name(name, ast.Load()), handler), *body]
        kind = converter.expr(handler.type) if handler.type is not None else None
        handlers.append(place(ast.ExceptHandler(kind, name, body), handler))
    made = ast.Try([place(guarded, node)], handlers, converter.block(node.orelse), converter.block(node.finalbody))
    if not node.finalbody:
        return [made]
    whole = ast.withitem(converter.call("cleanup", text("finally")), None)
    return [ast.With([whole], [place(made, node)], None)]


# ---- what the calls do --------------------------------------------------------------------------


@operator
def returned(value: Any) -> Signal:
    """`return value`."""
    return Signal("return", value)


@operator
def leave_loop(kind: str) -> Signal:
    """`break` or `continue`."""
    return BREAK if kind == "break" else CONTINUE


class in_try:
    """Marks the body of a `try` with handlers: a `raise` of the program cannot be caught there."""

    def __init__(self, has_handlers: bool) -> None:
        self.step = 1 if has_handlers else 0

    def __enter__(self) -> None:
        trace = current_trace()
        if trace is not None:
            trace.try_depth += self.step

    def __exit__(self, *_: object) -> None:
        trace = current_trace()
        if trace is not None:
            trace.try_depth -= self.step


operator(in_try)
