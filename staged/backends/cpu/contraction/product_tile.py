"""The register tile of a matrix product: one function for each number of rows and vectors, with arguments for strides
and sizes. All products of a program share it.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from staged.backends.cpu.contraction.spec import Parameter
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import declared, each_row, emit_accumulators, emit_step
from staged.backends.cpu.contraction.vectors import Vector
from staged.code.support.library import Snippet
from staged.code.writer import Writer

INLINE = "static inline __attribute__((always_inline)) void"
SHARED_STEPS = 256


@dataclass(frozen=True, slots=True)
class ProductTile:
    """The function of a tile of `rows` rows of `vectors` vectors. A tail stores `live` rows, and reads the last of them
    in place of the others.
    """

    vector: Vector
    rows: int
    vectors: int
    is_tail: bool = False

    @property
    def name(self) -> str:
        kind = "product_tail" if self.is_tail else "product"
        return f"st_{kind}_{self.vector.dtype}_{self.rows}x{self.vectors}"

    @property
    def shape(self) -> str:
        """The sizes of the tile, for names."""
        return f"{'tail_' if self.is_tail else ''}{self.rows}x{self.vectors}"

    def is_shared(self, steps: int) -> bool:
        """Return whether a loop over so many steps is long enough for distances of rows that the compiler cannot see.

        With one vector in each row, the loop computes addresses for more than half of its time.
        """
        return steps >= SHARED_STEPS and self.vectors > 1

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the function."""
        operand = f"const {self.vector.scalar} *restrict "
        return [
            (operand, "a"), ("int64_t ", "a_row"), ("int64_t ", "a_step"),
            (operand, "b"), ("int64_t ", "b_step"), ("int64_t ", "steps"), ("int64_t ", "chain"),
            (f"{self.vector.scalar} *restrict ", "c"), ("int64_t ", "c_row"), ("bool ", "adds"),
            *([("int64_t ", "live")] if self.is_tail else []),
        ]  # fmt: skip

    @property
    def snippet(self) -> Snippet:
        """The function."""
        t, vector, rows, vectors = Writer(), self.vector, self.rows, self.vectors
        lanes = vector.lanes
        count = f"Up to {rows} rows (`live`)" if self.is_tail else f"{rows} rows"
        t.line(f"// {count} x {vectors} vectors of {lanes} of a matrix product: c = a @ b, or c += a @ b if `adds`.")
        t.line("// Row r of `a` begins at a + r * a_row, its steps are `a_step` apart. Rows of `b` are `b_step` apart.")
        t.line("// Sums stay in registers over `chain` steps, then join `c`.")
        with t.function(f"{INLINE} {self.name}_inline", map(declared, self.parameters)):
            group = -(-rows // 2) if rows <= 14 else 5
            starts = ", ".join(added("a", times(first, "a_row")) for first in range(0, rows, group))
            left = f"left[r / {group}][r % {group} * a_row]"
            if not self.is_tail:
                t.line("// Few distances from few rows fit into the registers for addresses.")
                t.line(f"const {vector.scalar} *left[{-(-rows // group)}] = {{{starts}}};")
            else:
                left = "a[start[r]]"
                t.line(f"int64_t start[{rows}];")
                with each_row(t, rows):
                    t.line("start[r] = (r < live ? r : live - 1) * a_row;")
            t.line("int64_t first = 0;")
            with t.block("do", " while (first < steps);"):
                t.line("const int64_t stop = first + chain < steps ? first + chain : steps;")
                emit_accumulators(t, vector, rows, vectors)
                with t.block("for (int64_t k = first; k < stop; ++k)"):
                    emit_step(t, vector, rows, vectors, left, "b")
                    if self.is_tail:
                        t.line("a += a_step;")
                    for number in range(0 if self.is_tail else -(-rows // group)):
                        t.line(f"left[{number}] += a_step;")
                    t.line("b += b_step;")
                with t.block("if (adds || first > 0)"):
                    self._emit_rows(t, "acc[r][{v}] += *(const {unaligned} *)({address});")
                self._emit_rows(t, "*({unaligned} *)({address}) = acc[r][{v}];")
                t.line("first = stop;")
        fma = f"st_fma_{vector.name}"
        return Snippet(self.name, str(t), needs=(fma,) if f"{fma}(" in str(t) else ())

    def _emit_rows(self, t: Writer, statement: str) -> None:
        """A statement for each vector of the tile in `c`."""
        lines = [
            statement.format(v=v, unaligned=self.vector.unaligned,
                             address=added("c", "r * c_row", str(v * self.vector.lanes)))
            for v in range(self.vectors)
        ]  # fmt: skip
        with each_row(t, self.rows), t.block("if (r < live)") if self.is_tail else nullcontext():
            for line in lines:
                t.line(line)
