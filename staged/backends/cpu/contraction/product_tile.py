"""The register tiles of matrix products and convolutions: functions of the numbers of rows and vectors, and of strides
and sizes. All kernels of a program share them.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from staged.backends.cpu.contraction.spec import Parameter
from staged.backends.cpu.contraction.tile import declared
from staged.backends.cpu.contraction.vectors import Vector
from staged.code.support.library import Snippet
from staged.code.writer import Writer

INLINE = "static inline __attribute__((always_inline)) void"
SHARED_STEPS = 256
MOST_ROWS, MOST_VECTORS = 32, 8
"""The sums of a tile are an array of this size; the compiler keeps those in use in registers."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A tile of `rows` rows of `vectors` vectors of sums."""

    vector: Vector
    rows: int
    vectors: int

    def __post_init__(self) -> None:
        assert self.rows <= MOST_ROWS and self.vectors <= MOST_VECTORS, "the sums fit into registers"

    @property
    def shape(self) -> str:
        """The sizes of the tile, for names."""
        return f"{self.rows}x{self.vectors}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The first arguments of the inline function."""
        return self.rows, self.vectors

    def is_shared(self, steps: int) -> bool:
        """Return whether a loop over so many steps is long enough for distances of rows that the compiler cannot see.

        With one vector in each row, the loop computes addresses for more than half of its time.
        """
        return steps >= SHARED_STEPS and self.vectors > 1


@dataclass(frozen=True, slots=True)
class ProductTile(RegisterTile):
    """The function of a tile of a product."""

    @property
    def name(self) -> str:
        return f"st_product_{self.vector.dtype}_{self.shape}"

    @property
    def tiles(self) -> str:
        """The name of the function of tiles below one another."""
        return f"st_tiles_{self.vector.dtype}_{self.shape}"

    @property
    def inline(self) -> str:
        """The name of the inline function."""
        return f"st_product_{self.vector.dtype}_inline"

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the function."""
        operand = f"const {self.vector.scalar} *restrict "
        return [
            (operand, "a"), ("int64_t ", "a_row"), ("int64_t ", "a_step"),
            (operand, "b"), ("int64_t ", "b_step"), ("int64_t ", "steps"), ("int64_t ", "chain"),
            (f"{self.vector.scalar} *restrict ", "c"), ("int64_t ", "c_row"), ("bool ", "adds"),
        ]  # fmt: skip

    @property
    def snippet(self) -> Snippet:
        """The inline function."""
        t, vector = Writer(), self.vector
        t.line("// A tile of a product, of `rows` rows and `vectors` vectors: c = a @ b, or c += a @ b if `adds`.")
        t.line("// Row r of `a` begins at a + r * a_row, its steps are `a_step` apart. Rows of `b` are `b_step` apart.")
        t.line("// Sums stay in registers over `chain` steps, then join `c`.")
        with _inline_function(t, self.inline, self.parameters):
            _emit_left_rows(t, vector)
            t.line("int64_t first = 0;")
            with t.block("do", " while (first < steps);"):
                t.line("const int64_t stop = first + chain < steps ? first + chain : steps;")
                _emit_zeros(t, vector)
                with t.block("for (int64_t k = first; k < stop; ++k)"):
                    _emit_step(t, vector, _LEFT, "b")
                    _emit_advance(t, "a_step")
                    t.line("b += b_step;")
                sum = f"*({vector.unaligned} *)(row + v * {vector.lanes})"
                with t.block("if (adds || first > 0)"):
                    t.line(f"const {vector.scalar} *row = c;")
                    with _each_row(t, ", row += c_row"), _each_vector(t):
                        t.line(f"acc[r][v] += {sum.replace('(', '(const ', 1)};")
                t.line(f"{vector.scalar} *row = c;")
                with _each_row(t, ", row += c_row"), _each_vector(t):
                    t.line(f"{sum} = acc[r][v];")
                t.line("first = stop;")
        return _tile_snippet(self.inline, vector, t)


@dataclass(frozen=True, slots=True)
class ConvolutionTile(RegisterTile):
    """The function of a tile of channels and vectors of pixels, with sums over channels and taps."""

    @property
    def name(self) -> str:
        return f"st_convolution_{self.vector.dtype}_{self.rows}x{self.vectors}"

    @property
    def inline(self) -> str:
        """The name of the inline function."""
        return f"st_convolution_{self.vector.dtype}_inline"

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
        """The inline function."""
        t, vector = Writer(), self.vector
        t.line("// A tile of a convolution, of `rows` channels and `vectors` vectors of pixels: sums over channels and")
        t.line("// taps, of a[r * a_row + channel * a_channel + tap] times the vector at")
        t.line("// b + channel * b_channel + offsets[tap].")
        t.line(
            "// Sums stay in registers over `chain` channels, then join `sum`, whose rows lie closer than those of `c`."
        )
        with _inline_function(t, self.inline, self.parameters):
            _emit_left_rows(t, vector)
            t.line(f"{vector.name} sum[{MOST_ROWS}][{MOST_VECTORS}];")
            t.line("int64_t first = 0;")
            with t.block("do", " while (first < channels);"):
                t.line("const int64_t stop = first + chain < channels ? first + chain : channels;")
                _emit_zeros(t, vector)
                with t.block("for (int64_t channel = first; channel < stop; ++channel)"):
                    with t.block("for (int64_t tap = 0; tap < taps; ++tap)"):
                        t.line(f"const {vector.scalar} *const pixels = b + offsets[tap];")
                        _emit_step(t, vector, _LEFT, "pixels")
                        _emit_advance(t, "1")
                    _emit_advance(t, "a_channel - taps")
                    t.line("b += b_channel;")
                with t.block("if (first > 0)"), _each_sum(t):
                    t.line("acc[r][v] += sum[r][v];")
                with t.block("if (stop < channels)"), _each_sum(t):
                    t.line("sum[r][v] = acc[r][v];")
                with t.otherwise(), _each_sum(t):
                    t.line(f"*({vector.unaligned} *)(c + r * c_row + v * {vector.lanes}) = acc[r][v];")
                t.line("first = stop;")
        return _tile_snippet(self.inline, vector, t)


@contextmanager
def _inline_function(t: Writer, name: str, parameters: list[Parameter]) -> Iterator[None]:
    with t.function(f"{INLINE} {name}", ["int rows", "int vectors", *map(declared, parameters)]):
        yield


@contextmanager
def _each_row(t: Writer, advance: str = "") -> Iterator[None]:
    """A loop over the rows of a tile, unrolled so that `acc[r]` names registers."""
    with t.unrolled(MOST_ROWS, f"for (int r = 0; r < rows; ++r{advance})"):
        yield


@contextmanager
def _each_vector(t: Writer) -> Iterator[None]:
    with t.unrolled(MOST_VECTORS, "for (int v = 0; v < vectors; ++v)"):
        yield


@contextmanager
def _each_sum(t: Writer) -> Iterator[None]:
    with _each_row(t), _each_vector(t):
        yield


_LEFT = "left[r / group][r % group * a_row]"
_POINTERS = -(-MOST_ROWS // 5)
_EACH_POINTER = "for (int i = 0; i * group < rows; ++i)"


def _emit_left_rows(t: Writer, vector: Vector) -> None:
    """Pointers to rows of `a`: `_LEFT` is the element of row `r`."""
    t.line("// Few distances from few rows fit into the registers for addresses.")
    t.line("const int group = rows <= 14 ? (rows + 1) / 2 : 5;")
    t.line(f"const {vector.scalar} *left[{_POINTERS}];")
    with t.unrolled(_POINTERS, _EACH_POINTER):
        t.line("left[i] = a + i * group * a_row;")


def _emit_zeros(t: Writer, vector: Vector) -> None:
    t.line(f"{vector.name} acc[{MOST_ROWS}][{MOST_VECTORS}];")
    with _each_sum(t):
        t.line(f"acc[r][v] = ({vector.name}){{0}};")


def _emit_step(t: Writer, vector: Vector, left: str, right: str) -> None:
    """One step of the inner dimension: `left` is the item of row `r`, `right` the address of the first vector."""
    t.line(f"{vector.name} y[{MOST_VECTORS}];")
    with _each_vector(t):
        t.line(f"y[v] = {vector.load(f'{right} + v * {vector.lanes}')};")
    with _each_row(t):
        t.line(f"const {vector.scalar} x = {left};")
        with _each_vector(t):
            t.line(vector.multiply_add("acc[r][v]", "x", "y[v]"))


def _emit_advance(t: Writer, step: str) -> None:
    """The next step of the pointers to rows of `a`."""
    with t.unrolled(_POINTERS, _EACH_POINTER):
        t.line(f"left[i] += {step};")


def _tile_snippet(name: str, vector: Vector, t: Writer) -> Snippet:
    """The function of a tile, with what it needs."""
    fma = f"st_fma_{vector.name}"
    return Snippet(name, str(t), needs=(fma,) if f"{fma}(" in str(t) else ())
