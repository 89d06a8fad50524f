"""`try`: it catches what Python raises while staging."""

from __future__ import annotations

import ast

from staged.frontend import cleanup  # noqa: F401  (its operator)
from staged.frontend.syntax import Converter, operator, place, statement, text
from staged.frontend.tracing import current_trace


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
