"""Ranges of integer scalars, (lowest, highest) or None, from constants, loop bounds and dtypes.

Each rule computes with unbounded integers. `Ranges.of` then tests whether the op's dtype has all of them: if one is
outside, the op may wrap around, and its result has no range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf

from staged.ir.declaration import prims
from staged.ir.nodes import Value
from staged.ir.numbers import fits, limits
from staged.ir.sizes import bounds_of
from staged.ir.structure import IF
from staged.ir.trips import constant_of
from staged.ir.types import i32, i64
from staged.ir.views import Branch

Range = tuple[int, int]

_DEEPEST = 8
"""Ops in a row that are followed; index expressions are short."""


class Ranges:
    """Ranges of integer scalars; `known` are those of loop indices."""

    def __init__(self) -> None:
        self.known: dict[Value, Range] = {}

    def of_index(self, bounds: Sequence[Value]) -> Range | None:
        """The range of the index of a `for` with these start, stop and step.

        Exact: an index that the body sees is never before the start nor at the stop, so that it cannot wrap around; of
        a loop of no iterations there is no index, and any range will do.
        """
        start, stop, step = (self.of_operand(value) for value in bounds[:3])
        if start is None or stop is None or step is None:
            return None
        if step[0] > 0:
            return start[0], max(stop[1] - 1, start[0])
        if step[1] < 0:
            return min(stop[0] + 1, start[1]), start[1]
        return None

    def of_operand(self, value: Value, depth: int = 0) -> Range | None:
        """The range of an operand: where nothing else is known, all numbers of its dtype; None for floats.

        Exact: no integer is beyond its dtype's limits; a bool that becomes an integer is 0 or 1.
        """
        found = self.of(value, depth)
        dtype = value.tensor.dtype
        return limits(dtype) if found is None and (dtype.is_integer or dtype.is_bool) else found

    def of(self, value: Value, depth: int = 0) -> Range | None:
        """The range of an integer `value`, where something is known about both ends.

        Exact: for integers of every dtype; a range that leaves the dtype of its op is unknown, since the op wraps
        around.
        """
        if value in self.known:
            return self.known[value]
        if not value.tensor.dtype.is_integer:
            return None
        number = constant_of(value)
        found = self._computed(value, depth) if number is None else (int(number), int(number))
        return found if fits(found, value.tensor.dtype) else None

    def _computed(self, value: Value, depth: int) -> Range | None:
        """The range of an op's result, before it wraps around. A size is not negative, and there is a rank."""
        producer = value.producer
        if producer is None or depth > _DEEPEST:
            return None
        if producer.declared in (prims.DIM, prims.EXTENT):
            low, high = bounds_of(producer.attrs["dim"])
            return max(int(low), 0), limits(i64)[1] if isinf(high) else int(high)
        if producer.declared in (prims.RANK, prims.RANKS):
            return int(producer.declared is prims.RANKS), limits(i32)[1]  # MPI counts ranks in ints
        if producer.declared is IF:
            return self._of_paths([end.operands[value.index] for _, end in Branch(producer).ends()], depth)
        if producer.name not in RANGES:
            return None
        operands = [self.of_operand(operand, depth + 1) for operand in producer.operands]
        known = [span for span in operands if span is not None]
        return RANGES[producer.name](*known) if len(known) == len(operands) else None

    def _of_paths(self, values: Sequence[Value], depth: int) -> Range | None:
        """The range of a value that is one of several, by the path that the program takes."""
        spans = [self.of_operand(value, depth + 1) for value in values]
        known = [span for span in spans if span is not None]
        if not known or len(known) < len(spans):
            return None
        return min(low for low, _ in known), max(high for _, high in known)


# ---- rules: the range of an op's result, from those of its operands -----------------------------

RANGES: dict[str, Callable[..., Range | None]] = {}
"""Rules by the name of the op."""


def _rule(function: Callable[..., Range | None]) -> Callable[..., Range | None]:
    """Enter a rule under its own name, which is that of the op."""
    RANGES[function.__name__] = function
    return function


@_rule
def add(a: Range, b: Range) -> Range:
    """a + b

    Exact: a sum is least at both lower ends.
    """
    return a[0] + b[0], a[1] + b[1]


@_rule
def subtract(a: Range, b: Range) -> Range:
    """a - b

    Exact: a difference is least at the lower end of `a` and the upper one of `b`.
    """
    return a[0] - b[1], a[1] - b[0]


@_rule
def multiply(a: Range, b: Range) -> Range:
    """a * b

    Exact: a product of signed numbers has its extremes at two of four corners, whatever the signs.
    """
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


@_rule
def maximum(a: Range, b: Range) -> Range:
    """max(a, b)

    Exact: for integers, which have no NaN.
    """
    return max(a[0], b[0]), max(a[1], b[1])


@_rule
def minimum(a: Range, b: Range) -> Range:
    """min(a, b)

    Exact: for integers, which have no NaN.
    """
    return min(a[0], b[0]), min(a[1], b[1])


@_rule
def floor_divide(a: Range, b: Range) -> Range | None:
    """a // b, rounded down

    Exact: for divisors above 0, where a quotient rises with `a` and moves towards 0 as `b` grows.
    """
    if b[0] <= 0:
        return None
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


@_rule
def remainder(a: Range, b: Range) -> Range | None:
    """a % b, with the sign of `b`

    Exact: for divisors above 0; what is no less than 0 does not grow.
    """
    if b[0] <= 0:
        return None
    return 0, b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1)


@_rule
def select(condition: Range, a: Range, b: Range) -> Range:
    """a where the condition holds, b elsewhere

    Exact: it is one of the two.
    """
    return min(a[0], b[0]), max(a[1], b[1])


@_rule
def bitwise_and(a: Range, b: Range) -> Range | None:
    """a & b

    Exact: beside a number that is no less than 0 no bit is added to that one, its sign included.
    """
    tops = [span[1] for span in (a, b) if span[0] >= 0]
    return (0, min(tops)) if tops else None


@_rule
def fit(a: Range) -> Range:
    """The same number in a dtype that has it, or else the program stops

    Exact: a range that leaves the dtype is unknown, as that of a `cast`.
    """
    return a


@_rule
def cast(a: Range) -> Range:
    """The same number in another dtype

    Exact: from integers (what was a float has no range) to a dtype that has all the numbers; elsewhere it wraps around.
    """
    return a
