"""A function of items for the ranges of its calls: loops without iterations are dropped.

    const int64_t whole_16 = begin + ((end - begin) & -16);     `begin` and `end` are multiples of 16:
    for (int64_t i = begin; i < whole_16; i += 16) ...          for (int64_t i = begin; i < end; i += 16) ...
    for (int64_t i = whole_16; i < end; ++i) ...

If all calls have all items, these are numbers: `for (int64_t i = 0; i < 96; i += 16)`.

Tested by `tests/code/test_ranges.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from staged.code.expr import Cast, Conditional, Expr, Infix, Literal, Name, Part, Prefix, Variable
from staged.code.rebuild import rebuilt
from staged.code.tree import Assign, Block, Declare, For, Function, If, Statement
from staged.code.types import INDEX


@dataclass(frozen=True, slots=True)
class Ranges:
    """The ranges of items in all calls of a function, from `begin` to `end`. None of them is empty."""

    step: int = 1
    """Each `begin` and `end` is a multiple of it."""
    most: int | None = None
    """The largest `end`; None if only the program finds it."""

    def __or__(self, other: Ranges) -> Ranges:
        """The ranges of both."""
        most = None if self.most is None or other.most is None else max(self.most, other.most)
        return Ranges(gcd(self.step, other.step), most)

    @property
    def is_one(self) -> bool:
        """Return whether there is one range: all items."""
        return self.step == self.most


def for_ranges(function: Function, ranges: Ranges, names: Sequence[str] = ("begin", "end")) -> Function:
    """The function for calls with these ranges. Parameters of these names are the beginning, if not 0, and the end.

    They are numbers if there is one range.
    """
    limits = [parameter.variable for parameter in function.parameters if parameter.variable.text in names]
    body = _Rewriter(limits, ranges).statements(function.body)
    kept = tuple(each for each in function.parameters if not (ranges.is_one and each.variable in limits))
    return replace(function, body=body, parameters=kept)


class _Rewriter:
    """Rebuilds statements with what is known of integers."""

    def __init__(self, limits: Sequence[Variable], ranges: Ranges) -> None:
        numbers = (Literal("0"), Literal(str(ranges.most)))
        self.range: tuple[Expr, ...] = numbers if ranges.is_one else tuple(limits)
        self.most = ranges.most
        self.steps = dict.fromkeys(limits, ranges.step)
        """By variable: a divisor of its value."""
        self.values: dict[Variable, Expr] = dict(zip(limits, numbers, strict=False)) if ranges.is_one else {}
        """Constants that are not declared, and their values."""
        self.pieces: set[tuple[Expr, int, Expr]] = set()
        """(index, size, end) of loops over pieces of a range that are all of this size."""

    def statements(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        found = tuple(new for n, s in enumerate(body) for new in self.statement(s, n == len(body) - 1))
        return body if found == body else found

    def statement(self, s: Statement, is_last: bool) -> Iterator[Statement]:
        match s:
            case Declare(variable, value, sizes=(), also=()) if value is not None and variable.type == INDEX:
                new = self.part(value)
                match new:
                    case Name() | Literal() | Infix("+", Name(), Literal()) if s.is_const and new is not value:
                        self.values[variable] = new
                        return
                if s.is_const:
                    self.steps[variable] = self.step_of(new)
                yield s if new is value else replace(s, value=new)
            case For(index, start, stop, step=step, is_down=False):
                start, stop = self.part(start), self.part(stop)
                if start == stop and s.start != s.stop:
                    return
                once = start is not s.start and s.unroll == 0 and isinstance(stop, Literal) and start == Literal("0")
                once = once and 0 < number_in(stop) <= (1 if step is None else number_in(step))
                if once or ((start, stop) == self.range and is_of_pieces(s) and self.is_all(step)):
                    self.values[index] = start
                    body = self.statements(s.body)
                    del self.values[index]  # other loops may have the same
                    has_names = any(isinstance(inner, Declare) for inner in body)
                    yield from (Block(body),) if has_names and not is_last else body
                    return
                self.pieces = {piece for piece in self.pieces if piece[0] is not index}  # of another loop
                if (size := number_in(step)) and self.step_of(Infix("-", stop, start)) % size == 0:
                    self.pieces.add((index, size, stop))
                self.steps[index] = gcd(self.step_of(start), 1 if step is None else self.step_of(step))
                body = self.statements(s.body)
                same = start is s.start and stop is s.stop and body is s.body
                yield s if same else replace(s, start=start, stop=stop, body=body)
            case If(Infix("<", start, stop), other=()) if start != stop and self.part(start) == self.part(stop):
                return
            case Assign(Part(type, address, count), value) if self.is_whole(self.part(count)):
                yield replace(s, target=in_memory(type, self.part(address)), value=self.part(value))
            case _:
                yield rebuilt(s, self.part)

    def part(self, part: Any) -> Any:
        """A part of a statement or of an expression."""
        if isinstance(part, Variable):
            return self.values.get(part, part)
        if isinstance(part, tuple) and part and isinstance(part[0], Statement):
            return self.statements(part)
        made = rebuilt(part, self.part)
        made = made if made is part else computed(made)
        match made:
            case Part(type, address, count) if self.is_whole(count):
                return in_memory(f"const {type}", address)
            case Infix("&", x, Literal(mask)) if mask.startswith("-") and self.step_of(x) % int(mask[1:]) == 0:
                return x
            case Infix("+", Variable(type=kind) as a, Infix("-", b, c)) if a == c and kind == INDEX:  # not of floats
                return b
            case Conditional(Infix("<", Infix("+", first, size) as after, end), yes, no) if after == yes and end == no:
                if (first, end) == self.range and self.is_all(size):
                    return end
                return yes if (first, number_in(size), end) in self.pieces else made
        return made

    def is_whole(self, count: Expr) -> bool:
        """Return whether the items from a loop's index to its end fill a piece."""
        match count:
            case Infix("-", end, index):
                return any((first, stop) == (index, end) for first, _, stop in self.pieces)
        return False

    def is_all(self, size: Expr | None) -> bool:
        """Return whether a piece of this size has all items."""
        return self.most is not None and number_in(size) >= self.most

    def step_of(self, x: Expr) -> int:
        """A divisor of an integer; of 0, 0."""
        match x:
            case Literal(text) if text.isdigit():
                return int(text)
            case Variable():
                return self.steps.get(x, 1)
            case Infix("+" | "-", a, b) | Conditional(_, a, b):
                return gcd(self.step_of(a), self.step_of(b))
            case Infix("*", a, b):
                return self.step_of(a) * self.step_of(b)
        return 1


def in_memory(type: str, address: Expr) -> Expr:
    """A whole vector at any address."""
    return Prefix("*", Cast(f"{type}_u *", address))


def is_of_pieces(loop: For) -> bool:
    """Return whether each iteration begins with the end of its piece of a range."""
    return bool(loop.body) and isinstance(end := loop.body[0], Declare) and isinstance(end.value, Conditional)


def computed(x: Any) -> Any:
    """An expression of indices without operations on numbers."""
    match x:
        case Infix("+", a, Literal("0")) | Infix("+", Literal("0"), a):
            return a
        case Infix("*", Literal("0") as zero, _):
            return zero
        case Infix("<", Literal(a), Literal(b)) if a.isdigit() and b.isdigit():
            return Literal(str(int(int(a) < int(b))))
        case Infix("+" | "-" | "*" | "&" as op, Literal(a), Literal(b)) if a.isdigit() and b.lstrip("-").isdigit():
            return Literal(str(_OPERATIONS[op](int(a), int(b))))
        case Conditional(Literal("0" | "1" as truth), yes, no):
            return yes if truth == "1" else no
    return x


_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_}


def number_in(x: Expr | None) -> int:
    """The value of a literal; 0 for other expressions."""
    return int(x.text) if isinstance(x, Literal) and x.text.isdigit() else 0
