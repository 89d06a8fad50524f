"""Transposes: where an operand's neighbours lie along another axis than the result's, tiles go through shared memory.

for i: for j: y[i, j] = x[j, i]     a block for each 32 x 32 tile: its warps read rows of x into shared memory, then
                                    write rows of y from its columns; both sides in whole lines of memory
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.backends.cublas_cudnn.mapping import Part
from staged.backends.cublas_cudnn.teams import SHARED_BYTES
from staged.ir.loops import Axis, Compute, Load, PositionOf, Store

TILE = 32
"""Rows and columns of a tile: a warp's width."""
ROWS = 8
"""Rows that a block of 256 threads takes at a time."""
FEWEST_ITEMS = 1 << 12
"""Items from which on tiles pay."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a part is cut: along `across`, in which the operands `loads` have their neighbours, and `along`, the results'."""

    across: Axis
    along: Axis
    loads: tuple[Load, ...]
    batch: tuple[Axis, ...]

    @property
    def blocks(self) -> int:
        """A block for each tile of each element of the batch."""
        count = -(-self.across.extent // TILE) * -(-self.along.extent // TILE)
        for axis in self.batch:
            count *= axis.extent
        return count


def tiles_of(part: Part) -> Tiles | None:
    """The tiles of a part that reads crosswise; None where it does not, or where tiles do not pay."""
    if part.items < FEWEST_ITEMS or part.scratch or len(part.axes) < 2:
        return None
    if not all(isinstance(s, Load | Store | Compute | PositionOf) for s in part.body):
        return None
    along = part.axes[-1]
    if any(isinstance(s, Store) and s.index.stride(along) != 1 for s in part.body):
        return None
    for across in reversed(part.axes[:-1]):
        loads = [
            s
            for s in part.body
            if isinstance(s, Load)
            and s.index.stride(across) == 1
            and s.index.stride(along) != 1
            and not s.guards
            and all(isinstance(name, Axis) for name, _ in s.index.terms)
        ]
        loads = [s for s in loads if s.index.stride(along)]
        room = sum(TILE * (TILE + 1) * s.array.dtype.size for s in loads)
        if loads and room <= SHARED_BYTES and min(across.extent, along.extent) >= TILE:
            return Tiles(across, along, tuple(loads), tuple(axis for axis in part.axes if axis not in (across, along)))
    return None
