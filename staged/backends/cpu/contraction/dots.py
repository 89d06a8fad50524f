"""Products of i8 whose sums are i32, of a left operand and a transposed right one: the rows of both are what is summed
up, so that each result is a dot product of two runs of bytes.

Tiles of such results share the vectors that they read. Nothing is rounded, in any order of the sums.

Tested by `tests/backends/host/test_contraction_dots.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import prod

from staged.backends.cpu.contraction.items import kernel_function
from staged.backends.cpu.contraction.operands import batch_terms, kernel_parameters
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec, Parameter
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import declared, each
from staged.backends.cpu.contraction.vectors import Vector, sum_lanes_function, support_for, vector_of
from staged.code.writer import Writer
from staged.ir.machine import Machine
from staged.ir.types import i8, u32

ROWS_OF_ITEM, COLUMNS_OF_ITEM = 32, 256
"""Rows and columns of a work item, whose operands are in the caches."""


def emit_dots(spec: MatmulSpec, machine: Machine) -> ContractionKernel:
    """The C text of a product `a @ b^T` of i8 in i32."""
    return _Emitter(spec, machine).emit()


class _Emitter:
    def __init__(self, spec: MatmulSpec, machine: Machine) -> None:
        self.spec = spec
        self.bytes = vector_of(machine, i8)
        self.sums: Vector = vector_of(machine, u32)
        self.rows, self.columns = min(spec.m, 4 if machine.vector_registers > 16 else 2), min(spec.n, 4)
        self.is_short = spec.k < self.bytes.lanes
        self.row_step = self.bytes.lanes if self.is_short else spec.k
        self.width = min(spec.n, COLUMNS_OF_ITEM)
        self.row_blocks, self.column_blocks = -(-spec.m // ROWS_OF_ITEM), -(-spec.n // COLUMNS_OF_ITEM)
        self.text = Writer()

    def emit(self) -> ContractionKernel:
        spec = self.spec
        for rows in sorted({self.rows, spec.m % self.rows} - {0}, reverse=True):
            for columns in sorted({self.columns, spec.n % self.columns} - {0}, reverse=True):
                self.emit_tile(rows, columns)
        parameters = kernel_parameters(spec)
        batch = "".join(f"{extent}, " for extent in spec.batch)
        t = self.text
        notes = [f"({batch}{spec.m}, {spec.k}) @ ({batch}{spec.k}, {spec.n}), i8 in i32"]
        with kernel_function(t, spec, parameters, notes):
            with t.block("for (int64_t item = begin; item < end; ++item)"):
                self.emit_item()
        items = prod(spec.batch) * self.row_blocks * self.column_blocks
        snippets, support = support_for(str(t), self.sums)
        return ContractionKernel(spec.name, str(t), parameters, items, snippets=snippets | {"dot_i8"}, support=support)

    # ---- the tile ------------------------------------------------------------------------------

    def tile_name(self, rows: int, columns: int) -> str:
        return f"{self.spec.name}_{rows}x{columns}"

    def emit_tile(self, rows: int, columns: int) -> None:
        """The function of a tile: c[r * step + s] = the dot product of row r of a and row s of b."""
        t, k, width, sums = self.text, self.spec.k, self.bytes.lanes, self.sums
        count = rows * columns
        padded = -(-count // sums.lanes) * sums.lanes
        parameters: list[Parameter] = [
            ("const int8_t *restrict ", "a"),
            ("const int8_t *restrict ", "b"),
            ("int32_t *restrict ", "c"),
            ("int64_t ", "step"),
        ]
        t.line(f"// {rows} x {columns} dot products of {k} items side by side, each in {sums.lanes} partial sums")
        head = f"static __attribute__((noinline)) void {self.tile_name(rows, columns)}"
        with t.function(head, map(declared, parameters)):
            if rows == 1:
                t.line("(void)step;")
            t.line(f"u32v total[{padded}], offset[{columns}];")
            for name, extent in (("total", padded), ("offset", columns)):
                with t.unrolled(extent, f"for (int64_t i = 0; i < {extent}; ++i)"):
                    t.line(f"{name}[i] = (u32v){{0}};")
            t.line("const i8v sign = (i8v){0} + (int8_t)ST_DOT_SIGN;")
            whole = width if self.is_short else k // width * width
            with t.block(f"for (int64_t k = 0; k < {whole}; k += {width})"):
                self.emit_step(rows, columns, "k")
            if whole < k:
                t.line("i8v last;")
                t.line(f"st_last_i8(&last, {k - whole});  // those before them are zeros")
                with t.block(f"for (int64_t k = {k - width}; k < {k}; k += {width})"):
                    self.emit_step(rows, columns, "k", " & last")
            with t.unrolled(rows, f"for (int64_t r = 0; r < {rows}; ++r)"):
                with t.unrolled(columns, f"for (int64_t s = 0; s < {columns}; ++s)"):
                    t.line(f"total[{added(times(columns, 'r'), 's')}] -= offset[s];")
            t.line(f"uint32_t sums[{padded}];")
            with t.unrolled(padded // sums.lanes, f"for (int64_t i = 0; i < {padded}; i += {sums.lanes})"):
                t.line(f"{sum_lanes_function(sums)}(total + i, sums + i);")
            with each(t, "r", str(rows)) as r:
                target = added("c", "0" if r == "0" else f"{r} * step")
                t.line(f"memcpy({target}, {added('sums', times(columns, r))}, {columns} * sizeof *c);")
        t.line()

    def emit_step(self, rows: int, columns: int, k: str, mask: str = "") -> None:
        """The products of the vectors at `k`, or of some of their lanes."""
        t, length = self.text, self.row_step
        t.line(f"i8v y[{columns}];")
        with t.unrolled(columns, f"for (int64_t s = 0; s < {columns}; ++s)"):
            t.line(f"y[s] = {self.bytes.load(added('b', times(length, 's'), k))}{mask};")
            with t.block("if (ST_DOT_SIGN != 0)"):
                t.line("st_dot_i8(&offset[s], &sign, &y[s]);")
        with t.unrolled(rows, f"for (int64_t r = 0; r < {rows}; ++r)"):
            t.line(f"const i8v x = {self.bytes.load(added('a', times(length, 'r'), k))} ^ sign;")
            with t.unrolled(columns, f"for (int64_t s = 0; s < {columns}; ++s)"):
                t.line(f"st_dot_i8(&total[{added(times(columns, 'r'), 's')}], &x, &y[s]);")

    # ---- the work item -------------------------------------------------------------------------

    def emit_bounds(self, axis: str, block: str, size: int, extent: int) -> tuple[str, str]:
        """The first index of the block of so many, and the one after its last; returns their names."""
        first, stop = f"first_{axis}", f"stop_{axis}"
        self.text.line(f"const int64_t {first} = {times(size, block)};")
        end = f"{first} + {size}"
        if extent % size:
            end = f"{end} < {extent} ? {end} : {extent}"
        self.text.line(f"const int64_t {stop} = {end};")
        return first, stop

    def emit_item(self) -> None:
        t, spec, width = self.text, self.spec, self.width
        inner = self.row_blocks * self.column_blocks
        batch = "0" if prod(spec.batch) == 1 else "item" if inner == 1 else f"item / {inner}"
        if batch != "0" or spec.epilogue is not None:
            t.line(f"const int64_t batch = {batch};")
        block = "item" if batch == "0" else f"item % {inner}"
        row, stop = "0", str(spec.m)
        if self.row_blocks > 1:
            place = block if self.column_blocks == 1 else f"{block} / {self.column_blocks}"
            row, stop = self.emit_bounds("row", place, ROWS_OF_ITEM, spec.m)
        column, end = "0", str(spec.n)
        if self.column_blocks > 1:
            place = f"{block} % {self.column_blocks}" if self.row_blocks > 1 else block
            column, end = self.emit_bounds("column", place, width, spec.n)
        left, right = (
            added(name, *batch_terms(spec.batch, strides))
            for name, strides in zip(spec.operand_names, (spec.a_strides, spec.b_strides), strict=True)
        )
        if self.is_short:
            t.line(f"i8v y[{width}];  // the rows of `b`, with zeros behind them")
            with t.block(f"for (int64_t s = {column}; s < {end}; ++s)"):
                self.emit_padded(f"y[{'s' if column == '0' else f's - {column}'}]", added(right, times(spec.k, "s")))
            right = "(const int8_t *)y"
        whole = spec.m // self.rows * self.rows
        if whole:
            limit = stop
            if whole < spec.m:
                limit = str(whole) if self.row_blocks == 1 else f"({stop} < {whole} ? {stop} : {whole})"
            with t.block(f"for (int64_t row = {row}; row < {limit}; row += {self.rows})"):
                self.emit_rows(self.rows, "row", left, right, column, end)
        if whole < spec.m:
            with nullcontext() if self.row_blocks == 1 else t.block(f"if ({stop} == {spec.m})"):
                self.emit_rows(spec.m - whole, str(whole), left, right, column, end)

    def emit_padded(self, target: str, source: str) -> None:
        """A row of an operand that is shorter than a vector."""
        self.text.line(f"{target} = (i8v){{0}};")
        self.text.line(f"memcpy(&{target}, {source}, {self.spec.k});")

    def emit_rows(self, rows: int, row: str, left: str, right: str, first: str, stop: str) -> None:
        """All columns of a work item for a few rows: what follows gets them together."""
        t, spec, width = self.text, self.spec, self.width
        if spec.epilogue is not None:
            t.line(f"int32_t tile[{rows * width}];")
        start = added(left, times(spec.k, row))
        if self.is_short:
            t.line(f"i8v padded[{rows}];")
            with t.block(f"for (int64_t r = 0; r < {rows}; ++r)"):
                self.emit_padded("padded[r]", added(start, times(spec.k, "r")))
            start = "(const int8_t *)padded"

        def call(columns: int, column: str) -> None:
            target, step = (
                added(spec.result_name, *batch_terms(spec.batch, spec.c_strides or ()), times(spec.n, row), column),
                spec.n,
            )
            if spec.epilogue is not None:
                target, step = added("tile", column if first == "0" else f"({column} - {first})"), width
            place = f"({column} - {first})" if self.is_short and first != "0" else column
            arguments = f"{start}, {added(right, times(self.row_step, place))}, {target}, {step}"
            t.statement(f"{self.tile_name(rows, columns)}({arguments});")

        whole = spec.n // self.columns * self.columns
        limit = stop
        if whole < spec.n:
            limit = str(whole) if self.column_blocks == 1 else f"({stop} < {whole} ? {stop} : {whole})"
        if whole:
            with t.block(f"for (int64_t column = {first}; column < {limit}; column += {self.columns})"):
                call(self.columns, "column")
        if whole < spec.n:
            with nullcontext() if self.column_blocks == 1 else t.block(f"if ({stop} == {spec.n})"):
                call(spec.n - whole, str(whole))
        if spec.epilogue is not None:
            names = spec.epilogue.passed
            count = stop if first == "0" else f"{stop} - {first}"
            t.statement(f"{spec.epilogue.function}(batch, {row}, {first}, {rows}, {count}, tile, {width}{names});")
