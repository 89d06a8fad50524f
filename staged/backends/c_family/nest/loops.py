"""Loops and tiles, iteration by iteration.

Tested by `tests/kernels/test_kernels.py` and `tests/kernels/test_schedule.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from staged.backends.c_family.code.tree import Declare
from staged.backends.c_family.expr import Conditional, Expr, Infix, Literal, Variable
from staged.backends.c_family.nest.lowering import ZERO, Lowering
from staged.ir.loops import Loop, Reduction, Tile


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
        i = low.scoped(axis)
        with low.loop(i, start, stop, unroll=axis.extent * (axis in low.schedule.written_out)):
            low.body(loop.body)
        low.leave(i)

    def tile(self, tile: Tile) -> None:
        low, axis = self.low, tile.axis
        for reduction in tile.reductions:
            self.totals.start(reduction, tile)
        start, stop = low.range_of(axis)
        with pieces(low, start, stop, tile.size) as piece:
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
def pieces(low: Lowering, start: Expr, stop: Expr, size: int) -> Iterator[tuple[Variable, Variable]]:
    """A loop over pieces of at most `size` of a range; a piece's first number and the one after its last."""
    first, end = low.variable("first", low.index_type), low.variable("stop", low.index_type)
    with low.loop(first, start, stop, Literal(str(size))):
        after = Infix("+", first, Literal(str(size)))
        low.code.add(Declare(end, Conditional(Infix("<", after, stop), after, stop)))
        yield first, end
