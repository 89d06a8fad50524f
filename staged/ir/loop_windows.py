"""Loops that write arrays window by window: which iterations meet, and which arrays they write as a whole.

A carried array of a loop is followed through the body: through loops inside, and through kernels that write a window of
it or read one. Where it goes elsewhere, nothing is known.

    for n in range(8):
        for i in range(6):
            out = dynamic_update(out, rows, n, i * 180, 0)    # rows: (1, 180, 64), out: (8, 1080, 64)

Iterations of either loop are apart: those of `n` on the first axis, those of `i` on the second one. Together they write
all of `out`, so that nothing of what it held before is left.

Tested by `tests/ir/test_loop_windows.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.numbers import fits
from staged.ir.ranges import Ranges
from staged.ir.sizes import Extent, Size, bounds_of, largest, smallest, surely
from staged.ir.storage import is_tensor, structural_ops, view_of
from staged.ir.structure import CONTRACTION, FOR, KERNEL
from staged.ir.trips import constant_of, size_of, trip_count
from staged.ir.types import CPU, TensorType, i64
from staged.ir.views import Loop


@dataclass(frozen=True, slots=True)
class Form:
    """A number of the program: a sum of loop indices, each with a factor, and of something in [low, high]."""

    factors: Mapping[Value, Extent]
    low: Extent
    high: Extent

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an array that an op reads or writes: along each axis, `sizes` elements from `starts` on."""

    starts: tuple[Form, ...]
    sizes: tuple[Extent, ...]
    is_write: bool
    loops: tuple[Op, ...]
    """The loops around the op, from the one that is asked about inwards."""


@dataclass(slots=True)
class Windowed:
    """A carried array that a loop uses in windows alone: what it is from one op to the next, and these windows."""

    type: TensorType
    versions: list[Value] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)


class _Unknown(Exception):
    """An array is used otherwise than in windows."""


class LoopWindows:
    """The windows of a loop whose iterations do nothing else that another one may notice.

    `arrays` are its carried arrays; None where an iteration may do more, or where nothing is known.
    """

    def __init__(self, op: Op, ranges: Ranges) -> None:
        self.op = op
        self.ranges = ranges
        self.arrays: list[Windowed] | None = None
        if not _is_plain(op):
            return
        _enter_indices(op, ranges)
        try:
            self.arrays = [self._followed(op, number, (op,)) for number in range(len(Loop(op).carried))]
        except _Unknown:
            return

    # ---- answers ----

    def are_apart(self) -> bool:
        """Return whether iterations may run side by side: none touches what another one writes.

        Exact: a window of iteration n lies in [c * n + low, c * n + high) on an axis, with one c, low and high for all
        windows of an array. Where high - low <= abs(c), those of different iterations have no element in common.
        """
        if self.arrays is None or self.ranges.known.get(Loop(self.op).index) is None:
            return False
        return all(
            not any(window.is_write for window in array.windows)
            or any(self._are_apart_on(axis, array.windows) for axis in range(array.type.ndim))
            for array in self.arrays
        )

    def is_written(self, number: int) -> bool:
        """Return whether the loop writes every element of a carried array, and reads none.

        Exact: some window's starts are multiples of different indices, each of which counts from 0, so that the windows
        of all iterations together leave no gap. The loops between run at least once.
        """
        if self.arrays is None:
            return False
        array = self.arrays[number]
        return all(window.is_write for window in array.windows) and any(
            _covers(window, array.type) for window in array.windows
        )

    def _are_apart_on(self, axis: int, windows: Sequence[Window]) -> bool:
        index = Loop(self.op).index
        factors = {window.starts[axis].factors.get(index, 0) for window in windows}
        if len(factors) != 1 or factors == {0}:
            return False
        reaches = [self._range(window.starts[axis], without=index) for window in windows]
        low = smallest(*(reach[0] for reach in reaches))
        high = largest(*(reach[1] + window.sizes[axis] for reach, window in zip(reaches, windows, strict=True)))
        factor = factors.pop()
        return any(surely(lambda: high - low <= distance) for distance in (factor, -factor))  # noqa: B023

    # ---- where an array goes ----

    def _followed(self, op: Op, number: int, loops: tuple[Op, ...]) -> Windowed:
        """The uses of a loop's carried array, from its parameter to what the body yields."""
        loop = Loop(op)
        param = loop.carried[number]
        if not is_tensor(param):
            raise _Unknown
        array = Windowed(param.tensor, [param])
        versions = {param}
        for inner in structural_ops(loop.body):
            if inner.declared is FOR and versions & set(Loop(inner).body.end.operands):
                raise _Unknown
            for position, operand in enumerate(inner.operands):
                if operand in versions:
                    made = self._use(inner, position, array, loops)
                    if made is not None and inner not in loop.body.ops:
                        raise _Unknown  # what an iteration of a loop inside makes of it is that iteration's
                    versions |= {made} if made is not None else set()
        ends = loop.body.end.operands
        if [place for place, operand in enumerate(ends) if operand in versions] != [number]:
            raise _Unknown
        array.versions += [version for version in versions if version is not param]
        return array

    def _use(self, op: Op, position: int, array: Windowed, loops: tuple[Op, ...]) -> Value | None:
        """Note what an op does with the array, its operand at a position; returns the array that it makes of it."""
        if op.declared is prims.DYNAMIC_SLICE and position == 0:
            array.windows.append(self._window(op, {}, False, loops))
            return None
        if op.declared is FOR and position >= len(Loop(op).bounds):
            number = position - len(Loop(op).bounds)
            inner = self._followed(op, number, (*loops, op))
            array.versions += inner.versions
            array.windows += inner.windows
            return Loop(op).final[number]
        if op.declared is KERNEL:
            return self._use_in_kernel(op, position, array, loops)
        raise _Unknown

    def _use_in_kernel(self, op: Op, position: int, array: Windowed, loops: tuple[Op, ...]) -> Value | None:
        (block,) = op.blocks
        given = dict(zip(block.params, op.operands, strict=True))
        made: Value | None = None
        for inner in block.ops:
            for place, operand in enumerate(inner.operands):
                if operand is not block.params[position]:
                    continue
                is_write = inner.declared is prims.DYNAMIC_UPDATE
                if place or not (is_write or inner.declared is prims.DYNAMIC_SLICE) or (is_write and made is not None):
                    raise _Unknown
                array.windows.append(self._window(inner, given, is_write, loops))
                if is_write:
                    results = [number for number, value in enumerate(block.end.operands) if value is inner.result]
                    used = any(inner.result in other.operands for other in block.ops)
                    if len(results) != 1 or used:
                        raise _Unknown
                    made = op.results[results[0]]
        if block.params[position] in block.end.operands:
            raise _Unknown
        return made

    # ---- numbers ----

    def _window(self, op: Op, given: Mapping[Value, Value], is_write: bool, loops: tuple[Op, ...]) -> Window:
        starts = op.operands[2:] if is_write else op.operands[1:]
        part = op.operands[1].tensor if is_write else op.result.tensor
        forms = tuple(self._form(start, given) for start in starts)
        return Window(forms, part.shape, is_write, loops)

    def _form(self, value: Value, given: Mapping[Value, Value]) -> Form:
        """A start of a window; `given` are the operands of the kernel that it is computed in."""
        found = self._linear(value, given)
        span = None if found is None else self._range(found)
        if found is not None and span is not None and fits((bounds_of(span[0])[0], bounds_of(span[1])[1]), i64):
            return found
        known = self._spread(given.get(value, value))
        if known is None:
            raise _Unknown
        return known

    def _linear(self, value: Value, given: Mapping[Value, Value]) -> Form | None:
        """Exact in unbounded integers; the caller tests whether the sum fits, so that no step has wrapped around."""
        value = given.get(value, value)
        number = constant_of(value)
        if number is not None:
            return Form({}, int(number), int(number))
        size = size_of(value)
        if isinstance(size, Size):
            return Form({}, size, size)
        if value.producer is None:
            return Form({value: 1}, 0, 0) if value in self.ranges.known else None
        op = value.producer
        if op.declared is prims.CAST and op.operands[0].tensor.dtype is i64 and value.tensor.dtype is i64:
            return self._linear(op.operands[0], given)
        if op.declared in (prims.ADD, prims.SUBTRACT, prims.MULTIPLY) and value.tensor.dtype is i64:
            left, right = (self._linear(operand, given) for operand in op.operands)
            if left is None or right is None:
                return self._spread(value)
            if op.declared is prims.ADD:
                return _sum(left, right)
            if op.declared is prims.SUBTRACT:
                return _sum(left, _times(right, -1))
            for one, other in ((left, right), (right, left)):
                if not one.factors and one.is_exact:
                    return _times(other, one.low)
        return self._spread(value)

    def _spread(self, value: Value) -> Form | None:
        known = self.ranges.of(value)
        return None if known is None else Form({}, *known)

    def _range(self, form: Form, without: Value | None = None) -> tuple[Extent, Extent]:
        """The range of a form, or of what is added to its term of the index `without`."""
        low, high = form.low, form.high
        for index, factor in form.factors.items():
            if index is not without:
                ends = [factor * end for end in self.ranges.known[index]]
                low, high = low + smallest(*ends), high + largest(*ends)
        return low, high


def _sum(left: Form, right: Form) -> Form:
    factors = {
        index: left.factors.get(index, 0) + right.factors.get(index, 0) for index in {**left.factors, **right.factors}
    }
    kept = {index: factor for index, factor in factors.items() if factor != 0}
    return Form(kept, left.low + right.low, left.high + right.high)


def _times(form: Form, number: Extent) -> Form:
    if number == 0:
        return Form({}, 0, 0)
    ends = form.low * number, form.high * number
    factors = {index: factor * number for index, factor in form.factors.items()}
    return Form(factors, smallest(*ends), largest(*ends))


def _covers(window: Window, type: TensorType) -> bool:
    """Return whether the windows of all iterations are the whole array."""
    trips = {Loop(op).index: _counted(op) for op in window.loops}
    may_be_none = {index for index, trip in trips.items() if not _is_positive(trip)}
    used: set[Value] = set()
    for form, size, extent in zip(window.starts, window.sizes, type.shape, strict=True):
        if not form.is_exact or form.low != 0 or len(form.factors) > 1:
            return False
        reached = size
        for index, factor in form.factors.items():
            trip = trips.get(index)
            if trip is None or index in used or not surely(lambda: 0 <= factor <= size):  # noqa: B023
                return False
            if index in may_be_none and factor != size:
                return False
            used.add(index)
            reached += (trip - 1) * factor
        if not surely(lambda: reached >= extent):  # noqa: B023
            return False
    return may_be_none <= used


def _is_positive(extent: Extent | None) -> bool:
    return extent is not None and surely(lambda: extent > 0)


def _counted(op: Op) -> Extent | None:
    """The iterations of a loop that counts up from 0, where they are known; None of any other."""
    start, _, step = map(constant_of, Loop(op).bounds)
    return trip_count(op) if (start, step) == (0, 1) else None


def _enter_indices(op: Op, ranges: Ranges) -> None:
    """Note the ranges of the indices of a loop and of those in it."""
    for each in (op, *structural_ops(Loop(op).body)):
        if each.declared is FOR:
            span = ranges.of_index(Loop(each).bounds)
            if span is not None:
                ranges.known[Loop(each).index] = span


def _is_plain(op: Op) -> bool:
    """Return whether a loop is a `for` on the host whose body is computation and further such loops, to the end."""
    if op.declared is not FOR:
        return False
    inside = list(structural_ops(Loop(op).body))
    loops = [op, *(each for each in inside if each.declared is FOR)]
    return all(not Loop(each).collecting and Loop(each).body.end.kind == "yield" for each in loops) and all(
        map(_is_computation, inside)
    )


def _is_computation(op: Op) -> bool:
    """Return whether an op makes values of values, on the host, and may not stop the program.

    Exact: sizes are the same in all iterations, since no dimension is set inside of the loop.
    """
    if op.effects or op.device != CPU or op.declared is prims.DIM:
        return False
    is_scalar = not any(map(is_tensor, (*op.operands, *op.results))) and not op.blocks
    return (
        op.declared in (FOR, KERNEL, CONTRACTION)
        or op.declared.kind != "structured"
        and (is_scalar or view_of(op.results[0]) is not None)
    )


def made_inside(op: Op) -> Iterable[Value]:
    """The arrays that a loop's body makes: results of its ops and parameters of its loops, without views."""
    yield from Loop(op).carried
    for inner in structural_ops(Loop(op).body):
        if inner.declared is FOR:
            yield from Loop(inner).carried
        yield from (result for result in inner.results if is_tensor(result) and view_of(result) is None)
