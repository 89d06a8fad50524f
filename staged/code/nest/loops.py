"""Loops and tiles, iteration by iteration.

Tested by `tests/kernels/test_kernels.py` and `tests/kernels/test_schedule.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from staged.code.expr import Conditional, Expr, Infix, Literal, Variable, address
from staged.code.nest.lowering import ZERO, Base, Lowering, base_of, global_pointer
from staged.code.tree import Declare
from staged.ir.loops import Axis, Load, Loop, Reduction, Store, Tile, walk


class LoopTotals(Protocol):
    """The operations on totals that loops use."""

    def start(self, reduction: Reduction, loop: Loop | Tile) -> None: ...

    def finish(self, reduction: Reduction, loop: Loop | Tile) -> None: ...


class Loops:
    """Lowers loops and tiles, with the totals that they keep."""

    def __init__(self, low: Lowering, totals: LoopTotals) -> None:
        self.low = low
        self.totals = totals
        low.statements |= {Loop: self.loop, Tile: self.tile}

    def loop(self, loop: Loop) -> None:
        for reduction in loop.reductions:
            self.totals.start(reduction, loop)
        self.iterations(loop)
        for reduction in loop.reductions:
            self.totals.finish(reduction, loop)

    def iterations(self, loop: Loop) -> None:
        """The loop itself; a single iteration is a block."""
        low, axis = self.low, loop.axis
        if axis.extent == 1 and axis not in low.ranges:
            low.axes[axis] = ZERO
            with low.block():
                low.body(loop.body)
            return
        start, stop = low.range_of(axis)
        bases, moving = low.bases, low.moving
        if axis in low.schedule.written_out and not bases:
            low.bases = self.bases_of_tile(loop)
        i = low.scoped(axis)
        with low.loop(i, start, stop, unroll=axis.extent * (axis in low.schedule.written_out)):
            if not low.bases:
                low.bases = self.bases_of_row(loop)
            low.body(loop.body)
        low.leave(i)
        low.bases, low.moving = bases, moving

    def bases_of_tile(self, loop: Loop) -> dict[Base, Variable]:
        """Pointers to where the elements of a tile begin.

        Why: the compiler would keep a pointer for each row of a tile, more than there are registers.
        """
        out = self.low.schedule.written_out
        if len(loop.body) == 1 and isinstance(loop.body[0], Loop) and loop.body[0].axis in out:
            self.low.moving = out
            return dict(self.bases_in(loop))
        return {}

    def bases_of_row(self, loop: Loop) -> dict[Base, Variable]:
        """Pointers to where a row begins that a tile has left in memory.

        Why: what is done with its elements has many arrays, and would say where the tile and the row begin for each.
        """
        schedule = self.low.schedule
        if not schedule.rewrites or len(loop.body) != 1:
            return {}
        (row,) = loop.body
        if not isinstance(row, Loop) or row not in schedule.vectorised or row.axis in schedule.written_out:
            return {}
        if not any(isinstance(s, Store) and s.array.role == "output" for s in row.body):
            return {}
        self.low.moving = frozenset((row.axis,))
        return dict(self.bases_in(loop))

    def bases_in(self, loop: Loop) -> Iterator[tuple[Base, Variable]]:
        """Declare pointers to what does not move in a loop, in each array that it reads or writes."""
        low = self.low
        known: set[Base] = set()
        for s in walk(loop.body):
            if not isinstance(s, Load | Store) or s.array.role == "registers" or isinstance(s, Load) and s.guards:
                continue
            fixed, rest = low.parts(s.index)
            base = base_of(s.array, fixed)
            if base in known or not rest.terms or not any(isinstance(low.axes[axis], Variable) for axis in fixed.axes):
                continue
            known.add(base)
            start = address(low.arrays[s.array], low.index(fixed))
            type = global_pointer(s.array.dtype, is_const=isinstance(s, Load))
            yield base, low.constant(f"{s.array.name}_{low.loop_names[-1]}", type, start)

    def tile(self, tile: Tile) -> None:
        low, axis = self.low, tile.axis
        for reduction in tile.reductions:
            self.totals.start(reduction, tile)
        start, stop = low.range_of(axis)
        with pieces(low, axis, start, stop, tile.size) as piece:
            before = low.ranges.get(axis)
            low.ranges[axis] = piece
            low.body(tile.body)
            if before is None:
                del low.ranges[axis]
            else:
                low.ranges[axis] = before
        for reduction in tile.reductions:
            self.totals.finish(reduction, tile)


@contextmanager
def pieces(low: Lowering, axis: Axis, start: Expr, stop: Expr, size: int) -> Iterator[tuple[Variable, Variable]]:
    """A loop over pieces of at most `size` of a range; a piece's first number and the one after its last."""
    first, end = (
        Variable(low.names.fresh(hint, others=[f"{hint}_{axis.word or axis.name}"]), low.index_type)
        for hint in ("first", "stop")
    )
    with low.loop(first, start, stop, Literal(str(size))):
        after = Infix("+", first, Literal(str(size)))
        low.code.add(Declare(end, Conditional(Infix("<", after, stop), after, stop)))
        yield first, end
    low.names.used -= {first.text, end.text}
