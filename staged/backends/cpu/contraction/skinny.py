"""Products with at most four rows (or columns): every item of the large operand is used so little that reading it is
all the work.

The large operand is therefore read once, in the order in which it lies in memory. Where its rows are the inner
dimension, each result is a dot product of two rows; else rows are added up, eight at a time, into a strip of the
result.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from staged.backends.cpu.contraction.items import over_items
from staged.backends.cpu.contraction.operands import batch_terms
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec
from staged.backends.cpu.contraction.stored import Stored
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import Split, declared, each_piece, each_row, split_evenly
from staged.backends.cpu.contraction.vectors import (
    Vector,
    added_product,
    sum_lanes_function,
    vector_of,
    zeroed,
)
from staged.code.support.library import Snippet
from staged.code.writer import Writer
from staged.ir.machine import Machine

MOST_ROWS = 4


@dataclass(frozen=True, slots=True)
class SkinnyPlan:
    """The product seen with few rows: (m, k) @ (k, n), m <= 4. `turned`:
    it is the transpose of the product asked for."""

    spec: MatmulSpec
    vector: Vector
    m: int
    n: int
    turned: bool
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    c_strides: tuple[int, int]
    form: Literal["dot", "sweep"]
    columns: Split  # dot: columns per tile
    steps: int  # sweep: rows of the large operand added at once
    strip: int  # columns of a work item

    @property
    def copies_left(self) -> bool:
        return self.form == "dot" and (self.spec.stored is not None or self.a_strides[1] != 1 and self.spec.k > 1)

    @property
    def strips(self) -> int:
        return -(-self.n // self.strip)

    @property
    def scratch_items(self) -> int:
        if self.form == "dot":
            return self.m * self.spec.k if self.copies_left else 0
        return self.m * self.strip * (2 if self.turned and self.m > 1 else 1)


def plan_skinny(spec: MatmulSpec, machine: Machine) -> SkinnyPlan | None:
    """A plan where these forms pay; None where register tiles over panels do better."""
    if min(spec.m, spec.n) > MOST_ROWS:
        return None
    vector = vector_of(machine, spec.dtype)
    rank = len(spec.batch)
    a, b = spec.a_strides[rank:], spec.b_strides[rank:]
    c = spec.c_strides[rank:] if spec.epilogue is None else (spec.n, 1)
    m, n, turned = spec.m, spec.n, False
    if m > MOST_ROWS or (n <= MOST_ROWS and b[0] != 1 and a[1] == 1):
        m, n, turned, a, b, c = n, m, True, b[::-1], a[::-1], c[::-1]
    large = spec.k * n * spec.dtype.size
    form: Literal["dot", "sweep"]
    if b[0] == 1 and spec.k >= vector.lanes:
        form = "dot"
    elif b[1] == 1 and large > (2 * machine.l1 if m == 1 else machine.l2 // 2) and n >= 4 * vector.lanes:
        # A tile of one row is a chain of additions that wait for one another: it loses to reading in order sooner.
        form = "sweep"
    else:
        return None
    room = machine.vector_registers // 2
    steps = max(1, min(8, room // m))
    columns = split_evenly(n, max(1, min(8, room // m)))
    strip = n
    if machine.cores > 1 and large > 1 << 18:
        wanted = max(1, -(-4 * machine.cores // prod(spec.batch)))
        unit = columns.large if form == "dot" else 4 * vector.lanes
        strip = min(n, max(unit, -(-n // (wanted * unit)) * unit))
    return SkinnyPlan(spec, vector, m, n, turned, _pair(a), _pair(b), _pair(c), form, columns, steps, strip)


def _pair(strides: tuple[int, ...]) -> tuple[int, int]:
    return strides[0], strides[1]


def emit_skinny(plan: SkinnyPlan) -> ContractionKernel:
    """The C text of a product with few rows or columns. Numerics: several partial sums per result, in a fixed order."""
    return _Emitter(plan).emit()


class _Emitter:
    def __init__(self, plan: SkinnyPlan) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.vector = plan.vector
        self.stored = Stored.of(plan.spec, plan.vector)
        self.text = Writer()

    def emit(self) -> ContractionKernel:
        t, plan, spec = self.text, self.plan, self.spec
        batch = "".join(f"{extent}, " for extent in spec.batch)
        notes = [f"({batch}{spec.m}, {spec.k}) @ ({batch}{spec.k}, {spec.n}), {self.stored.title}"]
        if plan.form == "sweep":
            notes.append(f"{plan.steps} rows at a time are added to the result, so that memory is read in order")
        items = prod(spec.batch) * plan.strips
        more = [*self.stored.functions()]
        if plan.form == "dot":
            more += [("", self.dots(columns)) for columns in self.column_counts()]
        return over_items(spec, self.vector, t, notes, self.emit_item, items, plan.scratch_items, more=more)

    def emit_item(self) -> None:
        t, plan, spec = self.text, self.plan, self.spec
        scalar, stored, matrices = self.vector.scalar, self.stored.scalar, prod(spec.batch)
        if matrices > 1 or spec.epilogue is not None:
            batch = "0" if matrices == 1 else "item" if plan.strips == 1 else f"item / {plan.strips}"
            t.line(f"const int64_t batch = {batch};")
        if plan.strips == 1 and plan.form == "sweep":
            t.line(f"const int64_t first = 0, stop = {plan.n};")
        elif plan.strips > 1:
            strip = "item" if matrices == 1 else f"item % {plan.strips}"
            t.line(f"const int64_t first = {times(plan.strip, strip)};")
            stop = f"first + {plan.strip}"
            if plan.n % plan.strip:
                stop = f"{stop} < {plan.n} ? {stop} : {plan.n}"
            t.line(f"const int64_t stop = {stop};")
        names = spec.operand_names[::-1] if plan.turned else spec.operand_names
        strides = (spec.b_strides, spec.a_strides) if plan.turned else (spec.a_strides, spec.b_strides)
        left, right = (added(name, *batch_terms(spec.batch, s)) for name, s in zip(names, strides, strict=True))
        name = "small" if plan.copies_left and self.stored.is_narrow else "left"
        t.line(f"const {stored} *{'' if plan.copies_left and name == 'left' else 'const '}{name} = {left};")
        t.line(f"const {stored} *const right = {right};")
        if spec.epilogue is None:
            t.line(f"{scalar} *const result = {added(spec.result_name, *batch_terms(spec.batch, spec.c_strides))};")
        if plan.form == "dot":
            self.emit_dots()
        else:
            self.emit_sweep()

    # ---- rows of the large operand are the inner dimension -------------------------------------

    def column_counts(self) -> tuple[int, ...]:
        """The numbers of columns of a tile: with several strips the last tile of one may be narrower."""
        plan = self.plan
        if plan.strips == 1:
            return plan.columns.sizes
        last = plan.n % plan.strip
        found = {plan.columns.large}
        for width in (plan.strip, last):
            if width % plan.columns.large:
                found.add(width % plan.columns.large)
        return tuple(sorted(found, reverse=True))

    def left_row(self) -> int:
        return self.spec.k if self.plan.copies_left else self.plan.a_strides[0]

    def place(self, r: int, columns: int | str) -> str:
        """The offset of the sum of row `r` and column `s`, in the order of the result's memory."""
        if self.plan.turned:
            return added(times(self.plan.m, "s"), str(r))
        return added(times(r, str(columns)), "s")

    def dots(self, columns: int) -> Snippet:
        """The function of a tile, which all products with so many rows and columns share."""
        t, plan, vector = Writer(), self.plan, self.vector
        m, lanes, scalar = plan.m, vector.lanes, vector.scalar
        padded = self.padded(columns)
        order = "columns" if plan.turned and m > 1 else "rows"
        source = f"_from_{self.stored.dtype}" if self.stored.is_narrow else ""
        name = f"st_dots_{vector.dtype}{source}_{m}x{columns}{'_turned' if order == 'columns' else ''}"
        operand = f"const {self.stored.scalar} *restrict "
        parameters = [
            (f"const {scalar} *restrict ", "left"), ("int64_t ", "left_row"), (operand, "right"),
            ("int64_t ", "right_row"), ("int64_t ", "steps"), (f"{scalar} *restrict ", "sums"),
        ]  # fmt: skip
        t.line(
            f"// {m} x {columns} dot products side by side, each in {lanes} partial sums; {order} of sums are together."
        )
        with t.function(f"static __attribute__((noinline)) void {name}", map(declared, parameters)):
            if m == 1:
                t.line("(void)left_row;")
            t.line(f"const int64_t whole = steps & -{lanes};")
            t.line(f"{vector.name} acc[{padded}];")
            with t.unrolled(padded, f"for (int64_t i = 0; i < {padded}; ++i)"):
                t.line(f"acc[i] = ({vector.name}){{0}};")
            with t.block(f"for (int64_t k = 0; k < whole; k += {lanes})"):
                for r in range(m):
                    t.line(f"const {vector.name} x{r} = {vector.load(added('left', times(r, 'left_row'), 'k'))};")
                with t.unrolled(columns, f"for (int64_t s = 0; s < {columns}; ++s)"):
                    self.stored.emit_load(t, "y", "right + s * right_row + k")
                    for r in range(m):
                        t.line(vector.multiply_add(f"acc[{self.place(r, columns)}]", f"x{r}", "y"))
            with t.unrolled(padded // lanes, f"for (int64_t i = 0; i < {padded}; i += {lanes})"):
                t.line(f"{sum_lanes_function(vector)}(acc + i, sums + i);")
            with t.block("for (int64_t k = whole; k < steps; ++k)"):
                with t.block(f"for (int64_t s = 0; s < {columns}; ++s)"):
                    t.line(f"const {scalar} y = {self.stored.item('right[s * right_row + k]')};")
                    for r in range(m):
                        x = f"left[{added(times(r, 'left_row'), 'k')}]"
                        t.statement(
                            added_product(str(vector.dtype), vector.dtype, f"sums[{self.place(r, columns)}]", x, "y")
                        )
        return Snippet(name, str(t))

    def padded(self, columns: int) -> int:
        """The sums of a tile, in whole vectors."""
        return -(-self.plan.m * columns // self.vector.lanes) * self.vector.lanes

    def emit_dots(self) -> None:
        t, plan, spec = self.text, self.plan, self.spec
        if self.stored.is_narrow:
            self.emit_converted_left()
        elif plan.copies_left:
            t.line("// the rows of the small operand, put together")
            with t.block(f"for (int64_t k = 0; k < {spec.k}; ++k)"):
                for r in range(plan.m):
                    source = added(str(r * plan.a_strides[0]), times(plan.a_strides[1], "k"))
                    t.line(f"scratch[{added(str(r * spec.k), 'k')}] = left[{source}];")
            t.line("left = scratch;")
        large, *others = self.column_counts()
        t.line(f"{self.vector.scalar} sums[{self.padded(large)}] __attribute__((aligned({self.vector.bytes})));")
        if plan.strips == 1:
            with each_piece(t, "column", plan.columns) as columns:
                self.emit_tile(columns)
        elif not others:
            with t.block(f"for (int64_t column = first; column < stop; column += {large})"):
                self.emit_tile(str(large))
        else:
            with t.block("for (int64_t columns, column = first; column < stop; column += columns)"):
                t.line(f"columns = stop - column < {large} ? stop - column : {large};")
                self.emit_tile("columns")

    def emit_tile(self, columns: str) -> None:
        """The tile at `column`, of so many columns: to the epilogue or the result."""
        t, plan, spec = self.text, self.plan, self.spec
        functions = {size: self.dots(size).name for size in self.column_counts()}
        *first, last = functions.values()
        chosen = (
            "".join(f"{columns} == {size} ? {name} : " for size, name in zip(functions, first, strict=False)) + last
        )
        stride = plan.b_strides[1]
        right = added("right", times(stride, "column"))
        t.statement(f"{f'({chosen})' if first else last}(left, {self.left_row()}, {right}, {stride}, {spec.k}, sums);")
        if spec.epilogue is not None:
            place = (
                f"column, 0, {columns}, {plan.m}, sums, {plan.m}"
                if plan.turned
                else f"0, column, {plan.m}, {columns}, sums, {columns}"
            )
            t.statement(f"{spec.epilogue.function}(batch, {place}{spec.epilogue.passed});")
            return
        with t.block(f"for (int64_t s = 0; s < {columns}; ++s)"):
            for r in range(plan.m):
                index = added(str(r * plan.c_strides[0]), times(plan.c_strides[1], "(column + s)"))
                t.line(f"result[{index}] = sums[{self.place(r, columns)}];")

    def emit_converted_left(self) -> None:
        """The small operand, which every column reads, converted into the item's own memory."""
        t, plan, k = self.text, self.plan, self.spec.k
        row, column = plan.a_strides
        t.line(f"// the small operand, as {self.spec.dtype}")
        for r in range(plan.m):
            target, source = added("scratch", str(r * k)), added("small", str(r * row))
            if column == 1 or k == 1:
                t.line(self.stored.copied(target, source, k))
                continue
            with t.block(f"for (int64_t k = 0; k < {k}; ++k)"):
                item = self.stored.item(f"small[{added(str(r * row), times(column, 'k'))}]")
                t.line(f"scratch[{added(str(r * k), 'k')}] = {item};")
        t.line(f"const {self.vector.scalar} *const left = scratch;")

    # ---- rows of the large operand are added up ------------------------------------------------

    def emit_sweep(self) -> None:
        t, plan, spec, vector = self.text, self.plan, self.spec, self.vector
        t.line(zeroed(vector, "scratch", plan.m * plan.strip))
        whole = spec.k // plan.steps * plan.steps
        if whole:
            with t.block(f"for (int64_t k = 0; k < {whole}; k += {plan.steps})"):
                self.emit_rows(plan.steps)
        if whole < spec.k:
            with t.block(f"for (int64_t k = {whole}; k < {spec.k}; ++k)"):
                self.emit_rows(1)
        names = "" if spec.epilogue is None else spec.epilogue.passed
        if spec.epilogue is not None and (not plan.turned or plan.m == 1):
            shape = (
                "first, 0, stop - first, 1, scratch, 1"
                if plan.turned
                else f"0, first, {plan.m}, stop - first, scratch, {plan.strip}"
            )
            t.statement(f"{spec.epilogue.function}(batch, {shape}{names});")
            return
        if spec.epilogue is not None:
            t.line(f"{vector.scalar} *const turned = scratch + {plan.m * plan.strip};")
        with t.block("for (int64_t s = 0; s < stop - first; ++s)"):
            for r in range(plan.m):
                value = f"scratch[{added(str(r * plan.strip), 's')}]"
                if spec.epilogue is not None:
                    t.line(f"turned[{added(times(plan.m, 's'), str(r))}] = {value};")
                else:
                    index = added(str(r * plan.c_strides[0]), times(plan.c_strides[1], "(first + s)"))
                    t.line(f"result[{index}] = {value};")
        if spec.epilogue is not None:
            t.statement(f"{spec.epilogue.function}(batch, first, 0, stop - first, {plan.m}, turned, {plan.m}{names});")

    def emit_rows(self, steps: int) -> None:
        """Adds `steps` rows of the large operand, each times an item of every row of the small one."""
        t, plan, vector = self.text, self.plan, self.vector
        lanes, scalar = vector.lanes, vector.scalar
        a_row, a_col = plan.a_strides
        t.line(f"{scalar} factor[{plan.m}][{steps}];")
        with each_row(t, plan.m), t.unrolled(steps, f"for (int64_t u = 0; u < {steps}; ++u)"):
            factor = self.stored.item(f"left[{added(times(a_row, 'r'), times(a_col, '(k + u)'))}]")
            t.line(f"factor[r][u] = {factor};")
        t.line(f"const {self.stored.scalar} *const row = {added('right', times(plan.b_strides[0], 'k'), 'first')};")
        t.line("int64_t s = 0;")
        with t.block(f"for (; s <= stop - first - {lanes}; s += {lanes})"):
            t.line(f"{vector.name} sums[{plan.m}];")
            with each_row(t, plan.m):
                t.line(f"sums[r] = {vector.load(added('scratch', times(plan.strip, 'r'), 's'))};")
            with t.unrolled(steps, f"for (int64_t u = 0; u < {steps}; ++u)"):
                self.stored.emit_load(t, "y", added("row", times(plan.b_strides[0], "u"), "s"))
                with each_row(t, plan.m):
                    t.line(vector.multiply_add("sums[r]", "factor[r][u]", "y"))
            with each_row(t, plan.m):
                t.line(f"{vector.store(added('scratch', times(plan.strip, 'r'), 's'))} = sums[r];")
        if plan.n % lanes:
            with t.block("for (; s < stop - first; ++s)"):
                with t.block(f"for (int64_t u = 0; u < {steps}; ++u)"):
                    y = self.stored.item(f"row[{added(times(plan.b_strides[0], 'u'), 's')}]")
                    t.line(f"const {scalar} y = {y};")
                    with t.block(f"for (int64_t r = 0; r < {plan.m}; ++r)"):
                        target = f"scratch[{added(times(plan.strip, 'r'), 's')}]"
                        t.line(added_product(str(vector.dtype), vector.dtype, target, "factor[r][u]", "y"))
