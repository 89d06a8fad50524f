"""Relations of sizes that a function needs and that the normal form of sizes cannot decide.

`x + y` of `(N, 3)` and `(M, 3)` needs `N == M`. The sizes of the call answer: if the relation holds, the function is
traced again with arguments that have it (`M` is replaced by `N`, `N` of at least 3 by `3 + K`). The check of a call
compares the shapes of arguments, so the program serves exactly the calls for which the relation holds. Any other call
is traced again, and an op that needs the relation raises an error at the user's line.

Tested by `tests/dynamic_sizes/test_relations.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from staged.call.guards.arguments import Argument, SizeOf, described_sizes, sizes_of
from staged.errors import StagedError
from staged.frontend.calls.arguments import Arguments
from staged.frontend.trace_function import TracedFunction
from staged.frontend.values.size_questions import asked
from staged.ir.size_functions import of_user, substitute
from staged.ir.size_questions import Question, UndecidedSizeError, differing
from staged.ir.sizes import Dim, Extent, Extreme, Quotient, Size, bounds_of, dims_in, terms_of, value_of
from staged.ir.types import TensorType
from staged.ops.assumptions import deciding
from staged.source import Position

_MOST_TRACES, _MOST_IN_DETECTION = 24, 8
"""The largest number of relations that a function may need, with declared and with found sizes."""

Values = dict[Dim, int]


@dataclass(frozen=True)
class _Change:
    """Another size for a dimension: `factor * fresh + rest`, without a `fresh` dimension `rest`."""

    dim: Dim
    rest: Extent
    fresh: Dim | None = None
    factor: int = 1

    @staticmethod
    def to(dim: Dim, rest: Extent, most: int | None, name: str, factor: int = 1) -> _Change:
        """The change to a fresh dimension of this name, if it may be other than 0."""
        least = max(0, -((rest - dim.least) // factor)) if isinstance(rest, int) else 0
        origin = of_user((dim - rest) // factor)
        return _Change(dim, rest, Dim(name, most, dim.number, least, origin) if most != 0 else None, factor)

    @property
    def size(self) -> Extent:
        return self.rest if self.fresh is None else self.fresh * self.factor + self.rest

    def source(self, size: SizeOf) -> SizeOf | None:
        """The source of a dimension after this change."""
        if size.dim != self.dim:
            return replace(size, offset=substitute(size.offset, {self.dim: self.size}))
        if self.fresh is None:
            return None
        return replace(
            size, dim=self.fresh, factor=size.factor * self.factor, offset=self.rest * size.factor + size.offset
        )


def traced_with_relations(
    arguments: Arguments, trace: Callable[[Arguments], TracedFunction], where: Callable[[], Position | None]
) -> tuple[Arguments, TracedFunction]:
    """The trace of a function, and its arguments with the relations of sizes that the function needs.

    `where` returns the position of the function. Raises: the error of the trace if the sizes of the call do not have
    a relation, with the sizes.
    """
    given, values = arguments, _values(arguments)
    first: StagedError | None = None
    asks = True
    for _ in range(_MOST_IN_DETECTION if arguments.assumptions else _MOST_TRACES):
        differing.clear()
        asked.clear()
        try:
            with deciding(size.dim for size in arguments.sizes if asks):
                return arguments, trace(arguments)
        except StagedError as error:
            first = first or error
            found = arguments.assumptions
            if found is not None and (
                not found.is_of_call(error) or found.is_unmet and not isinstance(error, UndecidedSizeError)
            ):
                break
            change = next(_changes(error, values, found.sizes if found else ()), None)
            if change is not None:
                arguments = _changed(arguments, change)
            elif asks and found is None and any(isinstance(each, UndecidedSizeError) for each in (first, error)):
                # The program checks what no change decides, and errors have the names of the declaration.
                asks, first, arguments = False, None, given
            else:
                break
            values = _values(arguments)
            if found is not None and change is not None:
                if not arguments.sizes:
                    break
                changed = {change.fresh} if change.dim in found.sizes else set()
                found.restart({dim: size for dim, size in values.items() if dim in found.sizes.keys() | changed})
    assert first is not None, "a trace returns or raises"
    raise _explained(first, given, where())


def _values(arguments: Arguments) -> Values:
    """The sizes of the call."""
    return sizes_of(arguments.sizes, lambda number: np.shape(arguments.staged[number].value))


def _changes(error: StagedError, values: Values, found: Collection[Dim]) -> Iterator[_Change]:
    """Changes that decide what the trace asked last before it failed. Only a `found` size of 1, or one that is 1 for
    most sizes, as `min(1, N)`, becomes a constant that broadcasts.
    """
    question = error.question if isinstance(error, UndecidedSizeError) else None
    if question is not None:
        yield from _decided(question, values)
        return
    pairs = list(dict.fromkeys([*reversed(differing)]))  # a comparison of keys enters further pairs
    # Whether a size is 0 or 1 is asked to save work, too: these come last.
    pairs.sort(key=lambda pair: any(type(size) is int and size < 2 for size in pair))
    for one, other in pairs:
        difference = one - other
        if values.keys() >= set(dims_in(difference)) and value_of(difference, values) == 0:
            change = _is_0(difference, values)
            if change is not None:
                yield change
    for size in (size for pair in pairs for size in pair):
        if values.keys() >= set(dims_in(size)) and value_of(size, values) == 1:
            is_found = set(found).issuperset(dims_in(size))
            change = _is_0(size - 1, values) if is_found else _simpler_part(size, values, size - 1)
            if change is not None:
                yield change
    # The sizes may be those of another branch.
    for question in reversed(asked):
        yield from _decided(question, values)


def _decided(question: Question, values: Values) -> Iterator[_Change]:
    """A change after which the answer to a question is known by the sizes of the call."""
    larger, smaller = question.left, question.right
    if question.sign[0] == "<":
        larger, smaller = smaller, larger
    size = larger - smaller
    if not values.keys() >= set(dims_in(size)):
        return
    if question.sign == "==":
        found = value_of(size, values)
        change = _at_least_0(size * (1 if found > 0 else -1) - 1, values) if found else _is_0(size, values)
    else:
        size += len(question.sign) - 1
        change = _at_least_0(size - 1 if value_of(size, values) > 0 else -size, values)
    if change is not None:
        yield change


def _is_0(size: Extent, values: Values) -> _Change | None:
    """A change after which a size is 0, or after which it has one part less that is not linear."""
    terms = terms_of(size)
    found: list[_Change] = []
    for monomial, factor in terms.items():
        dim = monomial[0] if len(monomial) == 1 else None
        if isinstance(dim, Dim):
            rest = (size - dim * factor) * (-1 if factor > 0 else 1)
            if dim not in dims_in(rest) and rest // abs(factor) * abs(factor) == rest:
                found.append(_Change(dim, rest // abs(factor)))
    if found:
        # The dimension with the larger bound gives way, of equal ones the later, if the bound holds for its new size.
        return max(
            reversed(found),
            key=lambda change: (bounds_of(change.rest)[1] <= change.dim.bounds[1], change.dim.bounds[1]),
        )
    for dim in dims_in(size):
        if values[dim] == 0 and substitute(size, {dim: 0}) == 0:  # a product
            return _Change(dim, 0)
    return _simpler_part(size, values, size)


def _parts(size: Extent) -> Iterator[Size]:
    """The divisions and extremes in a size, inner ones first."""
    for monomial in terms_of(size):
        for part in monomial:
            if isinstance(part, Quotient):
                yield from _parts(part.size)
                yield part
            elif isinstance(part, Extreme):
                for each in part.sizes:
                    yield from _parts(each)
                yield part


def _simpler_part(size: Extent, values: Values, zero: Extent = 0) -> _Change | None:
    """The first change after which a part of a size is simpler."""
    return next((change for part in _parts(size) if (change := _simpler(part, values, zero)) is not None), None)


def _simpler(part: Size, values: Values, zero: Extent = 0) -> _Change | None:
    """A change after which a part is one of its sizes, or a division exact. Of equal sizes, one for which `zero` is 0
    is better.
    """
    if isinstance(part, Extreme):
        sign = 1 if part.name == "min" else -1
        factor = terms_of(zero).get((part,), 0)
        chosen = min(part.sizes, key=lambda each: (sign * value_of(each, values), zero + (each - part) * factor != 0))
        for other in part.sizes:
            if other is not chosen and bounds_of(sign * (other - chosen))[0] < 0:
                return _at_least_0(sign * (other - chosen), values)
    elif isinstance(part, Quotient):
        for monomial, factor in terms_of(part.size).items():
            if len(monomial) == 1 and isinstance(monomial[0], Dim) and factor % part.divisor:
                return _multiple(monomial[0], part.divisor, values)
    return None


def _multiple(dim: Dim, divisor: int, values: Values) -> _Change:
    """A change after which a dimension has a constant remainder."""
    rest = values[dim] % divisor
    most = None if dim.max is None else (dim.max - rest) // divisor
    return _Change.to(dim, rest, most, f"{dim.name}_by_{divisor}", divisor)


def _at_least_0(size: Extent, values: Values) -> _Change | None:
    """A change after which a size is at least 0."""
    terms = terms_of(size)
    constant = terms.pop((), 0)
    if len(terms) == 1:
        ((monomial, factor),) = terms.items()
        part = monomial[0] if len(monomial) == 1 else None
        if isinstance(part, Dim):
            return _limited(part, factor, constant)
        if isinstance(part, Quotient):
            # s // d >= k if s >= k * d, and s // d <= k if s < (k + 1) * d.
            if factor > 0:
                return _at_least_0(part.size - -(constant // factor) * part.divisor, values)
            return _at_least_0((constant // -factor + 1) * part.divisor - 1 - part.size, values)
    for part in _parts(size):
        if isinstance(part, Extreme) and (change := _simpler(part, values)) is not None:
            return change
    for monomial, factor in terms.items():
        if factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Dim):
            dim, rest = monomial[0], size - monomial[0]
            if dim not in dims_in(rest) and isinstance(rest, Size):
                fewest = value_of(rest, {other: other.least for other in dims_in(rest)})
                if fewest == bounds_of(rest)[0] and values[dim] + fewest >= 0:  # enough, whatever the rest is
                    return _limited(dim, 1, fewest)
                name = "_".join([dim.name, "beyond", *map(str, dims_in(rest))])
                most = None if dim.max is None else dim.max + max(0, int(bounds_of(rest)[1]))
                return _Change.to(dim, -rest, most, name)
    return _simpler_part(size, values) or _positive_factor(size, values)


def _positive_factor(size: Extent, values: Values) -> _Change | None:
    """A change of one dimension, if a size is at least 0 where one dimension, or all that may be 0, are at least 1."""
    free = [dim for dim in dims_in(size) if dim.least == 0 and values[dim] > 0]
    for chosen in (*([dim] for dim in free), free):
        if chosen and bounds_of(substitute(size, {dim: dim + 1 for dim in chosen}))[0] >= 0:
            return _limited(chosen[0], 1, -1)
    return None


def _limited(dim: Dim, factor: int, constant: int) -> _Change:
    """A change after which `factor * dim + constant` is at least 0."""
    least, most = dim.least, dim.max
    if factor < 0:
        most = constant // -factor
    else:
        least = max(least, -(constant // factor))
    return _Change(dim, least) if least == most else _Change(dim, 0, replace(dim, max=most, least=least))


def _changed(arguments: Arguments, change: _Change) -> Arguments:
    """Arguments with another size for a dimension; a fresh one has a new name."""
    if change.fresh is not None:
        name, taken = change.fresh.name, {str(size.dim) for size in arguments.sizes if size.dim != change.dim}
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        change = replace(change, fresh=replace(change.fresh, name=next(each for each in names if each not in taken)))
    new = {change.dim: change.size}

    def leaf(part: Argument) -> Argument:
        if part.type.is_static:
            return part
        shape = tuple(substitute(extent, new) for extent in part.type.shape)
        return replace(part, type=TensorType(part.type.dtype, shape, part.type.weak))

    leaves = tuple(leaf(part) if isinstance(part, Argument) else part for part in arguments.leaves)
    sizes = [made for size in arguments.sizes if (made := change.source(size)) is not None]
    # A size follows those that its offset mentions.
    ordered: list[SizeOf] = []
    while sizes:
        waiting = {size.dim for size in sizes}
        ready = [size for size in sizes if not waiting.intersection(dims_in(size.offset))]
        ordered += ready
        sizes = [size for size in sizes if size not in ready]
    return replace(arguments, leaves=leaves, sizes=tuple(ordered))


def _explained(error: StagedError, arguments: Arguments, where: Position | None) -> StagedError:
    """An error with the values of the dimensions that it mentions, and the arguments that have these."""
    words = set(re.findall(r"[A-Za-z_]\w*", " ".join((error.message, *error.details))))
    values = _values(arguments)
    mentioned = [size for size in arguments.sizes if str(size.dim) in words]
    error.details = (*error.details, *described_sizes(mentioned, values, arguments.staged, where))
    if isinstance(error, UndecidedSizeError) and not error.hint:
        error.hint = "pass arrays whose sizes decide it, or declare this size as a number in `dims`"
    return error
