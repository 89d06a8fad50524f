"""Products of i8 whose sums are i32, in register tiles: each lane of a vector is a column, and takes in four products
of a step.

The left operand is copied row by row, padded to whole steps; the right one in panels of some vectors of columns, four
of whose bytes that follow one another in the inner dimension stand together. Nothing is rounded, in any order of the
sums, and sums wrap around.

Tested by `tests/backends/host/test_contraction_bytes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from staged.backends.cpu.contraction.items import kernel_function
from staged.backends.cpu.contraction.operands import batch_terms, kernel_parameters
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import Split, choose_tile, each
from staged.backends.cpu.contraction.vectors import (
    Vector,
    group_transpose_function,
    support_for,
    vector_of,
)
from staged.code.writer import Writer
from staged.ir.buffers import aligned
from staged.ir.machine import Machine
from staged.ir.types import i8, u32

GROUP = 4
"""Bytes of a column, and of a row, that one lane takes in at a time."""
INTERLEAVED = 16
"""Columns of four rows that `st_interleave_i8` puts together."""
SHARED = 500_000
"""Multiply-adds from which on threads share a product."""
LEAST_ROWS, LEAST_PANELS = 60, 2
"""Rows and panels of an item that threads share: each item copies its operands."""


def emit_byte_tiles(spec: MatmulSpec, machine: Machine) -> ContractionKernel:
    """The C text of a product of i8 in i32, of a left operand whose rows are dense."""
    return _Emitter(spec, machine).emit()


class _Emitter:
    def __init__(self, spec: MatmulSpec, machine: Machine) -> None:
        self.spec = spec
        self.bytes = vector_of(machine, i8)
        self.sums: Vector = vector_of(machine, u32)
        self.steps = -(-spec.k // GROUP)
        choice = choose_tile(machine, self.sums, spec.m, spec.n, self.steps)
        self.row_tiles, self.panels = choice.rows, choice.vectors
        self.row_step = aligned(spec.k) + 64  # rows a power of two apart would compete for one cache set
        self.is_turned = spec.b_strides[-2] == 1
        most_rows = max(LEAST_ROWS, machine.l2 // 2 // self.row_step)
        row_blocks, column_blocks = -(-spec.m // most_rows), 1
        if machine.cores > 1 and spec.multiply_adds >= SHARED:
            wanted = -(-4 * machine.cores // (row_blocks * prod(spec.batch)))
            column_blocks = max(1, min(wanted, self.panels.count // LEAST_PANELS))
            row_blocks = min(row_blocks * -(-wanted // column_blocks), max(row_blocks, spec.m // LEAST_ROWS))
        self.tiles_of_item = -(-self.row_tiles.count // row_blocks)
        self.panels_of_item = -(-self.panels.count // column_blocks)
        self.row_blocks = -(-self.row_tiles.count // self.tiles_of_item)
        self.column_blocks = -(-self.panels.count // self.panels_of_item)
        self.first_row = "0"
        self.text = Writer()

    @property
    def copied_rows(self) -> int:
        """Bytes of the copy of an item's rows."""
        return aligned(self.tiles_of_item * self.row_tiles.large * self.row_step)

    def width(self, vectors: int) -> int:
        return vectors * self.sums.lanes

    def emit(self) -> ContractionKernel:
        spec, t = self.spec, self.text
        self.emit_rows_copy()
        for vectors in self.panels.sizes:
            self.emit_panel_copy(vectors)
            for rows in self.row_tiles.sizes:
                self.emit_tile(rows, vectors)
        parameters = kernel_parameters(spec, has_scratch=True)
        batch = "".join(f"{extent}, " for extent in spec.batch)
        notes = [f"({batch}{spec.m}, {spec.k}) @ ({batch}{spec.k}, {spec.n}), i8 in i32"]
        with kernel_function(t, spec, parameters, notes):
            t.line(f"int8_t *const panel = scratch + {self.copied_rows};")
            t.line(f"u32v start[{self.panels.large}];")
            with t.block("for (int64_t item = begin; item < end; ++item)"):
                self.emit_item()
        items = prod(spec.batch) * self.row_blocks * self.column_blocks
        snippets, support = support_for(str(t), self.sums)
        wanted = {"dot_i8"} if self.is_turned else {"dot_i8", "interleave_i8"}
        room = self.copied_rows + self.width(self.panels.large) * self.steps * GROUP
        return ContractionKernel(
            spec.name,
            str(t),
            parameters,
            items,
            scratch_bytes=room,
            snippets=snippets | wanted,
            support=support,
        )

    # ---- copies --------------------------------------------------------------------------------

    def emit_rows_copy(self) -> None:
        """The function that copies rows of the left operand, without signs where the dots want them so."""
        t, k, width = self.text, self.spec.k, self.bytes.lanes
        whole = k // width * width
        t.line(f"// Copies rows of {k} items, with zeros behind them.")
        head = f"static void {self.spec.name}_rows"
        parameters = ["const int8_t *restrict a", "int64_t rows", "int8_t *restrict target"]
        with t.function(head, parameters):
            t.line("const i8v sign = (i8v){0} + (int8_t)ST_DOT_SIGN;")
            with t.block("for (int64_t r = 0; r < rows; ++r)"):
                source, target = added("a", times(k, "r")), added("target", times(self.row_step, "r"))
                if whole:
                    with each(t, "k", str(whole), width) as at:
                        value = self.bytes.load(added(source, at))
                        t.line(f"{self.bytes.store(added(target, at))} = {value} ^ sign;")
                if whole < k:
                    t.line("i8v last = {0};")
                    t.line(f"memcpy(&last, {added(source, str(whole))}, {k - whole});")
                    t.line(f"{self.bytes.store(added(target, str(whole)))} = last ^ sign;")
        t.line()

    def emit_panel_copy(self, vectors: int) -> None:
        """The function that copies a panel of the right operand, and finds where its sums start."""
        t, width = self.text, self.width(vectors)
        t.line(f"// Copies up to {width} columns, {GROUP} items of each side by side. Sums start below zero by what")
        t.line("// a left operand without signs adds.")
        head = f"static void {self.spec.name}_panel_{vectors}"
        parameters = ["const int8_t *restrict b", "int64_t columns", "int8_t *restrict panel", "u32v *restrict start"]
        with t.function(head, parameters):
            (self.emit_turned_panel if self.is_turned else self.emit_straight_panel)(width)
            t.line(f"u32v sums[{vectors}];")
            with t.unrolled(vectors, f"for (int64_t v = 0; v < {vectors}; ++v)"):
                t.line("sums[v] = (u32v){0};")
            with t.block("if (ST_DOT_SIGN != 0)"):
                t.line("const i8v sign = (i8v){0} + (int8_t)ST_DOT_SIGN;")
                with t.block(f"for (int64_t k = 0; k < {self.steps * GROUP}; k += {GROUP})"):
                    with t.unrolled(vectors, f"for (int64_t v = 0; v < {vectors}; ++v)"):
                        place = added("panel", times(width, "k"), times(self.bytes.lanes, "v"))
                        t.line(f"const i8v y = {self.bytes.load(place)};")
                        t.line("st_dot_i8(&sums[v], &sign, &y);")
            with t.unrolled(vectors, f"for (int64_t v = 0; v < {vectors}; ++v)"):
                t.line("start[v] = -sums[v];")
        t.line()

    def emit_straight_panel(self, width: int) -> None:
        """The columns of rows of the operand, four rows at a time."""
        t, k, n = self.text, self.spec.k, self.spec.n
        with t.block(f"for (int64_t k = 0; k < {k}; k += {GROUP})"):
            depth = str(GROUP)
            if k % GROUP:
                t.line(f"const int64_t depth = {k} - k < {GROUP} ? {k} - k : {GROUP};")
                depth = "depth"
            with t.block(f"for (int64_t s = 0; s < columns; s += {INTERLEAVED})"):
                t.line(f"const int64_t count = columns - s < {INTERLEAVED} ? columns - s : {INTERLEAVED};")
                source, target = added("b", times(n, "k"), "s"), added("panel", times(width, "k"), times(GROUP, "s"))
                t.statement(f"st_interleave_i8({source}, {n}, {depth}, count, {target});")

    def emit_turned_panel(self, width: int) -> None:
        """The columns that are rows of the operand: squares of groups are transposed."""
        t, k, lanes, size = self.text, self.spec.k, self.sums.lanes, self.bytes.lanes
        whole, turn = k // size * size, group_transpose_function()
        with t.block(f"for (int64_t s = 0; s < columns; s += {lanes})"):
            t.line(f"const int64_t count = columns - s < {lanes} ? columns - s : {lanes};")
            source = added("b", times(k, "s"))
            if whole:
                with each(t, "k", str(whole), size) as at:
                    target = added("panel", times(width, at), times(GROUP, "s"))
                    t.statement(f"{turn}({added(source, at)}, {k}, count, {target}, {width * GROUP});")
            if whole < k:
                groups = self.steps - whole // GROUP
                t.line(f"int8_t rows[{lanes * size}] = {{0}}, turned[{lanes * size}];")
                with t.block("for (int64_t i = 0; i < count; ++i)"):
                    last = added(source, times(k, "i"), str(whole))
                    t.line(f"memcpy({added('rows', times(size, 'i'))}, {last}, {k - whole});")
                t.line(f"{turn}(rows, {size}, {lanes}, turned, {size});")
                with each(t, "i", str(groups)) as i:
                    target = added("panel", str(whole * width), times(width * GROUP, i), times(GROUP, "s"))
                    t.line(f"{self.bytes.store(target)} = {self.bytes.load(added('turned', times(size, i)))};")

    # ---- the tile ------------------------------------------------------------------------------

    def emit_tile(self, rows: int, vectors: int) -> None:
        """The function of a tile: the sums of some copied rows with the columns of a panel."""
        t, lanes, width = self.text, self.sums.lanes, self.width(vectors)
        t.line(f"// {rows} x {width} sums of {self.spec.k} products")
        parameters = [
            "const int8_t *restrict a",
            "const int8_t *restrict panel",
            "const u32v *restrict start",
            "int32_t *restrict c",
            "int64_t step",
        ]
        head = f"static __attribute__((noinline)) void {self.spec.name}_{rows}x{vectors}"
        with t.function(head, parameters):
            t.line(f"u32v total[{rows}][{vectors}];")
            with t.unrolled(rows, f"for (int64_t r = 0; r < {rows}; ++r)"):
                for v in range(vectors):
                    t.line(f"total[r][{v}] = start[{v}];")
            with t.block(f"for (int64_t k = 0; k < {self.steps * GROUP}; k += {GROUP})"):
                for v in range(vectors):
                    place = added("panel", times(width, "k"), str(v * self.bytes.lanes))
                    t.line(f"const i8v y{v} = {self.bytes.load(place)};")
                with t.unrolled(rows, f"for (int64_t r = 0; r < {rows}; ++r)"):
                    t.line("int32_t group;")
                    t.line(f"memcpy(&group, {added('a', times(self.row_step, 'r'), 'k')}, {GROUP});")
                    t.line("const i8v x = (i8v)((i32v){0} + group);")
                    for v in range(vectors):
                        t.line(f"st_dot_i8(&total[r][{v}], &x, &y{v});")
            with t.unrolled(rows, f"for (int64_t r = 0; r < {rows}; ++r)"):
                for v in range(vectors):
                    place = added("c", "r * step", str(v * lanes))
                    t.line(f"*(u32v_u *)({place}) = total[r][{v}];")
        t.line()

    # ---- the work item -------------------------------------------------------------------------

    def emit_item(self) -> None:
        t, spec = self.text, self.spec
        inner = self.row_blocks * self.column_blocks
        batch = "0" if prod(spec.batch) == 1 else "item" if inner == 1 else f"item / {inner}"
        if batch != "0" or spec.epilogue is not None:
            t.line(f"const int64_t batch = {batch};")
        block = "item" if batch == "0" else f"item % {inner}"
        row_block = block if self.column_blocks == 1 else f"{block} / {self.column_blocks}"
        first_tile, last_tile = self.emit_range("tile", row_block, self.row_blocks, self.tiles_of_item, self.row_tiles)
        column_block = f"{block} % {self.column_blocks}" if self.row_blocks > 1 else block
        first, last = self.emit_range("panel", column_block, self.column_blocks, self.panels_of_item, self.panels)
        left, right = (
            added(name, *batch_terms(spec.batch, strides))
            for name, strides in zip(spec.operand_names, (spec.a_strides, spec.b_strides), strict=True)
        )
        self.first_row, rows = "0", str(spec.m)
        if self.row_blocks > 1:
            t.line(f"const int64_t first_row = {start_of(self.row_tiles, first_tile)};")
            self.first_row, rows = "first_row", f"{start_of(self.row_tiles, last_tile)} - first_row"
        t.statement(f"{spec.name}_rows({added(left, times(spec.k, self.first_row))}, {rows}, scratch);")
        with t.block(f"for (int64_t p = {first}; p < {last}; ++p)"):
            t.line(f"const int64_t column = {start_of(self.panels, 'p', self.sums.lanes)};")
            self.either(self.panels, "p", lambda vectors: self.emit_panel(vectors, right, first_tile, last_tile))

    def emit_range(self, of: str, block: str, blocks: int, size: int, split: Split) -> tuple[str, str]:
        """The first and the last tile, or panel, of a block."""
        if blocks == 1:
            return "0", str(split.count)
        self.text.line(f"const int64_t first_{of} = {times(size, f'({block})' if ' ' in block else block)};")
        end = f"first_{of} + {size}"
        if split.count % size:
            end = f"{end} < {split.count} ? {end} : {split.count}"
        self.text.line(f"const int64_t last_{of} = {end};")
        return f"first_{of}", f"last_{of}"

    def either(self, split: Split, index: str, emit: Callable[[int], None]) -> None:
        """The lines for pieces of the larger size, and those for the smaller one."""
        t = self.text
        if not split.small_count:
            emit(split.large)
            return
        with t.block(f"if ({index} < {split.large_count})"):
            emit(split.large)
        with t.block("else"):
            emit(split.large - 1)

    def emit_panel(self, vectors: int, right: str, first_tile: str, last_tile: str) -> None:
        t, spec, width = self.text, self.spec, self.width(vectors)
        columns = str(width)
        if spec.n % self.sums.lanes and vectors == self.panels.counted()[-1][0]:
            t.line(f"const int64_t columns = {spec.n} - column < {width} ? {spec.n} - column : {width};")
            columns = "columns"
        place = added(right, times(spec.k if self.is_turned else 1, "column"))
        t.statement(f"{spec.name}_panel_{vectors}({place}, {columns}, panel, start);")
        with t.block(f"for (int64_t tile = {first_tile}; tile < {last_tile}; ++tile)"):
            t.line(f"const int64_t row = {start_of(self.row_tiles, 'tile')};")
            self.either(self.row_tiles, "tile", lambda rows: self.emit_call(rows, vectors, columns))

    def emit_call(self, rows: int, vectors: int, columns: str) -> None:
        t, spec, width = self.text, self.spec, self.width(vectors)

        def call(target: str, step: int) -> None:
            row = "row" if self.first_row == "0" else "(row - first_row)"
            left = added("scratch", times(self.row_step, row))
            t.statement(f"{spec.name}_{rows}x{vectors}({left}, panel, start, {target}, {step});")

        if spec.epilogue is not None:
            t.line(f"int32_t sums[{rows * width}];")
            call("sums", width)
            names = spec.epilogue.passed
            t.statement(f"{spec.epilogue.function}(batch, row, column, {rows}, {columns}, sums, {width}{names});")
            return
        target = added(spec.result_name, *batch_terms(spec.batch, spec.c_strides), times(spec.n, "row"), "column")
        if columns == str(width):
            call(target, spec.n)
            return
        if spec.n > width:
            with t.block(f"if (columns == {width})"):
                call(target, spec.n)
                t.line("continue;")
        t.line(f"int32_t sums[{rows * width}];")
        call("sums", width)
        with each(t, "r", str(rows)) as r:
            to = added(target, times(spec.n, r))
            t.statement(f"memcpy({to}, {added('sums', times(width, r))}, (size_t)columns * sizeof *sums);")


def start_of(split: Split, index: str, unit: int = 1) -> str:
    """The place where piece `index` of a split begins, in units."""
    if index.isdigit():
        number = int(index)
        return str((number * split.large - max(0, number - split.large_count)) * unit)
    if not split.small_count:
        return times(split.large * unit, index)
    late = f"({index} > {split.large_count} ? {index} - {split.large_count} : 0)"
    return f"{times(split.large * unit, index)} - {times(unit, late)}"
