"""The loop-nest IR: what one kernel does, as a tree of loops over single-assignment statements on scalars.

A `Nest` has arrays (parameters and scratch), scalar parameters and a body. Statements make `Local`s or write arrays;
indices are affine in loop axes and integer locals, counted in elements. How the tree runs (which loop becomes vectors,
which is cut into pieces for threads) is not in it: that is a `Schedule` (`ir/schedule.py`), a list of directives of its
own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from staged.ir.declaration import Declaration
from staged.ir.numbers import initial_value
from staged.ir.sizes import Dim, Extent, Size, at_bounds, largest, smallest, value_of
from staged.ir.sizes import dims_in as dims_of_size
from staged.ir.types import DType, bound, i64
from staged.source import Position


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A loop variable over [0, size), of a size that is a number or is known when the program runs."""

    name: str
    size: Extent
    word: str = ""
    """Its name in generated text, where that is another one."""

    @property
    def extent(self) -> int:
        """The size; of one that is known when the program runs the bound, for which memory has room."""
        return bound(self.size)

    @property
    def is_static(self) -> bool:
        """Return whether the size is a number."""
        return isinstance(self.size, int)

    def __repr__(self) -> str:
        return f"{self.name}<{self.size}>"


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A scalar made once by a statement (or a scalar parameter of the kernel)."""

    name: str
    dtype: DType
    is_part: bool = False
    """True if the expression that uses it may contain it: the user did not name it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number known while staging."""

    value: bool | int | float
    dtype: DType


Operand = Local | Constant


@dataclass(frozen=True, slots=True)
class Affine:
    """offset + sum of coefficient * axis (or integer local)."""

    terms: tuple[tuple[Axis | Local, Extent], ...] = ()
    offset: Extent = 0

    @staticmethod
    def of(axis: Axis | Local, stride: Extent = 1) -> Affine:
        return Affine(((axis, stride),)) if stride != 0 else Affine()

    def __add__(self, other: Affine | Extent) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.terms, self.offset + other)
        terms = dict(self.terms)
        for name, stride in other.terms:
            terms[name] = terms.get(name, 0) + stride
        return Affine(tuple((n, s) for n, s in terms.items() if s != 0), self.offset + other.offset)

    def __mul__(self, factor: Extent) -> Affine:
        if factor == 0:
            return Affine()
        return Affine(tuple((n, s * factor) for n, s in self.terms), self.offset * factor)

    def stride(self, axis: Axis | Local) -> Extent:
        return next((s for n, s in self.terms if n is axis), 0)

    def moves(self, axis: Axis | Local) -> bool:
        """Return whether it depends on an axis."""
        return any(name is axis for name, _ in self.terms)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(n for n, _ in self.terms if isinstance(n, Axis))

    @property
    def sizes(self) -> tuple[Extent, ...]:
        """The numbers in it: offset and coefficients."""
        return (self.offset, *(stride for _, stride in self.terms))

    def evaluate(self, values: Mapping[Any, int]) -> int:
        """The number for given values of axes and dimensions (tests)."""
        at = sum(values[n] * value_of(stride, values) for n, stride in self.terms)
        return at + value_of(self.offset, values)


ArrayRole = Literal["input", "output", "scratch", "registers"]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayRef:
    """An array the kernel reads or writes.

    Of 'scratch' each thread has its own `size` elements. 'registers' is the same, but small: in registers if all places
    in it are known while compiling.

    `count` is the number of its elements.
    """

    name: str
    dtype: DType
    count: Extent
    role: ArrayRole

    @property
    def size(self) -> int:
        """The number of elements that it has room for."""
        return bound(self.count)

    @property
    def is_workspace(self) -> bool:
        """Return whether each thread has such an array."""
        return self.role == "scratch" or self.role == "registers"

    @property
    def nbytes(self) -> int:
        """Bytes of the room that it has."""
        return self.size * self.dtype.size


@dataclass(frozen=True, slots=True)
class Bound:
    """`0 <= index < extent`."""

    index: Affine
    extent: Extent


# ---- statements ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """target = array[index]; where a guard fails, `fill` instead, and nothing is read."""

    target: Local
    array: ArrayRef
    index: Affine
    guards: tuple[Bound, ...] = ()
    fill: Constant | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """target = op(operands), an elementwise op of the language on scalars."""

    target: Local
    op: Declaration
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    where: Position | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PositionOf:
    """target = index, as a number."""

    target: Local
    index: Affine


@dataclass(frozen=True, slots=True, eq=False)
class CheckIndex:
    """target = index wrapped from [-extent, extent) to [0, extent); the program stops if it is out of range.

    `meaning` is a key of `OUT_OF_RANGE`, the message; only an "index" wraps.
    """

    target: Local
    index: Operand
    extent: Extent
    where: Position | None = None
    meaning: str = "index"


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """array[index] = value; if `atomic`, array[index] += value in one step,
    which other threads may do meanwhile too."""

    array: ArrayRef
    index: Affine
    value: Operand
    atomic: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A running total that a loop keeps: op is a reduction of the language; `target` is its result after the loop."""

    target: Local
    op: Declaration

    @property
    def combine(self) -> Declaration:
        """The elementwise op that combines one more value with the total."""
        assert self.op.combine is not None, f"{self.op.name} combines elements"
        return self.op.combine


@dataclass(frozen=True, slots=True, eq=False)
class Accumulate:
    """Take one more value into a reduction; `position` is its index, for argmax and argmin."""

    reduction: Reduction
    value: Operand
    position: Affine | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """The merge of two states: `body` computes `results` of the locals `left` and `right`."""

    left: tuple[Local, ...]
    right: tuple[Local, ...]
    body: tuple[Compute, ...]
    results: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """A reduction to several values at once, such as a running maximum and a sum that is relative to it.

    `state` are its values so far, and after the loops that take in states the result; merging with `starts` changes
    nothing.
    """

    state: tuple[Local, ...]
    starts: tuple[Constant, ...]
    merge: Merge


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """The state of a fold starts, for what follows in the same body."""

    fold: Fold


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """A fold takes in the state `values`: the locals of its merge are those of this merging from here on."""

    fold: Fold
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """For each value of `axis` in its range, the body; `reductions` start before it and end after it.

    Inside a `Tile` of the same axis the range is the tile's.
    """

    axis: Axis
    body: tuple[Statement, ...]
    reductions: tuple[Reduction, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """For each piece of at most `size` of the range of `axis`, the body; loops over `axis` inside run over the piece.

    Tiles of smaller pieces may be nested. `reductions` start before the first piece and end after the last.
    """

    axis: Axis
    size: int
    body: tuple[Statement, ...]
    reductions: tuple[Reduction, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LoadPair:
    """first, second = array[index], array[index + 1]; `index` advances by 2 along the vectorised axis."""

    first: Local
    second: Local
    array: ArrayRef
    index: Affine


@dataclass(frozen=True, slots=True, eq=False)
class StorePair:
    """array[index], array[index + 1] = first, second; `index` advances by 2 along the vectorised axis."""

    array: ArrayRef
    index: Affine
    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """The body, where all bounds hold."""

    bounds: tuple[Bound, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """All of `target` from `source`, unless they are one buffer; None: zeros."""

    target: ArrayRef
    source: ArrayRef | None


@dataclass(frozen=True, slots=True)
class Address:
    """The place of an element in memory: `array + index`."""

    array: ArrayRef
    index: Affine


@dataclass(frozen=True, slots=True, eq=False)
class CallSupport:
    """A call of a support function (`snippet` names it); an argument may be a size that the program finds, or no array.

    `nanoseconds` is a rough estimate of its time.
    """

    function: str
    snippet: str
    arguments: tuple[ArrayRef | Address | Operand | Size | None, ...]
    nanoseconds: float = 1.0

    @staticmethod
    def size(extent: Extent) -> Constant | Size:
        """A size as an argument."""
        return extent if isinstance(extent, Size) else Constant(extent, i64)

    @property
    def arrays(self) -> tuple[ArrayRef, ...]:
        """The arrays that it may read or write."""
        given = (each.array if isinstance(each, Address) else each for each in self.arguments)
        return tuple(each for each in given if isinstance(each, ArrayRef))


Statement = (
    Load
    | LoadPair
    | Compute
    | PositionOf
    | CheckIndex
    | Store
    | StorePair
    | Accumulate
    | Begin
    | Take
    | Loop
    | Tile
    | Guarded
    | Copy
    | CallSupport
)


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """One kernel."""

    name: str
    inputs: tuple[ArrayRef | Local, ...]
    """One per operand of the kernel op, in order: an array, or a scalar by value."""
    outputs: tuple[ArrayRef, ...]
    scratch: tuple[ArrayRef, ...]
    body: tuple[Statement, ...]
    items: int
    """Extent of the outermost loop if its iterations are independent; 1 if the kernel runs as one piece."""
    in_place: tuple[tuple[int, int], ...] = ()
    """(output, input) pairs that may share a buffer: every element is read before it is written."""
    counts: Mapping[Dim, Local] = field(default_factory=dict)
    """The inputs that hold the sizes of dimensions."""

    def __repr__(self) -> str:
        return f"<nest {self.name}>"


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement, a loop before its body."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | Tile | Guarded):
            yield from walk(statement.body)


def indices_of(statement: Statement) -> Iterator[Affine]:
    """Every index expression of one statement (not of its body)."""
    match statement:
        case Load(index=index, guards=guards):
            yield index
            for guard in guards:
                yield guard.index
        case Store(index=index) | PositionOf(index=index) | LoadPair(index=index) | StorePair(index=index):
            yield index
        case Accumulate(position=Affine() as position):
            yield position
        case Guarded(bounds):
            for bound in bounds:
                yield bound.index
        case CallSupport(_, _, arguments):
            for argument in arguments:
                if isinstance(argument, Address):
                    yield argument.index


def map_indices(body: tuple[Statement, ...], change: Callable[[Affine], Affine]) -> tuple[Statement, ...]:
    """The same tree with every index expression changed."""
    out: list[Statement] = []
    for s in body:
        match s:
            case Load(target, array, index, guards, fill):
                bounds = tuple(Bound(change(g.index), g.extent) for g in guards)
                out.append(Load(target, array, change(index), bounds, fill))
            case Store(array, index, value, atomic):
                out.append(Store(array, change(index), value, atomic))
            case PositionOf(target, index):
                out.append(PositionOf(target, change(index)))
            case LoadPair(first, second, array, index):
                out.append(LoadPair(first, second, array, change(index)))
            case StorePair(array, index, one, two):
                out.append(StorePair(array, change(index), one, two))
            case Accumulate(reduction, value, position):
                out.append(Accumulate(reduction, value, None if position is None else change(position)))
            case Loop(axis, inner, reductions):
                out.append(Loop(axis, map_indices(inner, change), reductions))
            case Tile(axis, size, inner, reductions):
                out.append(Tile(axis, size, map_indices(inner, change), reductions))
            case Guarded(bounds, inner):
                changed = tuple(Bound(change(b.index), b.extent) for b in bounds)
                out.append(Guarded(changed, map_indices(inner, change)))
            case CallSupport(function, snippet, arguments, cost):
                given = (Address(a.array, change(a.index)) if isinstance(a, Address) else a for a in arguments)
                out.append(CallSupport(function, snippet, tuple(given), cost))
            case _:
                out.append(s)
    return tuple(out)


def dims_in(body: tuple[Statement, ...]) -> tuple[Dim, ...]:
    """The dimensions whose sizes a tree's loops, indices, checks and copies use, in order."""
    found: dict[Dim, None] = {}
    for s in walk(body):
        sizes: list[Extent] = [size for index in indices_of(s) for size in index.sizes]
        match s:
            case Loop(axis) | Tile(axis):
                sizes.append(axis.size)
            case CheckIndex(extent=extent):
                sizes.append(extent)
            case Copy(target):
                sizes.append(target.count)
            case CallSupport(_, _, arguments):
                sizes += [argument for argument in arguments if isinstance(argument, Size)]
            case Load(guards=bounds) | Guarded(bounds):
                sizes += [each.extent for each in bounds]
        found.update(dict.fromkeys(dim for size in sizes for dim in dims_of_size(size)))
    return tuple(found)


def forwards(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """An axis that is walked backwards, by every index or by every one that has another axis, is walked from its other
    end.

    Why: it reads better, more loops collapse, and gcc 12 at -O2 and -O3 adds up wrong elements where short rows are
    summed backwards inside another loop (`s += x[3 * i + 2 - j]`; its loop vectoriser).
    """
    statements = list(walk(body))
    if any(isinstance(s, Copy | CallSupport) for s in statements):
        return body
    kept = {s.axis for s in statements if isinstance(s, Tile)}
    strides: dict[Axis, list[tuple[bool, int]]] = {}
    for s in statements:
        if isinstance(s, Accumulate) and s.position is not None:
            kept.update(s.position.axes)  # of equals the first counts
        for index in indices_of(s):
            for axis in index.axes:
                strides.setdefault(axis, []).append((len(index.axes) > 1, at_bounds(index.stride(axis))))
    turned = set()
    for axis, found in strides.items():
        deciding = [stride for nested, stride in found if nested] or [stride for _, stride in found]
        if max(deciding) < 0 and axis.is_static and axis not in kept:
            turned.add(axis)

    def change(index: Affine) -> Affine:
        last = sum(
            stride * (name.extent - 1) for name, stride in index.terms if isinstance(name, Axis) and name in turned
        )
        return Affine(
            tuple((name, -stride if name in turned else stride) for name, stride in index.terms), index.offset + last
        )

    return map_indices(body, change) if turned else body


def collapse(body: tuple[Statement, ...], merged: dict[tuple[Axis, Axis], Axis] | None = None) -> tuple[Statement, ...]:
    """Merge perfectly nested loops where every index walks both without a jump.

    Why: one long loop has one tail, no inner start-up cost and no index arithmetic. Loops over the same two axes become
    loops over the same one (`merged`), so that a GPU thread can take its iteration of all of them.
    """
    known = {} if merged is None else merged

    def inside(s: Statement) -> Statement:
        if isinstance(s, Tile):
            return Tile(s.axis, s.size, collapse(s.body, known), s.reductions)
        return _collapse_loop(Loop(s.axis, collapse(s.body, known), s.reductions), known) if isinstance(s, Loop) else s

    return tuple(map(inside, body))


def _collapse_loop(loop: Loop, known: dict[tuple[Axis, Axis], Axis]) -> Loop:
    if len(loop.body) != 1 or not isinstance(loop.body[0], Loop):
        return loop
    inner = loop.body[0]
    if inner.reductions:
        return loop
    outer_axis, inner_axis = loop.axis, inner.axis
    inside = (index for s in walk(inner.body) for index in indices_of(s))
    if any(index.stride(outer_axis) != index.stride(inner_axis) * inner_axis.size for index in inside):
        return loop
    if any(isinstance(s, Loop | Tile) and s.axis in (outer_axis, inner_axis) for s in walk(inner.body)):
        return loop
    if (outer_axis, inner_axis) not in known:
        known[outer_axis, inner_axis] = Axis(inner_axis.name, outer_axis.size * inner_axis.size)
    merged = known[outer_axis, inner_axis]

    def change(index: Affine) -> Affine:
        stride = index.stride(inner_axis)
        rest = tuple(t for t in index.terms if t[0] is not outer_axis and t[0] is not inner_axis)
        return Affine((*rest, (merged, stride)) if stride != 0 else rest, index.offset)

    return Loop(merged, map_indices(inner.body, change), loop.reductions)


def identity(op: Declaration, dtype: DType) -> Constant:
    """Return the initial value of a reduction."""
    return Constant(initial_value(op, dtype), dtype)


MAX_SEGMENTS = 8
Segment = tuple[Extent, Extent]


def segments(loop: Loop) -> tuple[Segment, ...]:
    """The pieces of a loop's range in which each guard of its loads on the loop's axis holds throughout, or nowhere.

    One piece where no guard depends on the axis; none where one depends on more than the axis, where two differ in
    sizes that the program finds, or where there would be more than MAX_SEGMENTS.
    """
    axis = loop.axis
    inside: dict[Segment, None] = {}
    for s in walk(loop.body):
        for guard in s.guards if isinstance(s, Load) else ():
            if guard.index.moves(axis):
                if guard.index.terms != ((axis, 1),):
                    return ()
                inside[guarded_part(guard, axis)] = None
    cuts = dict.fromkeys([0, *itertools.chain(*inside), axis.size])
    if all(isinstance(cut, int) for cut in cuts):
        ends = sorted(map(at_bounds, cuts))
        return tuple(itertools.pairwise(ends)) if len(ends) - 1 <= MAX_SEGMENTS else ()
    return tuple(itertools.pairwise(cuts)) if len(inside) == 1 else ((0, axis.size),) if not inside else ()


def guarded_part(guard: Bound, axis: Axis) -> Segment:
    """The piece of an axis, of which alone it depends, in which a guard holds."""
    first = -guard.index.offset
    end = first + guard.extent
    return smallest(largest(first, 0), axis.size), smallest(largest(end, 0), axis.size)
