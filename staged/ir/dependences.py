"""Dependences in a nest: which statements read or write which data, and which may therefore move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Bound,
    CheckIndex,
    Compute,
    Constant,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Operand,
    PositionOf,
    Statement,
    Store,
    StorePair,
    Take,
    Tile,
    walk,
)
from staged.ir.sizes import Extent, at_bounds, bounds_of, exact_quotient
from staged.ir.types import DType

Body = tuple[Statement, ...]


def is_independent(loop: Loop) -> bool:
    """Return whether the iterations of a loop may run in any order, and side by side: each writes elements that no
    other touches.
    """
    if loop.reductions or any(isinstance(s, Store) and s.atomic or not is_movable(s) for s in walk(loop.body)):
        return False
    places: dict[ArrayRef, list[Affine]] = {}
    for array, index in written(loop.body):
        if array.role == "output":
            places[array] = [index, *accesses(loop.body, array)]
    return all(_are_apart(loop, found) for found in places.values())


def are_independent(loops: Sequence[Loop]) -> bool:
    """Return whether the iterations of loops after one another may run in any order, those of different loops too."""
    if not all(map(is_independent, loops)):
        return False
    for array in {array for array, _ in written(tuple(loops))}:
        found = [[(index, bounds_around((loop,), index)) for index in accesses((loop,), array)] for loop in loops]
        found = [each for each in found if each]
        if len(found) > 1 and array.role != "output":
            return False
        for one, other in combinations(found, 2):
            if not all(_never_meet(*first, *second) for first in one for second in other):
                return False
    return True


def _never_meet(one: Affine, inside: Sequence[Bound], other: Affine, within: Sequence[Bound]) -> bool:
    """Return whether two indices are never the same place."""
    for row in _row_lengths((one, other)):
        first, second = _reach(_column(one, row), inside), _reach(_column(other, row), within)
        if first is None or second is None:
            continue
        (low, high), (least, most) = sorted((first, second))
        if high < least and (not row or 0 <= low and most < row):
            return True
    return False


def _row_lengths(indices: Sequence[Affine]) -> Iterator[int]:
    """The lengths that rows of an array may have; 0 for all of it as one row."""
    yield from {
        0: None,
        **{step: None for index in indices for _, step in index.terms if isinstance(step, int) and step > 1},
    }


def _column(index: Affine, row: int) -> Affine:
    """An index without what goes from row to row.

    Exact: where it is between 0 and a row's length, indices with different columns are different.
    """
    if not row:
        return index
    return Affine(tuple(term for term in index.terms if term[1] % row), index.offset % row)


def _reach(index: Affine, bounds: Sequence[Bound]) -> tuple[int, int] | None:
    """The smallest and the largest place; None where these depend on data or on sizes that are not known."""
    terms = terms_of(index, bounds)
    if terms is None:
        return None
    low = high = index.offset
    for step, extent in terms:
        if not isinstance(step, int) or not isinstance(extent, int):
            return None
        reach = step * (extent - 1)
        low, high = (low + reach, high) if step < 0 else (low, high + reach)
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _are_apart(loop: Loop, indices: Sequence[Affine]) -> bool:
    """Return whether the elements at some indices are others in each iteration of a loop."""
    axis, first = loop.axis, indices[0]
    step = first.stride(axis)
    if step == 0:
        return False
    if all(same(first, index) for index in indices) and is_injective(first, bounds_around(loop.body, first)):
        return True
    if not isinstance(step, int) or any(index.stride(axis) != step for index in indices):
        return False
    bounds = [bounds_around(loop.body, index) for index in indices]
    for row in _row_lengths(indices):
        columns = [_column(index, row) for index in indices]
        if columns[0].stride(axis) != step:
            continue
        others = [Affine(tuple(term for term in index.terms if term[0] is not axis), index.offset) for index in columns]
        fixed, whole = (
            [reach for each in zip(found, bounds, strict=True) if (reach := _reach(*each)) is not None]
            for found in (others, columns)
        )
        if len(fixed) < len(indices) or row and any(low < 0 or high >= row for low, high in whole):
            continue
        if max(high for _, high in fixed) - min(low for low, _ in fixed) < abs(step):
            return True
    return False


def zero(dtype: DType) -> Constant:
    """The value that fills an array without elements."""
    return Constant(dtype.numpy.type(0).item(), dtype)


def guarded_loads(body: Body, bounds: tuple[Bound, ...] = ()) -> Iterator[tuple[Load, tuple[Bound, ...]]]:
    """Every load, with the bounds of the statements around it."""
    for s in body:
        match s:
            case Load():
                yield s, bounds
            case Guarded(more, inner):
                yield from guarded_loads(inner, (*bounds, *more))
            case Loop(_, inner) | Tile(_, _, inner):
                yield from guarded_loads(inner, bounds)


def is_pure(s: Statement) -> bool:
    return isinstance(s, Compute) and (s.op.kind == "random" or cannot_stop(s))


def cannot_stop(s: Compute) -> bool:
    """Return whether an op has a result for all operands: no integer division by zero, no negative power, no number
    that may not fit.
    """
    return s.target.dtype.is_float or s.op not in (prims.FLOOR_DIVIDE, prims.REMAINDER, prims.POW, prims.FIT)


def is_movable(s: Statement) -> bool:
    """Return whether only reads and writes restrict where a statement may move."""
    return isinstance(
        s, Load | LoadPair | Store | StorePair | Accumulate | PositionOf | Loop | Tile | Guarded
    ) or is_pure(s)


def written(body: Sequence[Statement]) -> Iterator[tuple[ArrayRef, Affine]]:
    for s in walk(tuple(body)):
        if isinstance(s, Store | StorePair):
            yield s.array, s.index


def accesses(body: Body, array: ArrayRef) -> Iterator[Affine]:
    for s in walk(body):
        if isinstance(s, Store | StorePair | Load | LoadPair) and s.array is array:
            yield s.index


def bounds_around(body: Body, index: Affine) -> tuple[Bound, ...]:
    """The bounds around the store to an index."""
    for s in body:
        if isinstance(s, Store | StorePair) and s.index is index:
            return ()
        if isinstance(s, Loop | Tile | Guarded) and any(at is index for _, at in written(s.body)):
            return (*(s.bounds if isinstance(s, Guarded) else ()), *bounds_around(s.body, index))
    return ()


def is_injective(index: Affine, bounds: Sequence[Bound]) -> bool:
    """Return whether different iterations are at different places: each stride is longer than all that the smaller ones
    reach.
    """
    terms = terms_of(index, bounds)
    if terms is None:
        return False
    reach: Extent = 0
    lengths = [(-step if at_bounds(step) < 0 else step, extent) for step, extent in terms]
    for step, extent in sorted(lengths, key=lambda term: (at_bounds(term[0]), at_bounds(term[1]))):
        if extent != 1 and bounds_of(step - reach)[0] <= 0:
            return False
        reach = reach + step * (extent - 1)
    return True


def terms_of(index: Affine, bounds: Sequence[Bound]) -> list[tuple[Extent, Extent]] | None:
    """(stride, extent) of each term of an index, limited by `bounds`; None if it depends on data."""
    terms: list[tuple[Extent, Extent]] = []
    left = dict(index.terms)
    for bound in bounds:
        ratios = {exact_quotient(left.get(n, 0), step) for n, step in bound.index.terms}
        ratio = ratios.pop() if len(ratios) == 1 else None
        if ratio is not None and ratio != 0 and bound.index.offset == 0:
            terms.append((ratio, bound.extent))
            for n, _ in bound.index.terms:
                del left[n]
    for n, step in left.items():
        if not isinstance(n, Axis):
            return None
        terms.append((step, n.size))
    return terms


def same(a: Affine, b: Affine) -> bool:
    return a.offset == b.offset and dict(a.terms) == dict(b.terms)


def needed(before: Sequence[Statement], body: Sequence[Statement]) -> Body:
    """The statements before a body that make locals used in it, transitively."""
    used = {local for s in walk(tuple(body)) for local in reads(s)}
    kept: list[Statement] = []
    for s in reversed(before):
        targets = set(_made(s))
        if targets & used:
            kept.append(s)
            used |= set(reads(s))
    return tuple(reversed(kept))


def reads(s: Statement) -> Iterator[Local]:
    operands: tuple[Operand | None, ...] = ()
    indices: tuple[Affine, ...] = ()
    match s:
        case Compute(operands=operands):
            pass
        case Accumulate(value=value, position=position):
            operands, indices = (value,), (() if position is None else (position,))
        case Store(index=index, value=value):
            operands, indices = (value,), (index,)
        case Take(values=values):
            operands = values
        case CheckIndex(index=index_operand):
            operands = (index_operand,)
        case StorePair(index=index, first=first, second=second):
            operands, indices = (first, second), (index,)
        case Load(index=index, guards=guards):
            indices = (index, *(g.index for g in guards))
        case LoadPair(index=index) | PositionOf(index=index):
            indices = (index,)
        case Guarded(bounds):
            indices = tuple(bound.index for bound in bounds)
    yield from (each for each in operands if isinstance(each, Local))
    yield from (n for index in indices for n, _ in index.terms if isinstance(n, Local))


def _made(s: Statement) -> Iterator[Local]:
    match s:
        case LoadPair(first, second):
            yield from (first, second)
        case Load(target=target) | Compute(target=target) | PositionOf(target=target):
            yield target
