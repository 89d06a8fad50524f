"""Which integers a scalar may be, as far as constants and loop bounds tell: (lowest, highest), or None."""

from __future__ import annotations

from collections.abc import Callable

from staged.ir.nodes import Value
from staged.ir.trips import constant_of

Range = tuple[int, int]

_DEEPEST = 8
"""Ops in a row that are followed; index expressions are short."""


class Ranges:
    """Ranges of integer scalars; `known` are those of loop indices."""

    def __init__(self) -> None:
        self.known: dict[Value, Range] = {}

    def of_index(self, bounds: list[Value]) -> Range | None:
        """The range of the index of a `for` with these start, stop and step."""
        start, stop, step = (self.of(value) for value in bounds[:3])
        if start is None or stop is None or step is None:
            return None
        if step[0] > 0:
            return start[0], max(stop[1] - 1, start[0])
        if step[1] < 0:
            return min(stop[0] + 1, start[1]), start[1]
        return None

    def of(self, value: Value, depth: int = 0) -> Range | None:
        """The range of `value`, where something is known about both ends."""
        if value in self.known:
            return self.known[value]
        number = constant_of(value)
        if number is not None:
            return (int(number), int(number)) if isinstance(number, int) else None
        producer = value.producer
        if producer is None or depth > _DEEPEST:
            return None
        if producer.name == "cast" and producer.operands[0].tensor.dtype.is_integer:
            found = self.of(producer.operands[0], depth + 1)
            # Within i32, no integer dtype but u8 changes a value.
            fits = found is not None and value.tensor.dtype.size >= 4 and 0 <= found[0] and found[1] < 2**31
            return found if fits else None
        if producer.name not in _ARITHMETIC:
            return None
        left, right = (self.of(operand, depth + 1) for operand in producer.operands)
        if left is None or right is None:
            return None
        return _ARITHMETIC[producer.name](left, right)


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Range, b: Range) -> Range:
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


_ARITHMETIC: dict[str, Callable[[Range, Range], Range | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _product,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "floor_divide": lambda a, b: _quotient(a, b) if b[0] > 0 else None,
    "remainder": lambda a, b: (0, b[1] - 1) if b[0] > 0 else None,
}
