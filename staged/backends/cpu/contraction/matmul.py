"""Matrix products as C text: register tiles over packed panels, every size and stride a literal.

A work item is a block of rows and columns of one matrix of the batch. It packs what it reads badly (a transposed
operand, rows far apart) into its thread's scratch memory, so items are independent and any thread may take any of them.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import prod

from staged.backends.cpu.contraction import skinny
from staged.backends.cpu.contraction.items import kernel_function, no_items
from staged.backends.cpu.contraction.matmul_plan import (
    MatmulPlan,
    describe,
    merged,
    panel_start,
    plan_matmul,
)
from staged.backends.cpu.contraction.multiply import emit_multiplied, is_multiplied
from staged.backends.cpu.contraction.operands import batch_terms, kernel_parameters
from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import TileCalls
from staged.backends.cpu.contraction.sized import emit_sized
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, Epilogue, MatmulSpec, Parameter
from staged.backends.cpu.contraction.stored import Stored
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import Split, aligned_to, each_piece, emit_delivery
from staged.backends.cpu.contraction.vectors import support_for, zeroed
from staged.code.writer import Writer
from staged.ir.machine import Machine


def emit_matmul(spec: MatmulSpec, machine: Machine) -> ContractionKernel:
    """The C text of a matrix product of floats for one machine; empty sums are nests of loops (`ir/products.py`).

    Numerics: each result is a sum over k in ascending order, in spec.dtype, in chains of at most `LONGEST_CHAIN` that
    are then added up, fused multiply-adds where the machine has them (vector-by-matrix shapes add several partial
    sums). The order does not depend on the number of threads.
    """
    if spec.matrices is not None:
        return emit_sized(spec, spec.matrices, machine)
    if spec.m * spec.n * prod(spec.batch) == 0:
        return no_items(spec)
    spec = merged(spec)
    narrow = skinny.plan_skinny(spec, machine)
    if narrow is not None:
        return skinny.emit_skinny(narrow)
    plan = plan_matmul(spec, machine)
    return emit_multiplied(plan) if is_multiplied(plan) else _Emitter(plan).emit()


def least_columns(spec: MatmulSpec | Conv2dSpec, machine: Machine) -> int:
    """The least number of columns of a tile that goes to an epilogue, 0 if it is unknown."""
    if not isinstance(spec, MatmulSpec) or not spec.dtype.is_float or spec.matrices or machine.blas is not None:
        return 0
    spec = replace(spec, epilogue=Epilogue(""))
    if spec.m * spec.n * prod(spec.batch) == 0 or skinny.plan_skinny(spec, machine) is not None:
        return 0
    plan = plan_matmul(spec, machine)
    if plan.turned:
        return plan.tile.rows.sizes[-1]
    return min(plan.last_width, plan.tile.vectors.sizes[-1] * plan.vector.lanes)


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile at `row`: the sizes that it may have, the larger one first, and its rows in C."""

    sizes: tuple[int, ...]
    rows: str

    @property
    def room(self) -> int:
        """The most rows that it may have."""
        return self.sizes[0]


class _Emitter:
    def __init__(self, plan: MatmulPlan) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.vector = plan.vector
        self.stored = Stored.of(plan.spec, plan.vector)
        self.text = Writer()
        self.tiles = TileCalls(plan.spec.name)

    def emit(self) -> ContractionKernel:
        plan, spec = self.plan, self.spec
        parameters = kernel_parameters(spec, plan.packed_a_items + plan.panel_items + plan.partial_items > 0)
        self.emit_main(parameters)
        text = self.tiles.text + str(self.text)
        snippets, support = support_for(text, self.vector, [*self.stored.functions(), *self.tiles.functions])
        return ContractionKernel(
            spec.name,
            text,
            parameters,
            plan.work_items,
            scratch_bytes=(self.sums_start() + plan.partial_items) * spec.dtype.size,
            snippets=snippets,
            support=support,
        )

    # ---- names and strides ---------------------------------------------------------------------

    def left_strides(self, tile: Tile) -> tuple[str, str]:
        """Strides of rows and steps of the left operand as a tile reads it."""
        plan = self.plan
        if plan.pack_a == "rows":
            return str(plan.packed_row), "1"
        if plan.pack_a == "columns":
            return "1", tile.rows
        return str(plan.a.row), str(plan.a.col)

    @property
    def steps(self) -> str:
        """Steps of the inner dimension that are done at once, as C."""
        return "steps" if self.plan.k_blocks > 1 else str(self.spec.k)

    def emit_tile_call(self, tile: Tile, vectors: int, left: str, right: str, right_step: str) -> None:
        """A tile at `row` and `col`: into the result if all of its columns exist, else by way of `tile`."""
        t, plan, result = self.text, self.plan, self.plan.result
        full, widths = vectors * self.vector.lanes, plan.widths(vectors)
        is_direct = result.epilogue is None and result.col_stride == 1 and full in widths
        others = widths[1:] if is_direct else widths
        c, c_row, to = "tile", str(full), "result"
        if result.epilogue is None:
            (to,) = result.arguments("batch", "row", "col", to)
        if others:
            self.emit_tile_memory(tile.room, full)
        if is_direct:
            c = f"width == {full} ? {to} : tile" if others else to
            c_row = f"width == {full} ? {result.row_stride} : {full}" if others else str(result.row_stride)
        a_row, a_step = self.left_strides(tile)
        arguments = {
            "a": left, "a_row": a_row, "a_step": a_step, "b": right, "b_step": right_step,
            "steps": self.steps, "chain": self.steps if plan.chain is None else str(plan.chain),
            "c": c, "c_row": c_row, "adds": "false" if plan.k_blocks == 1 else "part > 0",
        }  # fmt: skip
        functions = [ProductTile(self.vector, rows, vectors) for rows in tile.sizes]
        is_shared = functions[0].is_shared(plan.k_block)
        smaller = functions[1] if len(functions) > 1 else None
        is_large = f"{tile.rows} == {tile.room}"
        t.statement(self.tiles.call(functions[0], is_shared, arguments, smaller=smaller, is_large=is_large))
        if not others:
            return
        last = [f"part == {plan.k_blocks - 1}"] if plan.k_blocks > 1 else []
        partial = [f"width != {full}"] if is_direct else []
        guard = " && ".join([*last, *partial])
        with t.block(f"if ({guard})") if guard else nullcontext():
            if result.epilogue is None:
                t.line(f"{self.vector.scalar} *const to = {to};")
            width = str(others[0]) if len(others) == 1 else "width"
            emit_delivery(t, self.vector, result, tile.room, vectors, width, tile.rows, "to")

    def emit_tile_memory(self, rows: int, full: int) -> None:
        """The declaration of `tile`: the item's own sums, if they wait for further blocks of the inner dimension."""
        t, plan, scalar = self.text, self.plan, self.vector.scalar
        if plan.k_blocks == 1:
            t.line(f"{scalar} tile[{rows * full}] {aligned_to(self.vector)};")
            return
        row = "row" if plan.row_blocks == 1 else "(row - row_begin)"
        col = "col" if plan.col_blocks == 1 else "(col - col_begin)"
        place = added("sums", times(plan.rows_per_item * plan.tile.rows.large, col), times(full, row))
        t.line(f"{scalar} *const tile = {place};")

    # ---- the items -----------------------------------------------------------------------------

    def emit_main(self, parameters: tuple[Parameter, ...]) -> None:
        t, plan, spec = self.text, self.plan, self.spec
        with kernel_function(t, spec, parameters, describe(plan)):
            with t.block("for (int64_t item = begin; item < end; ++item)"):
                self.emit_decode()
                if plan.k_blocks == 1:
                    self.emit_part()
                    return
                if plan.partial_items:
                    t.line(f"{self.vector.scalar} *const sums = {added('scratch', str(self.sums_start()))};")
                with t.block(f"for (int64_t part = 0; part < {plan.k_blocks}; ++part)"):
                    last = spec.k - (plan.k_blocks - 1) * plan.k_block
                    steps = (
                        f"part < {plan.k_blocks - 1} ? {plan.k_block} : {last}" if last < plan.k_block else str(last)
                    )
                    t.line(f"const int64_t steps = {steps};")
                    self.emit_part()
                    t.line(f"left += {plan.k_block * plan.a.col};")
                    t.line(f"right += {plan.k_block * plan.b.row};")

    def emit_part(self) -> None:
        """The tiles of an item, over a block of the inner dimension."""
        if self.plan.pack_a:
            self.emit_pack_left()
        self.emit_panels()

    def sums_start(self) -> int:
        plan = self.plan
        return plan.packed_a_items + plan.panel_items

    def emit_decode(self) -> None:
        """From the item's number to batch, range of rows and range of columns."""
        t, plan, spec = self.text, self.plan, self.spec
        matrices, row_blocks, col_blocks = prod(spec.batch), plan.row_blocks, plan.col_blocks
        blocks = row_blocks * col_blocks
        batch = "0" if matrices == 1 else "item" if blocks == 1 else f"item / {blocks}"
        if matrices > 1 or spec.epilogue is not None:
            t.line(f"const int64_t batch = {batch};")
        index = "item" if matrices == 1 else f"item % {blocks}"
        if row_blocks > 1:
            block = index if col_blocks == 1 else f"{index} / {col_blocks}"
            self.emit_bounds("row", block, plan.tile.rows, plan.rows_per_item, 1)
        if col_blocks > 1:
            block = (
                index if row_blocks == 1 else f"({index}) % {col_blocks}" if matrices > 1 else f"{index} % {col_blocks}"
            )
            self.emit_bounds("col", block, plan.tile.vectors, plan.cols_per_item, self.vector.lanes)
        scalar, stored = self.vector.scalar, self.stored.scalar
        left, right = reversed(spec.operand_names) if plan.turned else spec.operand_names
        const = "const " if plan.k_blocks == 1 else ""  # moved along by blocks of the inner dimension
        t.line(f"const {stored} *{const}left = {added(left, *batch_terms(spec.batch, plan.a.batch))};")
        t.line(f"const {stored} *{const}right = {added(right, *batch_terms(spec.batch, plan.b.batch))};")
        if spec.epilogue is None:
            t.line(f"{scalar} *const result = {added(spec.result_name, *batch_terms(spec.batch, plan.c.batch))};")

    def emit_bounds(self, axis: str, block: str, split: Split, per_item: int, unit: int) -> None:
        """`row_begin` and `row_end` of the item's block; the two piece sizes of `split` are taken into account."""
        t = self.text

        def start(index: str) -> str:
            if not split.small_count:
                return times(split.large * unit, index)
            late = f"({index} > {split.large_count} ? {index} - {split.large_count} : 0)"
            return f"{times(split.large * unit, index)} - {times(unit, late)}"

        t.line(f"const int64_t {axis}_tile = {times(per_item, f'({block})' if ' ' in block else block)};")
        stop = f"{axis}_tile + {per_item}"
        if split.count % per_item:
            stop = f"{stop} < {split.count} ? {stop} : {split.count}"
        t.line(f"const int64_t {axis}_tile_end = {stop};")
        t.line(f"const int64_t {axis}_begin = {start(f'{axis}_tile')};")
        t.line(f"const int64_t {axis}_end = {start(f'{axis}_tile_end')};")

    def ranges(self, axis: str, split: Split, blocks: int, unit: int) -> list[tuple[int, str]]:
        """Loop headers over the pieces of an axis, one per piece size."""
        headers, start = [], 0
        for size, count in split.counted():
            step, stop = size * unit, start + size * unit * count
            last_kind = size == split.counted()[-1][0]
            if blocks == 1:
                headers.append((size, f"for (int64_t {axis} = {start}; {axis} < {stop}; {axis} += {step})"))
            else:
                first = f"{axis}_begin" if start == 0 else f"{axis}_begin > {start} ? {axis}_begin : {start}"
                bound = f"{axis}_end" if last_kind else f"({axis}_end < {stop} ? {axis}_end : {stop})"
                headers.append((size, f"for (int64_t {axis} = {first}; {axis} < {bound}; {axis} += {step})"))
            start = stop
        return headers

    @contextmanager
    def each_tile(self) -> Iterator[Tile]:
        """A loop over the tiles of rows: `rows` is the size of a tile, if there are two."""
        plan = self.plan
        first, stop = ("0", str(plan.m)) if plan.row_blocks == 1 else ("row_begin", "row_end")
        with each_piece(self.text, "row", plan.tile.rows, first, stop) as rows:
            yield Tile(plan.tile.rows.sizes, rows)

    def packed_left(self, row: str = "row") -> str:
        """The offset in scratch of the tile of the packed left operand that starts at `row`."""
        plan = self.plan
        inside = row if plan.row_blocks == 1 else f"({row} - row_begin)"
        return added("scratch", times(plan.left_row, inside))

    def emit_pack_left(self) -> None:
        t, plan, k = self.text, self.plan, self.steps
        if plan.pack_a == "rows":
            first, last = ("0", str(plan.m)) if plan.row_blocks == 1 else ("row_begin", "row_end")
            with t.block(f"for (int64_t row = {first}; row < {last}; ++row)"):
                source = added("left", times(plan.a.row, "row"))
                t.line(self.stored.copied(self.packed_left(), source, k))
            return
        with self.each_tile() as tile, t.block(f"for (int64_t k = 0; k < {k}; ++k)"):
            target = added(self.packed_left(), f"k * {tile.rows}")
            source = added("left", "row", times(plan.a.col, "k"))
            t.line(self.stored.copied(target, source, tile.rows))

    def emit_panels(self) -> None:
        t, plan = self.text, self.plan
        if plan.panel_items:
            t.line(f"{self.vector.scalar} *const panel = {added('scratch', str(plan.packed_a_items))};")
        last = panel_start(plan.tile.vectors, plan.tile.vectors.count - 1) * self.vector.lanes
        for vectors, header in self.ranges("col", plan.tile.vectors, plan.col_blocks, self.vector.lanes):
            full = vectors * self.vector.lanes
            widths = plan.widths(vectors)
            with t.block(header):
                if len(widths) > 1:
                    t.line(f"const int64_t width = col == {last} ? {plan.last_width} : {full};")
                source, step = "panel", str(full)
                if plan.pack_b is not None:
                    self.emit_pack_right(full, widths)
                elif full not in widths:
                    self.emit_pad_right(full, plan.last_width)
                elif len(widths) > 1:
                    with t.block(f"if (width != {full})"):
                        self.emit_pad_right(full, plan.last_width)
                    t.line(f"const {self.vector.scalar} *const source = width == {full} ? right + col : panel;")
                    source, step = "source", f"width == {full} ? {plan.b.row} : {full}"
                else:
                    source, step = "right + col", str(plan.b.row)
                left = self.packed_left() if plan.pack_a else added("left", times(plan.a.row, "row"))
                with self.each_tile() as tile:
                    self.emit_tile_call(tile, vectors, left, source, step)

    def emit_pad_right(self, full: int, width: int) -> None:
        """The last panel, row by row, filled up with zeros."""
        t, plan = self.text, self.plan
        with t.block(f"for (int64_t k = 0; k < {self.steps}; ++k)"):
            source = added("right", times(plan.b.row, "k"), "col")
            t.line(self.stored.copied(f"panel + {times(full, 'k')}", source, width))
            t.line(zeroed(self.vector, f"panel + {times(full, 'k')} + {width}", full - width))

    def emit_pack_right(self, full: int, widths: tuple[int, ...]) -> None:
        t, plan, vector, k = self.text, self.plan, self.vector, self.steps
        width = "width" if len(widths) > 1 else str(widths[0])
        if plan.pack_b == "rows":
            if full in widths:
                guard = f"if (width == {full})" if len(widths) > 1 else ""
                with t.block(f"{guard} for (int64_t k = 0; k < {k}; ++k)".strip()):
                    with t.unrolled(full // vector.lanes, f"for (int64_t v = 0; v < {full}; v += {vector.lanes})"):
                        source = f"right + {added(times(plan.b.row, 'k'), 'col', 'v')}"
                        self.stored.emit_move(t, f"panel + k * {full} + v", source)
            if widths[-1] != full:
                if len(widths) > 1:
                    with t.block(f"if (width != {full})"):
                        self.emit_pad_right(full, widths[-1])
                else:
                    self.emit_pad_right(full, widths[-1])
            return
        if plan.pack_b == "gather":
            with t.block(f"for (int64_t k = 0; k < {k}; ++k)"):
                with t.block(f"for (int64_t s = 0; s < {full}; ++s)"):
                    column = f"(col + (s < {width} ? s : {width} - 1))" if widths[-1] != full else "(col + s)"
                    source = added(times(plan.b.row, "k"), times(plan.b.col, column))
                    t.line(f"panel[k * {full} + s] = {self.stored.item(f'right[{source}]')};")
            return
        with t.block(f"for (int64_t s = 0; s < {width}; s += {vector.lanes})"):
            present = f"{width} - s" if widths[-1] != full else str(vector.lanes)
            with t.block(f"for (int64_t k = 0; k < {k}; k += {vector.lanes})"):
                step = "k"
                if self.spec.k % vector.lanes:
                    # the last block starts early enough to end with the rows; it writes some items a second time
                    latest = f"{k} - {vector.lanes}" if plan.k_blocks > 1 else str(self.spec.k - vector.lanes)
                    t.line(f"const int64_t first = k < {latest} ? k : {latest};")
                    step = "first"
                source = f"right + (col + s) * {plan.b.col} + {step}"
                t.line(
                    f"{self.stored.transpose}({source}, {plan.b.col}, {present}, panel + {step} * {full} + s, {full});"
                )
