"""Operands of a product as memory has them: f16 and bf16 become f32 where they are copied or read, and have no copy of
their own.

Tested by `tests/backends/host/test_contraction_halves.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.backends.cpu.contraction.spec import MatmulSpec
from staged.backends.cpu.contraction.vectors import (
    Vector,
    copied,
    emit_transpose,
    transpose_function,
)
from staged.code.support.halves import vector_function
from staged.code.support.lanes import lanes_snippet
from staged.code.support.library import Snippet
from staged.code.writer import Writer
from staged.ir.types import DType

HEAD = "static inline __attribute__((always_inline)) void"


@dataclass(frozen=True, slots=True)
class Stored:
    """Both operands of a product in memory: items of `dtype`, which are computed with as lanes of `vector`."""

    vector: Vector
    dtype: DType

    @staticmethod
    def of(spec: MatmulSpec, vector: Vector) -> Stored:
        return Stored(vector, spec.stored or spec.dtype)

    @property
    def is_narrow(self) -> bool:
        """Return whether reading an item converts it."""
        return self.dtype is not self.vector.dtype

    @property
    def scalar(self) -> str:
        return self.dtype.c_name

    @property
    def title(self) -> str:
        """The dtypes, for a comment."""
        return f"{self.dtype} in {self.vector.dtype}" if self.is_narrow else str(self.dtype)

    @property
    def conversion(self) -> str:
        """The end of the names of its functions: `f32_from_bf16`."""
        return f"{self.vector.dtype}_from_{self.dtype}"

    def item(self, text: str) -> str:
        """One item, as the number that it means."""
        return f"st_{self.conversion}({text})" if self.is_narrow else text

    def emit_load(self, t: Writer, name: str, address: str) -> None:
        """The line, or two, with which the vector at an address gets a name."""
        if self.is_narrow:
            t.line(f"{self.vector.name} {name};")
            t.line(f"st_read_{self.dtype}(&{name}, {address});")
        else:
            t.line(f"const {self.vector.name} {name} = {self.vector.load(address)};")

    def emit_move(self, t: Writer, target: str, source: str) -> None:
        """The line, or three, with which a vector is copied."""
        value = self.vector.load(source)
        if self.is_narrow:
            self.emit_load(t, "y", source)
            value = "y"
        t.line(f"{self.vector.store(target)} = {value};")

    def copied(self, target: str, source: str, count: int | str) -> str:
        """The statement that copies `count` items."""
        if self.is_narrow:
            return f"st_copy_{self.conversion}({target}, {source}, {count});"
        return copied(self.vector, target, source, count)

    @property
    def transpose(self) -> str:
        """The function that transposes a square block."""
        return f"st_transpose_{self.conversion}" if self.is_narrow else transpose_function(self.vector)

    def functions(self) -> tuple[tuple[str, Snippet], ...]:
        """The functions that a kernel's text may call, with how a call begins."""
        if not self.is_narrow:
            return ()
        return (
            ("", self._read()),  # the others call it
            (f"st_copy_{self.conversion}(", self._copy()),
            (f"{self.transpose}(", self._transpose()),
        )

    def _read(self) -> Snippet:
        lanes = self.vector.lanes
        t = Writer()
        t.line(f"// The numbers that a vector's worth of {self.dtype} mean.")
        with t.block(f"{HEAD} st_read_{self.dtype}({self.vector.name} *y, const {self.scalar} *source)"):
            t.line(f"*y = st_{vector_function(self.conversion, lanes)}(*(const u16x{lanes}_u *)source);")
        return Snippet(f"read_{self.dtype}", str(t), self._needs(lanes))

    def _needs(self, *lanes: int) -> tuple[str, ...]:
        """The conversions of one item and of vectors with so many lanes, and the types of these."""
        functions = [vector_function(self.conversion, each) for each in lanes]
        types = [lanes_snippet(dtype, each) for dtype in ("u16", self.vector.dtype.name) for each in lanes]
        return (self.conversion, *functions, *types)

    def _copy(self) -> Snippet:
        """Runs shorter than a vector are two shorter vectors, which may overlap: rows of a tile are such runs."""
        t, lanes = Writer(), self.vector.lanes
        shorter = [each for each in (8, 4) if each < lanes]
        t.line(f"// Copies `count` items as {self.vector.dtype}; the last vector may overlap the one before it.")
        head = f"{self.vector.scalar} *target, const {self.scalar} *source, int64_t count"
        with t.block(f"{HEAD} st_copy_{self.conversion}({head})"):
            with t.block(f"if (count >= {lanes})"):
                with t.block(f"for (int64_t i = 0; i < count; i += {lanes})"):
                    t.line(f"const int64_t at = i < count - {lanes} ? i : count - {lanes};")
                    self.emit_load(t, "y", "source + at")
                    t.line(f"{self.vector.store('target + at')} = y;")
                t.line("return;")
            for some in shorter:
                with t.block(f"if (count >= {some})"):
                    with t.unrolled(2, "for (int64_t half = 0; half < 2; ++half)"):
                        t.line(f"const int64_t at = half * (count - {some});")
                        value = f"st_{vector_function(self.conversion, some)}(*(const u16x{some}_u *)(source + at))"
                        t.line(f"*({self.vector.dtype}x{some}_u *)(target + at) = {value};")
                    t.line("return;")
            with t.block("for (int64_t i = 0; i < count; ++i)"):
                t.line(f"target[i] = {self.item('source[i]')};")
        return Snippet(f"copy_{self.conversion}", str(t), self._needs(lanes, *shorter))

    def _transpose(self) -> Snippet:
        lanes = self.vector.lanes
        t = Writer()
        t.line(
            f"// target[j][i] = source[i][j] for {lanes} x {lanes} items of {self.dtype}. Only the first `rows` rows"
        )
        t.line("// of the source are read; the lanes of missing rows repeat the last one.")
        emit_transpose(t, self.transpose, self.vector, self.scalar, lambda x, at: f"st_read_{self.dtype}(&{x}, {at});")
        return Snippet(self.transpose.removeprefix("st_"), str(t), ("shuffle", *self._needs(lanes)))
