"""`assert` and `raise`: when what they depend on is staged, the program checks and stops with the Python line."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from staged.base.artifact import FailureKind
from staged.errors import (
    ProgramAssertionError,
    ProgramError,
    ProgramIndexError,
    ProgramMemoryError,
    ProgramNanError,
    ProgramNotImplementedError,
    ProgramOverflowError,
    ProgramRecursionError,
    ProgramRuntimeError,
    ProgramTypeError,
    ProgramValueError,
    ProgramZeroDivisionError,
    StagingError,
)
from staged.frontend.constructs.strings import encode, message_parts
from staged.frontend.syntax.converter import Converter, operator, place, statement, text
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.handlers import Handlers
from staged.frontend.trace.signals import ENDED, Signal
from staged.frontend.values.join import WEAK_BOOL, is_staged, materialise
from staged.frontend.values.truth import truth
from staged.ir.nodes import FAIL, Op, Value
from staged.ir.structure import ASSERT, RAISE
from staged.ops.array import Array
from staged.ops.context import context_or_none
from staged.source import here

KINDS: dict[type[BaseException], tuple[FailureKind, type[ProgramError]]] = {
    AssertionError: ("assertion", ProgramAssertionError),
    IndexError: ("index", ProgramIndexError),
    ZeroDivisionError: ("zero_division", ProgramZeroDivisionError),
    ValueError: ("value", ProgramValueError),
    OverflowError: ("overflow", ProgramOverflowError),
    FloatingPointError: ("nan", ProgramNanError),
    MemoryError: ("memory", ProgramMemoryError),
    RecursionError: ("recursion", ProgramRecursionError),
    RuntimeError: ("runtime", ProgramRuntimeError),
    TypeError: ("type", ProgramTypeError),
    NotImplementedError: ("not_implemented", ProgramNotImplementedError),
}
"""The exceptions that a program can raise: their names in the IR, and what Python gets."""


@statement(ast.Assert)
def convert_assert(converter: Converter, node: ast.Assert) -> list[ast.stmt]:
    test = converter.expr(node.test)
    message = converter.lambda_(node.msg) if node.msg is not None else text(None)
    call = converter.call("assert_", test, message)
    return [place(ast.Expr(place(call, node.test)), node)]


@statement(ast.Raise)
def convert_raise(converter: Converter, node: ast.Raise) -> list[ast.stmt]:
    """Under staged control flow the op is recorded; else Python raises, now."""
    if node.exc is None:
        return [ast.Raise(None, None)]
    plain: ast.expr = node.exc
    arguments: list[ast.expr] = []
    if isinstance(plain, ast.Call) and not plain.keywords:
        arguments = [converter.expr(argument) for argument in plain.args]
        kind = converter.expr(plain.func)
    else:
        kind = converter.expr(plain)
    cause = converter.expr(node.cause) if node.cause is not None else text(None)
    call = converter.call("raise_", kind, ast.Tuple(arguments, ast.Load()), cause)
    return [ast.Return(place(call, node.exc))]


# ---- what the calls do --------------------------------------------------------------------------


@operator
def assert_(condition: Any, message: Callable[[], Any] | None) -> None:
    """`assert condition, message`."""
    held = truth(condition)
    trace = current_trace()
    if trace is None or (not is_staged(held) and (held or not trace.is_staged_control)):
        if not held:
            given = () if message is None else (message(),)
            stopped = ProgramAssertionError(": ".join(["assertion failed", *map(str, given)]), where=here())
            stopped.raised = AssertionError(*given)
            raise stopped
        return
    parts = message_parts(message()) if message is not None else []
    value = materialise(trace, held, held.type if is_staged(held) else WEAK_BOOL)
    operands, attr = encode(trace, parts)
    _emit_check(trace, [value, *operands], attr, "assertion")


def check(trace: TraceContext, condition: Array, kind: FailureKind, message: str) -> None:
    """The program stops with an error of `kind` (see `KINDS`) unless `condition` holds."""
    _emit_check(trace, [trace.value_of(condition)], (message,), kind)


def require(condition: Any, error: type[BaseException], message: Any) -> None:
    """Stop with `error` (one of `KINDS`) and a message, which may have staged parts, unless `condition` holds."""
    held = truth(condition)
    kind, raised = KINDS[error]
    trace = current_trace()
    if trace is None or (not is_staged(held) and (held or not trace.is_staged_control)):
        if not held:
            raise raised("".join(map(str, message_parts(message))), where=here())
        return
    value = materialise(trace, held, held.type if is_staged(held) else WEAK_BOOL)
    operands, attr = encode(trace, message_parts(message))
    _emit_check(trace, [value, *operands], attr, kind)


def _emit_check(trace: TraceContext, operands: list[Value], parts: tuple[Any, ...], kind: FailureKind) -> None:
    attrs = {"parts": parts, "kind": kind}
    trace.emit_op(Op(ASSERT, operands, [], attrs=attrs, effects=FAIL, device=trace.builder.device, where=here()))


@operator
def raise_(error: Any, arguments: tuple[Any, ...], cause: Any) -> Signal:
    """`raise error(*arguments)`."""
    trace = current_trace()
    if trace is None or not trace.is_staged_control:
        made = error(*arguments) if isinstance(error, type) else error
        if trace is None and context_or_none() is not None and type(made) in KINDS:
            # Eager mode stops as the program would, with the Python line.
            stopped = KINDS[type(made)][1](str(made), where=here())
            stopped.raised, made.__cause__ = made, cause
            made = stopped
        if cause is not None:
            raise made from cause
        raise made
    kind = error if isinstance(error, type) else type(error)
    if not isinstance(error, type):
        arguments = error.args
    name = next((KINDS[base][0] for base in kind.__mro__ if base in KINDS), None)
    if name is None:
        allowed = ", ".join(sorted(base.__name__ for base in KINDS))
        raise StagingError(
            f"`raise {kind.__name__}` under a staged condition cannot be staged",
            where=here(),
            hint=f"raise one of {allowed}",
        )
    if trace.of(Handlers).depth:
        raise StagingError(
            "a `raise` under a staged condition cannot be caught by a `try` around it",
            where=here(),
            hint="return a value that says what went wrong",
        )
    parts = message_parts(arguments[0]) if arguments else []
    operands, attr = encode(trace, parts)
    where = here()
    trace.emit_op(
        Op(
            RAISE,
            operands,
            [],
            attrs={"parts": attr, "kind": name},
            effects=FAIL,
            device=trace.builder.device,
            where=where,
        )
    )
    trace.builder.end("raise", (), None, where)
    return ENDED
