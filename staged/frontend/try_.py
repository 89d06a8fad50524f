"""`try`: it catches what Python raises while staging."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from typing import Any

from staged.errors import StagingError
from staged.frontend import cleanup  # noqa: F401  (its operator)
from staged.frontend.assert_ import KINDS
from staged.frontend.syntax import Converter, operator, place, statement, text
from staged.frontend.tracing import current_trace
from staged.ir.builder import OpenBlock
from staged.ir.nodes import Op, Value, walk_ops
from staged.ir.trips import constant_of
from staged.ir.types import TensorType


@statement(ast.Try)
def convert_try(converter: Converter, node: ast.Try) -> list[ast.stmt]:
    """Stays a `try`: it catches what Python raises while staging."""
    from staged.frontend.assign import assign

    kinds = [handler.type for handler in node.handlers if handler.type is not None]
    caught = converter.lambda_(ast.copy_location(ast.Tuple(kinds, ast.Load()), node))
    is_bare = len(kinds) < len(node.handlers)
    guard = converter.call("in_try", text(bool(node.handlers)), caught, text(is_bare))
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
    """Marks the body of a `try` with handlers: what stops the program cannot be caught there.

    `caught()` gives what its handlers name, `is_bare` says whether one names nothing.
    """

    def __init__(self, has_handlers: bool, caught: Callable[[], Any], is_bare: bool) -> None:
        self.step = 1 if has_handlers else 0
        self.caught = caught
        self.is_bare = is_bare
        self.start: tuple[OpenBlock, int] | None = None

    def __enter__(self) -> None:
        trace = current_trace()
        if trace is not None:
            trace.try_depth += self.step
            self.start = (trace.block, len(trace.block.ops))

    def __exit__(self, kind: Any, *_: object) -> None:
        trace = current_trace()
        if trace is None:
            return
        trace.try_depth -= self.step
        if kind is None and self.step and self.start is not None and self.start[0] is trace.block:
            self.refuse_failing(trace.block.ops[self.start[1] :])

    def refuse_failing(self, ops: list[Op]) -> None:
        """Raise where the handlers name what the program would stop with: they run while staging, it runs later."""
        kinds = BaseException if self.is_bare else _flat(self.caught())
        for op in itertools.chain.from_iterable([op, *_inside(op)] for op in ops):
            error = _stops_with(op)
            if error is not None and issubclass(error, kinds):
                raise StagingError(
                    f"this may stop the program with {_article(error.__name__)}, which the `try` around it cannot catch",
                    where=op.where,
                    hint="ask before: `if i < len(x): ...`, `if divisor != 0: ...`; or leave the `try` to the caller",
                )


def _inside(op: Op) -> list[Op]:
    return [inner for block in op.blocks for inner in walk_ops(block)]


def _flat(kinds: Any) -> tuple[type[BaseException], ...]:
    """The exception types that `except` clauses name, tuples of them too."""
    if isinstance(kinds, tuple):
        return tuple(kind for part in kinds for kind in _flat(part))
    return (kinds,) if isinstance(kinds, type) and issubclass(kinds, BaseException) else ()


def _stops_with(op: Op) -> type[BaseException] | None:
    """The exception of Python with which the program may stop at `op`."""
    if not any(effect.kind == "fail" for effect in op.effects):
        return None
    if op.name in ("floor_divide", "remainder"):
        return None if constant_of(op.operands[1]) else ZeroDivisionError
    if op.name == "assert":
        return next(error for error, (name, _) in KINDS.items() if name == op.attrs["kind"])
    if op.name == "dim":
        return ValueError
    if op.name.startswith("file_"):
        return OSError
    if op.name in ("index_check", "take", "take_along", "scatter", "scatter_add", "scatter_add_along"):
        known = all(v.producer is not None and v.producer.name == "constant" for v in op.operands if _is_index(v))
        return None if known else IndexError
    return None


def _is_index(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_integer


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


operator(in_try)
