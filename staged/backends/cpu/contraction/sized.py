"""Products of matrices whose sizes the program finds: the kernel chooses the tiles when it is called.

    const st_product_f32 sizes = st_sized_f32((st_matrices){N, 50, 320, false, false, true});

Numerics: the terms, chains and order of the sums are those of products whose sizes are constants (`multiply.py`).

Tested by `tests/backends/host/test_contraction_sized.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from staged.backends.cpu.contraction.items import finished, kernel_of_statements
from staged.backends.cpu.contraction.matmul_plan import (
    LEAST_ROWS,
    LONGEST_K,
    PACK_LEFT_PANELS,
    PACK_RIGHT_ROWS,
    plan_matmul,
)
from staged.backends.cpu.contraction.multiply import COPIES, FINISH, ITEMS, SIZES, words_of
from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import shared_function
from staged.backends.cpu.contraction.sized_text import MATRICES, MULTIPLY, NEXT_TILE, SIZED, STRIPS
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec, Matrices
from staged.backends.cpu.contraction.tile import TILE_START, split_evenly
from staged.backends.cpu.contraction.vectors import Vector, snippet_of, vector_of
from staged.code.expr import Conditional, Field, Items, Member, Name, Prefix, Variable, call
from staged.code.support.library import Snippet
from staged.code.tree import Declare, Do, Statement, While
from staged.code.types import INDEX, word
from staged.code.writer import INDENT, WIDTH, Writer, broken
from staged.ir.machine import Machine
from staged.ir.products import LONGEST_CHAIN
from staged.ir.sizes import Extent, bounds_of, value_of
from staged.ir.types import bound

PIECE = 250_000
"""Multiply-adds of a work item, at least."""
STRIP = 1024
"""Columns of a strip of few rows."""
WIDEST = 8
"""The vectors of a tile of one row."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a product: by their rows, so many vectors that additions do not wait for one another."""

    matrices: Matrices
    machine: Machine
    vector: Vector

    def most_rows(self, vectors: int) -> int:
        """The rows of tiles with so many vectors. A register holds a sum, a vector, a factor, a product."""
        operations = 1 if self.machine.fma else 2
        return (self.machine.vector_registers - vectors - operations) // vectors

    @property
    def height(self) -> int:
        """The rows of the largest tile."""
        return max(self.most_rows(3), 1 if self.machine.vector_registers > 16 else self.most_rows(2))

    def most_vectors(self, rows: int, is_wide: bool) -> int:
        """The vectors of the widest tile of a product with so many rows."""
        if rows <= self.most_rows(4):
            return WIDEST if rows == 1 else 4
        return 3 if is_wide and (rows <= self.most_rows(3) or self.height == self.most_rows(3)) else 2

    def shapes(self, rows: Extent, columns: Extent, is_wide: bool) -> Iterator[tuple[int, int]]:
        """Rows and vectors of the tiles of products with all these sizes: what `st_sized_$D` may choose."""
        lanes = self.vector.lanes
        heights = [rows] if isinstance(rows, int) else range(1, min(bound(rows), 3 * self.height) + 1)
        for m in filter(None, heights):
            most = self.most_vectors(m, is_wide)
            widths = range(lanes, min(-(-bound(columns) // lanes), most * most) * lanes + 1, lanes)
            for n in [columns] if isinstance(columns, int) else widths:
                vectors = -(-n // lanes)
                panels = 2 if is_wide and 1 < vectors <= most and vectors * lanes > n else max(1, -(-vectors // most))
                across = split_evenly(max(1, vectors), max(1, -(-vectors // panels)))
                room = {4: self.most_rows(4), 3: self.most_rows(3)}.get(min(across.large, 4), self.height)
                heights_of = split_evenly(m, 1 if m == 1 else room)
                yield from ((r, v) for v in across.sizes for r in heights_of.sizes)

    @property
    def may_turn(self) -> bool:
        """Return whether products of some sizes are computed as their transposes."""
        matrices = self.matrices
        for part in (1, 2, 4, 10, 30):
            sizes = {dim: max(1, (dim.max or 1) // part) for dim in matrices.dims}
            m, n, k = (value_of(extent, sizes) for extent in matrices.matrix)
            a, b = (
                (1, columns_turned) if turned else (columns, 1)
                for turned, columns, columns_turned in zip(matrices.turned, (k, n), (m, k), strict=True)
            )
            spec = MatmulSpec("", m, n, k, self.vector.dtype, (), a, b, (n, 1))
            if min(m, n, k) > 0 and plan_matmul(spec, self.machine).turned:
                return True
        return False

    @property
    def functions(self) -> list[ProductTile]:
        """The tiles."""
        (turned_a, turned_b), m, n = self.matrices.turned, self.matrices.m, self.matrices.n
        found = {*self.shapes(m, n, not turned_b)}
        if self.may_turn:
            found |= {*self.shapes(n, m, turned_a)}
        return [ProductTile(self.vector, r, v) for r, v in sorted(found)]

    def table(self, name: str) -> Snippet:
        """The functions of tiles by rows and vectors."""
        t = Writer()
        functions = self.functions
        batch, m, n, k = self.matrices.batch, *self.matrices.matrix
        lead = "" if batch == 1 else f"{batch}, "
        t.line(
            f"// ({lead}{m}, {k}) @ ({lead}{k}, {n}), {self.vector.dtype}: the functions of tiles, by rows and vectors"
        )
        with t.block(f"static st_sums_{self.vector.dtype} *const {name}[{self.height + 1}][{WIDEST + 1}] =", ";"):
            for rows, tiles in groupby(functions, lambda tile: tile.rows):
                items = [f"[{tile.vectors}] = {tile.name}" for tile in tiles]
                for line in broken(f"[{rows}] = {{", items, "},", WIDTH - len(INDENT)):
                    t.line(line)
        return Snippet(name, str(t))

    def support(self, is_stored: bool) -> list[Snippet]:
        """The functions of products whose sizes the program finds; `is_stored`: memory gets the product."""
        vector, machine = self.vector, self.machine
        words = words_of(vector) | {
            "$ROWS_OF_FOUR": self.most_rows(4), "$ROWS_OF_THREE": self.most_rows(3), "$ROWS": self.height,
            "$CHAIN": LONGEST_CHAIN, "$BLOCK": LONGEST_K, "$STRIP": STRIP, "$GROUP": min(8, vector.lanes),
            "$L1": machine.l1, "$L2": machine.l2, "$SHARES": 4 * machine.cores if machine.cores > 1 else 1,
            "$PIECE": PIECE,
            "$LEAST": LEAST_ROWS, "$PANELS": PACK_LEFT_PANELS, "$PACKED": 4 * PACK_RIGHT_ROWS,
            "$MANY": 3 if self.height == self.most_rows(3) else 2, "$WIDEST": WIDEST,
        }  # fmt: skip
        parts = {"sized": SIZED, "items": ITEMS, "finish_tile": FINISH, "strips": STRIPS, "next_sized": NEXT_TILE}
        parts |= {"multiply_sized": MULTIPLY} if is_stored else {}
        return [
            snippet_of(vector, "product_sizes", SIZES),
            TILE_START,
            *(each for tile in self.functions for each in (tile.snippet, shared_function(tile))),
            *(snippet_of(vector, name, text, words) for name, text in COPIES.items()),
            MATRICES,
            *(snippet_of(vector, name, text, words) for name, text in parts.items()),
        ]

    @property
    def scratch_items(self) -> int:
        """Room for copies of operands and for tiles, for all sizes."""
        lanes, size, l2 = self.vector.lanes, self.vector.dtype.size, self.machine.l2
        m, n, k = map(bound, self.matrices.matrix)
        block, most, tile = min(k, LONGEST_K) + 2 * lanes, max(m, n), 4 * self.height * lanes
        rows = min(most, max(LEAST_ROWS, l2 * 3 // 4 // (min(k, LONGEST_K // 2) * size)) + 2 * self.height)
        kept = tile if k <= LONGEST_K else max(l2 // 4 // size, rows * WIDEST * lanes) + tile
        turned = -(-self.height // lanes) * lanes * 4 * lanes
        panel = min(WIDEST, -(-most // lanes)) * lanes * block
        return max(panel + rows * block + kept + turned, (4 + lanes) * STRIP)


def emit_sized(spec: MatmulSpec, matrices: Matrices, machine: Machine) -> ContractionKernel:
    """The kernel of a product whose sizes the program finds."""
    vector = vector_of(machine, spec.dtype)
    tiles, dtype = Tiles(matrices, machine, vector), vector.dtype

    def body(parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        sizes, tile = Variable("sizes", word(f"st_product_{dtype}")), Variable("tile", word(f"st_tile_{dtype}"))
        is_stored = spec.epilogue is None
        facts = (*matrices.turned, is_stored, tiles.may_turn, matrices.may_repeat)
        *flags, repeats = (Name("true" if each else "false") for each in facts)
        shape = Items((*(spec.number(extent, parameters) for extent in matrices.matrix), *flags), "st_matrices")
        made = Declare(sizes, call(f"st_sized_{dtype}", shape, Name(spec.table)))
        a, b = (parameters[name] for name in spec.operand_names)
        scratch, batch = parameters["scratch"], spec.number(matrices.batch, parameters)
        if is_stored:
            result = parameters[spec.result_name]
            given = a, b, result, Prefix("&", sizes), batch, scratch
            return made, Do(call(f"st_multiply_sized_{dtype}", *given, parameters["begin"], parameters["end"]))
        begin, end = (
            call(f"st_item_{dtype}", Prefix("&", sizes), batch, parameters[each]) for each in ("begin", "end")
        )
        stop = Variable("stop", INDEX)
        turned = Member(sizes, "right_first", arrow=False)
        left, right = Conditional(turned, b, a), Conditional(turned, a, b)
        passed = Prefix("&", sizes), left, right, Name("NULL"), scratch, stop, repeats, Prefix("&", tile)
        return (
            made,
            Declare(tile, Items((Field("item", begin),)), is_const=False),
            Declare(stop, end),
            While(
                call(f"st_next_sized_tile_{dtype}", *passed),
                finished(spec, parameters, tile, "batch row col rows cols sums ld".split(), 1),
            ),
        )

    items = bound(matrices.batch) * (1 + prod(map(bound, matrices.matrix)) // PIECE)
    made = kernel_of_statements(spec, vector, items, tiles.scratch_items, body, tiles.support(spec.epilogue is None))
    return replace(made, items_size=items_size(matrices), tables=(tiles.table(spec.table),))


def items_size(matrices: Matrices) -> Extent:
    """The number of work items: a matrix has at most so many."""
    if prod(map(bound, matrices.matrix)) < PIECE:
        return matrices.batch
    m, n, k = (bound(extent) if bounds_of(extent)[0] < 0 else extent for extent in matrices.matrix)
    return matrices.batch * (1 + m * n * k // PIECE)
