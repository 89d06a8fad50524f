"""One body of C for single numbers and for vectors: the same operations in the same order, so the same bits.

Tested by `tests/backends/support/test_math.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from staged.code.support.lanes import HALVES, lanes_snippet
from staged.code.support.library import Snippet, SupportFunction, headers, made_of
from staged.code.support.vectors import INLINE, vector_snippet


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """An IEEE format, and the number whose addition rounds to integers and leaves them in the low bits."""

    dtype: str
    c_name: str
    unsigned: str
    fraction_bits: int
    bias: int
    least_normal: str
    """The smallest number with a full fraction, in C."""

    @property
    def bits(self) -> int:
        return 32 if self.dtype == "f32" else 64

    @property
    def rounder(self) -> float:
        """1.5 * 2**fraction_bits: x + rounder - rounder is x rounded to an integer, halves to even."""
        return 1.5 * 2.0**self.fraction_bits

    @property
    def rounder_bits(self) -> int:
        return ((self.bias + self.fraction_bits) << self.fraction_bits) | 1 << (self.fraction_bits - 1)

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def function_suffix(self) -> str:
        """The suffix of libm's names."""
        return "f" if self.dtype == "f32" else ""


FORMATS = {
    "f32": FloatFormat("f32", "float", "uint32_t", 23, 127, "1.17549435e-38f"),
    "f64": FloatFormat("f64", "double", "uint64_t", 52, 1023, "2.2250738585072014e-308"),
}


@dataclass(frozen=True, slots=True)
class Variety:
    """The spelling of a body for numbers of one format, one at a time or as vectors.

    `lanes` is None for single numbers, 0 for the machine's vectors, else the number of lanes.
    """

    format: FloatFormat
    lanes: int | None
    called: list[str] = field(default_factory=list, compare=False)
    """The functions that the body under way calls, each once."""

    @property
    def is_vector(self) -> bool:
        return self.lanes is not None

    @property
    def shape(self) -> str:
        """The suffix of the names of vector types."""
        return f"x{self.lanes}" if self.lanes else "v"

    @property
    def suffix(self) -> str:
        return f"{self.format.dtype}{self.shape}" if self.is_vector else self.format.dtype

    @property
    def T(self) -> str:
        """The type of a value."""
        return self.suffix if self.is_vector else self.format.c_name

    @property
    def U(self) -> str:
        """The type of its bits."""
        return f"u{self.format.bits}{self.shape}" if self.is_vector else self.format.unsigned

    @property
    def M(self) -> str:
        """The type of a comparison."""
        return f"i{self.format.bits}{self.shape}" if self.is_vector else "bool"

    @property
    def base_snippets(self) -> tuple[str, ...]:
        """The snippets that every body of this variety may use."""
        if not self.is_vector:
            return (f"bits_{self.format.dtype}",)
        bits = f"u{self.format.bits}"
        return (lanes_snippet(bits, self.lanes) if self.lanes else vector_snippet(bits), f"select_{self.suffix}")

    def number(self, value: float) -> str:
        """The literal that reads back as `value` rounded to the format."""
        text = str(np.float32(value)) if self.format.dtype == "f32" else repr(float(value))
        return text + self.format.function_suffix

    def word(self, value: int) -> str:
        """A pattern of bits."""
        digits = self.format.bits // 4
        return f"0x{value:0{digits}x}u" if self.format.bits == 32 else f"UINT64_C(0x{value:0{digits}x})"

    def splat(self, value: float) -> str:
        """`value` as a T."""
        return f"(({self.T}){{0}} + {self.number(value)})" if self.is_vector else self.number(value)

    def pattern(self, value: int) -> str:
        """The T with these bits: infinities and NaN."""
        return self.real(f"({self.U}){{0}} + {self.word(value)}" if self.is_vector else self.word(value))

    @property
    def infinity(self) -> int:
        return (2 * self.format.bias + 1) << self.format.fraction_bits

    @property
    def quiet_nan(self) -> int:
        return self.infinity | 1 << (self.format.fraction_bits - 1)

    def select(self, mask: str, a: str, b: str) -> str:
        """`mask ? a : b` for the name of a mask."""
        return (
            f"{self.calling(f'st_select_{self.suffix}')}({mask}, {a}, {b})" if self.is_vector else f"{mask} ? {a} : {b}"
        )

    def calling(self, function: str) -> str:
        """The name of a function that the body calls."""
        if function not in self.called:
            self.called.append(function)
        return function

    def bits(self, value: str) -> str:
        return f"({self.U})({value})" if self.is_vector else f"{self.calling(f'st_bits_{self.suffix}')}({value})"

    def real(self, word: str) -> str:
        return f"({self.T})({word})" if self.is_vector else f"{self.calling(f'st_real_{self.suffix}')}({word})"

    def root(self, value: str) -> str:
        """The square root of a number."""
        return f"{self.calling(f'__builtin_sqrt{self.format.function_suffix}')}({value})"

    def magnitude(self, value: str) -> str:
        return self.real(f"{self.bits(value)} & {self.word(self.format.sign_bit - 1)}")

    def horner(self, name: str, variable: str, coefficients: Sequence[float]) -> str:
        """Lines that set `name` to the polynomial with these coefficients, the constant one first."""
        *rest, last = coefficients
        lines = [f"{self.T} {name} = {self.splat(last)};"]
        for c in reversed(rest):
            lines.append(f"{name} = {self.fma(name, variable, self.number(c))};")
        return "\n".join(lines)

    @property
    def fma_function(self) -> str:
        """The function for x * y + z."""
        return f"st_fma_{self.suffix}"

    def fma(self, x: str, y: str, z: str) -> str:
        """x * y + z, rounded once if the processor has such an instruction."""
        return f"{self.calling(self.fma_function)}({x}, {y}, {z})"

    def call(self, function: str, result: str, argument: str) -> str:
        """Lines that set the new variable `result` to `function` of the variable `argument`."""
        name = self.calling(f"st_{function}_{self.suffix}")
        return f"const {self.T} {result} = {name}({argument});"

    def function(self, name: str, comment: str, body: str, arguments: tuple[str, ...] = ("x",)) -> SupportFunction:
        """The C function `st_<name>_<suffix>` whose body turns `arguments` into `y`."""
        head = INLINE if self.is_vector else "static inline "
        lines = [f"({', '.join(f'{self.T} {a}' for a in arguments)}) {{"]
        lines += [f"    {line}" for line in body.strip("\n").splitlines()]
        lines += ["    return y;", "}"]
        about = "".join(f"// {line}\n" for line in comment.splitlines())
        definition = "\n".join(lines) + "\n"
        return SupportFunction(self.T, f"st_{name}_{self.suffix}", definition, tuple(self.called), about, head)


VARIETIES = (
    *(Variety(format, lanes) for format in FORMATS.values() for lanes in (None, 0)),
    *(Variety(FORMATS["f32"], lanes) for lanes in HALVES),
)


def bits_snippet(format: FloatFormat) -> Snippet:
    """The bits of a number, and the number with given bits."""
    real, word, name = format.c_name, format.unsigned, format.dtype
    bits_of = f"({real} x) {{\n    {word} word;\n    memcpy(&word, &x, sizeof word);\n    return word;\n}}\n"
    real_of = f"({word} word) {{\n    {real} x;\n    memcpy(&x, &word, sizeof x);\n    return x;\n}}\n"
    return made_of(
        f"bits_{name}",
        SupportFunction(word, f"st_bits_{name}", bits_of),
        SupportFunction(real, f"st_real_{name}", real_of),
        includes=headers("stdbool", "stdint", "string"),
    )
