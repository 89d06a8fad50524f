"""The plan of a matrix product, made before its text: tiles, packing, and the pieces that threads take.

The estimates behind the choices count cycles of one core (`tile.choose_tile`) and copies of operands.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from staged.backends.cpu.contraction.spec import MatmulSpec
from staged.backends.cpu.contraction.stored import Stored
from staged.backends.cpu.contraction.tile import (
    Result,
    Split,
    TileChoice,
    choose_tile,
)
from staged.backends.cpu.contraction.vectors import Vector, vector_of
from staged.ir.buffers import aligned
from staged.ir.machine import Machine
from staged.ir.products import LONGEST_CHAIN, chain_of

PackLeft = Literal["rows", "columns"] | None
PackRight = Literal["rows", "transpose", "gather"] | None


@dataclass(frozen=True, slots=True)
class Operand:
    """Strides of a matrix: per axis of the batch, per row, per column."""

    batch: tuple[int, ...]
    row: int
    col: int

    @staticmethod
    def of(strides: tuple[int, ...]) -> Operand:
        return Operand(strides[:-2], strides[-2], strides[-1])

    def transposed(self) -> Operand:
        return Operand(self.batch, self.col, self.row)


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """Everything decided about a product before text is written.

    `turned`: the kernel computes the transpose of the result, (n, k) @ (k, m), so that the vectors run along m.
    """

    spec: MatmulSpec
    vector: Vector
    m: int
    n: int
    turned: bool
    a: Operand
    b: Operand
    c: Operand
    tile: TileChoice
    pack_a: PackLeft
    pack_b: PackRight
    rows_per_item: int  # in tiles
    cols_per_item: int  # in panels of tile columns
    k_block: int  # steps of the inner dimension done for a whole item before the next ones
    cycles: float

    @property
    def row_blocks(self) -> int:
        return -(-self.tile.rows.count // self.rows_per_item)

    @property
    def col_blocks(self) -> int:
        return -(-self.tile.vectors.count // self.cols_per_item)

    @property
    def work_items(self) -> int:
        return prod(self.spec.batch) * self.row_blocks * self.col_blocks

    @property
    def item_rows(self) -> int:
        """Rows of an item."""
        return self.rows_per_item * self.tile.rows.large

    @property
    def result(self) -> Result:
        spec = self.spec
        return Result(spec.epilogue, self.c.row, self.c.col, self.turned)

    @property
    def is_direct(self) -> bool:
        """Return whether every tile is stored to the result directly."""
        return self.spec.epilogue is None and self.c.col == 1 and not self.last_is_partial

    @property
    def last_width(self) -> int:
        """Columns of the last panel that exist; the rest of it is padding."""
        return self.n - panel_start(self.tile.vectors, self.tile.vectors.count - 1) * self.vector.lanes

    @property
    def last_is_partial(self) -> bool:
        return self.n % self.vector.lanes != 0

    def last_vectors(self) -> int:
        return self.tile.vectors.counted()[-1][0]

    def widths(self, vectors: int) -> tuple[int, ...]:
        """The numbers of real columns that a tile of `vectors` vectors can meet."""
        full = vectors * self.vector.lanes
        if not self.last_is_partial or vectors != self.last_vectors():
            return (full,)
        count = dict(self.tile.vectors.counted())[vectors]
        return (full, self.last_width) if count > 1 else (self.last_width,)

    @property
    def chain(self) -> int | None:
        """Steps of the inner dimension that a sum in a register takes in at a time; None: all of a block."""
        if self.k_block <= LONGEST_CHAIN:
            return None
        return chain_of(self.k_block)

    @property
    def k_blocks(self) -> int:
        return -(-self.spec.k // self.k_block)

    @property
    def partial_items(self) -> int:
        """The sums of an item between blocks of the inner dimension, unless the result has them."""
        if self.k_blocks == 1 or self.is_direct:
            return 0
        return (
            self.rows_per_item * self.tile.rows.large * self.cols_per_item * self.tile.vectors.large * self.vector.lanes
        )

    @property
    def packed_row(self) -> int:
        """Distance of rows of the packed left operand: never a power of two, whose lines would compete for one cache
        set.
        """
        lanes = self.vector.lanes
        return -(-self.k_block // lanes) * lanes + lanes

    @property
    def left_row(self) -> int:
        """Distance of rows of tiles in the packed left operand."""
        return self.packed_row if self.pack_a == "rows" else self.k_block

    @property
    def packed_a_items(self) -> int:
        """Room for the packed left operand, up to where the panels begin."""
        if self.pack_a is None:
            return 0
        size = self.spec.dtype.size
        return aligned(self.item_rows * self.left_row * size) // size

    @property
    def panel_items(self) -> int:
        if self.pack_b is not None:
            return self.tile.vectors.large * self.vector.lanes * self.k_block
        return self.last_vectors() * self.vector.lanes * self.k_block if self.last_is_partial else 0


def panel_start(split: Split, index: int) -> int:
    return index * split.large - max(0, index - split.large_count)


def merged(spec: MatmulSpec) -> MatmulSpec:
    """The same product with batch axes merged into the rows or columns, where one operand does not vary along them.

    A (8, 16, d) batch of rows times one (d, n) matrix is one product of 128 rows. Not with an epilogue, which receives
    the number of the batch.
    """
    batch, a, b, c = spec.batch, spec.a_strides, spec.b_strides, spec.c_strides
    if spec.epilogue is not None or not batch:
        return spec
    kept = [axis for axis in range(len(batch)) if batch[axis] != 1]
    ends = [len(batch), len(batch) + 1]
    batch = tuple(batch[axis] for axis in kept)
    a, b, c = (tuple(strides[axis] for axis in (*kept, *ends)) for strides in (a, b, c))
    m, n = spec.m, spec.n
    while batch:
        rows_follow = b[-3] == 0 and a[-3] == m * a[-2] and c[-3] == m * c[-2]
        cols_follow = a[-3] == 0 and b[-3] == n * b[-1] and c[-3] == n * c[-1]
        if not rows_follow and not cols_follow:
            break
        m, n = (m * batch[-1], n) if rows_follow else (m, n * batch[-1])
        batch = batch[:-1]
        a, b, c = ((*strides[:-3], *strides[-2:]) for strides in (a, b, c))
    return replace(spec, m=m, n=n, batch=batch, a_strides=a, b_strides=b, c_strides=c)


def plan_matmul(spec: MatmulSpec, machine: Machine) -> MatmulPlan:
    """The cheaper of computing the product as it stands and computing its transpose."""
    straight, turned = (_plan(spec, machine, turned) for turned in (False, True))
    return turned if turned.cycles < 0.97 * straight.cycles else straight


def _plan(spec: MatmulSpec, machine: Machine, turned: bool) -> MatmulPlan:
    vector = vector_of(machine, spec.dtype)
    size = spec.dtype.size
    a, b = Operand.of(spec.a_strides), Operand.of(spec.b_strides)
    c = Operand.of(spec.c_strides) if spec.epilogue is None else Operand((), spec.n, 1)
    m, n, k = spec.m, spec.n, spec.k
    if turned:
        m, n, a, b, c = n, m, b.transposed(), a.transposed(), c.transposed()
    tile = choose_tile(machine, vector, m, n, k)

    k_block = k if k <= LONGEST_K else blocked_k(k, vector.lanes)
    # A block of rows of the left operand is read once per panel: it should stay in the second-level cache.
    matrices = prod(spec.batch)
    tile_bytes = tile.rows.large * k_block * size
    least = -(-LEAST_ROWS // tile.rows.large)
    rows_per_item = min(tile.rows.count, max(least, machine.l2 * 3 // 4 // tile_bytes))
    rows_per_item = -(-tile.rows.count // -(-tile.rows.count // rows_per_item))
    cols_per_item = tile.vectors.count
    # Enough items for the threads to share, where the work is worth sharing.
    if machine.cores > 1 and spec.multiply_adds > 500_000:
        blocks = matrices * -(-tile.rows.count // rows_per_item)
        if blocks < 4 * machine.cores:
            wanted = -(-4 * machine.cores // blocks)
            cols_per_item = max(1, tile.vectors.count // wanted)
            wanted = -(-wanted // -(-tile.vectors.count // cols_per_item))
            least = min(rows_per_item, -(-LEAST_SHARED_ROWS // tile.rows.large))
            rows_per_item = max(least, rows_per_item // wanted)

    if k_block < k:
        panel_bytes = rows_per_item * tile.rows.large * tile.vectors.large * vector.bytes
        cols_per_item = min(cols_per_item, max(1, machine.l2 // 4 // panel_bytes))
    rows, panels = rows_per_item, cols_per_item
    pack_b: PackRight = None
    if b.col != 1 and n > 1:
        pack_b = "transpose" if b.row == 1 and k >= vector.lanes else "gather"
    elif rows >= PACK_RIGHT_ROWS and b.row > vector.lanes * tile.vectors.large:
        pack_b = "rows"
    pack_a: PackLeft = None
    if panels >= PACK_LEFT_PANELS and k > 1:
        if a.col == 1 and a.row * size % 2048 == 0:
            pack_a = "rows"
        elif a.row == 1 and a.col > tile.rows.large and (tile_bytes > machine.l1 // 2 or a.col * size % 2048 == 0):
            pack_a = "columns"

    if spec.stored is not None:  # copying converts
        pack_b = pack_b or "rows"
        pack_a = "rows" if a.col == 1 else "columns"

    row_blocks = -(-tile.rows.count // rows_per_item)
    cycles = tile.cycles
    cycles += {None: 0.0, "rows": 0.1, "transpose": 0.35, "gather": 1.5}[pack_b] * k * n * row_blocks
    cycles += {None: 0.0, "rows": 0.1, "columns": 0.25}[pack_a] * k * m
    result = Result(spec.epilogue, c.row, c.col, turned)
    if result.needs_transpose():
        cycles += 0.6 * m * n
    elif spec.epilogue is None and c.col != 1 and n > 1:
        cycles += 1.5 * m * n
    return MatmulPlan(
        spec, vector, m, n, turned, a, b, c, tile, pack_a, pack_b, rows_per_item, cols_per_item, k_block, cycles
    )


def blocked_k(k: int, lanes: int) -> int:
    """Steps of a block of a long inner dimension: whole vectors, and at least one of them left for the last block."""
    blocks = -(-k // (LONGEST_K // 2))
    vectors = -(-k // (blocks * lanes))
    size = vectors * lanes
    while 0 < k % size < lanes:
        size += lanes
    return size


def describe(plan: MatmulPlan) -> list[str]:
    """The comment above a kernel."""
    spec, stored = plan.spec, Stored.of(plan.spec, plan.vector)
    batch = "".join(f"{extent}, " for extent in spec.batch)
    notes = [f"({batch}{spec.m}, {spec.k}) @ ({batch}{spec.k}, {spec.n}), {stored.title}"]
    if plan.turned:
        notes.append("computed as its transpose, vectors along the rows of the result")
    if plan.pack_a:
        why = "" if stored.is_narrow else ": its rows lie far apart"
        notes.append(f"the block's left operand is copied together{why}")
    if plan.k_blocks > 1:
        notes.append(f"the inner dimension is done in {plan.k_blocks} blocks, so that panels stay in the cache")
    if plan.pack_b == "transpose":
        notes.append("each panel of the right operand is transposed into scratch")
    elif plan.pack_b:
        notes.append("each panel of the right operand is copied together")
    elif plan.last_is_partial:
        notes.append("the last panel of the right operand is padded in scratch")
    return notes


LONGEST_K = 2048  # steps of the inner dimension; beyond, panels would not stay in the second-level cache
PACK_RIGHT_ROWS = 4  # row tiles that read a panel before copying it pays
PACK_LEFT_PANELS = 4
LEAST_SHARED_ROWS = 60  # of an item, where rows are split among threads
LEAST_ROWS = 240  # of an item: the panels of the right operand are copied once per item
