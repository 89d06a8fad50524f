"""`with`."""

from __future__ import annotations

import ast
import contextlib
from types import FunctionType
from typing import Any

from staged.call.guards.check import lookup
from staged.frontend.calls.call import as_converted, call
from staged.frontend.constructs.try_ import in_try, may_depend_on_sizes
from staged.frontend.syntax.assign import assign
from staged.frontend.syntax.converter import Converter, operator, place, statement, text
from staged.frontend.trace.context import current_trace
from staged.frontend.values.operands import note_operand


@statement(ast.With)
def convert_with(converter: Converter, node: ast.With) -> list[ast.stmt]:
    """Stays a `with`: a signal that returns through it runs its exit, as an exception does."""
    items = []
    header: list[ast.stmt] = []
    for item in node.items:
        name = None
        if item.optional_vars is not None:
            fresh = converter.fresh("entered")
            name = ast.Name(fresh, ast.Store())
            header += assign(converter, item.optional_vars, ast.Name(fresh, ast.Load()), node)
        items.append(ast.withitem(converter.call("context", converter.expr(item.context_expr)), name))
    whole = converter.fresh("cleanup")
    inside = ast.Attribute(ast.Name(whole, ast.Load()), "inside", ast.Load())
    body = ast.With([*items, ast.withitem(inside, None)], [*header, *converter.block(node.body)], None)
    guard = ast.withitem(converter.call("cleanup", text("with")), ast.Name(whole, ast.Store()))
    return [ast.With([guard], [place(body, node)], None)]


# ---- what the call does -------------------------------------------------------------------------


@operator
def context(manager: Any) -> Any:
    """The object that a `with` enters: a user's object with converted methods, others unchanged."""
    trace = current_trace()
    if trace is None:
        return manager
    for name in ("__enter__", "__exit__"):
        trace.reads.of_class(type(manager), name, lookup(type(manager), name))
    note_operand(manager)
    methods = [getattr(type(manager), name, None) for name in ("__enter__", "__exit__")]
    if any(isinstance(method, FunctionType) and as_converted(method) is not method for method in methods):
        manager = _Converted(manager)
    return _OfSizes(manager) if trace.dims else manager


class _OfSizes:
    """A context manager in a program with dimensions. It does not suppress an error that a size may not raise."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        kinds = vars(manager)["_exceptions"] if isinstance(manager, contextlib.suppress) else ()
        self.suppressed = in_try(bool(kinds), lambda: kinds, is_bare=False)

    def __enter__(self) -> Any:
        self.suppressed.__enter__()
        return self.manager.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        self.suppressed.__exit__(kind, error, traceback)
        is_suppressed = self.manager.__exit__(kind, error, traceback)
        return is_suppressed and not (isinstance(error, Exception) and may_depend_on_sizes(error))


class _Converted:
    """A context manager of the user's: what it prints and writes as it begins and ends is recorded."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def __enter__(self) -> Any:
        return call(type(self.manager).__enter__, self.manager)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        if kind is not None and not issubclass(kind, Exception):
            # A path has ended, or an attempt is taken back: there is no place to record into.
            return type(self.manager).__exit__(self.manager, kind, error, traceback)
        return call(type(self.manager).__exit__, self.manager, kind, error, traceback)
