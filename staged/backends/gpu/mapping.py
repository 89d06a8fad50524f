"""The choice of a nest's loops that become threads.

A loop can be threads if each of its iterations writes elements of its own, reads nothing that another iteration writes,
and no total runs through it. Which loops surround it does not matter: where they stay loops, each thread runs them in
order.

    for i: for j: (index = indices[j]; for k: y[i, index, k] += x[i, j, k]) -> a thread for each (i, k), a loop over j

A nest whose statements are several independent loops (the pieces of a concatenation) becomes several `Part`s, which
share one launch: some of its blocks do one part, some the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from staged.ir.buffers import aligned
from staged.ir.declaration import reduction_by
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Begin,
    CallSupport,
    CheckIndex,
    Compute,
    Copy,
    Fold,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Nest,
    PositionOf,
    Reduction,
    Statement,
    Store,
    StorePair,
    Take,
    Tile,
    identity,
    map_indices,
    walk,
)
from staged.ir.sizes import Extent, at_bounds, bounds_of
from staged.ir.types import bound

Access = Load | LoadPair | Store | StorePair


@dataclass(frozen=True, slots=True)
class Part:
    """Independent items, one for each combination of values of `axes`, and what is done for one of them."""

    axes: tuple[Axis, ...]
    body: tuple[Statement, ...]
    scratch: tuple[ArrayRef, ...]

    @property
    def items(self) -> int:
        """The number of items; 0 without work."""
        return prod(axis.extent for axis in self.axes) if self.body else 0

    @property
    def workspace_bytes(self) -> int:
        """Workspace of one item, each array in whole cache lines."""
        return sum(aligned(array.nbytes) for array in self.scratch)


@dataclass(frozen=True, slots=True)
class Spread:
    """A nest for a GPU: whole arrays to copy first, then parts that run side by side."""

    copies: tuple[Copy, ...]
    parts: tuple[Part, ...]


def map_nest(nest: Nest) -> Spread:
    """The distribution of a nest over threads.

    Exact: only loops whose iterations write elements of their own, read none that another writes, and carry no total
    become threads.
    """
    copies = tuple(s for s in nest.body if isinstance(s, Copy))
    body = without_single_iterations(tuple(s for s in nest.body if not isinstance(s, Copy)))
    body, scratch = without_unread_rows(body, nest.scratch)
    trusted = next((s.axis for s in body if isinstance(s, Loop | Tile)), None) if nest.items != 1 else None
    extents: dict[Local, int] = {source: 1 for source in nest.inputs if isinstance(source, Local)}
    extents |= {s.target: bound(s.extent) for s in walk(body) if isinstance(s, CheckIndex)}
    given = frozenset(source for source in nest.inputs if isinstance(source, Local))
    return Spread(copies, tuple(_Parts(trusted, extents, given).of((), body, scratch)))


class _Parts:
    """Takes a nest apart. `trusted`: the axis whose iterations the nest calls independent; `extents`: of the locals in
    indices, of which all items have the `given` ones in common.
    """

    def __init__(self, trusted: Axis | None, extents: Mapping[Local, int], given: frozenset[Local]) -> None:
        self.trusted = trusted
        self.extents = extents
        self.given = given

    def of(self, axes: tuple[Axis, ...], body: tuple[Statement, ...], scratch: tuple[ArrayRef, ...]) -> Iterator[Part]:
        """The parts of what is done for one combination of values of `axes`."""
        while (axis := self.next_axis(body, axes)) is not None:
            axes = (*axes, axis)
            body, scratch = dissolve(body, axis, scratch)
        pieces = [] if scratch else _independent_pieces(body)
        if len(pieces) < 2:
            body, scratch = totals_as_reductions(body, scratch)
            yield Part(axes, body, scratch)
            return
        for piece in pieces:
            yield from self.of(axes, piece, ())

    def next_axis(self, body: tuple[Statement, ...], chosen: tuple[Axis, ...]) -> Axis | None:
        """The outermost axis whose iterations can be threads, given those that are already."""
        for axis in dict.fromkeys(s.axis for s in walk(body) if isinstance(s, Loop | Tile)):
            if axis.extent > 1 and _holds_all_effects(body, axis) and self.has_own_elements(body, chosen, axis):
                return axis
        return None

    def has_own_elements(self, body: tuple[Statement, ...], chosen: tuple[Axis, ...], axis: Axis) -> bool:
        """Return whether each iteration of the axis (with each of those chosen before) touches elements that no other
        iteration writes.
        """
        for array, accesses in _accesses_of_written(body).items():
            if array.role == "scratch":
                # One thread's own. What lives from one loop over the axis to the next must be an element of the
                # iteration.
                own = [s.index.moves(axis) for s in accesses]
                if not all(own) and (any(own) or _instances(body, axis) > 1):
                    return False
            elif axis is not self.trusted and not self.are_apart(accesses, (*chosen, axis)):
                return False
        return True

    def are_apart(self, accesses: Sequence[Access], axes: Sequence[Axis]) -> bool:
        """Return whether two items that differ in `axes` never touch one element.

        Like the digits of a number: in rising order of strides, each axis steps over all that the smaller ones can
        reach.
        """
        indices = list(dict.fromkeys(s.index for s in accesses))
        shared: list[Axis | Local] = [
            *axes,
            *(name for index in indices for name, _ in index.terms if name in self.given),
        ]
        if len({tuple(index.stride(name) for name in shared) for index in indices}) > 1:
            return False
        width = 2 if any(isinstance(s, LoadPair | StorePair) for s in accesses) else 1
        for index in indices:
            terms = [(name, stride) for name, stride in index.terms if name not in self.given]
            reaches = [(name, stride, self.reach(name, stride)) for name, stride in terms]
            if any(index.stride(axis) == 0 for axis in axes) or any(reach is None for _, _, reach in reaches):
                return False
            met = False
            span: Extent = width - 1
            for name, stride, reach in sorted(reaches, key=lambda term: abs(at_bounds(term[1]))):
                met = met or name in axes and name is not self.trusted
                if met and bounds_of(_magnitude(stride) - span)[0] <= 0:
                    return False
                span = span + _magnitude(0 if reach is None else reach)
            if len(indices) > 1:
                rest = [reach for name, _, reach in reaches if name not in axes and reach is not None]
                ends = [bounds_of(reach) for reach in (index.offset, *rest)]
                low, high = (
                    ends[0][0] + sum(min(end, 0) for end, _ in ends[1:]),
                    ends[0][1] + sum(max(end, 0) for _, end in ends[1:]),
                )
                if (
                    not 0
                    <= low
                    <= high + width - 1
                    < min(bounds_of(_magnitude(index.stride(axis)))[0] for axis in axes)
                ):
                    return False
        return True

    def reach(self, name: Axis | Local, stride: Extent) -> Extent | None:
        """The largest value of one term of an index; None if it is not known."""
        extent = name.size if isinstance(name, Axis) else self.extents.get(name)
        if extent is None:
            return None
        return stride * ((max(extent, 1) if isinstance(extent, int) else extent) - 1)


def _holds_all_effects(body: tuple[Statement, ...], axis: Axis) -> bool:
    """Return whether all that is written, or summed, is so inside loops over `axis`,
    and no total runs through these."""
    written = {s.array for s in walk(body) if isinstance(s, Store | StorePair)}

    def visit(statements: Sequence[Statement], inside: bool, started: frozenset[Reduction | Fold]) -> bool:
        for s in statements:
            match s:
                case Loop(over, inner, reductions):
                    if over is axis and reductions:
                        return False
                    within = inside or over is axis
                    # Totals from outside of the first loop over the axis would run through its iterations.
                    known = frozenset() if over is axis and not inside else started | frozenset(reductions)
                    if not visit(inner, within, known):
                        return False
                case Tile(over, _, inner):
                    if not visit(inner, inside or over is axis, started):
                        return False
                case Guarded(_, inner):
                    if not visit(inner, inside, started):
                        return False
                case Store() | StorePair() | CallSupport() | Copy():
                    if not inside:
                        return False
                case Load(array=array) | LoadPair(array=array):
                    if not inside and array in written:
                        return False
                case Begin(fold):
                    started |= {fold}
                case Accumulate(total) | Take(total):
                    if not inside or total not in started:
                        return False
        return True

    return visit(body, False, frozenset())


def _accesses_of_written(body: tuple[Statement, ...]) -> dict[ArrayRef, list[Access]]:
    """For each array that is written, all that reads or writes it."""
    found: dict[ArrayRef, list[Access]] = {}
    written = {s.array for s in walk(body) if isinstance(s, Store | StorePair)}
    for s in walk(body):
        if isinstance(s, Access) and s.array in written:
            found.setdefault(s.array, []).append(s)
    return found


def _instances(body: Sequence[Statement], axis: Axis) -> int:
    """The number of consecutive loops over an axis (loops inside its tiles are not counted again)."""
    count = 0
    for s in body:
        if isinstance(s, Loop | Tile) and s.axis is axis:
            count += 1
        elif isinstance(s, Loop | Tile | Guarded):
            count += _instances(s.body, axis)
    return count


# ---- the statements of one item -----------------------------------------------------------------


def without_single_iterations(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """`body` without the loops that have one iteration (and keep no totals): what is in them stands for itself."""
    gone = {s.axis for s in walk(body) if isinstance(s, Loop) and s.axis.size == 1}
    gone -= {s.axis for s in walk(body) if isinstance(s, Loop) and s.reductions}
    if not gone:
        return body

    return map_indices(
        tuple(unwrapped(body, gone, lambda s: s)),
        lambda i: Affine(tuple(term for term in i.terms if term[0] not in gone), i.offset),
    )


def without_unread_rows(
    body: tuple[Statement, ...], scratch: tuple[ArrayRef, ...]
) -> tuple[tuple[Statement, ...], tuple[ArrayRef, ...]]:
    """`body` without the stores to workspace that nothing reads: a row of equal numbers, which later loops have at
    hand.

    Exact: a store that nothing reads; loops of nothing else go with it, checks of indices stay.
    """
    read = {s.array for s in walk(body) if isinstance(s, Load | LoadPair)}
    read |= {a for s in walk(body) if isinstance(s, CallSupport) for a in s.arrays}
    kept = tuple(array for array in scratch if array in read)
    if len(kept) == len(scratch):
        return body, scratch

    def visit(statements: Sequence[Statement]) -> Iterator[Statement]:
        for s in statements:
            match s:
                case Loop(axis, inner, reductions):
                    left = tuple(visit(inner))
                    if left or reductions:
                        yield Loop(axis, left, reductions)
                case Tile(axis, size, inner):
                    if left := tuple(visit(inner)):
                        yield Tile(axis, size, left)
                case Guarded(bounds, inner):
                    if left := tuple(visit(inner)):
                        yield Guarded(bounds, left)
                case Store(array) if array.role == "scratch" and array not in read:
                    pass
                case _:
                    yield s

    return tuple(visit(body)), kept


def unwrapped(
    body: Sequence[Statement], gone: Collection[Axis], leaf: Callable[[Statement], Statement]
) -> Iterator[Statement]:
    """`body` without the loops over the axes that are `gone`, with `leaf` applied to what holds no statements."""
    for s in body:
        match s:
            case Loop(axis, inner) | Tile(axis, _, inner) if axis in gone:
                yield from unwrapped(inner, gone, leaf)
            case Loop(axis, inner, reductions):
                yield Loop(axis, tuple(unwrapped(inner, gone, leaf)), reductions)
            case Tile(axis, size, inner):
                yield Tile(axis, size, tuple(unwrapped(inner, gone, leaf)))
            case Guarded(bounds, inner):
                yield Guarded(bounds, tuple(unwrapped(inner, gone, leaf)))
            case _:
                yield leaf(s)


def _magnitude(stride: Extent) -> Extent:
    return -stride if at_bounds(stride) < 0 else stride


def dissolve(
    body: Sequence[Statement], axis: Axis, scratch: tuple[ArrayRef, ...]
) -> tuple[tuple[Statement, ...], tuple[ArrayRef, ...]]:
    """`body` for a single value of `axis`: its loops are gone, workspace rows along it are single numbers."""
    smaller: dict[ArrayRef, ArrayRef] = {}
    for s in walk(tuple(body)):
        if isinstance(s, Load | Store) and s.array.role == "scratch" and s.index.stride(axis):
            size = s.array.count - (axis.size - 1) * _magnitude(s.index.stride(axis))
            smaller[s.array] = ArrayRef(s.array.name, s.array.dtype, size, "scratch")

    def without(index: Affine) -> Affine:
        return Affine(tuple(term for term in index.terms if term[0] is not axis), index.offset)

    def shrunk(s: Statement) -> Statement:
        match s:
            case Load(target, array, index, guards, fill) if array in smaller:
                return Load(target, smaller[array], without(index), guards, fill)
            case Store(array, index, value) if array in smaller:
                return Store(smaller[array], without(index), value)
        return s

    return tuple(unwrapped(body, (axis,), shrunk)), tuple(smaller.get(array, array) for array in scratch)


def totals_as_reductions(
    body: tuple[Statement, ...], scratch: tuple[ArrayRef, ...]
) -> tuple[tuple[Statement, ...], tuple[ArrayRef, ...]]:
    """A total that waits in workspace of one element (store the start; loop: load, combine, store; load) -> a
    reduction.

    Why: a reduction can be shared by the threads of a block, and needs no memory.

    Exact: the workspace begins as the identity of the reduction, and is read once after the loop; a loop of no
    iterations gives the identity.
    """
    kept = []
    for array in scratch:
        changed = _total_as_reduction(body, array) if array.size == 1 else None
        if changed is None:
            kept.append(array)
        else:
            body = changed
    return body, tuple(kept)


def _total_as_reduction(body: tuple[Statement, ...], array: ArrayRef) -> tuple[Statement, ...] | None:
    uses = [n for n, s in enumerate(body) if any(isinstance(t, Load | Store) and t.array is array for t in walk((s,)))]
    if len(uses) != 3:
        return None
    first, loop, last = (body[n] for n in uses)
    if not (isinstance(first, Store) and isinstance(loop, Loop) and isinstance(last, Load)):
        return None
    inner = [s for s in walk(loop.body) if not isinstance(s, Loop)]
    before = next((s for s in inner if isinstance(s, Load) and s.array is array), None)
    after = next((s for s in inner if isinstance(s, Store) and s.array is array), None)
    if before is None or after is None:
        return None
    combine = next((s for s in inner if isinstance(s, Compute) and s.target is after.value), None)
    if combine is None or combine.operands[0] is not before.target:
        return None
    op = reduction_by(combine.op)
    if op is None:
        return None
    reduction = Reduction(last.target, op)
    if identity(reduction.op, array.dtype) != first.value:
        return None

    def visit(statements: Sequence[Statement]) -> Iterator[Statement]:
        for s in statements:
            if isinstance(s, Loop):
                yield Loop(s.axis, tuple(visit(s.body)), s.reductions)
            elif s is combine:
                yield Accumulate(reduction, combine.operands[1])
            elif s is not before and s is not after:
                yield s

    summed = Loop(loop.axis, tuple(visit(loop.body)), (*loop.reductions, reduction))
    return tuple(summed if n == uses[1] else s for n, s in enumerate(body) if n not in (uses[0], uses[2]))


def _independent_pieces(body: tuple[Statement, ...]) -> list[tuple[Statement, ...]]:
    """The loops of a body apart, each with the numbers that it needs, where no order between them matters."""
    shared = [s for s in body if _is_repeatable(s)]
    loops = [s for s in body if not _is_repeatable(s)]
    if len(loops) < 2 or not all(isinstance(s, Loop) and not s.reductions for s in loops):
        return []
    writes = [{t.array: t for t in walk((s,)) if isinstance(t, Store)} for s in loops]
    reads = [{t.array for t in walk((s,)) if isinstance(t, Load | LoadPair)} for s in loops]
    if any(isinstance(t, StorePair | CallSupport | Copy) for s in loops for t in walk((s,))):
        return []
    for n, mine in enumerate(writes):
        if any(not reads[m].isdisjoint(mine) for m in range(len(loops)) if m != n):
            return []
        for m in range(n):
            if any(not _never_meet(store, writes[m][array]) for array, store in mine.items() if array in writes[m]):
                return []
    return [(*shared, loop) for loop in loops]


def _is_repeatable(s: Statement) -> bool:
    """Return whether every thread may do it for itself: it reads what the kernel does not write, or computes."""
    return isinstance(s, Load) and s.array.role == "input" or isinstance(s, Compute | PositionOf | CheckIndex)


def _never_meet(one: Store, other: Store) -> bool:
    """Return whether two stores reach different elements: alike in what they share, apart in the rest."""
    shared = [term for term in one.index.terms if term in other.index.terms]
    ranges = []
    for index in (one.index, other.index):
        rest = [term for term in index.terms if term not in shared]
        if not all(isinstance(name, Axis) for name, _ in rest):
            return False
        reaches = [bounds_of(stride * (name.size - 1)) for name, stride in rest if isinstance(name, Axis)]
        first, last = bounds_of(index.offset)
        ranges.append((first + sum(min(low, 0) for low, _ in reaches), last + sum(max(high, 0) for _, high in reaches)))
    (low, high), (low_2, high_2) = ranges
    apart = high < low_2 or high_2 < low
    steps = [bounds_of(_magnitude(stride))[0] for _, stride in shared]
    return apart and max(high, high_2) - min(low, low_2) < min(steps, default=1 << 62)
