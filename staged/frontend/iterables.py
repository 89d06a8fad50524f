"""What a staged loop can run over: ranges, batches, the leading axis of an array, and `enumerate`, `zip`, `reversed`.

The same objects iterate in plain Python (eager mode), element by element.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from staged.errors import ShapeError, StagedValueError, StagingError
from staged.frontend.locals import Locals
from staged.frontend.tracing import current_trace
from staged.ir.types import i64
from staged.ops.array import METHODS, Array, StagedArray
from staged.ops.context import bind, current_context
from staged.ops.primitive import PRIMITIVES
from staged.ops.promote import as_array
from staged.source import here


class SeesLocals:
    """Something to loop over that is told the locals of its loop: a progress bar shows some of them."""

    scope: Locals | None = None


class StagedIterable(SeesLocals):
    """A sequence of `length` elements, each a function of its index; both may be staged."""

    index_hint = ""

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

    def end_turn(self, index: Any, names: Mapping[str, Any]) -> None:
        """Recorded at the end of an iteration that gets there; `names` are the locals."""

    def end(self) -> None:
        """Recorded after the loop."""

    def tail(self) -> list[Any]:
        """Elements after the loop, of other shapes than those in it."""
        return []

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
                    # In plain Python the locals are those of the frame that asks for the next element.
                    self.end_turn(index, sys._getframe(1).f_locals if self.scope is None else self.scope.__dict__)
        finally:
            if not is_traced:
                self.end()
        yield from self.tail()


class Range(StagedIterable):
    """`st.range(stop)`, `st.range(start, stop, step)`: always one loop of the program.

    Bounds are integers, staged or not. The index is a staged Python integer.
    """

    def __init__(self, *bounds: Any) -> None:
        if not 1 <= len(bounds) <= 3:
            raise StagingError(f"range takes 1 to 3 arguments, got {len(bounds)}", where=here())
        for value in bounds:
            _check_integer(value)
        self.start = 0 if len(bounds) == 1 else bounds[0]
        self.stop = bounds[0] if len(bounds) == 1 else bounds[1]
        self.step = bounds[2] if len(bounds) == 3 else 1
        if isinstance(self.step, int) and self.step == 0:
            raise StagingError("the step of a range must not be zero", where=here())

    @property
    def _counts_up(self) -> bool:
        return isinstance(self.step, int | np.integer) and int(self.step) > 0

    @property
    def length(self) -> Any:
        distance = self.stop - self.start
        if self._counts_up and self.step == 1:
            count = distance
        else:
            # ceil(distance / step) for either sign of the step
            count = -(-distance // self.step)
        if isinstance(count, Array):
            return METHODS["maximum"](count, 0)
        return max(int(count), 0)

    def bounds(self) -> tuple[Any, Any, Any]:
        # The loop of the program counts up; a step of unknown or negative sign is counted by turns.
        return (self.start, self.stop, self.step) if self._counts_up else (0, self.length, 1)

    def element(self, index: Any) -> Any:
        return index if self._counts_up else self.start + index * self.step

    def __reversed__(self) -> Iterator[Any]:
        return iter(Reversed(self))

    def at(self, turn: Any) -> Any:
        """The element of a turn, counted from 0."""
        distance = turn if isinstance(self.step, int) and self.step == 1 else turn * self.step
        return distance if isinstance(self.start, int) and self.start == 0 else self.start + distance


def _check_integer(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer | Array):
        raise StagingError(f"a range needs integers, got {type(value).__name__}", where=here())
    if isinstance(value, Array) and (not value.dtype.is_integer or value.shape):
        raise StagedValueError(
            f"a range needs integer scalars, got {value.type}",
            where=here(),
            hint="use `st.astype(n, st.i64)`; a number passed as `3` instead of `3.0` is an integer",
        )


class ArrayRows(StagedIterable):
    """The leading axis of an array."""

    def __init__(self, array: Any) -> None:
        if not array.shape:
            raise ShapeError("cannot iterate over a scalar", where=here(), hint="use `st.range(n)` to count")
        self.array = array

    @property
    def length(self) -> Any:
        return self.array.shape[0]

    def element(self, index: Any) -> Any:
        return METHODS["get_item"](self.array, index)


class Enumerate(StagedIterable):
    """`enumerate(iterable, start)`."""

    def __init__(self, inner: StagedIterable, start: Any = 0) -> None:
        self.inner = inner
        self.start = start

    @property
    def length(self) -> Any:
        return self.inner.length

    def element(self, index: Any) -> Any:
        value = nth(self.inner, index)
        return (index if isinstance(self.start, int) and self.start == 0 else index + self.start), value

    def begin(self) -> None:
        self.inner.begin()

    def end_turn(self, index: Any, names: Mapping[str, Any]) -> None:
        self.inner.end_turn(index, names)

    def end(self) -> None:
        self.inner.end()


class Zip(StagedIterable):
    """`zip(...)`, of staged iterables and arrays."""

    def __init__(self, inners: list[StagedIterable]) -> None:
        self.inners = inners

    @property
    def length(self) -> Any:
        shortest = self.inners[0].length
        for inner in self.inners[1:]:
            other = inner.length
            staged = isinstance(shortest, Array) or isinstance(other, Array)
            shortest = METHODS["minimum"](shortest, other) if staged else min(shortest, other)
        return shortest

    def element(self, index: Any) -> Any:
        return tuple(nth(inner, index) for inner in self.inners)

    def begin(self) -> None:
        for inner in self.inners:
            inner.begin()

    def end_turn(self, index: Any, names: Mapping[str, Any]) -> None:
        for inner in self.inners:
            inner.end_turn(index, names)

    def end(self) -> None:
        for inner in self.inners:
            inner.end()


class Reversed(StagedIterable):
    """`reversed(...)`."""

    def __init__(self, inner: StagedIterable) -> None:
        self.inner = inner

    @property
    def length(self) -> Any:
        return self.inner.length

    def element(self, index: Any) -> Any:
        return nth(self.inner, self.inner.length - 1 - index)


def nth(iterable: StagedIterable, turn: Any) -> Any:
    """The element of a turn, counted from 0."""
    return iterable.at(turn) if isinstance(iterable, Range) else iterable.element(turn)


class Batches(StagedIterable):
    """`st.batches(*arrays, size=, shuffle=False, drop_last=True, seed=None)`: consecutive rows of arrays, `size` at a time.

    Gives one array per argument (a single array for a single argument). With `shuffle`, the rows are taken in an order
    drawn anew each time the loop starts. With `drop_last=False` the rows left over come last, as a smaller batch.
    """

    index_hint = "batch"

    def __init__(
        self, *arrays: Any, size: Any, shuffle: bool = False, drop_last: bool = True, seed: Any = None
    ) -> None:
        if not arrays:
            raise StagingError("batches needs at least one array", where=here())
        if isinstance(size, Array):
            raise StagedValueError(
                "the batch size must be static: it is a shape",
                where=here(),
                hint='pass it as `st.function(static=("size",))`, or write the number',
            )
        if size < 1:
            raise StagingError(f"the batch size must be at least 1, got {size}", where=here())
        self.arrays = [_as_array(array) for array in arrays]
        rows = {array.shape[0] if array.shape else None for array in self.arrays}
        first = rows.pop() if len(rows) == 1 else None
        if first is None:
            shapes = ", ".join(str(tuple(array.shape)) for array in self.arrays)
            raise ShapeError(
                f"batches needs arrays with equal first dimensions, got {shapes}",
                where=here(),
                hint="pass arrays with one row per sample each",
            )
        self.rows: Any = first
        self.size = int(size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self.order: Any = None
        left = self.rows % self.size
        trace = current_trace()
        if trace is not None and left and drop_last:
            trace.notes.append(f"batches of {size} drop the last {left} of {self.rows} rows (drop_last=True)")

    @property
    def length(self) -> Any:
        return self.rows // self.size

    def __len__(self) -> int:
        """The number of batches."""
        return int(self.rows // self.size) + (1 if self.rows % self.size and not self.drop_last else 0)

    def begin(self) -> None:
        if self.shuffle:
            self.order = METHODS["random.permutation"](self.rows) if self.seed is None else self._own_order()

    def _own_order(self) -> Any:
        """Rows in the order of a seed of their own; the program's counter makes each epoch's order new."""
        _, stream, counter = current_context().next_random()
        key = [METHODS["astype"](as_array(part), i64) for part in (self.seed, stream, counter)]
        return bind(PRIMITIVES["permutation"], key, n=self.rows)

    def element(self, index: Any) -> Any:
        return self._rows(index * self.size, self.size)

    def tail(self) -> list[Any]:
        left = self.rows % self.size
        return [self._rows(self.rows - left, left)] if left and not self.drop_last else []

    def _rows(self, start: Any, count: int) -> Any:
        if self.shuffle:
            chosen = _window(self.order, start, count)
            parts = [METHODS["take"](array, chosen, axis=0) for array in self.arrays]
        else:
            parts = [_window(array, start, count) for array in self.arrays]
        return parts[0] if len(parts) == 1 else tuple(parts)


def _as_array(array: Any) -> Any:
    if hasattr(array, "shape"):
        return array
    return np.asarray(array)


def _window(array: Any, start: Any, count: int) -> Any:
    """`array[start:start + count]`, in range by construction, so nothing needs checking."""
    if isinstance(start, StagedArray):
        array = as_array(array)
        start = as_array(start)
        zero = as_array(0)
        starts = [start, *[zero] * (len(array.shape) - 1)]
        return bind(PRIMITIVES["dynamic_slice"], [array, *starts], sizes=(count, *array.shape[1:]))
    return METHODS["get_item"](array, slice(int(start), int(start) + count))


def as_staged_iterable(value: Any) -> StagedIterable | None:
    """`value` as something a staged loop runs over; None where the loop runs while staging."""
    if isinstance(value, StagedIterable):
        return value
    reader = getattr(value, "__staged_read__", None)
    if reader is not None:
        value = reader()
    if isinstance(value, StagedArray):
        return ArrayRows(value)
    wrapped = getattr(value, "__staged_loop__", None)
    if wrapped is not None:
        made = wrapped()
        assert isinstance(made, StagedIterable)
        return made
    return None


def zipped(values: tuple[Any, ...]) -> Zip | None:
    """`zip(*values)` as a staged iterable, when one of them is."""
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
                f"`zip` mixes a staged iterable with a {type(value).__name__}, which exists only while staging",
                where=here(),
                hint="make it an array (`st.stack(...)`), or loop over `range(...)` and index",
            )
        inners.append(inner)
    return Zip(inners)


def range_(*bounds: Any) -> Range:
    """`range(stop)`, `range(start, stop, step)` as one loop of the program, whatever the bounds are.

    Bounds are integers, staged or not; the index is a staged Python integer. In eager mode it counts as Python does.
    Raises: StagingError for bounds that are no integers, or a step of zero.
    """
    return Range(*bounds)


def batches(*arrays: Any, size: int, shuffle: bool = False, drop_last: bool = True, seed: Any = None) -> Batches:
    """Rows of `arrays`, `size` at a time: `for x, y in batches(images, labels, size=100): ...` is one loop.

    Shapes: arrays with equal first dimensions (N, ...); gives (size, ...) of each, or the array itself for one argument.
    With `shuffle`, the rows come in an order drawn anew each time the loop starts, from `seed` or the program's random
    numbers. The N % size rows left over are dropped (with a note), or with `drop_last=False` come last as a smaller batch.
    Raises: ShapeError for different first dimensions; StagingError for a size below 1.
    """
    return Batches(*arrays, size=size, shuffle=shuffle, drop_last=drop_last, seed=seed)
