"""Rows of sums in workspace: a sum for each column, which a loop over rows of numbers adds to.

Tested by `tests/kernels/test_cascade.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Compute,
    Constant,
    Guarded,
    Load,
    Local,
    Loop,
    Statement,
    Store,
    Tile,
    walk,
)


@dataclass(frozen=True, slots=True)
class Row:
    """Sums of columns, each in an element of workspace, that some loop adds to."""

    array: ArrayRef
    index: Affine
    columns: tuple[Loop, ...]
    """The loops over the columns, from the outside in."""


def rows_of(loop: Loop) -> Iterator[Row]:
    """The rows of workspace that a loop only adds to, in every iteration. Nothing else reads a sum before its end."""
    accesses: dict[ArrayRef, list[Load | Store]] = {}
    for s in walk(loop.body):
        if isinstance(s, Load | Store) and s.array.role == "scratch" and s.array.dtype.is_float:
            accesses.setdefault(s.array, []).append(s)
    computed = {s.target: s for s in walk(loop.body) if isinstance(s, Compute)}
    read = [x for s in computed.values() for x in s.operands]
    read += [s.value for s in walk(loop.body) if isinstance(s, Store | Accumulate)]
    for array, found in accesses.items():
        match found:
            case [Load(before, _, index, ()), Store(_, into, value)] if index == into and not index.stride(loop.axis):
                made = computed.get(value) if isinstance(value, Local) else None
                if made is not None and made.op is prims.ADD and before in made.operands and read.count(value) == 1:
                    columns = tuple(_columns(loop.body, array, index))
                    if columns:
                        yield Row(array, index, columns)


def _columns(body: Sequence[Statement], array: ArrayRef, index: Affine) -> Iterator[Loop]:
    """The loops along an array around the statements that store to it."""
    for s in body:
        if isinstance(s, Loop | Tile | Guarded) and any(
            isinstance(t, Store) and t.array is array for t in walk(s.body)
        ):
            if isinstance(s, Loop) and index.moves(s.axis):
                yield s
            yield from _columns(s.body, array, index)


def row_additions(body: Sequence[Statement], array: ArrayRef) -> int:
    """The number of rows that are added to a row of sums."""
    count = 0
    for s in body:
        match s:
            case Store(into):
                count += into is array
            case Loop(axis, inner):
                along = any(isinstance(t, Store) and t.array is array and t.index.stride(axis) for t in walk(inner))
                count += row_additions(inner, array) * (1 if along else axis.extent)
            case Tile(_, _, inner) | Guarded(_, inner):
                count += row_additions(inner, array)
    return count


def sets_constant(s: Statement) -> bool:
    """Return whether a statement sets an element to a constant."""
    return isinstance(s, Store) and isinstance(s.value, Constant)
