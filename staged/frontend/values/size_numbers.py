"""Scalars computed from found sizes. In a static program, Python computes them.

Both agree except for integers of more than 64 bits, divisions by zero, and roots, logarithms and powers outside of
their domain. The ranges of the scalars exclude these, or the trace assumes it of the sizes, or it raises an error.

Tested by `tests/dynamic_sizes/test_detection.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from staged.errors import StagingError
from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.sizes import Bounds, Extent, bounds_of, dims_in
from staged.ir.structure import IF
from staged.ir.trips import size_of
from staged.ir.types import TensorType
from staged.ir.views import Loop
from staged.ops.assumptions import Assumptions
from staged.source import Position

_UNKNOWN: Bounds = (-math.inf, math.inf)
_MOST_ITERATIONS = 1 << 31


def check_numbers(program: Function, assumptions: Assumptions) -> None:
    """Check that the numbers of a trace do not differ from Python's.

    Raises: StagingError with the line.
    """
    if assumptions.refused is not None:
        text, where = assumptions.refused
        raise _refused(text, where)
    numbers = _Numbers(assumptions)
    for function in every_function(program):
        numbers.visit(function.block)


class _Numbers:
    """The ranges of numbers that a program computes from sizes and constants alone."""

    def __init__(self, assumptions: Assumptions) -> None:
        self.assumptions = assumptions
        self.ranges: dict[Value, Bounds] = {}
        self.of_sizes: set[Value] = set()
        """Those that depend on sizes."""
        self.loops: dict[Value, Loop] = {}
        """The loops of which these are indices."""

    def visit(self, block: Block) -> None:
        for op in block.ops:
            if op.declared.is_loop:
                self._visit_loop(Loop(op))
            elif op.declared is IF:
                self._visit_branches(op)
            elif op.blocks:
                for inner in op.blocks:
                    self.visit(inner)
            elif op.declared is prims.INDEX_CHECK:
                self._check_window(op)
            elif len(op.results) == 1 and _is_number(op.results[0]):
                self._visit_number(op, op.results[0])

    def _visit_number(self, op: Op, result: Value) -> None:
        if op.declared is prims.CONSTANT:
            self.ranges[result] = (float(op.attrs["value"]),) * 2 if _is_real(op.attrs["value"]) else _UNKNOWN
            return
        if op.declared is prims.EXTENT:
            self.ranges[result] = bounds_of(op.attrs["dim"])
            self.of_sizes.add(result)
            return
        if not op.operands or not all(operand in self.ranges for operand in op.operands):
            return
        ranges = [self.ranges[operand] for operand in op.operands]
        if self.of_sizes.isdisjoint(op.operands):
            self.ranges[result] = _UNKNOWN
            return
        self.of_sizes.add(result)
        self._check_domain(op, ranges)
        compute = _RANGES.get(op.declared)
        low, high = _UNKNOWN if compute is None else compute(*ranges)
        extent = size_of(result) if _is_integer(result) else None
        if extent is not None:
            low, high = max(low, bounds_of(extent)[0]), min(high, bounds_of(extent)[1])
        if _is_integer(result) and not -(2**63) <= low <= high < 2**63:
            raise _refused("an integer computed from a size may need more than 64 bits", op.where)
        self.ranges[result] = low, high

    def _check_domain(self, op: Op, ranges: list[Bounds]) -> None:
        """Check the operands for which Python raises an error, or has a number of another type."""
        name = op.declared
        if name is prims.DIVIDE:
            self._check_sign(op, 1, ranges[1], may_be_zero=False)
        elif name is prims.SQRT:
            self._check_sign(op, 0, ranges[0], may_be_zero=True)
        elif name in (prims.LOG, prims.LOG2, prims.LOG10):
            self._check_sign(op, 0, ranges[0], may_be_zero=False)
        elif name is prims.POW:
            self._check_sign(op, 0, ranges[0], may_be_zero=ranges[1][0] >= 0)
            if _is_integer(op.results[0]) and ranges[1][0] < 0:
                raise _refused("a power of integers may be a fraction", op.where)

    def _check_sign(self, op: Op, place: int, bounds: Bounds, may_be_zero: bool) -> None:
        """Check that an operand is positive, or not negative; the sizes of a call may show it."""
        if bounds[0] > 0 or (may_be_zero and bounds[0] >= 0):
            return
        value = op.operands[place]
        while value.producer is not None and value.producer.declared is prims.CAST:
            value = value.producer.operands[0]
        extent = size_of(value)
        if extent is None or not self._holds(extent >= 0 if may_be_zero else extent > 0):
            raise _refused("a number computed from a size may be zero or negative", op.where)

    def _check_window(self, op: Op) -> None:
        """Check that a slice from an index that sizes determine lies in the axis: Python cuts it at the end."""
        width, index = op.attrs.get("width", 0), op.operands[0]
        while (cast := index.made_by(prims.CAST)) is not None:
            index = cast.operands[0]
        if width == 0 or index not in self.of_sizes or not self.assumptions.sizes.keys() >= set(dims_in(width)):
            return
        first, last = self._end_of(index, is_last=False), self._end_of(index, is_last=True)
        if first is None or last is None or not self._holds(first >= 0, last + width <= op.attrs["extent"]):
            raise _refused("Python may cut a slice at the end of the axis", op.where)

    def _holds(self, *questions: Any) -> bool:
        """Return whether relations hold for all sizes, or for those of the call, which later calls check."""
        return all(
            answer if isinstance(answer, bool) else self.assumptions.holds(answer) is True for answer in questions
        )

    def _end_of(self, value: Value, is_last: bool) -> Extent | None:
        """The smallest or the largest value of an integer, as a size."""
        if (extent := size_of(value)) is not None:
            return extent
        if value in self.loops:
            start, stop, step = map(size_of, self.loops[value].bounds)
            if start is None or stop is None or not isinstance(step, int) or not step:
                return None
            away = (stop - start - (1 if step > 0 else -1)) // step * step
            return start + away if is_last == (step > 0) else start
        op = value.producer
        if op is None or op.declared not in _IN_ENDS:
            return None
        others = is_last != (op.declared is prims.SUBTRACT)
        ends = [self._end_of(operand, last) for operand, last in zip(op.operands, (is_last, others), strict=False)]
        if None in ends or op.declared is prims.MULTIPLY and not any(isinstance(end, int) and end >= 0 for end in ends):
            return None
        return _IN_ENDS[op.declared](*ends)

    def _visit_loop(self, loop: Loop) -> None:
        counts = [self.ranges.get(bound, _UNKNOWN) for bound in loop.bounds]
        is_of_sizes = not self.of_sizes.isdisjoint(loop.op.operands) or any(
            not self.of_sizes.isdisjoint(op.operands) for block in loop.op.blocks for op in walk_ops(block)
        )
        if counts and loop.index.type == loop.bounds[0].type and all(bound in self.ranges for bound in loop.bounds):
            self.ranges[loop.index] = min(counts[0][0], counts[1][0]), max(counts[0][1], counts[1][1])
            if is_of_sizes:
                self.of_sizes.add(loop.index)
                self.loops[loop.index] = loop
        for place, (param, initial) in enumerate(zip(loop.carried, loop.initial, strict=True)):
            if _is_number(param) and initial in self.ranges and is_of_sizes:
                self._visit_carried(loop, place, param, initial)
        for block in loop.op.blocks:
            self.visit(block)

    def _visit_carried(self, loop: Loop, place: int, param: Value, initial: Value) -> None:
        """Bound a number that a loop changes. Raise an error for an integer that may grow without a bound."""
        end = loop.body.end
        found = end.operands[place] if end is not None and end.kind == "yield" else None
        bounds = _UNKNOWN
        if found is param:
            bounds = self.ranges[initial]
        elif found is not None and _is_integer(param):
            bounds = self._stepped(param, found, self.ranges[initial]) or _UNKNOWN
        if _is_integer(param) and bounds == _UNKNOWN:
            raise _refused("a loop changes an integer, which may need more than 64 bits", loop.op.where)
        values = [param, loop.op.results[place]]
        if loop.condition is not None:
            values.append(loop.carried_in(loop.condition)[place])
        for value in values:
            self.ranges[value] = bounds
            self.of_sizes.add(value)

    def _stepped(self, param: Value, found: Value, initial: Bounds) -> Bounds | None:
        """The range of a number to which each iteration adds one of a known range, or which each iteration divides."""
        op = found.producer
        if op is None or len(op.operands) != 2 or op.operands[0] is not param:
            return None
        step = op.operands[1]
        constant = step.made_by(prims.CONSTANT)
        low, high = self.ranges.get(step, _UNKNOWN) if constant is None else (float(constant.attrs["value"]),) * 2
        if op.declared in (prims.ADD, prims.SUBTRACT):
            reach = max(abs(low), abs(high)) * _MOST_ITERATIONS
            return initial[0] - reach, initial[1] + reach
        if op.declared is prims.FLOOR_DIVIDE and low >= 1:
            return min(initial[0], -1), max(initial[1], 0)
        return None

    def _visit_branches(self, op: Op) -> None:
        for block in op.blocks:
            self.visit(block)
        ends = [block.end for block in op.blocks]
        if any(end is None or end.kind != "yield" for end in ends):
            return
        for place, result in enumerate(op.results):
            values = [end.operands[place] for end in ends if end is not None]
            if _is_number(result) and all(value in self.ranges for value in values):
                lows, highs = zip(*(self.ranges[value] for value in values), strict=True)
                self.ranges[result] = min(lows), max(highs)
                if not self.of_sizes.isdisjoint((*values, *op.operands)):
                    self.of_sizes.add(result)


def _refused(text: str, where: Position | None) -> StagingError:
    return StagingError(text, where=where, hint='declare the sizes: `@st.function(dims={"x": ("N", 3)})`')


def _is_number(value: Value) -> bool:
    """Return whether a static program may have Python's number in this place."""
    return isinstance(value.type, TensorType) and not value.type.shape and value.type.weak


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_integer


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e300


def _corners(compute: Callable[[float, float], float]) -> Callable[[Bounds, Bounds], Bounds]:
    def found(one: Bounds, other: Bounds) -> Bounds:
        try:
            ends = [compute(a, b) for a in one for b in other]
        except (OverflowError, ZeroDivisionError):
            return _UNKNOWN
        return _UNKNOWN if any(map(math.isnan, ends)) else (min(ends), max(ends))

    return found


def _power(base: Bounds, exponent: Bounds) -> Bounds:
    return _corners(lambda a, b: a**b)(base, exponent) if base[0] >= 1 and exponent[0] >= 0 else _UNKNOWN


def _quotient(one: Bounds, other: Bounds) -> Bounds:
    return _corners(lambda a, b: a // b)(one, other) if other[0] > 0 and math.inf not in one else _UNKNOWN


def _bits(one: Bounds, other: Bounds) -> Bounds:
    most = max(map(abs, (*one, *other)))
    return -2 * most - 1, 2 * most + 1


_IN_ENDS: dict[object, Callable[..., Extent]] = {
    prims.ADD: operator.add, prims.SUBTRACT: operator.sub, prims.MULTIPLY: operator.mul,
}  # fmt: skip

_RANGES: dict[object, Callable[..., Bounds]] = {
    prims.ADD: lambda one, other: (one[0] + other[0], one[1] + other[1]),
    prims.SUBTRACT: lambda one, other: (one[0] - other[1], one[1] - other[0]),
    prims.MULTIPLY: _corners(lambda a, b: a * b if a and b else 0),
    prims.NEGATIVE: lambda one: (-one[1], -one[0]),
    prims.MINIMUM: lambda one, other: (min(one[0], other[0]), min(one[1], other[1])),
    prims.MAXIMUM: lambda one, other: (max(one[0], other[0]), max(one[1], other[1])),
    prims.FLOOR_DIVIDE: _quotient,
    prims.REMAINDER: lambda one, other: (min(other[0], 0), max(other[1], 0)),
    prims.BITWISE_INVERT: lambda one: (-one[1] - 1, -one[0] - 1),
    prims.ABS: lambda one: (0, max(map(abs, one))),
    prims.SQUARE: lambda one: (0, max(abs(one[0]), abs(one[1])) ** 2),
    prims.CAST: lambda one: one,
    **dict.fromkeys((prims.ROUND, prims.FLOOR, prims.CEIL, prims.TRUNC), lambda one: (one[0] - 1, one[1] + 1)),
    prims.SQRT: lambda one: (0, max(one[1], 1)),
    **dict.fromkeys((prims.BITWISE_AND, prims.BITWISE_OR, prims.BITWISE_XOR), lambda one, other: _bits(one, other)),
    prims.BITWISE_RIGHT_SHIFT: lambda one, other: (min(one[0], 0), max(one[1], 0)),
    prims.SELECT: lambda _, one, other: (min(one[0], other[0]), max(one[1], other[1])),
    prims.POW: _power,
    prims.DIVIDE: lambda one, other: _corners(lambda a, b: a / b)(one, other) if other[0] > 0 else _UNKNOWN,
    prims.BITWISE_LEFT_SHIFT: _corners(lambda a, b: a * 2.0**b),
}
"""The range of a result, given those of the operands: only integers from sizes need it, so declarations lack it."""
