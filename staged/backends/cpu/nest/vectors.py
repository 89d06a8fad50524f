"""Vector C: the compiler's vector types, and how each elementwise op is spelled on them.

`f32v` is the machine's vector of f32; narrower or wider ones with the same number of lanes are `f64x16`, `u8x16`. Types
with `_u` may stand anywhere in memory. A comparison gives a mask: an integer vector of 0 and -1. Functions on vectors
are always inlined: the ABI of wide vectors depends on compiler flags.

Tested by `tests/backends/host/test_integers_in_kernels.py` and `tests/kernels/test_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staged.code.expr import Call, Cast, Expr, Infix, Items, Literal, Name, Part, Prefix, literal
from staged.code.nest.value import Value, is_zero
from staged.code.operators import ARITHMETIC, BITWISE, COMPARISONS, EXTREMES
from staged.code.support.halves import vector_function
from staged.code.support.lanes import HALVES, lanes_snippet, part_snippet
from staged.code.support.library import snippets
from staged.code.support.math import FUNCTION_NAMES, function_snippet
from staged.code.support.vectors import vector_snippet, width_snippet
from staged.ir.types import DType, bool_, f32


class VectorTypes:
    """The vector types that one kernel uses, and the text that declares them."""

    def __init__(self, vector_bytes: int, lanes: int, item_bytes: int) -> None:
        self.vector_bytes = vector_bytes
        self.lanes = lanes
        self.mask_bits = 8 * item_bytes
        self.snippets: set[str] = set()

    def name(self, dtype: str, size: int) -> str:
        """`f32v` where the vector is the machine's, `f32x8` where it has the lanes of a wider one."""
        self.snippets.add(width_snippet(self.vector_bytes))
        if size * self.lanes == self.vector_bytes:
            self.snippets.add(vector_snippet(dtype))
            return f"{dtype}v"
        self.snippets.add(lanes_snippet(dtype, self.lanes))
        return f"{dtype}x{self.lanes}"

    def vector(self, expr: Expr, dtype: DType) -> Value:
        """An expression that is a vector."""
        return Value(expr, dtype, self.lanes)

    def type(self, dtype: DType) -> str:
        if dtype.is_bool:
            return self.mask()
        return self.name("u16" if dtype.is_half else dtype.name, dtype.size)

    def mask(self, size: int = 0) -> str:
        bits = 8 * size or self.mask_bits
        return self.name(f"i{bits}", bits // 8)

    def unsigned(self, dtype: DType) -> str:
        return self.name(f"u{8 * dtype.size}", dtype.size)

    def is_native(self, dtype: DType) -> bool:
        return dtype.size * self.lanes == self.vector_bytes


class VectorSpeller:
    """Spells ops on vectors; operands are names or literals, so that macros may repeat them."""

    def __init__(self, types: VectorTypes, need: Callable[..., None], named: Callable[[Expr], Expr]) -> None:
        self.types = types
        self.need = need
        self.named = named
        """Gives a mask a name, so that it can be written twice."""

    def splat(self, value: Value) -> Expr:
        """The same number in every lane, keeping its sign and NaN."""
        if value.is_vector:
            return value.expr
        if value.dtype.is_bool:
            bits = self.types.mask_bits
            # Small integers become ints by arithmetic: the cast comes last.
            return Infix("-", Cast(f"int{bits}_t", Prefix("-", value.expr)), self.zero(self.types.mask()))
        if is_zero(value.expr):
            return self.zero(self.types.type(value.dtype))
        return Infix("-", value.expr, self.zero(self.types.type(value.dtype)))

    def zero(self, type: str) -> Expr:
        return Items((Literal("0"),), type)

    def load(self, dtype: DType, address: Expr, count: Expr | None) -> Expr:
        """The vector at an address; of a part of one, `count` is the number of items."""
        if dtype.is_bool:
            narrow = self.types.name("u8", 1)
            return Infix("!=", self.convert(self.at(narrow, address, count, "const "), self.types.mask()), Literal("0"))
        return self.at(self.types.type(dtype), address, count, "const ")

    def at(self, type: str, address: Expr, count: Expr | None, qualifier: str = "") -> Expr:
        """A vector in memory, or the part of one that has `count` items."""
        if count is not None:
            self.need(part_snippet(type))
            return Part(type, address, count)
        return Prefix("*", Cast(f"{qualifier}{type}_u *", address))

    def store(self, dtype: DType, address: Expr, value: Value, count: Expr | None) -> tuple[Expr, Expr]:
        """(target, value) of the assignment that stores a vector."""
        if dtype.is_bool:
            narrow = self.types.name("u8", 1)
            ones = Infix("&", self.splat(value), Literal("1"))
            return self.at(narrow, address, count), self.convert(ones, narrow)
        return self.at(self.types.type(dtype), address, count), self.splat(value)

    def convert(self, value: Expr, type: str) -> Expr:
        return Call("__builtin_convertvector", (value, Name(type)))

    def mask_for(self, mask: Expr, dtype: DType) -> Expr:
        """A mask as wide as the lanes of `dtype`."""
        if dtype.size * 8 == self.types.mask_bits:
            return mask
        return self.convert(mask, self.types.mask(dtype.size))

    def select(self, mask: Value, yes: Value, no: Value) -> Expr:
        dtype = yes.dtype
        if dtype.is_bool:
            m, a, b = self.named(self.splat(mask)), self.splat(yes), self.splat(no)
            return Infix("|", Infix("&", m, a), Infix("&", Prefix("~", m), b))
        type, bits = self.types.type(dtype), self.types.mask(dtype.size)
        if not no.is_vector and is_zero(no.expr):
            return Cast(type, Infix("&", self.mask_for(self.splat(mask), dtype), Cast(bits, self.splat(yes))))
        if not yes.is_vector and is_zero(yes.expr):
            return Cast(
                type, Infix("&", Prefix("~", self.mask_for(self.splat(mask), dtype)), Cast(bits, self.splat(no)))
            )
        m = self.mask_for(self.named(self.splat(mask)), dtype)
        chosen = Infix("&", m, Cast(bits, self.splat(yes)))
        if self.types.is_native(dtype) and dtype.size >= 4 and f"i{8 * dtype.size}v" == bits:
            self.need(f"select_{dtype}v")
            return Call(f"st_select_{dtype}v", (m, self.splat(yes), self.splat(no)))
        other = Infix("&", Prefix("~", m), Cast(bits, self.splat(no)))
        return Cast(type, Infix("|", chosen, other))

    def compare(self, op: str, dtype: DType, a: Expr, b: Expr) -> Expr:
        mask = Infix(op, a, b)
        if dtype.size * 8 == self.types.mask_bits:
            return mask
        return self.convert(mask, self.types.mask())

    def spell(self, name: str, operands: Sequence[Value], result: DType, attrs: Mapping[str, Any]) -> Expr | None:
        """The op as one expression; None where it needs a function call (see `function`)."""
        x = operands[0]
        dtype = x.dtype
        if name == "cast":
            return None if dtype.is_half or result.is_half else self.cast(x, result)
        if name == "select":
            return self.select(operands[0], operands[1], operands[2])
        if name in COMPARISONS:
            if dtype.is_bool:
                a, b = self.splat(x), self.splat(operands[1])
                # True is -1 in a mask: the order of numbers is turned round.
                turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
                sign = COMPARISONS[name]
                return Infix(turned.get(sign, sign), a, b)
            return self.compare(
                COMPARISONS[name], dtype, self.splat(x) if not x.is_vector else x.expr, self.other(operands[1])
            )
        if dtype.is_bool:
            ops = {"logical_and": "&", "logical_or": "|", "logical_xor": "^", **BITWISE, "maximum": "|", "minimum": "&"}
            if name in ops:
                return Infix(ops[name], self.splat(x), self.splat(operands[1]))
            assert name in ("logical_not", "bitwise_invert"), name
            return Prefix("~", x.expr)
        if name == "isnan":
            return self.compare("!=", dtype, x.expr, x.expr)
        if name in ("isinf", "isfinite"):
            size = self.absolute(x.expr, dtype)
            return self.compare("==" if name == "isinf" else "<", dtype, size, literal(float("inf"), dtype))
        if name in ARITHMETIC:
            if dtype.is_float:
                return Infix(ARITHMETIC[name], x.expr, operands[1].expr)
            return self.wrapping(ARITHMETIC[name], dtype, x, operands[1])
        if name == "divide":
            return Infix("/", x.expr, operands[1].expr)
        if name == "negative":
            return Prefix("-", x.expr) if dtype.is_float else self.wrapping("-", dtype, Value(Literal("0"), dtype), x)
        if name == "square":
            return Infix("*", x.expr, x.expr) if dtype.is_float else self.wrapping("*", dtype, x, x)
        if name in BITWISE:
            return Infix(BITWISE[name], self.splat(x), self.splat(operands[1]))
        if name == "bitwise_invert":
            return Prefix("~", x.expr)
        if name == "abs":
            if dtype.is_float:
                return self.absolute(x.expr, dtype)
            minus = self.wrapping("-", dtype, Value(Literal("0"), dtype), x)
            return self.select(
                self.types.vector(self.compare("<", dtype, x.expr, Literal("0")), bool_),
                self.types.vector(minus, dtype),
                x,
            )
        if name in ("maximum", "minimum"):
            return self.extreme(name, operands[0], operands[1])
        return None

    def absolute(self, x: Expr, dtype: DType) -> Expr:
        bits = self.types.mask(dtype.size)
        most = Literal("INT32_MAX" if dtype.size == 4 else "INT64_MAX")
        return Cast(self.types.type(dtype), Infix("&", Cast(bits, x), most))

    def extreme(self, name: str, a: Value, b: Value) -> Expr:
        """maximum or minimum; NaN where one of the two is NaN."""
        dtype = a.dtype
        # Of 0.0 and -0.0 it is the second one, as in scalar code: where the operands change places, the first one left.
        swapped = not a.is_vector
        if swapped:
            a, b = b, a
        if dtype.is_float and not b.is_vector and isinstance(b.expr, Literal):
            # A known number: the one comparison is false for NaN, which therefore stays.
            loses = {">": "<", "<": ">"}[EXTREMES[name]] + ("" if swapped else "=")
            return self.select(self.types.vector(self.compare(loses, dtype, a.expr, b.expr), bool_), b, a)
        beats = EXTREMES[name] + ("=" if swapped and dtype.is_float else "")
        wins = Infix(beats, a.expr, self.other(b))
        if dtype.is_float:
            wins = Infix("|", wins, Infix("!=", a.expr, a.expr))
        mask = wins if dtype.size * 8 == self.types.mask_bits else self.convert(wins, self.types.mask())
        return self.select(self.types.vector(mask, bool_), a, b)

    def other(self, value: Value) -> Expr:
        return value.expr

    def wrapping(self, op: str, dtype: DType, a: Value, b: Value) -> Expr:
        if dtype.kind == "u":
            return Infix(op, a.expr, b.expr)
        unsigned = self.types.unsigned(dtype)

        def cast(v: Value) -> Expr:
            return Cast(unsigned if v.is_vector else f"u{dtype.c_name}", v.expr)

        return Cast(self.types.type(dtype), Infix(op, cast(a), cast(b)))

    def cast(self, x: Value, result: DType) -> Expr:
        source = x.dtype
        if source is result:
            return x.expr
        if result.is_bool:
            return self.compare("!=", source, x.expr, literal(0, source))
        if source.is_bool:
            one = Value(literal(1, result), result)
            return self.select(x, one, Value(literal(0, result), result))
        return self.convert(x.expr, self.types.type(result))

    def fma(self, factors: tuple[Expr, Expr], added: Expr, dtype: DType) -> Expr:
        """The sum of a product and a vector, rounded once if there is a function for it."""
        function = f"st_fma_{self.types.type(dtype)}"
        if function not in snippets():
            return Infix("+", added, Infix("*", *factors))
        self.need(function)
        return Call(function, (*factors, added))

    def function(self, name: str, dtype: DType, result: DType) -> str | None:
        """The support function of an op on whole vectors; None: lane by lane with the scalar one."""
        if name == "cast":
            function = vector_function(f"{result}_from_{dtype}", self.types.lanes)
            self.need(function)
            return f"st_{function}"
        if not self.has_function(name, dtype):
            return None
        function = function_snippet(name, self.types.type(dtype))
        self.need(function)
        return function

    def has_function(self, name: str, dtype: DType) -> bool:
        """Return whether `function` has one."""
        half = dtype is f32 and self.types.lanes in HALVES
        return name in FUNCTION_NAMES and dtype.is_float and (self.types.is_native(dtype) or half)
