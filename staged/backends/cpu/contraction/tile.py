"""The register tile: a block of the result that stays in vector registers while the inner dimension is walked.

A tile has `rows` rows of `vectors` vectors. Each step broadcasts one item of the left operand per row and multiplies it
with the vectors of one row of the right operand; that is rows * vectors multiply-adds for rows + vectors loads. Source
of the scheme: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from staged.backends.cpu.contraction.spec import Epilogue, Parameter
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.vectors import Vector, copied, transpose_function
from staged.code.support.library import Snippet
from staged.code.writer import Writer
from staged.ir.machine import Machine

TILE_START = Snippet(
    "tile_start",
    """\
// Where tile number `index` begins: the first `large` tiles have the size `size`, the others are `less` smaller.
static inline int64_t st_tile_start(int64_t index, int64_t size, int64_t large, int64_t less) {
    return index * size - (index > large ? (index - large) * less : 0);
}
""",
)


@dataclass(frozen=True, slots=True)
class Split:
    """An extent in equal pieces: `large_count` of size `large`, then `small_count` of size `large - 1`.

    Equal pieces instead of a remainder: a remainder of one row would leave the arithmetic units waiting.
    """

    large: int
    large_count: int
    small_count: int

    @property
    def count(self) -> int:
        return self.large_count + self.small_count

    @property
    def extent(self) -> int:
        return self.large * self.count - self.small_count

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that occur."""
        return (self.large, self.large - 1) if self.small_count else (self.large,)

    def counted(self) -> tuple[tuple[int, int], ...]:
        """(size, how many of it), in order."""
        pieces = ((self.large, self.large_count), (self.large - 1, self.small_count))
        return tuple((size, count) for size, count in pieces if count)


@contextmanager
def each(t: Writer, index: str, stop: str, step: int = 1, start: int = 0) -> Iterator[str]:
    """A loop, as the name of its index; of a single iteration the index is a number, and there is no loop."""
    if stop.isdigit() and start + step >= int(stop):
        yield str(start)
        return
    onwards = f"++{index}" if step == 1 else f"{index} += {step}"
    with t.block(f"for (int64_t {index} = {start}; {index} < {stop}; {onwards})"):
        yield index


@contextmanager
def each_piece(t: Writer, index: str, split: Split, first: str = "0", stop: str = "") -> Iterator[str]:
    """A loop over the pieces of a split, or over a part of them: each piece begins at `index`. Gives its size."""
    stop, size = stop or str(split.extent), f"{index}s"
    if not split.small_count:
        with t.block(f"for (int64_t {index} = {first}; {index} < {stop}; {index} += {split.large})"):
            yield str(split.large)
        return
    with t.block(f"for (int64_t {size}, {index} = {first}; {index} < {stop}; {index} += {size})"):
        t.line(f"{size} = {index} < {split.large * split.large_count} ? {split.large} : {split.large - 1};")
        yield size


def emit_constant(t: Writer, name: str, lines: Iterable[Mapping[str, object]]) -> None:
    """The definition of a constant struct; fields that are 0 are left out."""
    t.line(f"static const {name} = {{")
    for fields in lines:
        text = ", ".join(members(fields))
        if text:
            t.statement(f"    {text},")
    t.line("};")


def members(fields: Mapping[str, object]) -> Iterator[str]:
    """The initialisers of a struct's fields; those that are 0 are left out."""
    return (f".{field} = {value}" for field, value in fields.items() if value)


def split_evenly(extent: int, most: int) -> Split:
    """The fewest pieces of at most `most`, as equal as possible."""
    count = -(-extent // most)
    large = -(-extent // count)
    small_count = count * large - extent
    return Split(large, count - small_count, small_count)


@dataclass(frozen=True, slots=True)
class TileChoice:
    """The split of an m x n result into tiles, with the estimated cycles of one pass over it."""

    rows: Split
    vectors: Split
    cycles: float


def choose_tile(
    machine: Machine,
    vector: Vector,
    m: int,
    n: int,
    k: int,
    aligned: bool = True,
    most_rows: int = 64,
    two_sizes: float = 0.005,
) -> TileChoice:
    """The tile shape with the lowest estimate for an (m, k) @ (k, n) product.

    The estimate: two vector units for multiply-adds (two operations each without fma), a little under two loads per
    cycle (an unaligned vector that straddles cache lines counts twice), four cycles until a sum can be added to again,
    and what of the right operand's way from the second-level cache shows, once a panel does not fit into the first.
    """
    n_vectors = -(-n // vector.lanes)
    operations = 1 if machine.fma else 2
    broadcasts = 0 if machine.vector_bytes >= 32 else 1  # from AVX on a load broadcasts; before it takes a shuffle
    straddles = 2 if not aligned and vector.bytes >= 64 else 1
    best: TileChoice | None = None
    for vectors in range(1, 9):
        # one register per accumulator, one per vector of the right operand, one for the broadcast, one for a product
        most = min(most_rows, (machine.vector_registers - vectors - operations) // vectors)
        if most < 1 or (vectors > n_vectors and best is not None):
            continue
        for rows in {min(m, r) for r in range(max(1, most // 2), most + 1)}:
            row_split, vector_split = split_evenly(m, rows), split_evenly(n_vectors, vectors)
            cycles = 0.0
            for r, row_count in row_split.counted():
                for v, vector_count in vector_split.counted():
                    step = max((r * v * operations + r * broadcasts) / 2, (r + v * straddles) * 0.6, 4.0)
                    if k * v * vector.bytes > 0.6 * machine.l1:
                        step = max(step, v * vector.bytes / 28) + v * vector.bytes / 128
                    cycles += row_count * vector_count * (k * step + 12 + r * v)
            if n % vector.lanes:
                # the last panel is padded, and its tiles leave through memory
                cycles += k * vector_split.counted()[-1][0] * 1.5 + m * 6
            variants = len(row_split.sizes) * len(vector_split.sizes)
            cycles *= 1 + two_sizes * (variants - 1)
            if best is None or cycles < best.cycles * 0.999:
                best = TileChoice(row_split, vector_split, cycles)
    assert best is not None
    return best


@dataclass(frozen=True, slots=True)
class Result:
    """The destination of finished tiles.

    Without an epilogue to `c`, with the given strides per row and column of the tile.
    `turned`: tiles are computed as the transpose of the result, so that rows of a tile are columns of it.
    """

    epilogue: Epilogue | None
    row_stride: int
    col_stride: int
    turned: bool = False

    def parameters(self, vector: Vector) -> list[Parameter]:
        """The parameters by which a tile function delivers its result: an address, or a position and the epilogue's
        own.
        """
        if self.epilogue is None:
            return [(f"{vector.scalar} *restrict ", "c")]
        return [("int64_t ", "batch"), ("int64_t ", "row"), ("int64_t ", "col"), *self.epilogue.parameters]

    def arguments(self, batch: str, row: str, col: str, c: str = "c") -> list[str]:
        """The expressions for `parameters`: the tile at (row, col) of the result as computed, before any turning."""
        if self.epilogue is None:
            return [added(c, times(self.row_stride, row), times(self.col_stride, col))]
        return [batch, row, col, *(name for _, name in self.epilogue.parameters)]

    def needs_transpose(self) -> bool:
        """Return whether a finished tile is transposed before it leaves: for the epilogue, or to write runs of `c`."""
        return self.turned if self.epilogue is not None else self.row_stride == 1 and self.col_stride != 1


def declared(parameter: Parameter) -> str:
    ctype, name = parameter
    return f"{ctype}{name}" if ctype.endswith((" ", "*")) else f"{ctype} {name}"


def each_row(t: Writer, rows: int) -> AbstractContextManager[None]:
    """A loop over the rows of a tile, unrolled so that `acc[r]` names registers."""
    return t.unrolled(rows, f"for (int64_t r = 0; r < {rows}; ++r)")


def aligned_to(vector: Vector) -> str:
    """The attribute of an array that begins at a multiple of a vector's size."""
    return f"__attribute__((aligned({vector.bytes})))"


def emit_delivery(
    t: Writer,
    vector: Vector,
    result: Result,
    rows: int,
    vectors: int,
    width: str,
    here: str = "",
    to: str = "c",
) -> None:
    """`tile` goes to the epilogue or, item by item, to the address `to`: `width` columns of it, and `here` rows of the
    `rows` that it has room for."""
    full, here = vectors * vector.lanes, here or str(rows)
    piece, ld = "tile", full
    if result.needs_transpose():
        piece, ld = "turned", -(-rows // vector.lanes) * vector.lanes
        t.line(f"{vector.scalar} turned[{full * ld}] {aligned_to(vector)};")
        for first in range(0, rows, vector.lanes):
            with t.block(f"for (int64_t s = 0; s < {full}; s += {vector.lanes})"):
                source = added("tile", str(first * full), "s")
                target = added("turned", times(ld, "s"), str(first))
                present = (
                    str(min(vector.lanes, rows - first)) if here.isdigit() else f"{here} - {first}" if first else here
                )
                t.line(f"{transpose_function(vector)}({source}, {full}, {present}, {target}, {ld});")
    if result.epilogue is not None:
        place, shape = ("col, row", f"{width}, {here}") if result.turned else ("row, col", f"{here}, {width}")
        names = result.epilogue.passed
        t.statement(f"{result.epilogue.function}(batch, {place}, {shape}, {piece}, {ld}{names});")
        return
    axes = [("r", here, result.row_stride), ("s", width, result.col_stride)]
    (outer, outer_stop, outer_stride), (inner, inner_stop, inner_stride) = axes[::-1] if piece == "turned" else axes
    with t.block(f"for (int64_t {outer} = 0; {outer} < {outer_stop}; ++{outer})"):
        target, source = added(to, times(outer_stride, outer)), f"{piece} + {outer} * {ld}"
        if inner_stride == 1:
            is_number = inner_stop.isdigit()
            copy = f"memcpy({target}, {source}, {inner_stop} * sizeof *{to});"
            t.line(copy if is_number else copied(vector, target, source, inner_stop))
        else:
            with t.block(f"for (int64_t {inner} = 0; {inner} < {inner_stop}; ++{inner})"):
                index = added(*(times(stride, axis) for axis, _, stride in axes))
                t.line(f"{to}[{index}] = {piece}[{outer} * {ld} + {inner}];")
