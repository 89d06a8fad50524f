"""The number of iterations of a `for`: known while staging if its bounds are constants, else computed by the program.

Ranges count as Python's do: `start, start + step, ...` as long as that is before `stop` in the direction of `step`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from staged.ir.builder import Builder
from staged.ir.declaration import Declaration, prims
from staged.ir.nodes import FAIL, PURE, Op, Value
from staged.ir.size_questions import UndecidedSizeError
from staged.ir.sizes import Extent, bounds_of, largest, smallest
from staged.ir.structure import FOR
from staged.ir.types import TensorType, f64, i64
from staged.ir.views import Loop
from staged.source import Position

COUNT = TensorType(i64, (), weak=True)
"""The type of loop counters that transforms add: a staged Python int, like the counters of `range`."""


def constant_of(value: Value) -> int | float | bool | None:
    """The number a value is, where it is made by a scalar `constant`; None where it is known only at run time."""
    made = value.made_by(prims.CONSTANT)
    number = None if made is None else made.attrs["value"]
    return number if isinstance(number, int | float) else None


def static_range(op: Op) -> range | None:
    """The indices of a `for` with constant bounds; None if they are known only at run time."""
    start, stop, step = map(constant_of, Loop(op).bounds)
    return None if start is None or stop is None or not step else range(int(start), int(stop), int(step))


def static_trip_count(op: Op) -> int | None:
    """The number of iterations of a `for` with constant bounds; None if it is known only at run time."""
    indices = static_range(op)
    return None if indices is None else count_of(indices.start, indices.stop, indices.step)


def count_of(start: int, stop: int, step: int) -> int:
    """The length of `range(start, stop, step)`, also where Python's `len` cannot say it."""
    return max(0, -((start - stop) // step))


def size_of(value: Value) -> Extent | None:
    """The expression over dimensions that an integer of the program is; None for any other."""
    op = value.producer
    if op is None:
        return None
    if op.declared in (prims.DIM, prims.EXTENT):
        extent: Extent = op.attrs["dim"]
        return extent
    if op.declared is prims.CONSTANT:
        return int(op.attrs["value"])
    if op.declared is prims.CAST and value.tensor.dtype is i64:
        return size_of(op.operands[0]) if op.operands[0].tensor.dtype is i64 else _rounded(op.operands[0])
    compute = _arithmetic().get(op.declared)
    if compute is None:
        return None
    operands = [size_of(operand) for operand in op.operands]
    with suppress(UndecidedSizeError, ZeroDivisionError, TypeError, ValueError):
        return None if None in operands else compute(*operands)
    return None


def _rounded(value: Value) -> Extent | None:
    """The size that `int(n / 2)`, `math.floor(n * 0.5)` or `math.ceil(n / 2)` is, given the float."""
    made = value.made_by(prims.FLOOR, prims.CEIL)
    found = _quotient(value if made is None else made.operands[0])
    if found is None:
        return None
    size, divisor = found
    if made is not None and made.declared is prims.CEIL:
        return -(-size // divisor)
    return size // divisor if made is not None or bounds_of(size)[0] >= 0 else None


def _quotient(value: Value) -> tuple[Extent, int] | None:
    """n and d of the float `n / d`, which is `n * (1 / d)` if d is a power of two."""
    op = value.producer
    if op is None or value.tensor.dtype is not f64:
        return None
    if op.declared is prims.CAST and op.operands[0].tensor.dtype is i64:
        size = size_of(op.operands[0])
        return None if size is None else (size, 1)
    if op.declared not in (prims.DIVIDE, prims.MULTIPLY):
        return None
    found, number = _quotient(op.operands[0]), constant_of(op.operands[1])
    if found is None or not number:
        return None
    divisor = number if op.declared is prims.DIVIDE else 1 / number
    is_exact = op.declared is prims.DIVIDE or math.frexp(number)[0] == 0.5
    return (found[0], found[1] * int(divisor)) if is_exact and divisor > 0 and float(divisor).is_integer() else None


@cache
def _arithmetic() -> dict[Any, Callable[..., Extent]]:
    return {
        prims.ADD: operator.add,
        prims.SUBTRACT: operator.sub,
        prims.MULTIPLY: operator.mul,
        prims.NEGATIVE: operator.neg,
        prims.FLOOR_DIVIDE: operator.floordiv,
        prims.REMAINDER: operator.mod,
        prims.MINIMUM: smallest,
        prims.MAXIMUM: largest,
        prims.ABS: lambda size: largest(size, -size),
        prims.SQUARE: lambda size: size * size,
        prims.BITWISE_LEFT_SHIFT: lambda size, count: size * (1 << count),
        prims.BITWISE_RIGHT_SHIFT: lambda size, count: size // (1 << count),
    }


def trip_count(op: Op) -> Extent | None:
    """The number of iterations of a `for`, as an expression over dimensions; None if only the program knows it."""
    start, stop, step = map(size_of, Loop(op).bounds)
    if start is None or stop is None or not isinstance(step, int) or step == 0:
        return None
    distance = stop - start if step > 0 else start - stop
    return largest(-(-distance // abs(step)), 0)


def trip_bound(op: Op) -> int | None:
    """The most often a loop can run, where that is known: a `for` by its bounds, a `while` that was a `for` by its
    attr.
    """
    if op.declared is not FOR:
        return Loop(op).bound
    count = trip_count(op)
    most = math.inf if count is None else bounds_of(count)[1]
    return None if math.isinf(most) else int(most)


COUNTED = 0, 2**63 - 2
"""The range of a count of iterations, which no machine lives to count to the end of an i64."""


def iteration_counters(loop: Loop) -> list[int]:
    """The numbers of the carried values that count iterations: 0 at first, then 1 more each time."""
    return [
        index
        for index, (param, initial) in enumerate(zip(loop.carried, loop.initial, strict=True))
        if param.type in (COUNT, TensorType(i64)) and constant_of(initial) == 0
        if all(_is_one_more(end.operands[index], param) for _, end in loop.ends())
    ]


def _is_one_more(value: Value, before: Value) -> bool:
    added = value.made_by(prims.ADD)
    return added is not None and added.operands[0] is before and constant_of(added.operands[1]) == 1


class Integers:
    """Index arithmetic as ops, on weak i64 scalars; constants are folded."""

    def __init__(self, builder: Builder, where: Position | None) -> None:
        self.builder = builder
        self.where = where

    def constant(self, number: int) -> Value:
        return self.builder.op(prims.CONSTANT, [], [COUNT], attrs={"value": number}, where=self.where).result

    def weak(self, value: Value) -> Value:
        """`value` with the type of the others."""
        if value.type == COUNT:
            return value
        attrs = {"dtype": i64, "weak": True}
        return self.builder.op(prims.CAST, [value], [COUNT], attrs=attrs, where=self.where).result

    def binary(self, primitive: Declaration, left: Value, right: Value) -> Value:
        """One of add, subtract, multiply, maximum, floor_divide."""
        effects = FAIL if primitive is prims.FLOOR_DIVIDE and not constant_of(right) else PURE
        operands = [self.weak(left), self.weak(right)]
        return self.builder.op(primitive, operands, [COUNT], effects=effects, where=self.where).result

    def trips(self, op: Op) -> Value:
        """The number of iterations of the `for`: max(0, ceil((stop - start) / step))."""
        static = static_trip_count(op)
        if static is not None:
            return self.constant(static)
        start, stop, step = Loop(op).bounds
        stride = constant_of(step)
        zero = self.constant(0)
        if stride == 1:
            distance = stop if constant_of(start) == 0 else self.binary(prims.SUBTRACT, stop, start)
        elif stride == -1:
            distance = self.binary(prims.SUBTRACT, start, stop)
        else:
            # Floor division of the negated distance rounds up.
            turned = self.binary(prims.FLOOR_DIVIDE, self.binary(prims.SUBTRACT, start, stop), step)
            distance = self.binary(prims.SUBTRACT, zero, turned)
        return self.binary(prims.MAXIMUM, distance, zero)

    def place(self, op: Op, count: Value) -> Value:
        """The place in the loop's sequences of what iteration number `count` collects."""
        return self.weak(self.index(op, count)) if Loop(op).by_index else count

    def index(self, op: Op, count: Value) -> Value:
        """The value of the `for`'s index in iteration number `count`, in the index's own type."""
        start, _, step = Loop(op).bounds
        value = count if constant_of(step) == 1 else self.binary(prims.MULTIPLY, count, step)
        if constant_of(start) != 0:
            value = self.binary(prims.ADD, value, start)
        wanted = Loop(op).index.tensor
        if value.type != wanted:
            attrs = {"dtype": wanted.dtype, "weak": wanted.weak}
            value = self.builder.op(prims.CAST, [value], [wanted], attrs=attrs, where=self.where).result
        return value
