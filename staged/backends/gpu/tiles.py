"""Transposes: where an operand's neighbours lie along another axis than the result's, tiles go through shared memory.

for i: for j: y[i, j] = x[j, i]     a block for each 32 x 32 tile: its warps read rows of x into shared memory, then
                                    write rows of y from its columns; both sides in whole lines of memory

Tested by `tests/backends/cublas_cudnn/test_kernels.py` and `tests/backends/gpu/test_schedule.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.backends.gpu.mapping import Part
from staged.ir.loops import Axis, Compute, Load, PositionOf, Store
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Level, Memory, Place, Schedule, Split


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cut of a part: along `across`, on which neighbours of the operands `loads` lie, and `along`, the results'."""

    across: Split
    along: Split
    loads: tuple[Load, ...]
    batch: tuple[Axis, ...]
    rows: int
    """Rows of a tile that a block takes at a time."""

    @staticmethod
    def of(schedule: Schedule) -> Tiles | None:
        """The tiles of a schedule; None where it has none."""
        bound = [d for d in schedule.directives if isinstance(d, Bind)]
        if len(bound) < 2:
            return None
        across, along = schedule.splits
        batch = tuple(axis for axis in bound[0].axes if axis not in (across.outer, along.outer))
        loads = tuple(what for what in schedule.places if isinstance(what, Load))
        return Tiles(across, along, loads, batch, bound[1].count)


def in_tiles(part: Part, gpu: Gpu) -> Schedule | None:
    """The schedule of a part that reads crosswise; None where it does not, or where tiles do not pay.

    Exact: the tile's loads have no guards and no index that is found at run time; ragged edges are checked element by
    element.
    """
    if part.items < gpu.busy_items or part.scratch or len(part.axes) < 2:
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
            and s.index.stride(along) not in (0, 1)
            and not s.guards
            and all(isinstance(name, Axis) for name, _ in s.index.terms)
        ]
        room = sum(gpu.warp * (gpu.warp + 1) * s.array.dtype.size for s in loads)
        is_counted = not (across.is_static and along.is_static)
        if loads and room <= gpu.shared_bytes and min(across.extent, along.extent) >= gpu.warp and not is_counted:
            rows, columns = (Split.of(axis, gpu.warp, "tile") for axis in (across, along))
            batch = tuple(axis for axis in part.axes if axis not in (across, along))
            return Schedule((
                rows,
                columns,
                Bind((*batch, rows.outer, columns.outer), Level.BLOCKS, 1),
                Bind((rows.inner,), Level.WARPS, gpu.block // gpu.warp),
                Bind((columns.inner,), Level.LANES, gpu.warp),
                *(Place(load, Memory.SHARED) for load in loads),
            ))  # fmt: skip
    return None
