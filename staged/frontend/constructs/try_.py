"""`try`: it catches what Python raises while staging."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

from staged.errors import ProgramError, ShapeError, StagedError, StagingError, article
from staged.frontend.constructs.assert_ import KINDS
from staged.frontend.syntax.assign import assign
from staged.frontend.syntax.converter import Converter, operator, place, statement, text
from staged.frontend.trace.context import current_trace
from staged.frontend.trace.handlers import Handlers, Raiser, Raisers
from staged.frontend.trace.signals import (
    Again,
    BlockEndedError,
)
from staged.ir.builder import OpenBlock
from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value, walk_ops
from staged.ir.sizes import Size
from staged.ir.structure import ASSERT, CALLBACK, FILE_CLOSE, FILE_OPEN, SAVE
from staged.ir.trips import constant_of
from staged.ir.types import TensorType
from staged.ops.assumptions import is_assuming
from staged.ops.context import context_or_none


@statement(ast.Try)
def convert_try(converter: Converter, node: ast.Try) -> list[ast.stmt]:
    """Stays a `try`: it catches what Python raises while staging."""
    kinds = [handler.type for handler in node.handlers if handler.type is not None]
    caught = converter.lambda_(ast.copy_location(ast.Tuple(kinds, ast.Load()), node))
    is_bare = len(kinds) < len(node.handlers)
    guard = converter.call("in_try", text(bool(node.handlers)), caught, text(is_bare))
    guarded = ast.With([ast.withitem(guard, None)], converter.block(node.body), None)
    handlers = []
    for handler in node.handlers:
        body = converter.block(handler.body)
        name = converter.fresh("error")
        if handler.name is not None:
            target = ast.copy_location(ast.Name(handler.name, ast.Store()), handler)
            body = [*assign(converter, target, ast.Name(name, ast.Load()), handler), *body]
        kind = converter.expr(handler.type) if handler.type is not None else None
        caught_here = converter.lambda_(handler.type) if handler.type is not None else text(None)
        passes = converter.call("passes_on", ast.Name(name, ast.Load()), caught_here)
        body = [ast.If(passes, [ast.Raise(None, None)], []), *body]
        handlers.append(place(ast.ExceptHandler(kind or ast.Name("BaseException", ast.Load()), name, body), handler))
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
        self.raisers = 0
        self.token: Token[tuple[in_try, ...]] | None = None

    def __enter__(self) -> None:
        trace = current_trace()
        if self.step:
            self.token = _waits.set((*_waits.get(), self))
        if trace is not None:
            trace.put(Handlers(trace.of(Handlers).depth + self.step))
            self.start = (trace.block, len(trace.block.ops))
            self.raisers = len(trace.of(Raisers).calls)

    def __exit__(self, kind: Any, error: BaseException | None, _: object) -> None:
        trace = current_trace()
        if self.token is not None:
            _waits.reset(self.token)
        if trace is not None:
            trace.put(Handlers(trace.of(Handlers).depth - self.step))
            if kind is None and self.step and self.start is not None and self.start[0] is trace.block:
                self.refuse_failing(trace.block.ops[self.start[1] :], trace.of(Raisers).calls[self.raisers :])
        raised = error.raised if isinstance(error, ProgramError) else None
        if self.step and raised is not None and isinstance(raised, self.kinds()):
            raise raised from raised.__cause__  # the handler gets it as it was raised, not as the program would stop

    def kinds(self) -> Any:
        """The classes that its handlers name."""
        return BaseException if self.is_bare else _flat(self.caught())

    def refuse_failing(self, ops: list[Op], raisers: Sequence[Raiser]) -> None:
        """Raise where the handlers name what the program would stop with: they run while staging, it runs later.

        Or what Python would raise: floats of a program go on with an infinity or NaN.
        """
        kinds = self.kinds()
        every = list(itertools.chain.from_iterable([op, *_inside(op)] for op in ops))
        all_raisers = [
            *raisers,
            *((_raises(op), _OPERATORS[op.declared], op.where) for op in every if op.declared in _OPERATORS),
        ]
        for errors, what, where in all_raisers:
            error = next((error for error in errors if issubclass(error, kinds)), None)
            if error is not None:
                raise StagingError(
                    f"{what} goes on with an infinity or NaN where Python raises {article(error.__name__)}, "
                    "for which the `try` around it waits",
                    where=where,
                    hint="ask before: `if divisor != 0.0: ...`, `if x > 0.0: ...`; or leave the `try` to the caller",
                )
        for op in every:
            error = _stops_with(op)
            if error is not None and (issubclass(error, kinds) or op.declared is CALLBACK):
                raise StagingError(
                    f"this may stop the program with {article(error.__name__)}, which the `try` around it cannot catch",
                    where=op.where,
                    hint="ask before: `if i < len(x): ...`, `if divisor != 0: ...`; or leave the `try` to the caller",
                )


_OPERATORS = {prims.DIVIDE: "`/`", prims.FLOOR_DIVIDE: "`//`", prims.REMAINDER: "`%`", prims.POW: "`**`"}
"""Python's operators that raise for some floats, where the op goes on with an infinity or NaN."""


def _raises(op: Op) -> tuple[type[BaseException], ...]:
    """The exceptions that Python may raise for these operands of its own floats; NumPy's arrays raise none."""
    (result,) = op.results
    if not isinstance(result.type, TensorType) or not result.type.weak or not result.type.dtype.is_float:
        return ()
    second = constant_of(op.operands[1])
    if op.declared is prims.POW:
        return (OverflowError,) if second is not None and second >= 0 else (OverflowError, ZeroDivisionError)
    return () if second else (ZeroDivisionError,)


_waits: ContextVar[tuple[in_try, ...]] = ContextVar("staged_try", default=())


def is_waited_for(errors: Iterable[type[BaseException]]) -> bool:
    """Return whether a handler of converted code around waits for one of these errors, which Python raises and a
    program does not.
    """
    return any(issubclass(error, guard.kinds()) for guard in _waits.get() for error in errors)


@contextmanager
def unheard() -> Iterator[None]:
    """The extent of what the user did not write, such as the rule of a derivative:
    it goes on with an infinity or NaN."""
    token = _waits.set(())
    try:
        yield
    finally:
        _waits.reset(token)


def is_anything_waited_for() -> bool:
    """Return whether a `try` with handlers is around."""
    return bool(_waits.get())


@operator
def passes_on(error: BaseException, caught: Callable[[], Any] | None) -> bool:
    """Return whether a handler must not keep an error: what steers the trace, and a refusal that it does not name.

    `except Exception` would take "this cannot be staged" for what the program does, and hide it. Nor must a handler
    keep an error that a program for one size may not have.
    """
    if isinstance(error, BlockEndedError | Again) or may_depend_on_sizes(error):
        return True
    if context_or_none() is None or not isinstance(error, StagingError):
        return False
    kinds = (BaseException,) if caught is None else _flat(caught())
    return all(kind in (Exception, BaseException) for kind in kinds if isinstance(error, kind))


def may_depend_on_sizes(error: BaseException) -> bool:
    """Return whether a program for one size may not have this error."""
    trace = current_trace()
    if trace is None or not trace.dims:
        return False
    return isinstance(error, ShapeError) or is_assuming() and isinstance(error, _OF_SIZES)


_OF_SIZES = (StagedError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError)
"""The errors that Python's integers, in the place of sizes of the program, may not raise."""


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
    if op.declared in (prims.FLOOR_DIVIDE, prims.REMAINDER):
        return None if constant_of(op.operands[1]) else ZeroDivisionError
    if op.declared is prims.FIT:
        return None if constant_of(op.operands[0]) is not None else OverflowError
    if op.declared is ASSERT:
        return next(error for error, (name, _) in KINDS.items() if name == op.attrs["kind"])
    if op.declared is prims.DIM:
        return ValueError
    if op.declared is CALLBACK:
        return Exception  # any
    if op.declared in (FILE_OPEN, FILE_CLOSE, SAVE):
        return OSError
    if op.declared is prims.INDEX_CHECK and "of" in op.attrs:
        return ValueError
    if op.declared in (
        prims.INDEX_CHECK,
        prims.TAKE,
        prims.TAKE_ALONG,
        prims.SCATTER,
        prims.SCATTER_ADD,
        prims.SCATTER_ADD_ALONG,
    ):
        known = all(value.made_by(prims.CONSTANT) for value in op.operands if _is_index(value))
        types = [value.type for value in op.operands if isinstance(value.type, TensorType)]
        has_sizes = isinstance(op.attrs.get("extent"), Size) or not all(type.is_static for type in types)
        return IndexError if has_sizes or not known else None
    return None


def _is_index(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_integer


operator(in_try)
