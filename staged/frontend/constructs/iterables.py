"""Iterables of staged loops: ranges, the leading axis of an array, and `enumerate`, `zip`, `reversed` of these.

The same objects iterate in plain Python (eager mode), element by element.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Self

import numpy as np

from staged.errors import ProgramValueError, ShapeError, StagedValueError, StagingError, article
from staged.frontend.constructs.assert_ import check
from staged.frontend.trace.context import current_trace, note_made
from staged.frontend.trace.locals import Locals
from staged.frontend.values.size_questions import as_numbers
from staged.ir.numbers import wrapped
from staged.ir.types import TensorType, i64
from staged.ops.array import Array, StagedArray
from staged.ops.comparisons import equal, not_equal
from staged.ops.context import context_or_none
from staged.ops.elementwise import maximum, minimum
from staged.ops.promote import as_array, cast, constant, read
from staged.ops.subscript import get_item
from staged.source import here


class SeesLocals:
    """An iterable that receives the local variables of its loop: a progress bar shows some of them."""

    scope: Locals | None = None


class StagedIterable(SeesLocals):
    """A sequence of `length` elements, each a function of its index; both may be staged."""

    index_hint = ""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        made = super().__new__(cls)
        note_made(made)  # `enumerate(zip(...))` does not read it from outside
        return made

    @property
    def length(self) -> Any:
        """The number of elements."""
        raise AssertionError("every iterable has a length")

    def element(self, index: Any) -> Any:
        """The element at `index`, which counts as `bounds` says."""
        raise AssertionError("every iterable has elements")

    def bounds(self) -> tuple[Any, Any, Any]:
        """Start, stop and step of the loop's index."""
        return 0, self.length, 1

    def begin(self) -> None:
        """Recorded before the loop."""

    def end_iteration(self, index: Any, names: Mapping[str, Any]) -> None:
        """Recorded at the end of an iteration that gets there; `names` are the locals."""

    def end(self) -> None:
        """Recorded after the loop."""

    def reverse(self) -> StagedIterable:
        """The result of `reversed`."""
        raise _irreversible(self)

    def __iter__(self) -> Iterator[Any]:
        length = self.length
        if isinstance(length, StagedArray):
            raise StagedValueError(
                "this needs a number of iterations that is known while staging, it is staged",
                where=here(),
                hint="write a `for` statement; comprehensions and unpacking run while staging",
            )
        is_traced = current_trace() is not None
        if not is_traced:
            self.begin()
        start, stop, step = self.bounds()
        try:
            for index in range(int(start), int(stop), int(step)):
                yield self.element(index)
                if not is_traced:
                    # In plain Python the locals are those of the frame that takes the next element.
                    self.end_iteration(index, sys._getframe(1).f_locals if self.scope is None else self.scope.__dict__)
        finally:
            if not is_traced:
                self.end()


class Range(StagedIterable):
    """`st.range(stop)`, `st.range(start, stop, step)`: always one loop of the program.

    Bounds are integers, staged or not. The index is a staged Python integer.
    """

    def __init__(self, *bounds: Any) -> None:
        if not 1 <= len(bounds) <= 3:
            raise StagingError(f"range takes 1 to 3 arguments, got {len(bounds)}", where=here())
        for value in bounds:
            _check_integer(value)
        # Lengths and steps of unsigned bounds go below 0: all is computed as Python's integers are.
        bounds = tuple(cast(value, i64, True) if isinstance(value, Array) else int(value) for value in bounds)
        self.start = 0 if len(bounds) == 1 else bounds[0]
        self.stop = bounds[0] if len(bounds) == 1 else bounds[1]
        self.step = bounds[2] if len(bounds) == 3 else 1
        _check_step(self.step)

    @property
    def length(self) -> Any:
        distance = self.stop - self.start
        # ceil(distance / step) for either sign of the step
        count = distance if _is(self.step, 1) else -(-distance // self.step)
        if isinstance(count, Array):
            return maximum(count, 0)
        return max(int(count), 0)

    def bounds(self) -> tuple[Any, Any, Any]:
        return self.start, self.stop, self.step

    def element(self, index: Any) -> Any:
        return counter(index)

    def reverse(self) -> Range:
        if _is(self.step, 1):
            return Range(self.stop - 1, self.start - 1, -1)
        if _is(self.step, -1):
            return Range(self.stop + 1, self.start + 1, 1)
        return Range(self.at(self.length - 1), self.start - self.step, -self.step)

    def __reversed__(self) -> Iterator[Any]:
        return iter(self.reverse())

    def at(self, iteration: Any) -> Any:
        """The element of an iteration, counted from 0."""
        distance = iteration if _is(self.step, 1) else iteration * self.step
        return counter(distance if _is(self.start, 0) else self.start + distance)


_counts: ContextVar[bool] = ContextVar("staged_counts", default=False)
"""True if a `for` statement requests elements: comprehensions, unpacking and calls run while staging, on Python's
numbers.
"""


def counted(items: Any) -> Iterator[Any]:
    """In eager mode: the elements of what is one loop of the program, whose counters are the program's."""
    iterator = iter(items)
    while True:
        token = _counts.set(True)
        try:
            item = next(iterator)
        except StopIteration:
            return
        finally:
            _counts.reset(token)
        yield item


def counter(number: Any) -> Any:
    """A number that a `for` statement counts, as the program has it: in eager mode a staged Python integer, too."""
    return carried(number) if _counts.get() else number


def carried(number: Any) -> Any:
    """A Python integer that a loop of the program carries: in eager mode a staged one, which wraps around."""
    if type(number) is not int or current_trace() is not None or context_or_none() is None:
        return number
    return constant(wrapped(number, i64), TensorType(i64, (), weak=True))


def _is(value: Any, number: int) -> bool:
    """Return whether a bound is this number, known while staging."""
    return isinstance(value, int | np.integer) and int(value) == number


def _check_step(step: Any) -> None:
    """A range counts by something: a step of 0 is refused while staging, or stops the program as it stops Python."""
    message = "range() arg 3 must not be zero"
    trace = current_trace()
    if isinstance(step, StagedArray) and trace is not None:
        check(trace, not_equal(step, 0), "value", message)
    elif int(step) == 0:
        raise ProgramValueError(message, where=here(), hint="give a step above 0, or below 0 to count down")


def _check_integer(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer | Array):
        raise StagingError(f"a range needs integers, got {type(value).__name__}", where=here())
    if isinstance(value, Array) and (not value.dtype.is_integer or value.shape):
        raise StagedValueError(
            f"a range needs integer scalars, got {value.type}",
            where=here(),
            hint="use `st.astype(n, st.i64)`; a number passed as `3` instead of `3.0` is an integer",
        )


def count_on(scope: Locals, before: Mapping[str, Any]) -> None:
    """In eager mode: Python integers that an iteration has changed are carried by the program's loop, and wrap around
    from here on.
    """
    for name, old in before.items():
        new = scope.__dict__.get(name)
        if type(old) is int and type(new) is int and old != new:
            scope.__dict__[name] = carried(new)


class ArrayRows(StagedIterable):
    """The leading axis of an array."""

    index_hint = "i"

    def __init__(self, array: Any) -> None:
        if not array.shape:
            raise ShapeError("cannot iterate over a scalar", where=here(), hint="use `st.range(n)` to count")
        self.array = array

    @property
    def length(self) -> Any:
        return as_numbers(self.array.shape[0])

    def element(self, index: Any) -> Any:
        return get_item(self.array, index)

    def reverse(self) -> StagedIterable:
        return Reversed(self)


class Enumerate(StagedIterable):
    """`enumerate(iterable, start)`."""

    def __init__(self, inner: StagedIterable, start: Any = 0) -> None:
        self.inner = inner
        self.start = start

    @property
    def length(self) -> Any:
        return self.inner.length

    def element(self, index: Any) -> Any:
        return counter(index if _is(self.start, 0) else index + self.start), nth(self.inner, index)

    def begin(self) -> None:
        self.inner.begin()

    def end_iteration(self, index: Any, names: Mapping[str, Any]) -> None:
        self.inner.end_iteration(index, names)

    def end(self) -> None:
        self.inner.end()


class Zip(StagedIterable):
    """`zip(...)`, of staged iterables and arrays. With `strict`, different lengths are an error before the loop."""

    def __init__(self, inners: list[StagedIterable], strict: bool = False) -> None:
        self.inners = inners
        for number, inner in enumerate(inners[1:], 2):
            if strict:
                _check_equal(number, inner.length, inners[0].length)

    @property
    def length(self) -> Any:
        lengths = [inner.length for inner in self.inners]
        if any(_is(length, 0) for length in lengths):
            return 0  # known while staging: the loop leaves its body out
        shortest = lengths[0]
        for other in lengths[1:]:
            staged = isinstance(shortest, Array) or isinstance(other, Array)
            shortest = minimum(shortest, other) if staged else min(shortest, other)
        return shortest

    def element(self, index: Any) -> Any:
        return tuple(nth(inner, index) for inner in self.inners)

    def begin(self) -> None:
        for inner in self.inners:
            inner.begin()

    def end_iteration(self, index: Any, names: Mapping[str, Any]) -> None:
        for inner in self.inners:
            inner.end_iteration(index, names)

    def end(self) -> None:
        for inner in self.inners:
            inner.end()


def _check_equal(number: int, length: Any, first: Any) -> None:
    """`zip(..., strict=True)`: argument `number` is as long as the first."""
    message = f"zip() argument {number} is shorter or longer than argument 1"
    trace = current_trace()
    if trace is not None and (isinstance(length, StagedArray) or isinstance(first, StagedArray)):
        check(trace, equal(length, first), "value", message)
    elif int(length) != int(first):
        raise ShapeError(f"{message}: {length} elements, not {first}", where=here())


class Reversed(StagedIterable):
    """`reversed(...)` of what has a number of elements."""

    def __init__(self, inner: StagedIterable) -> None:
        self.inner = inner

    @property
    def length(self) -> Any:
        return self.inner.length

    def element(self, index: Any) -> Any:
        return nth(self.inner, self.inner.length - 1 - index)

    def begin(self) -> None:
        self.inner.begin()

    def end(self) -> None:
        self.inner.end()


def reversed_of(iterable: StagedIterable) -> StagedIterable:
    """`reversed(iterable)`; a StagingError for what Python cannot reverse either."""
    return iterable.reverse()


def _irreversible(iterable: StagedIterable) -> StagingError:
    name = type(iterable).__name__.lower()
    return StagingError(
        f"`reversed` cannot take `{name}`: it is gone through once, from its start",
        where=here(),
        hint=f"reverse what `{name}` goes over, or index from the end",
    )


def nth(iterable: StagedIterable, iteration: Any) -> Any:
    """The element of an iteration, counted from 0."""
    return iterable.at(iteration) if isinstance(iterable, Range) else iterable.element(iteration)


def as_staged_iterable(value: Any) -> StagedIterable | None:
    """`value` as something a staged loop runs over; None where the loop runs while staging."""
    if isinstance(value, StagedIterable):
        return value
    value = read(value)
    if isinstance(value, StagedArray):
        return ArrayRows(value)
    wrapped = getattr(type(value), "__staged_loop__", None)
    if wrapped is not None:
        made = wrapped(value)
        assert isinstance(made, StagedIterable)
        return made
    return None


def zipped(values: tuple[Any, ...], strict: bool = False) -> Zip | None:
    """`zip(*values)` as a staged iterable, when one of them is; None in eager mode, where Python's own does it."""
    if current_trace() is None:
        return None
    staged = [as_staged_iterable(value) for value in values]
    if not any(staged):
        return None
    inners = []
    for value, inner in zip(values, staged, strict=True):
        if inner is None and isinstance(value, np.ndarray):
            inner = ArrayRows(as_array(value))
        if inner is None and isinstance(value, range):
            inner = Range(value.start, value.stop, value.step)
        if inner is None:
            raise StagingError(
                f"`zip` mixes a staged iterable with {article(type(value).__name__)}, which exists only while staging",
                where=here(),
                hint="make it an array (`st.stack(...)`), or loop over `range(...)` and index",
            )
        inners.append(inner)
    return Zip(inners, strict)


def range_(*bounds: Any) -> Range:
    """`range(stop)`, `range(start, stop, step)` as one loop of the program, whatever the bounds are.

    Bounds are integers, staged or not; the index is a staged Python integer. In eager mode it counts as Python does.
    Raises: StagingError for bounds that are not integers; ProgramValueError (a ValueError) for a step of zero.
    """
    return Range(*bounds)
