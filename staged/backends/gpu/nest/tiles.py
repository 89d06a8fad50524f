"""Parts whose operands lie crosswise: a tile for each block, turned around in shared memory.

Tested by `tests/backends/cublas_cudnn/test_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.mapping import Part
from staged.backends.gpu.nest.packs import Packs
from staged.backends.gpu.nest.statements import array_of, number_axes
from staged.backends.gpu.tiles import Tiles
from staged.code.expr import Expr, Index, Infix, Junction, Literal, Variable
from staged.code.nest.lowering import Lowering
from staged.code.tree import Assign, Barrier, Declare
from staged.code.types import Space
from staged.ir.loops import Affine, ArrayRef


def lower_tiles(low: Lowering, dialect: GpuDialect, packs: Packs, part: Part, tiles: Tiles) -> None:
    """A tile for each block: what lies crosswise is read in its own direction first."""
    across, along = tiles.across.outer.extent, tiles.along.outer.extent
    side, code, type = Literal(str(tiles.along.size)), low.code, low.index_type
    tile, column, row = (low.variable(name, type) for name in ("tile", "column", "row"))
    code.add(Declare(tile, dialect.block))
    code.add(Declare(column, Infix("%", dialect.thread, side), also=((row, Infix("/", dialect.thread, side)),)))
    first_across, first_along = low.variable("first_row", type), low.variable("first_column", type)
    rows_before = Infix("%", Infix("/", tile, Literal(str(along))), Literal(str(across)))
    code.add(Declare(first_across, Infix("*", rows_before, side)))
    code.add(Declare(first_along, Infix("*", Infix("%", tile, Literal(str(along))), side)))
    if tiles.batch:
        number = low.constant("t", type, Infix("/", tile, Literal(str(across * along))))
        number_axes(low, tiles.batch, number)
    turned: dict[tuple[ArrayRef, Affine], Variable] = {}
    for s in tiles.loads:
        if (s.array, s.index) in turned:
            continue
        held = low.variable(f"{s.array.name}_tile", array_of(s.array.dtype, Space.SHARED))
        # One more than a power of two: the elements of a column lie in different banks.
        code.add(Declare(held, is_const=False, sizes=(side, Literal(str(tiles.along.size + 1)))))
        turned[s.array, s.index] = held
    r = low.variable("r", type)
    step = Literal(str(tiles.rows))
    with low.loop(r, row, side, step):
        declare_axes(low, tiles, Infix("+", first_across, column), Infix("+", first_along, r))
        with inside_tile(low, tiles):
            for (array, index), held in turned.items():
                target = Index(Index(held, r), column)
                low.code.add(Assign(target, Index(low.arrays[array], low.index(index))))
    low.code.add(Barrier())
    with low.loop(r, row, side, step):
        declare_axes(low, tiles, Infix("+", first_across, r), Infix("+", first_along, column))
        for key, held in turned.items():
            packs.ready[key] = Index(Index(held, column), r)
        with inside_tile(low, tiles):
            low.body(part.body)
    packs.ready.clear()


def declare_axes(low: Lowering, tiles: Tiles, across: Expr, along: Expr) -> None:
    """The loop variables of an element of the tile."""
    for split, value in ((tiles.across, across), (tiles.along, along)):
        low.axes[split.axis] = low.constant(split.axis.name, low.index_type, value)


@contextmanager
def inside_tile(low: Lowering, tiles: Tiles) -> Iterator[None]:
    """Inside, code is executed for existing elements of a tile at the edge; a plain block if sizes divide."""
    ragged = [split.axis for split in (tiles.across, tiles.along) if split.axis.extent % split.size]
    terms = tuple(Infix("<", low.axes[axis], Literal(str(axis.extent))) for axis in ragged)
    with low.branch(Junction("&&", terms)) if terms else low.block():
        yield
