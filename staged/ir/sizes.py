"""Sizes that are known when the program runs: integer expressions over dimensions, in a normal form.

A size is a polynomial with integer coefficients. Its variables are dimensions, floor divisions by a constant, minima
and maxima. Two sizes are equal if their normal forms are. Python's arithmetic works on sizes and ints alike, so a type
rule that computes `(n + 2 * padding - taps) // stride + 1` needs no second form.

Tested by `tests/ir/test_sizes.py`.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from staged.ir.size_questions import Question, UndecidedSizeError, differing

Bounds = tuple[float, float]
"""The smallest and the largest value; infinite without a bound."""


class Size:
    """A size that is known when the program runs. Arithmetic with ints and sizes gives the normal form of the result.

    Comparisons of order are answered from the bounds of the dimensions, or else by a `Question`. Arithmetic with other
    numbers is that of the program's integers.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        if self.bounds[0] > 0:
            return True
        raise UndecidedSizeError(f"whether {self} is 0", Question(self, ">", 0))

    __array_ufunc__ = None
    """NumPy's numbers leave arithmetic to this class."""

    def __add__(self, other: Extent) -> Extent:
        return _arithmetic(self, other, lambda one, added: _added(terms_of(one), added), operator.add)

    def __radd__(self, other: Extent) -> Extent:
        return self + other

    def __mul__(self, other: Extent) -> Extent:
        return _arithmetic(self, other, _product, operator.mul)

    def __rmul__(self, other: Extent) -> Extent:
        return self * other

    def __neg__(self) -> Extent:
        return self * -1

    def __sub__(self, other: Extent) -> Extent:
        return self + -other

    def __rsub__(self, other: Extent) -> Extent:
        return -self + other

    def __floordiv__(self, other: Extent) -> Extent:
        return _arithmetic(self, other, _quotient, operator.floordiv)

    def __rfloordiv__(self, other: int) -> Extent:
        return _arithmetic(self, other, lambda one, divided: _quotient(divided, one), lambda one, other: other // one)

    def __mod__(self, other: Extent) -> Extent:
        return self - self // other * other

    def __truediv__(self, other: Any) -> Any:
        return number_of(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / number_of(self)

    def __pow__(self, other: Any) -> Any:
        return math.prod([self] * other) if type(other) is int and other >= 0 else number_of(self) ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** number_of(self)

    def __lt__(self, other: Extent) -> bool:
        return _compared(self, "<", other)

    def __gt__(self, other: Extent) -> bool:
        return _compared(self, ">", other)

    def __le__(self, other: Extent) -> bool:
        return _compared(self, "<=", other)

    def __ge__(self, other: Extent) -> bool:
        return _compared(self, ">=", other)

    @property
    def bounds(self) -> Bounds:
        """The smallest and the largest value that it can have, or a wider range."""
        raise NotImplementedError

    def value(self, dims: Mapping[Dim, int]) -> int:
        """Its value for these values of the dimensions."""
        raise NotImplementedError

    @property
    def dims(self) -> Iterator[Dim]:
        """The dimensions in it, in the order of `str`, with repetitions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)


Extent = int | Size
"""A size: an int, or an expression over dimensions."""
Monomial = tuple[Size, ...]
Terms = dict[Monomial, int]


def _noted(cls: type[Any]) -> type[Any]:
    """A class of sizes whose `==` enters sizes that differ into `differing`."""
    equals: Any = cls.__eq__

    def noting(self: Any, other: Any) -> Any:
        equal = equals(self, other)
        if equal is not True and isinstance(other, int | Size):
            differing.append((self, other))
        return equal

    cls.__eq__ = noting  # type: ignore[assignment]
    return cls


@_noted
@dataclass(frozen=True, slots=True, repr=False)
class Dim(Size):
    """A dimension: a name, and bounds (`st.dim("N", max=64)`).

    A `dim` op sets its value when the program runs; `number` distinguishes dimensions of one name in a program. Memory
    has room for `max` elements along it.
    """

    name: str
    max: int | None = None
    number: int = 0
    least: int = 0
    origin: Extent | None = field(default=None, compare=False)  # in the user's dimensions, if a relation has made it

    @property
    def bounds(self) -> Bounds:
        return (self.least, math.inf if self.max is None else self.max)

    def value(self, dims: Mapping[Dim, int]) -> int:
        return dims[self]

    @property
    def dims(self) -> Iterator[Dim]:
        yield self

    def __str__(self) -> str:
        return f"{self.name}_{self.number + 1}" if self.number else self.name


@_noted
@dataclass(frozen=True, slots=True, repr=False)
class Quotient(Size):
    """`size // divisor`, rounded down."""

    size: Size
    divisor: int

    @property
    def bounds(self) -> Bounds:
        low, high = self.size.bounds
        return (low // self.divisor, high if math.isinf(high) else high // self.divisor)

    def value(self, dims: Mapping[Dim, int]) -> int:
        return self.size.value(dims) // self.divisor

    @property
    def dims(self) -> Iterator[Dim]:
        yield from self.size.dims

    def __str__(self) -> str:
        text = str(self.size)
        return f"({text}) // {self.divisor}" if isinstance(self.size, Polynomial) else f"{text} // {self.divisor}"


@_noted
@dataclass(frozen=True, slots=True, repr=False)
class Extreme(Size):
    """`min(sizes)` or `max(sizes)`."""

    name: str
    sizes: tuple[Extent, ...]

    @property
    def bounds(self) -> Bounds:
        choose = min if self.name == "min" else max
        lows, highs = zip(*map(bounds_of, self.sizes), strict=True)
        return choose(lows), choose(highs)

    def value(self, dims: Mapping[Dim, int]) -> int:
        return (min if self.name == "min" else max)(value_of(size, dims) for size in self.sizes)

    @property
    def dims(self) -> Iterator[Dim]:
        for size in self.sizes:
            yield from dims_in(size)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.sizes))})"


@_noted
@dataclass(frozen=True, slots=True, repr=False)
class Polynomial(Size):
    """A sum of products of other sizes with coefficients that are not 0; the constant is last."""

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def bounds(self) -> Bounds:
        choices = sorted(_choices_in(self), key=lambda choice: choice[0])  # those that are a `max` first
        if 0 < len(choices) <= 3:  # more take long
            return _range_of_choices(self, choices[-1])[0], _range_of_choices(self, choices[0])[1]
        low, high = _range_of_sum(dict(self.terms))
        if not any(isinstance(size, Quotient) for monomial, _ in self.terms for size in monomial):
            return low, high
        # `n - n // 2` is at least `n - n / 2`.
        lowest, highest = _range_of_sum(_without_quotients(self, 1))[0], _range_of_sum(_without_quotients(self, -1))[1]
        return max(low, math.ceil(lowest)), min(high, highest if math.isinf(highest) else math.floor(highest))

    def value(self, dims: Mapping[Dim, int]) -> int:
        return sum(factor * math.prod(size.value(dims) for size in monomial) for monomial, factor in self.terms)

    @property
    def dims(self) -> Iterator[Dim]:
        for monomial, _ in self.terms:
            for size in monomial:
                yield from size.dims

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in sorted(self.terms, key=lambda term: self.terms[0][1] < 0 and term[1] < 0):
            parts = [f"({size})" if isinstance(size, Quotient) else str(size) for size in monomial]
            if abs(coefficient) != 1 or not parts:
                parts.insert(0, str(abs(coefficient)))
            sign = ("-" if coefficient < 0 else "") if not text else f" {'-' if coefficient < 0 else '+'} "
            text += sign + " * ".join(parts)
        return text


def terms_of(extent: Extent) -> Terms:
    """A size as a sum: a coefficient for each product of sizes."""
    match extent:
        case Polynomial(terms):
            return dict(terms)
        case Size():
            return {(extent,): 1}
    return {(): extent} if extent else {}


def dims_in(extent: Extent) -> tuple[Dim, ...]:
    """The dimensions in a size, each once."""
    return tuple(dict.fromkeys(extent.dims)) if isinstance(extent, Size) else ()


def product(extents: Iterable[Extent]) -> Extent:
    """The product."""
    return math.prod(extents)


def exact_quotient(extent: Extent, divisor: Extent) -> Extent | None:
    """The quotient if the division is exact for all dimensions; otherwise None."""
    try:
        quotient = extent // divisor
    except (UndecidedSizeError, ZeroDivisionError):
        return None
    return quotient if quotient * divisor == extent else None


def surely(answer: Callable[[], bool]) -> bool:
    """The answer to a question about sizes; False if only the program can answer it."""
    try:
        return bool(answer())
    except UndecidedSizeError:
        return False


def value_of(extent: Extent, dims: Mapping[Dim, int]) -> int:
    """The value of a size for these values of the dimensions."""
    return extent.value(dims) if isinstance(extent, Size) else extent


def at_bounds(extent: Extent) -> int:
    """The value where every dimension has its largest size: for estimates of time and the order of strides."""
    return value_of(extent, {dim: dim.max or 0 for dim in dims_in(extent)})


@lru_cache(1 << 14)
def bounds_of(extent: Extent) -> Bounds:
    """The smallest and the largest value of a size, or a wider range."""
    return extent.bounds if isinstance(extent, Size) else (extent, extent)


def smallest(*extents: Extent) -> Extent:
    """The minimum."""
    return _extreme("min", extents)


def largest(*extents: Extent) -> Extent:
    """The maximum."""
    return _extreme("max", extents)


def _normal(terms: Terms) -> Extent:
    kept = [(monomial, factor) for monomial, factor in terms.items() if factor]
    kept.sort(key=lambda term: (-len(term[0]), tuple(map(str, term[0]))))
    match kept:
        case []:
            return 0
        case [((), constant)]:
            return constant
        case [((size,), 1)]:
            return size
    return Polynomial(tuple(kept))


def _added(total: Terms, right: Extent) -> Extent:
    for monomial, factor in terms_of(right).items():
        total[monomial] = total.get(monomial, 0) + factor
    return _normal(total)


def _product(left: Extent, right: Extent) -> Extent:
    total: Terms = {}
    for one, a in terms_of(left).items():
        for other, b in terms_of(right).items():
            monomial = tuple(sorted((*one, *other), key=str))
            total[monomial] = total.get(monomial, 0) + a * b
    return _normal(total)


def _quotient(size: Extent, divisor: Extent) -> Extent:
    """`size // divisor`. Multiples of the divisor leave the division, and these are equal:

    - `(g * a + c) // (g * k)` and `(a + c // g) // k`
    - `-a // k` and `-((a + k - 1) // k)`
    - `(n // j + c) // k` and `(n + c * j) // (j * k)`
    - `max(a, b) // k` and `max(a // k, b // k)`
    """
    if isinstance(divisor, Size):
        return _exact_quotient(size, divisor)
    if divisor < 0:
        return _quotient(-size, -divisor)
    terms = terms_of(size)
    whole = {m: factor // divisor for m, factor in terms.items() if m and factor % divisor == 0}
    constant = terms.get((), 0)
    rest = {m: factor for m, factor in terms.items() if m and factor % divisor}
    whole[()] = constant // divisor
    if not rest:
        return _normal(whole)
    common = math.gcd(divisor, *rest.values())
    inner, divisor = {m: factor // common for m, factor in rest.items()}, divisor // common
    inner[()] = constant % (divisor * common) // common
    numerator = _normal(inner)
    leading = numerator.terms[0][1] if isinstance(numerator, Polynomial) else 1
    if leading < 0:
        return _added(whole, -_quotient(-numerator + (divisor - 1), divisor))
    assert isinstance(numerator, Size), "an int has no remaining terms"
    if choices := _choices_in(numerator):
        name, sums = _distributed(numerator, choices[0])
        return _added(whole, _extreme(name, tuple(_quotient(size, divisor) for size in sums)))
    match numerator - inner[()]:
        case Quotient(size, by):
            return _added(whole, _quotient(size + inner[()] * by, divisor * by))
    quotient = Quotient(numerator, divisor)
    low, high = quotient.bounds
    return _added(whole, int(low) if low == high else quotient)


def _exact_quotient(size: Extent, divisor: Size) -> Extent:
    """The quotient of polynomials. Raises: UndecidedSizeError if a rest remains."""
    (first, factor), *_ = sorted(terms_of(divisor).items(), key=lambda term: (-len(term[0]), tuple(map(str, term[0]))))
    left, found = size, _normal({})
    while isinstance(left, Size):
        monomial, coefficient = next(iter(terms_of(left).items()))
        remaining = Counter(monomial)
        remaining.subtract(first)
        if coefficient % factor or min(remaining.values(), default=0) < 0:
            raise UndecidedSizeError(f"whether {divisor} divides {size}")
        piece = _normal({tuple(remaining.elements()): coefficient // factor})
        found, left = found + piece, left - piece * divisor
    if left:
        raise UndecidedSizeError(f"whether {divisor} divides {size}")
    return found


def _extreme(name: str, extents: Iterable[Extent]) -> Extent:
    """The extreme of sizes, without those that another one bounds."""
    kept = _unbounded(name, extents)
    if len(kept) == 1:
        return kept[0]
    for extent in kept:
        if same := [choice for choice in _choices_in(extent) if choice[0] == name]:
            # `max(n + max(a, b), c) = max(n + a, n + b, c)`
            others = (other for other in kept if other is not extent)
            return _extreme(name, (*_distributed(extent, same[0])[1], *others))
    if str(kept).count(" ") > 1500:  # about four for each term; bounds need exponential time
        raise UndecidedSizeError(f"a {name}imum of sizes with many terms")
    common = math.gcd(*(factor for extent in kept for factor in terms_of(extent).values()))
    return Extreme(name, tuple(sorted((extent // common for extent in kept), key=str))) * common


def _unbounded(name: str, extents: Iterable[Extent]) -> list[Extent]:
    """Different sizes without those that another one bounds."""
    kept = list(dict.fromkeys(extents))
    for extent in tuple(kept):
        others = (other for other in kept if other is not extent)
        if any(bounds_of((extent - other) * (1 if name == "min" else -1))[0] >= 0 for other in others):
            kept.remove(extent)
    return kept


def _compared(left: Extent, sign: str, right: Any) -> bool:
    """The answer to a comparison, or the question."""
    if not isinstance(right, int | Size):
        return NotImplemented  # type: ignore[no-any-return]
    larger, smaller = (left, right) if sign[0] == ">" else (right, left)
    low, high = bounds_of(larger - smaller + (len(sign) - 1))
    if low > 0 or high <= 0:
        return low > 0
    return Question(left, sign, right)  # type: ignore[return-value]  # of which Python asks for a bool, if it needs one


def _arithmetic(
    size: Size, other: Any, exact: Callable[[Any, Any], Extent], number: Callable[[Any, Any], Any]
) -> Extent:
    """The normal form of a result, or a number of the program if the other operand is one."""
    if isinstance(other, int | Size | np.integer):
        return exact(size, other if isinstance(other, Size) else int(other))
    if isinstance(other, float | complex | np.number):
        return number(number_of(size), other)  # type: ignore[no-any-return]
    return NotImplemented  # type: ignore[no-any-return]


def number_of(size: Size) -> Any:
    """A size as an integer of the program that is being recorded."""
    return numbers[0](size)


numbers: list[Callable[[Size], Any]] = []
"""The function of the front end that emits it."""

Choice = tuple[str, Extreme, int]
"""An extreme in a sum with its factor, and whether the sum is the `min` or the `max` of those with one of its sizes."""


def _choices_in(size: Extent) -> list[Choice]:
    """The extremes that are terms of a sum."""
    found = []
    for monomial, factor in terms_of(size).items():
        if len(monomial) == 1 and isinstance(extreme := monomial[0], Extreme):
            found.append(("min" if (extreme.name == "min") == (factor > 0) else "max", extreme, factor))
    return found


def _distributed(size: Extent, choice: Choice) -> tuple[str, list[Extent]]:
    """`n + max(a, b)` as the extreme of `n + a` and `n + b`."""
    name, extreme, factor = choice
    rest = size - extreme * factor
    return name, [rest + each * factor for each in extreme.sizes]


def _range_of_choices(size: Polynomial, choice: Choice) -> Bounds:
    name, sums = _distributed(size, choice)
    choose = min if name == "min" else max
    lows, highs = zip(*map(bounds_of, sums), strict=True)
    return choose(lows), choose(highs)


def _range_of_sum(terms: Mapping[Monomial, Fraction | int]) -> Bounds:
    low = high = 0.0
    for monomial, coefficient in terms.items():
        ends: Bounds = (float(coefficient), float(coefficient))
        for size in monomial:
            ends = _range_of_product(ends, size.bounds)
        low, high = low + ends[0], high + ends[1]
    return low, high


def _without_quotients(size: Polynomial, sign: int) -> Mapping[Monomial, Fraction | int]:
    """A sum that bounds a size from below (`sign` 1) or above, with real divisions in place of those that round."""
    total: dict[Monomial, Fraction | int] = {}
    for monomial, factor in size.terms:
        quotient = monomial[0] if len(monomial) == 1 else None
        if not isinstance(quotient, Quotient):
            total[monomial] = total.get(monomial, 0) + factor
            continue
        share = Fraction(factor, quotient.divisor)
        for inner, coefficient in terms_of(quotient.size).items():
            total[inner] = total.get(inner, 0) + share * coefficient
        if sign * factor > 0:
            total[()] = total.get((), 0) - share * (quotient.divisor - 1)
    return total


def _range_of_product(one: Bounds, other: Bounds) -> Bounds:
    ends: list[float] = [a * b if a and b else 0 for a in one for b in other]
    return min(ends), max(ends)
