"""Facts about a kernel's integers: their ranges, and which are less than others, from conditions.

So sums that cannot overflow are written plainly, and indices that are certainly in range are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from staged.ir.numbers import fits, limits
from staged.ir.ranges import Range
from staged.ir.thread_kernel import (
    MOST_ELEMENTS,
    Argument,
    Atomic,
    Builtin,
    Compute,
    Const,
    Element,
    Expression,
    Extent,
    Local,
    Shuffle,
    mentions,
    operands_of,
    walk,
)

MOST_GRID = (2**31 - 1, 65535, 65535)
"""The most blocks of a launch along each axis."""
MOST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024
"""The most threads of a block, along each axis and in all."""


@dataclass
class Facts:
    """Facts at a point of a kernel. `less` and `at_most` are pairs of expressions in that relation."""

    block: tuple[int, int, int]
    locals: Mapping[str, Range]
    """The numbers that variables may be, wherever they are read."""
    less: frozenset[tuple[Expression, Expression]] = frozenset()
    at_most: frozenset[tuple[Expression, Expression]] = frozenset()
    aliases: dict[str, Expression] = field(default_factory=dict)
    """Variables that only ever are the size of an axis."""

    # ---- what is less than what ----

    def canonical(self, e: Expression) -> Expression:
        """The expression behind a name for the size of an axis."""
        return self.aliases.get(e.name, e) if isinstance(e, Local) else e

    def learn(self, condition: Expression, holds: bool = True) -> None:
        """From here on the condition holds, or does not."""
        if not isinstance(condition, Compute):
            return
        if condition.op == "cast" and condition.operands[0].type.dtype.is_bool:
            self.learn(condition.operands[0], holds)
        elif condition.op == "logical_not":
            self.learn(condition.operands[0], not holds)
        elif condition.op == ("logical_and" if holds else "logical_or"):
            for operand in condition.operands:
                self.learn(operand, holds)
        elif condition.op in ("less", "less_equal", "greater", "greater_equal"):
            a, b = map(self.canonical, condition.operands)
            if any(isinstance(node, Element | Atomic | Shuffle) for e in (a, b) for node in walk(e)):
                return  # memory changes
            if condition.op.startswith("greater"):
                a, b = b, a
            strict = condition.op in ("less", "greater")
            if not holds:
                a, b, strict = b, a, not strict
            if strict:
                self.less |= {(a, b)}
            else:
                self.at_most |= {(a, b)}

    def forget(self, name: str) -> None:
        """The variable has another value from here on."""
        self.less = frozenset(pair for pair in self.less if not any(mentions(e, name) for e in pair))
        self.at_most = frozenset(pair for pair in self.at_most if not any(mentions(e, name) for e in pair))

    def mark(self) -> tuple[frozenset[tuple[Expression, Expression]], frozenset[tuple[Expression, Expression]]]:
        """The present facts, for `back`."""
        return self.less, self.at_most

    def back(
        self, mark: tuple[frozenset[tuple[Expression, Expression]], frozenset[tuple[Expression, Expression]]]
    ) -> None:
        """Only what was known at the mark."""
        self.less, self.at_most = mark

    def is_index(self, e: Expression, extent: Expression | int) -> bool:
        """Return whether an index is certainly that of an element along an axis."""
        span = self.range(e)
        if span is None or span[0] < 0:
            return False
        if isinstance(extent, int):
            return span[1] < extent
        return any(b == extent and self.is_from(a, self.canonical(e)) for a, b in self.less)

    def is_from(self, a: Expression, e: Expression) -> bool:
        """Return whether `a` is certainly `e` or more: it is that, or something added to it."""
        if a == e:
            return True
        if not isinstance(a, Compute) or a.op != "add" or not a.exact:
            return False
        spans = [self.range(operand) for operand in a.operands]
        left, right = (span is not None and span[0] >= 0 for span in spans)
        return right and self.is_from(a.operands[0], e) or left and self.is_from(a.operands[1], e)

    # ---- ranges ----

    def range(self, e: Expression) -> Range | None:
        """The numbers that an integer may be; None where nothing is known, or it is no integer."""
        span = self.shape_of(e)
        e = self.canonical(e)
        if not e.type.dtype.is_integer:
            return span
        low, high = span if span is not None else limits(e.type.dtype)
        for pairs, gap in ((self.less, 1), (self.at_most, 0)):
            for a, b in pairs:
                if a == e and (other := self.shape_of(b, refined=False)) is not None:
                    high = min(high, other[1] - gap)
                if b == e and (other := self.shape_of(a, refined=False)) is not None:
                    low = max(low, other[0] + gap)
        return (low, high) if low <= high else span

    def shape_of(self, e: Expression, refined: bool = True) -> Range | None:
        """The range that follows from how an expression is made; `refined`: and from what is known of its operands."""
        match e:
            case Const(value=value):
                return (int(value), int(value)) if e.type.dtype.is_integer else None
            case Extent():
                return 0, MOST_ELEMENTS
            case Builtin(name=name, axis=axis):
                size = self.block[axis]
                return {
                    "thread_index": (0, size - 1),
                    "block_size": (size, size),
                    "block_index": (0, MOST_GRID[axis] - 1),
                    "grid_size": (1, MOST_GRID[axis]),
                }[name]
            case Local(name=name):
                return self.locals.get(name, limits(e.type.dtype) if e.type.dtype.is_integer else None)
            case Compute():
                return self.computed(e, refined)
            case Argument() | Element() | Shuffle() | Atomic():
                return limits(e.type.dtype) if e.type.dtype.is_integer else None

    def computed(self, e: Compute, refined: bool) -> Range | None:
        if not e.type.dtype.is_integer:
            return None
        spans = [self.range(o) if refined else self.shape_of(o, False) for o in operands_of(e)]
        if e.op == "select":
            spans = spans[1:]
        if any(span is None for span in spans):
            return limits(e.type.dtype)
        known = [span for span in spans if span is not None]
        made = interval(e.op, known)
        if made is not None and e.op == "subtract" and refined:
            least = self.difference(*map(self.canonical, e.operands))
            made = (made[0] if least is None else max(made[0], least), made[1])
        return made if fits(made, e.type.dtype) else limits(e.type.dtype)

    def difference(self, a: Expression, b: Expression) -> int | None:
        """The least that a - b can be, where it is known which of them is less."""
        if (b, a) in self.less:
            return 1
        return 0 if (b, a) in self.at_most else None


def interval(op: str, spans: list[Range]) -> Range | None:
    """The range of an op's result, before it wraps around; None where nothing is known of it."""
    a = spans[0]
    b = spans[1] if len(spans) > 1 else a
    match op:
        case "cast":
            return a
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "subtract":
            return a[0] - b[1], a[1] - b[0]
        case "negative":
            return -a[1], -a[0]
        case "multiply":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case "square":
            corners = [x * x for x in a]
            return (0 if a[0] < 0 < a[1] else min(corners)), max(corners)
        case "minimum":
            return min(a[0], b[0]), min(a[1], b[1])
        case "maximum":
            return max(a[0], b[0]), max(a[1], b[1])
        case "select":
            return min(a[0], b[0]), max(a[1], b[1])
        case "floor_divide" if b[0] > 0:
            corners = [x // y for x in a for y in b]
            return min(corners), max(corners)
        case "remainder" if b[0] > 0:
            return 0, b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1)
        case "bitwise_and" if a[0] >= 0 or b[0] >= 0:
            return 0, min(span[1] for span in (a, b) if span[0] >= 0)
        case "bitwise_or" | "bitwise_xor" if a[0] >= 0 and b[0] >= 0:
            return 0, 2 ** max(a[1].bit_length(), b[1].bit_length()) - 1
        case "bitwise_right_shift" if a[0] >= 0 and 0 <= b[0] and b[1] < 64:
            return a[0] >> b[1], a[1] >> b[0]
        case "bitwise_left_shift" if a[0] >= 0 and 0 <= b[0] and b[1] < 64:
            return a[0] << b[0], a[1] << b[1]
        case "abs":
            return 0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))
    return None
