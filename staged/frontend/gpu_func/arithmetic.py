"""Arithmetic in kernels: an array function is called on stand-ins for numbers, and what it records becomes an
expression.

So promotion, casts, refusals and the meaning of every op are those of arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staged.errors import StagedError, StagingError
from staged.frontend.gpu_func.ranges import Facts, interval
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Value
from staged.ir.numbers import fits
from staged.ir.thread_kernel import Argument, Compute, Const, Expression, Local, Shuffle, walk
from staged.ir.types import TensorType
from staged.ops.array import StagedArray
from staged.ops.context import use_context
from staged.ops.promote import as_array, number_type
from staged.ops.record import RecordContext
from staged.source import Position

_CHECKED = frozenset(("floor_divide", "remainder", "pow"))
_LAZY = frozenset(("logical_and", "logical_or", "select"))
"""Ops that may leave an operand out."""


def is_expression(value: Any) -> bool:
    """Return whether a value of the translation is an expression of the kernel."""
    return isinstance(value, Expression)


def is_number(value: Any) -> bool:
    """Return whether it is a number that is known while staging."""
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)


def as_expression(value: Any) -> Expression:
    """A number as an expression; an expression as it is."""
    if isinstance(value, np.generic):
        value = value.item()
    return Const(value, number_type(value)) if isinstance(value, bool | int | float) else value


def apply(function: Callable[..., Any], values: list[Any], facts: Facts, where: Position, **named: Any) -> Expression:
    """`function(*values, **named)` as an expression: numbers and expressions become handles, other values are
    unchanged.

    Raises: what the function does, at `where`; StagingError if it needs more than elementwise ops on numbers.
    """
    builder = Builder()
    context = RecordContext(builder, locate=lambda: where)
    leaves: dict[Value, Expression] = {}

    def handle(value: Any) -> Any:
        if not isinstance(value, Expression):
            return value.item() if isinstance(value, np.generic) else value
        made = Value(value.type, hint=value.name if isinstance(value, Local | Argument) else "")
        leaves[made] = value
        return StagedArray(made, context)

    with use_context(context), builder.block():
        try:
            found = as_array(function(*map(handle, values), **named))
        except StagedError as error:
            error.where = where
            raise
        builder.end("yield")
    result = context.value_of(found)
    if not isinstance(result.type, TensorType) or result.type.shape:
        raise _no_number(function, where)
    return _Translation(leaves, facts, function, where).of(result)


def _no_number(function: Callable[..., Any], where: Position) -> StagingError:
    name = getattr(function, "__name__", "this")
    return StagingError(
        f"`{name}` works on arrays, and a kernel has the numbers of one thread",
        where=where,
        hint="write a loop over the elements, or call it outside of the kernel",
    )


class _Translation:
    """Recorded ops as expressions."""

    def __init__(
        self, leaves: dict[Value, Expression], facts: Facts, function: Callable[..., Any], where: Position
    ) -> None:
        self.made = leaves
        self.facts = facts
        self.function = function
        self.where = where

    def of(self, value: Value) -> Expression:
        if value not in self.made:
            op = value.producer
            assert op is not None and isinstance(value.type, TensorType)
            if op.declared is prims.CONSTANT:
                self.made[value] = Const(op.attrs["value"], value.type)
            elif op.declared.kind != "elementwise":
                raise _no_number(self.function, self.where)
            else:
                operands = tuple(map(self.of, op.operands))
                self.made[value] = compute(op.name, operands, dict(op.attrs), value.type, self.facts, self.where)
        return self.made[value]


def compute(
    op: str,
    operands: tuple[Expression, ...],
    attrs: dict[str, Any],
    type: TensorType,
    facts: Facts,
    where: Position,
) -> Expression:
    """One op; a number that is cast is another number."""
    if op in _LAZY and any(isinstance(node, Shuffle) for operand in operands for node in walk(operand)):
        raise StagingError(
            "a shuffle in a part of an expression that may be left out: all lanes of a warp must come to it",
            where=where,
            hint="give its result a name first",
        )
    if op == "cast" and isinstance(operands[0], Const):
        number = prims.CAST.reference(np.asarray(operands[0].value), **attrs).item()
        return Const(number, type)
    exact = checked = False
    if type.dtype.is_integer:
        spans = [facts.range(operand) for operand in operands]
        known = [span for span in spans if span is not None]
        if op in ("add", "subtract", "multiply", "negative", "square"):
            exact = len(known) == len(spans) and fits(interval(op, known), type.dtype)
        elif op == "bitwise_left_shift":
            exact = known[0][0] >= 0 and 0 <= known[1][0] and known[1][1] < 64 and fits(interval(op, known), type.dtype)
        elif op == "bitwise_right_shift":
            exact = 0 <= known[1][0] and known[1][1] < 8 * type.dtype.size
        elif op in _CHECKED:
            left, right = known
            if op == "pow":
                checked = type.dtype.kind == "i" and right[0] < 0
            else:
                exact = left[0] >= 0 and right[0] > 0
                checked = right[0] <= 0 <= right[1]
    return Compute(op, operands, tuple(sorted(attrs.items())), type, exact, checked, where)
