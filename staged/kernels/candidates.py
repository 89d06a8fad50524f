"""The schedules that a nest may have, the best guess first: the first is taken, a tuner may time the others.

All of them give the same bits: none changes the order in which a sum takes in its terms.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

from staged.ir.loops import ArrayRef, Compute, Load, Loop, Nest, Store, walk
from staged.ir.machine import Machine
from staged.ir.nest_items import without_single_iterations
from staged.ir.products import COLUMN, LONGEST_CHAIN, ROW, SUM, chain_of, in_chains
from staged.ir.rewrites import Divide, Reorder, Rewriting, StripMine, rewritten
from staged.ir.schedule import Bind, Directive, Level, Schedule, Vectorise, WriteOut
from staged.ir.sizes import at_bounds
from staged.ir.storage_rewrites import Expand, Keep, Pack
from staged.ir.types import DType
from staged.kernels.schedule import CHUNK_NANOSECONDS, best_width, calls_functions, chunk_of, schedule, vector_lanes

MOST_VECTORS = 3
"""Vectors of a row of a tile; two where there are few registers."""
PAGE = 4096
"""Bytes of a way of the first-level cache."""
LEAST_ROWS_OF_WIDE_TILES = 5
"""Rows of a tile with as many vectors. With fewer gcc reads the right operand again for each row: a third slower."""
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


class Totals(enum.Enum):
    """The way of the totals of a tile to the epilogue."""

    DIRECT = "direct"
    """From their registers: the epilogue is written out for each."""
    SPILLED = "spilled"
    """Through memory: the epilogue is a loop."""
    ROWS = "rows"
    """Through memory for whole rows: the epilogue is a loop that sees each element once."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A contraction in tiles of at most `rows` rows, as equal as possible, and `vectors` vectors, whose totals are in
    registers.

    The loops `tile` and `panel` count tiles, `r` and `s` are inside of one. With `by_panels`, all tiles of a panel come
    one after the other; the panel of the right operand can then be copied together before (`packs`), which a transposed
    one always is (`transposes`).
    """

    rows: int
    vectors: int
    lanes: int
    by_panels: bool = False
    packs: bool = False
    totals: Totals = Totals.DIRECT
    transposes: bool = False
    chain: int = 0
    """The terms after which a total joins what came before; 0 for all."""

    def columns(self, n: int) -> tuple[int, int]:
        """The number of columns in whole panels, and that of the last panel, which begins early enough to be whole
        vectors; some of its columns may be in the last but one, too.
        """
        left = n % (self.vectors * self.lanes)
        return n - left, -(-left // self.lanes) * self.lanes

    def rewrites(self, m: int, n: int, right: ArrayRef) -> tuple[Rewriting, ...]:
        """The directives for a product of m rows and n columns; the last panel is the loop `column_tail`."""
        if self.transposes:
            return self.transposed(m, n, right)
        found = self.of_rows(m)
        if self.totals is Totals.ROWS:
            found += [Expand(SUM, ("r", COLUMN)), Reorder((COLUMN, "r"))]
        else:
            found.append(Reorder((COLUMN, "tile", "r") if self.by_panels else ("tile", COLUMN, "r")))
        whole, (head, last) = COLUMN, self.columns(n)
        if last:
            whole = f"{COLUMN}_head"
            inside = ("tile", "r", LEFT) if self.by_panels else ("r", LEFT)
            found += [Divide(COLUMN, head, last if last > n - head else 0), Reorder(inside), *self.kept("r", LEFT)]
        tiles = ("panel", "tile", "r", "s") if self.by_panels else ("panel", "r", "s")
        found += [StripMine(whole, self.vectors * self.lanes, "panel", "s"), Reorder(tiles), *self.kept("r", "s")]
        if self.packs:
            found.append(Pack(right, "tile", (SUM, "s")))
            found += [Pack(right, "tile", (SUM, LEFT))] if last else []
        return tuple(found)

    def of_rows(self, m: int) -> list[Rewriting]:
        """The directives that make tiles of rows, of two sizes if need be."""
        count = -(-m // self.rows)
        large = -(-m // count)
        fewer = count * large - m  # tiles with a row less
        if not fewer:
            return [StripMine(ROW, large, "tile", "r")]
        return [
            Divide(ROW, m - fewer * (large - 1)),
            StripMine(f"{ROW}_head", large, "tile", "r"),
            StripMine(f"{ROW}_tail", large - 1, "tile", "r"),
        ]

    def transposed(self, m: int, n: int, right: ArrayRef) -> tuple[Rewriting, ...]:
        """The directives for a transposed right operand: each panel is copied once, before its rows are divided."""
        found: list[Rewriting] = [Reorder((COLUMN, ROW))]
        whole, (head, last) = COLUMN, self.columns(n)
        if head and last:  # the last panel is an item, too: a loop of one iteration
            whole = f"{COLUMN}_head"
            found += [Divide(COLUMN, head, last if last > n - head else 0), StripMine(LEFT, last, "panel", LEFT)]
            found += [Reorder(("panel", ROW, LEFT)), Pack(right, ROW, (SUM, LEFT))]
        found += [StripMine(whole, self.vectors * self.lanes, "panel", "s"), Reorder(("panel", ROW, "s"))]
        found += [Pack(right, ROW, (SUM, "s")), *self.of_rows(m)]
        found += self.kept("r", LEFT) if head and last else ()
        return (*found, *self.kept("r", "s"))

    def kept(self, row: str, column: str) -> tuple[Rewriting, ...]:
        """The directives for the totals of a tile."""
        over = (row, column)
        expanded = (Expand(SUM, over),) if self.totals is Totals.SPILLED else ()
        return (*expanded, *((Keep(SUM, over),) * (2 if self.chain else 1)))

    def cycles(self, m: int, n: int, k: int, size: int, machine: Machine, stride: int = 0) -> float:
        """An estimate for elements of `size` bytes, with two units for multiply-adds; rows of the left operand are
        `stride` bytes apart.

        A step of a tile has them, a little under two loads at once (an unaligned one may be in two cache lines), `WAIT`
        cycles for each total, and the way of the right operand from the second-level cache where it is too large for
        the first one.
        """
        tiles = -(-m // self.rows)
        rows, (head, last) = -(-m // tiles), self.columns(n)
        operations, bytes_ = 1 if machine.fma else 2, self.lanes * size
        straddling = 0.0 if self.packs or n * size % bytes_ == 0 else min(1.0, bytes_ / 64)
        broadcasts = rows * (machine.vector_bytes < 32)
        again = k * n * size  # what the next tile reads again
        if self.by_panels:
            again = k * (self.vectors * bytes_ + 64 * (not self.packs and n * size % 64 > 0))
        # The many rows of a panel that is not copied together compete for places in the cache.
        steps, apart = (k, n * size) if self.chain and self.by_panels and not self.packs else (0, size)

        def panel(vectors: int) -> float:
            step = max((rows * vectors * operations + broadcasts) / 2, (rows + vectors * (1 + straddling)) * 0.6, WAIT)
            if again > 0.6 * machine.l1 or steps > side_by_side(apart, PAGE, machine.l1):
                step = max(step, vectors * bytes_ / 28) + vectors * bytes_ / 128
            if self.chain and again > 0.75 * machine.l2:
                step += vectors * bytes_ / 32
            return tiles * (k * step + 12 + rows * vectors)

        panels = head // (self.vectors * self.lanes)
        found = panels * panel(self.vectors) + (panel(last // self.lanes) if last else 0.0)
        found += (0.35 if self.transposes else 0.1) * k * n * self.packs
        found *= 1.0 if m % tiles == 0 else TWO_SIZES
        if rows > most_rows_side_by_side(stride, machine):
            found *= 3.0
        items = tiles
        if self.transposes and not is_shared(m * n * k, machine):
            return found
        if self.by_panels:
            items = panels + (last > 0) if self.transposes else 1 if last else panels
        return found * -(-items // machine.cores) / items if items > 1 else found


def side_by_side(stride: int, way: int, cache: int) -> int:
    """Lines, `stride` bytes apart, that stay in a cache at once: those a multiple of a `way` apart compete."""
    return way // gcd(stride, way) * (cache // way)


def most_rows_side_by_side(stride: int, machine: Machine) -> int:
    """Rows that are `stride` bytes apart, of each of which one line stays in the first-level cache beside others."""
    return side_by_side(stride, PAGE, machine.l1) * 2 // 3


def candidates(nest: Nest, machine: Machine) -> Iterator[tuple[Nest, Schedule]]:
    """The rewritten nest and its schedule, for each way that there is."""
    columns = loops_named(nest, COLUMN)
    sums, rows = loops_named(nest, SUM), loops_named(nest, ROW)
    if (
        len(columns) != 1
        or len(rows) != 1
        or len(sums) != 1
        or any(not s.axis.is_static for s in (*columns, *rows, *sums))
    ):
        yield nest, schedule(nest, machine)
        return
    m, n, k = (loops[0].axis.extent for loops in (rows, columns, sums))
    column = vector_columns(nest)
    lanes = lanes_of(column, machine)
    transposes = column is not columns[0]
    way = way_of_totals(nest, column, n % lanes > 0)
    if m > 1 and lanes > 1 and not (transposes and (k < lanes or way is Totals.ROWS)):
        size = nest.inputs[0].dtype.size
        left = next(s for s in walk(nest.body) if isinstance(s, Load) and s.array is nest.inputs[0])
        stride = at_bounds(left.index.stride(rows[0].axis)) * size
        long = nest.inputs[0].dtype.is_float and k > LONGEST_CHAIN
        orders = ((True, True),) if transposes else ((False, False), (True, False), (True, True))
        chain = chain_of(k) if long else 0
        tiles = sorted(
            tiles_of(m, n, lanes, machine, way, chain, orders, transposes),
            key=lambda tile: tile.cycles(m, n, k, size, machine, stride),
        )
        yield from (tiled(nest, tile, machine) for tile in tiles)
        if long:
            return
    yield in_vectors(nest, machine)


def way_of_totals(nest: Nest, column: Loop, repeats: bool) -> Totals:
    """The way of the totals to the epilogue; `repeats`: some columns are computed twice.

    Exact: an operand in whose place a result lies is not read again after that is written.
    """
    long = is_long(column, nest.inputs[0].dtype)
    if repeats and (long or nest.in_place):
        return Totals.ROWS
    return Totals.SPILLED if long else Totals.DIRECT


def is_long(column: Loop, dtype: DType) -> bool:
    """Return whether the epilogue of a product is too long to be written out for each vector of a tile.

    Elements of another width are many instructions: compilers convert them one by one.
    """
    ops = [s for s in column.body if isinstance(s, Compute)]
    widths = {s.array.dtype.size for s in column.body if isinstance(s, Load | Store)}
    calls = any(s.op.expensive or s.op.kind == "random" for s in ops)
    return calls or len(ops) > SHORT_EPILOGUE or not widths <= {dtype.size}


def tiles_of(
    m: int,
    n: int,
    lanes: int,
    machine: Machine,
    totals: Totals,
    chain: int,
    orders: Sequence[tuple[bool, bool]],
    transposes: bool = False,
) -> Iterator[RegisterTile]:
    """The tiles that fit in registers: one for each total, for each vector of the right operand, for the left one and a
    product. `orders`: whether panels are outermost, and whether each is copied together.
    """
    # A multiply-add of 64 bytes reads the left operand from memory; others have it in a register, and need one more.
    spare = 1 if machine.vector_bytes >= 64 else 2
    if totals is Totals.ROWS:
        orders = ((False, False),)
    for vectors in range(1, min(MOST_VECTORS if machine.vector_registers > 16 else 2, n // lanes) + 1):
        most = max(1, (machine.vector_registers - vectors - spare) // vectors)
        counts = {-(-m // rows) for rows in range(max(1, most // 2), most + 1)}
        if vectors >= MOST_VECTORS:
            counts = {count for count in counts if m // count >= LEAST_ROWS_OF_WIDE_TILES}
        for rows in sorted({-(-m // count) for count in counts}):
            for by_panels, packs in orders:
                yield RegisterTile(rows, vectors, lanes, by_panels, packs, totals, transposes, chain)


def tiled(nest: Nest, tile: RegisterTile, machine: Machine) -> tuple[Nest, Schedule]:
    """A contraction in register tiles."""
    work = MULTIPLY_ADD * nest_size(nest)
    (rows,), columns = loops_named(nest, ROW), vector_columns(nest)
    if tile.chain:
        nest = in_chains(nest, SUM, tile.chain)
    rewrites = tile.rewrites(rows.axis.extent, columns.axis.extent, right_operand(nest))
    lanes, most = lanes_of(columns, machine), vector_lanes(columns, machine)
    made = without_single_iterations(rewritten(nest, rewrites))
    columns_of = ("s", LEFT, "s_after", f"{LEFT}_after", f"{COLUMN}_after")
    loops = [loop for name in columns_of for loop in loops_named(made, name) if loop.axis.extent >= lanes]
    axes = tuple(dict.fromkeys(loop.axis for loop in loops))
    inside = dict.fromkeys(loop.axis for name in ("r", "s", LEFT) for loop in loops_named(made, name))
    vectors = Vectorise(axes, lanes, frozenset(loops), machine.vector_bytes // most)
    return made, on_cores(made, machine, (vectors, WriteOut(tuple(inside))), rewrites, work)


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
    sums = tuple(loop.axis for loop in loops_named(nest, SUM) if loop.axis.is_static and loop.axis.extent <= SHORT_SUM)
    if is_float and sums:
        directives.append(WriteOut(sums))
    return nest, on_cores(nest, machine, directives)


def right_operand(nest: Nest) -> ArrayRef:
    """The right operand of a product."""
    right = nest.inputs[1]
    assert isinstance(right, ArrayRef)
    return right


def vector_columns(nest: Nest) -> Loop:
    """The loop over the columns of a product, as it is when a transposed right operand of floats has been copied."""
    (column,) = loops_named(nest, COLUMN)
    right = right_operand(nest)
    load = next(s for s in walk(column.body) if isinstance(s, Load) and s.index.moves(column.axis))
    if load.index.stride(column.axis) == 1 or not right.dtype.is_float:
        return column
    return loops_named(Pack(right, ROW, (SUM, COLUMN)).apply(nest), COLUMN)[-1]


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


def is_shared(multiply_adds: int, machine: Machine) -> bool:
    """Return whether a product of that size is worth several threads."""
    return machine.cores > 1 and MULTIPLY_ADD * multiply_adds > 2 * CHUNK_NANOSECONDS


def nest_size(nest: Nest) -> int:
    """The multiply-adds of a product."""
    axes = {s.axis for s in walk(nest.body) if isinstance(s, Loop)}
    return prod(axis.extent for axis in axes)


def loops_named(nest: Nest, name: str) -> list[Loop]:
    """The loops of a nest over axes of a name."""
    return [s for s in walk(nest.body) if isinstance(s, Loop) and s.axis.name == name]
