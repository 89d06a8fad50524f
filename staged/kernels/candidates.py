"""The schedules that a nest may have, the best guess first: the first is taken, a tuner may time the others.

All of them give the same bits: none changes the order in which a sum takes in its terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from staged.ir.loops import Compute, Load, Loop, Nest, Store, walk
from staged.ir.machine import Machine
from staged.ir.products import COLUMN, ROW, SUM
from staged.ir.rewrites import Divide, Keep, Pack, Reorder, Rewriting, StripMine, rewritten, without_single_iterations
from staged.ir.schedule import Bind, Directive, Level, Schedule, Vectorise, WriteOut
from staged.ir.types import DType
from staged.kernels.schedule import CHUNK_NANOSECONDS, best_width, calls_functions, chunk_of, schedule, vector_lanes

MOST_VECTORS = 4
SHORT_EPILOGUE = 3
"""Ops of an epilogue that is written out for each vector of a tile."""
SHORT_SUM = 64
"""Terms up to which a sum of floats is written out where it is no tile's."""
WAIT = 5.5
"""Cycles between two additions to a total. It is four, but eight totals, which would then be enough, take 40 % longer
than ten.
"""
TWO_SIZES = 1.02
"""Tiles with a row less are written out a second time: they must gain that much."""
LEFT = f"{COLUMN}_tail"
MULTIPLY_ADD = 0.05
"""Nanoseconds for a multiply-add of a tile, at a modest rate."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A product in tiles of at most `rows` rows, as equal as possible, and `columns` columns, whose totals are in
    registers.

    The loops `tile` and `panel` count tiles, `r` and `s` are inside of one. With `by_panels`, all tiles of a panel come
    one after the other; the panel of the right operand can then be copied together before (`packs`). Totals that are
    `spilled` leave their registers before the epilogue, which then is a loop.
    """

    rows: int
    columns: int
    by_panels: bool = False
    packs: bool = False
    spilled: bool = False

    def rewrites(self, m: int, n: int) -> tuple[Rewriting, ...]:
        """The directives for a product of m rows and n columns; columns that are left over are in the loop
        `column_tail`.
        """
        count = -(-m // self.rows)
        large = -(-m // count)
        fewer = count * large - m  # tiles with a row less
        found: list[Rewriting] = []
        if fewer:
            found.append(Divide(ROW, m - fewer * (large - 1)))
            found += [StripMine(f"{ROW}_head", large, "tile", "r"), StripMine(f"{ROW}_tail", large - 1, "tile", "r")]
        else:
            found.append(StripMine(ROW, large, "tile", "r"))
        found.append(Reorder((COLUMN, "tile", "r") if self.by_panels else ("tile", COLUMN, "r")))
        whole, left = COLUMN, n % self.columns
        if left:
            whole = f"{COLUMN}_head"
            inside = ("tile", "r", LEFT) if self.by_panels else ("r", LEFT)
            found += [Divide(COLUMN, n - left), Reorder(inside), Keep(SUM, ("r", LEFT), self.spilled)]
        tiles = ("panel", "tile", "r", "s") if self.by_panels else ("panel", "r", "s")
        found += [StripMine(whole, self.columns, "panel", "s"), Reorder(tiles), Keep(SUM, ("r", "s"), self.spilled)]
        if self.packs:
            found.append(Pack("b", "tile", (SUM, "s")))
        return tuple(found)

    def cycles(self, m: int, n: int, k: int, lanes: int, machine: Machine) -> float:
        """An estimate: two multiply-adds or a little under two loads at once, and `WAIT` cycles for each total."""
        vectors, tiles = self.columns // lanes, -(-m // self.rows)
        rows = -(-m // tiles)
        step = max(rows * vectors * (1 if machine.fma else 2) / 2, (rows + vectors) * 0.6, WAIT)
        panels, left = divmod(n, self.columns)
        found = tiles * panels * (k * step + 12 + rows * vectors)
        found += tiles * rows * k * (left // lanes + left % lanes)  # what is left over is not in registers
        found += 0.1 * k * n * self.packs
        found *= 1.0 if m % tiles == 0 else TWO_SIZES
        items = panels if self.by_panels else tiles
        return found * -(-items // machine.cores) / items if items > 1 else found


def candidates(nest: Nest, machine: Machine) -> Iterator[tuple[Nest, Schedule]]:
    """The rewritten nest and its schedule, for each way that there is."""
    columns = loops_named(nest, COLUMN)
    sums, rows = loops_named(nest, SUM), loops_named(nest, ROW)
    if len(columns) != 1 or len(rows) != 1 or len(sums) != 1 or any(s.axis.dim for s in (*columns, *rows, *sums)):
        yield nest, schedule(nest, machine)
        return
    m, n, k = (loops[0].axis.extent for loops in (rows, columns, sums))
    lanes = lanes_of(columns[0], machine)
    if m > 1 and lanes > 1:
        spilled = is_long(columns[0], nest.inputs[0].dtype)
        tiles = sorted(tiles_of(m, n, lanes, machine, spilled), key=lambda tile: tile.cycles(m, n, k, lanes, machine))
        yield from (tiled(nest, tile, machine) for tile in tiles)
    yield in_vectors(nest, machine)


def is_long(column: Loop, dtype: DType) -> bool:
    """Return whether the epilogue of a product is too long to be written out for each vector of a tile.

    Elements of another width are many instructions: compilers convert them one by one.
    """
    ops = [s for s in column.body if isinstance(s, Compute)]
    widths = {s.array.dtype.size for s in column.body if isinstance(s, Load | Store)}
    calls = any(s.declared.expensive or s.declared.kind == "random" for s in ops)
    return calls or len(ops) > SHORT_EPILOGUE or not widths <= {dtype.size}


def tiles_of(m: int, n: int, lanes: int, machine: Machine, spilled: bool = False) -> Iterator[RegisterTile]:
    """The tiles that fit in registers: one for each total, for each vector of the right operand, for the left one and a
    product.
    """
    for vectors in range(1, min(MOST_VECTORS, n // lanes) + 1):
        most = (machine.vector_registers - vectors - (1 if machine.fma else 2)) // vectors
        counts = {-(-m // rows) for rows in range(max(1, most // 2), most + 1)}
        for rows in sorted({-(-m // count) for count in counts}):
            for by_panels, packs in ((False, False), (True, False), (True, True)):
                yield RegisterTile(rows, vectors * lanes, by_panels, packs, spilled)


def tiled(nest: Nest, tile: RegisterTile, machine: Machine) -> tuple[Nest, Schedule]:
    """A product in register tiles."""
    (rows,), (columns,) = loops_named(nest, ROW), loops_named(nest, COLUMN)
    rewrites = tile.rewrites(rows.axis.extent, columns.axis.extent)
    lanes, most = lanes_of(columns, machine), vector_lanes(columns, machine)
    made = without_single_iterations(rewritten(nest, rewrites))
    columns_of = ("s", LEFT, "s_after", f"{LEFT}_after")
    loops = [loop for name in columns_of for loop in loops_named(made, name) if loop.axis.extent >= lanes]
    axes = tuple(dict.fromkeys(loop.axis for loop in loops))
    inside = tuple(dict.fromkeys(loop.axis for name in ("r", "s") for loop in loops_named(made, name)))
    vectors = Vectorise(axes, lanes, frozenset(loops), machine.vector_bytes // most)
    work = MULTIPLY_ADD * nest_size(nest)
    return made, on_cores(made, machine, (vectors, WriteOut(inside)), rewrites, work)


def in_vectors(nest: Nest, machine: Machine) -> tuple[Nest, Schedule]:
    """A product in vectors of columns, which leave each sum in its order. Sums of integers may have any order.

    Short sums of floats are written out: compilers that tune for a processor where additions to one total had better
    not be fused with multiplications (`-mtune=znver4`) fuse them nevertheless, so that the bits are those of tiles.
    """
    column = loops_named(nest, COLUMN)[0]
    is_float, lanes = nest.inputs[0].dtype.is_float, lanes_of(column, machine)
    directives: list[Directive] = []
    if lanes > 1:
        width = machine.vector_bytes // vector_lanes(column, machine)
        directives.append(Vectorise((column.axis,), lanes, frozenset((column,)), width))
    elif not is_float:
        return nest, schedule(nest, machine)
    sums = tuple(
        loop.axis for loop in loops_named(nest, SUM) if loop.axis.dim is None and loop.axis.extent <= SHORT_SUM
    )
    if is_float and sums:
        directives.append(WriteOut(sums))
    return nest, on_cores(nest, machine, directives)


def lanes_of(column: Loop, machine: Machine) -> int:
    """The number of neighbouring columns in a vector; 1 for none."""
    extent, most = column.axis.extent, vector_lanes(column, machine)
    lanes = most if extent >= most or not most or calls_functions(column) else best_width(extent)
    return lanes if 1 < lanes <= extent else 1


def on_cores(
    nest: Nest,
    machine: Machine,
    directives: Sequence[Directive],
    rewrites: tuple[Rewriting, ...] = (),
    nanoseconds: float = 0.0,
) -> Schedule:
    """The schedule with its items on the cores, where that pays; `nanoseconds` of one thread, where they are known."""
    if nanoseconds:
        chunk = pieces_of(nest.items, nanoseconds, machine)
    else:
        chunk = chunk_of(nest, machine, Schedule(tuple(directives)).lanes)
    outermost = tuple(s.axis for s in nest.body if isinstance(s, Loop))
    shared = (Bind(outermost, Level.CORES, machine.cores, chunk),) if chunk else ()
    return Schedule((*directives, *shared), rewrites)


def pieces_of(items: int, nanoseconds: float, machine: Machine) -> int:
    """Items per claim of a thread, of those that take so long together; 0 for one thread."""
    if items <= 1 or machine.cores <= 1 or nanoseconds <= 2 * CHUNK_NANOSECONDS:
        return 0
    return max(1, min(items // 2, int(items * CHUNK_NANOSECONDS / nanoseconds)))


def nest_size(nest: Nest) -> int:
    """The multiply-adds of a product."""
    axes = {s.axis for s in walk(nest.body) if isinstance(s, Loop)}
    return prod(axis.extent for axis in axes)


def loops_named(nest: Nest, name: str) -> list[Loop]:
    """The loops of a nest over axes of a name."""
    return [s for s in walk(nest.body) if isinstance(s, Loop) and s.axis.name == name]
