"""Products of matrices whose sizes the program finds: it chooses the tiles before it calls the kernel.

    const st_product_f32 hidden_product = st_sized_f32((st_matrices){N, 50, 320, false, false, true}, hidden_sizes);

Numerics: the terms, chains and order of the sums are those of products whose sizes are constants (`multiply.py`).

Tested by `tests/backends/host/test_contraction_sized.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import count, groupby, product
from math import gcd, prod

from staged.backends.cpu.contraction.items import finished, kernel_of_statements
from staged.backends.cpu.contraction.matmul_plan import (
    LEAST_ROWS,
    LONGEST_K,
    PACK_LEFT_PANELS,
    PACK_RIGHT_ROWS,
    plan_matmul,
)
from staged.backends.cpu.contraction.multiply import COPIES, FINISH, ITEMS, NEXT_TILE, PANELS, SIZES, words_of
from staged.backends.cpu.contraction.operands import kernel_parameters
from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import tiles_function
from staged.backends.cpu.contraction.sized_text import (
    DOTS,
    MATRICES,
    MULTIPLY,
    NEXT_SIZED,
    NEXT_STRIP,
    ROWS,
    SIZED,
    STRIP_FUNCTION,
)
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec, Matrices
from staged.backends.cpu.contraction.tile import TILE_START, split_evenly
from staged.backends.cpu.contraction.vectors import Vector, snippet_of, support_for, vector_of
from staged.code.expr import Conditional, Field, Items, Member, Name, Prefix, Variable, call
from staged.code.kernel_text import Filled
from staged.code.support.library import Snippet
from staged.code.tree import Declare, Statement, While
from staged.code.types import INDEX, word
from staged.code.writer import INDENT, WIDTH, Writer, broken
from staged.ir.machine import Machine
from staged.ir.products import LONGEST_CHAIN
from staged.ir.sizes import Extent, bounds_of, dims_in, value_of
from staged.ir.types import DType, bound

PIECE = 250_000
"""Multiply-adds of a work item, at least."""
STRIP = 1024
"""Columns of a strip of few rows."""
TOGETHER = 4
"""Tiles in memory that are one for the epilogue."""
WIDEST = 8
"""The vectors of a tile of one row."""
FEW = 1024
"""Sizes up to which those of a dimension are considered one by one."""


@dataclass(frozen=True, slots=True)
class Strip:
    """The function of a strip of few rows: dot products, or sums of rows of the right operand."""

    vector: Vector
    rows: int
    has_dots: bool

    @property
    def kind(self) -> str:
        return "dots" if self.has_dots else "rows"

    @property
    def tiles(self) -> str:
        """The name of the function."""
        return f"st_{self.kind}_{self.vector.dtype}_{self.rows}"

    @property
    def inline(self) -> str:
        """The text of the inline function."""
        return DOTS if self.has_dots else ROWS

    @property
    def snippet(self) -> Snippet:
        """The function, which calls the inline one."""
        return snippet_of(
            self.vector, f"{self.kind}_{self.rows}", STRIP_FUNCTION, {"$KIND": self.kind, "$COUNT": self.rows}
        )


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

    def shapes(self, rows: int, columns: int, is_wide: bool) -> Iterator[tuple[int, int]]:
        """Rows and vectors of the tiles of a product: what `st_sized_$D` chooses."""
        lanes, most = self.vector.lanes, self.most_vectors(rows, is_wide)
        vectors = max(1, -(-columns // lanes))
        panels = 2 if is_wide and 1 < vectors <= most and vectors * lanes > columns else -(-vectors // most)
        across = split_evenly(vectors, -(-vectors // panels))
        room = {4: self.most_rows(4), 3: self.most_rows(3)}.get(min(across.large, 4), self.height)
        return product(split_evenly(rows, 1 if rows == 1 else room).sizes, across.sizes)

    def all_shapes(self, rows: Extent, columns: Extent, is_wide: bool) -> set[tuple[int, int]]:
        """Rows and vectors of the tiles of products with all these sizes."""
        if has_one_dim(rows, columns):
            return {shape for m, n in values_of(rows, columns) if m > 0 for shape in self.shapes(m, n, is_wide)}
        lanes = self.vector.lanes
        all_columns = {n for (n,) in values_of(columns)}
        few = {most: fewer(all_columns, lanes, most) for most in range(1, WIDEST + 1)}
        return {
            shape
            for m in fewer({m for (m,) in values_of(rows)} - {0}, 1, self.height)
            for n in few[self.most_vectors(m, is_wide)]
            for shape in self.shapes(m, n, is_wide)
        }

    def strips(self, rows: Extent, columns: Extent, is_deep: bool, is_wide: bool) -> Iterator[tuple[int, int]]:
        """The strips that `st_sized_$D` may choose: (0, rows) of dot products, (rows, 0) of sums of rows."""
        lanes, k, machine = self.vector.lanes, bound(self.matrices.k), self.machine
        together = has_one_dim(rows, columns)
        pairs = values_of(rows, columns) if together else ((m, bound(columns)) for (m,) in values_of(rows))
        for m, n in pairs:
            has_column = (n if together else bounds_of(columns)[0]) <= 1
            if 0 < m <= 4 and k >= lanes and (is_deep or m == 1) and (not is_wide or has_column):
                yield 0, m
            least = 2 * machine.l1 if m == 1 else machine.l2 // 2
            if 0 < m <= 4 and is_wide and n >= 4 * lanes and k * n * self.vector.dtype.size > least:
                yield m, 0

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

    def functions(self) -> dict[tuple[int, int], ProductTile | Strip]:
        """The functions of tiles by rows and vectors, and of strips."""
        (turned_a, turned_b), m, n = self.matrices.turned, self.matrices.m, self.matrices.n
        strips = {*self.strips(m, n, not turned_a, not turned_b), *self.strips(n, m, turned_b, turned_a)}
        found = self.all_shapes(m, n, not turned_b)
        if self.may_turn:
            found |= self.all_shapes(n, m, turned_a)
        tiles = {(r, v): ProductTile(self.vector, r, v) for r, v in found}
        return dict(sorted((tiles | {(r, v): Strip(self.vector, r + v, r == 0) for r, v in strips}).items()))

    def table(self, name: str, functions: Mapping[tuple[int, int], ProductTile | Strip]) -> Snippet:
        """The functions of tiles by rows and vectors."""
        t = Writer()
        batch, m, n, k = self.matrices.batch, *self.matrices.matrix
        lead = "" if batch == 1 else f"{batch}, "
        t.line(
            f"// ({lead}{m}, {k}) @ ({lead}{k}, {n}), {self.vector.dtype}: the functions of tiles, by rows and vectors"
        )
        with t.block(f"static st_sums_{self.vector.dtype} *const {name}[{self.height + 1}][{WIDEST + 1}] =", ";"):
            for rows, places in groupby(functions, lambda place: place[0]):
                items = [f"[{place[1]}] = {functions[place].tiles}" for place in places]
                for line in broken(f"[{rows}] = {{", items, "},", WIDTH - len(INDENT)):
                    t.line(line)
        return Snippet(name, str(t))

    def support(self, functions: Collection[ProductTile | Strip], is_stored: bool) -> list[Snippet]:
        """The functions of products whose sizes the program finds; `is_stored`: memory gets the product."""
        vector, machine = self.vector, self.machine
        dots = machine.vector_registers // 2
        words = words_of(vector) | {
            "$ROWS_OF_FOUR": self.most_rows(4), "$ROWS_OF_THREE": self.most_rows(3), "$ROWS": self.height,
            "$CHAIN": LONGEST_CHAIN, "$BLOCK": LONGEST_K, "$STRIP": STRIP, "$GROUP": dots,
            "$SUMS": -(-dots // vector.lanes) * vector.lanes,
            "$L1": machine.l1, "$L2": machine.l2, "$SHARES": 4 * machine.cores if machine.cores > 1 else 1,
            "$PIECE": PIECE,
            "$LEAST": LEAST_ROWS, "$PANELS": PACK_LEFT_PANELS, "$PACKED": 4 * PACK_RIGHT_ROWS,
            "$MANY": 3 if self.height == self.most_rows(3) else 2, "$WIDEST": WIDEST, "$BELOW": TOGETHER - 1,
        }  # fmt: skip
        parts = {"items": ITEMS, "sized": SIZED, "panels": PANELS, "finish_tile": FINISH, "next_tile": NEXT_TILE}
        parts |= {"next_strip": NEXT_STRIP, "next_sized": NEXT_SIZED}
        parts |= {"multiply_sized": MULTIPLY} if is_stored else {}
        tiles = [tile for tile in functions if isinstance(tile, ProductTile)]
        strips = [strip for strip in functions if isinstance(strip, Strip)]
        return [
            snippet_of(vector, "product_sizes", SIZES),
            TILE_START,
            *(each for tile in tiles for each in (tile.snippet, tiles_function(tile))),
            *(
                each
                for strip in strips
                for each in (snippet_of(vector, strip.kind, strip.inline, words), strip.snippet)
            ),
            *(snippet_of(vector, name, text, words) for name, text in COPIES.items()),
            MATRICES,
            *(snippet_of(vector, name, text, words) for name, text in parts.items()),
        ]

    @property
    def scratch_items(self) -> int:
        """Room for copies of operands and for tiles, for all sizes."""
        lanes, size, l2 = self.vector.lanes, self.vector.dtype.size, self.machine.l2
        m, n, k = map(bound, self.matrices.matrix)
        block, most, tile = min(k, LONGEST_K) + 2 * lanes, max(m, n), TOGETHER * 4 * self.height * lanes
        rows = min(most, max(LEAST_ROWS, l2 * 3 // 4 // (min(k, LONGEST_K // 2) * size)) + 2 * self.height)
        kept = tile if k <= LONGEST_K else max(l2 // 4 // size, rows * WIDEST * lanes) + tile
        turned = -(-TOGETHER * self.height // lanes) * lanes * 4 * lanes
        panel = min(WIDEST, -(-most // lanes)) * lanes * block
        return max(panel + rows * block + kept + turned, (4 + lanes) * STRIP)


def emit_sized(spec: MatmulSpec, matrices: Matrices, machine: Machine) -> ContractionKernel:
    """The kernel of a product whose sizes the program finds."""
    vector = vector_of(machine, spec.dtype)
    tiles, dtype, is_stored = Tiles(matrices, machine, vector), vector.dtype, spec.epilogue is None
    functions = tiles.functions()
    flags = (*matrices.turned, is_stored, tiles.may_turn, matrices.may_repeat)
    name = f"{spec.name.removesuffix('_product')}_product"
    filled = Filled(
        name, f"st_product_{dtype}", f"st_sized_{dtype}", "st_matrices", matrices.matrix, flags,
        spec.table, (matrices.batch,) if is_stored else (),
    )  # fmt: skip
    sizes, support = (f"const st_product_{dtype} *", "sizes"), tiles.support(functions.values(), is_stored)
    items = bound(matrices.batch) * (1 + prod(map(bound, matrices.matrix)) // PIECE)
    if is_stored:
        a, b, *_, c, scratch, begin, end = kernel_parameters(spec, has_scratch=True)
        made = ContractionKernel(
            f"st_multiply_sized_{dtype}",
            "",
            (a, b, c, sizes, ("int64_t ", "matrices"), scratch, begin, end),
            items,
            0,
            tiles.scratch_items * dtype.size,
            *support_for("", vector, [("", each) for each in support]),
        )
    else:
        step = 1 if tiles.may_turn or not isinstance(matrices.n, int) else gcd(vector.lanes, matrices.n)
        body = _body_with_epilogue(spec, matrices, dtype, step)
        made = kernel_of_statements(spec, vector, items, tiles.scratch_items, body, support, step, [sizes])
    return replace(made, items_size=items_size(matrices), tables=(tiles.table(spec.table, functions),), filled=filled)


def _body_with_epilogue(
    spec: MatmulSpec, matrices: Matrices, dtype: DType, column_step: int
) -> Callable[[Mapping[str, Variable]], tuple[Statement, ...]]:
    """A function that builds the statements of a kernel from its parameters by name; the epilogue finishes tiles."""

    def body(parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        a, b = (parameters[name] for name in spec.operand_names)
        sizes, batch = parameters["sizes"], spec.number(matrices.batch, parameters)
        tile, stop = Variable("tile", word(f"st_tile_{dtype}")), Variable("stop", INDEX)
        begin, end = (call(f"st_item_{dtype}", sizes, batch, parameters[each]) for each in ("begin", "end"))
        turned = Member(sizes, "right_first")
        left, right = Conditional(turned, b, a), Conditional(turned, a, b)
        passed = sizes, left, right, Name("NULL"), parameters["scratch"], stop, Prefix("&", tile)
        return (
            Declare(tile, Items((Field("item", begin),)), is_const=False),
            Declare(stop, end),
            While(
                call(f"st_next_sized_tile_{dtype}", *passed),
                finished(spec, parameters, tile, "batch row col rows cols sums ld".split(), column_step),
            ),
        )

    return body


def items_size(matrices: Matrices) -> Extent:
    """The number of work items: a matrix has at most so many."""
    if prod(map(bound, matrices.matrix)) < PIECE:
        return matrices.batch
    m, n, k = (bound(extent) if bounds_of(extent)[0] < 0 else extent for extent in matrices.matrix)
    return matrices.batch * (1 + m * n * k // PIECE)


def all_pieces(most: int) -> int:
    """A size whose pieces of at most `most` have the sizes of those of all larger ones, also for a smaller `most`."""
    return next(size for size in count(most * (most - 1) + 1) if all(size % piece for piece in range(2, most + 1)))


def fewer(sizes: Set[int], unit: int, most: int) -> Set[int]:
    """Sizes with the same pieces of at most `most` units, of which the last may not be whole."""
    if len(sizes) == 1:
        return sizes
    large = all_pieces(most) * unit
    return {min(size if size % unit == 0 else size - size % unit + 1, large) for size in sizes}


def has_one_dim(*extents: Extent) -> bool:
    """Return whether sizes depend on a single dimension that has few values."""
    dims = {dim for extent in extents for dim in dims_in(extent)}
    return len(dims) == 1 and all((dim.max or FEW) < FEW for dim in dims)


def values_of(*extents: Extent) -> Iterator[tuple[int, ...]]:
    """The values that sizes have at the same time, if they depend on one dimension; else all up to a bound."""
    if not has_one_dim(*extents):
        return product(*(range(int(max(0, bounds_of(each)[0])), min(bound(each), FEW) + 1) for each in extents))
    dim = next(dim for extent in extents for dim in dims_in(extent))
    return (tuple(value_of(each, {dim: value}) for each in extents) for value in range(dim.least, bound(dim) + 1))
