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
class RegisterTile:
    """A tile of `rows` rows of `vectors` vectors of sums."""

    vector: Vector
    rows: int
    vectors: int

    @property
    def shape(self) -> str:
        """The sizes of the tile, for names."""
        return f"{self.rows}x{self.vectors}"

    def is_shared(self, steps: int) -> bool:
        """Return whether a loop over so many steps is long enough for distances of rows that the compiler cannot see.

        With one vector in each row, the loop computes addresses for more than half of its time.
        """
        return steps >= SHARED_STEPS and self.vectors > 1


@dataclass(frozen=True, slots=True)
class ProductTile(RegisterTile):
    """The function of a tile of a product. A tail stores `live` rows, and reads the last one in place of the others."""

    is_tail: bool = False

    @property
    def name(self) -> str:
        kind = "product_tail" if self.is_tail else "product"
        return f"st_{kind}_{self.vector.dtype}_{self.rows}x{self.vectors}"

    @property
    def shape(self) -> str:
        """The sizes of the tile, for names."""
        return f"{'tail_' if self.is_tail else ''}{self.rows}x{self.vectors}"

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
            pointers, left = 0, ""
            if not self.is_tail:
                pointers, left = emit_left_rows(t, vector, rows)
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
                    emit_advance(t, pointers, "a_step")
                    t.line("b += b_step;")
                emit_join(t, vector, rows, vectors, "adds || first > 0", self.is_tail)
                t.line("first = stop;")
        return tile_snippet(self.name, vector, t)


@dataclass(frozen=True, slots=True)
class ConvolutionTile(RegisterTile):
    """The function of a tile of channels and vectors of pixels, with sums over channels and taps."""

    @property
    def name(self) -> str:
        return f"st_convolution_{self.vector.dtype}_{self.rows}x{self.vectors}"

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the function."""
        operand = f"const {self.vector.scalar} *restrict "
        return [
            (operand, "a"), ("int64_t ", "a_row"), ("int64_t ", "a_channel"),
            (operand, "b"), ("int64_t ", "b_channel"), ("const int32_t *", "offsets"), ("int64_t ", "taps"),
            ("int64_t ", "channels"), ("int64_t ", "chain"),
            (f"{self.vector.scalar} *restrict ", "c"), ("int64_t ", "c_row"),
        ]  # fmt: skip

    @property
    def snippet(self) -> Snippet:
        """The function."""
        t, vector, rows, vectors = Writer(), self.vector, self.rows, self.vectors
        t.line(
            f"// {rows} channels x {vectors} vectors of {vector.lanes} pixels of a convolution: sums over channels and"
        )
        t.line("// taps, of a[r * a_row + channel * a_channel + tap] times the vector at")
        t.line("// b + channel * b_channel + offsets[tap].")
        t.line(
            "// Sums stay in registers over `chain` channels, then join `sum`, whose rows lie closer than those of `c`."
        )
        with t.function(f"{INLINE} {self.name}_inline", map(declared, self.parameters)):
            pointers, left = emit_left_rows(t, vector, rows)
            t.line(f"{vector.name} sum[{rows}][{vectors}];")
            t.line("int64_t first = 0;")
            with t.block("do", " while (first < channels);"):
                t.line("const int64_t stop = first + chain < channels ? first + chain : channels;")
                emit_accumulators(t, vector, rows, vectors)
                with t.block("for (int64_t channel = first; channel < stop; ++channel)"):
                    with t.block("for (int64_t tap = 0; tap < taps; ++tap)"):
                        t.line(f"const {vector.scalar} *const pixels = b + offsets[tap];")
                        emit_step(t, vector, rows, vectors, left, "pixels")
                        emit_advance(t, pointers, "1")
                    emit_advance(t, pointers, "a_channel - taps")
                    t.line("b += b_channel;")
                self._emit_join(t)
                t.line("first = stop;")
        return tile_snippet(self.name, vector, t)

    def _emit_join(self, t: Writer) -> None:
        """The sums in registers join those of earlier channels; after the last channels they go to `c`."""
        with t.block("if (first > 0)"):
            self._emit_rows(t, "acc[r][{v}] += sum[r][{v}];")
        with t.block("if (stop < channels)"):
            self._emit_rows(t, "sum[r][{v}] = acc[r][{v}];")
        with t.otherwise():
            self._emit_rows(t, f"*({self.vector.unaligned} *)({{address}}) = acc[r][{{v}}];")

    def _emit_rows(self, t: Writer, statement: str) -> None:
        with each_row(t, self.rows):
            for v in range(self.vectors):
                t.line(statement.format(v=v, address=added("c", "r * c_row", str(v * self.vector.lanes))))


def emit_left_rows(t: Writer, vector: Vector, rows: int) -> tuple[int, str]:
    """Pointers to rows of `a`; returns their number, and the element of row `r`."""
    group = -(-rows // 2) if rows <= 14 else 5
    starts = ", ".join(added("a", times(first, "a_row")) for first in range(0, rows, group))
    count = -(-rows // group)
    t.line("// Few distances from few rows fit into the registers for addresses.")
    t.line(f"const {vector.scalar} *left[{count}] = {{{starts}}};")
    return count, f"left[r / {group}][r % {group} * a_row]"


def emit_advance(t: Writer, pointers: int, step: str) -> None:
    """The next step of the pointers to rows of `a`."""
    for number in range(pointers):
        t.line(f"left[{number}] += {step};")


def emit_join(t: Writer, vector: Vector, rows: int, vectors: int, adds: str, has_live: bool = False) -> None:
    """The sums in registers join those in `c` if the condition `adds` holds, and replace them otherwise."""

    def emit_rows(statement: str) -> None:
        with each_row(t, rows), t.block("if (r < live)") if has_live else nullcontext():
            for v in range(vectors):
                address = added("c", "r * c_row", str(v * vector.lanes))
                t.line(statement.format(v=v, unaligned=vector.unaligned, address=address))

    with t.block(f"if ({adds})"):
        emit_rows("acc[r][{v}] += *(const {unaligned} *)({address});")
    emit_rows("*({unaligned} *)({address}) = acc[r][{v}];")


def tile_snippet(name: str, vector: Vector, t: Writer) -> Snippet:
    """The function of a tile, with what it needs."""
    fma = f"st_fma_{vector.name}"
    return Snippet(name, str(t), needs=(fma,) if f"{fma}(" in str(t) else ())
