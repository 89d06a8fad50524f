"""Scalar C: how each elementwise op of the language is spelled on numbers.

Integer overflow wraps (through unsigned arithmetic, so that sanitizers stay silent), integer division has Python's
signs and stops on zero, maximum and minimum let NaN through, as the reference does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from staged.code.expr import Call, Cast, Conditional, Expr, Infix, Junction, Literal, Name, Prefix, literal
from staged.code.operators import ARITHMETIC, BITWISE, COMPARISONS, EXTREMES, LOGICAL
from staged.code.support.library import snippets
from staged.code.support.math import FUNCTION_NAMES
from staged.code.writer import c_string
from staged.errors import UnsupportedError
from staged.ir.declaration import Declaration, prims
from staged.ir.messages import NO_ELEMENTS
from staged.ir.nodes import Op
from staged.ir.sizes import Extent
from staged.ir.types import DType, f32, f64
from staged.source import Position

LIBM = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc", "abs": "fabs"}
"""Functions of libm, correctly rounded or exact everywhere: nothing to gain from functions of our own."""

RANDOM_FUNCTIONS = {"random_bits": "st_random_bits", "bernoulli": "st_bernoulli"}

Need = Callable[..., None]


class Spell(Protocol):
    """The spelling of an elementwise op on numbers in a language."""

    def __call__(
        self,
        name: str,
        dtypes: Sequence[DType],
        result: DType,
        operands: Sequence[Expr],
        attrs: Mapping[str, Any],
        need: Need,
    ) -> Expr: ...


class ProgramContext(Protocol):
    """The parts of the surrounding program that the spelling of a scalar op uses."""

    def need(self, *snippets: str) -> None:
        """The text uses these support snippets."""

    def site_of(self, where: Position | None) -> int:
        """The number of a Python position in the program's table."""

    def extent(self, extent: Extent) -> Expr:
        """The size of an axis: a number, or the name of a dimension's value."""


def scalar_expression(op: Op, operands: Sequence[Expr], program: ProgramContext) -> Expr:
    """A 0-d op as a C expression. One that may fail reports to `host`: the caller looks there afterwards."""
    dtypes = [operand.tensor.dtype for operand in op.operands]
    result = op.results[0].tensor.dtype
    if op.declared.is_position or op.declared is prims.IOTA:
        return literal(0, result)
    if op.declared.is_move or op.declared.combine or op.declared is prims.TO_DEVICE:
        return operands[0]  # of one element
    if op.declared is prims.INDEX_CHECK:
        extent = program.extent(op.attrs["extent"])
        report = (Name("host"), Literal(str(program.site_of(op.where))))
        if "of" in op.attrs:
            program.need("check_elements")
            return Call("st_check_elements", (*report, extent, Literal(c_string(NO_ELEMENTS.format(op.attrs["of"])))))
        if "width" in op.attrs:
            program.need("check_window")
            return Call("st_check_window", (*report, operands[0], program.extent(op.attrs["width"]), extent))
        program.need("check_index")
        return Call("st_check_index", (*report, operands[0], extent))
    if is_checked(op.declared, result) and op.effects:
        program.need(f"checked_{op.name}_{result}")
        site = Literal(str(program.site_of(op.where)))
        return Call(f"st_checked_{op.name}_{result}", (Name("host"), site, *operands))
    if op.declared.kind == "random":
        element = [] if op.attrs.get("first") else [Literal("0")]
        return random_call(op.name, result, [*operands, *element], program.need)
    return spell(op.name, dtypes, result, operands, op.attrs, program.need)


def is_checked(op: Declaration, dtype: DType) -> bool:
    """Return whether an op on integers may stop the program: a division by zero, a negative power, a number that does
    not fit.
    """
    if op is prims.POW:
        return dtype.kind == "i"
    return op in (prims.FLOOR_DIVIDE, prims.REMAINDER, prims.FIT) and dtype.is_integer


def spell(
    name: str, dtypes: Sequence[DType], result: DType, operands: Sequence[Expr], attrs: Mapping[str, Any], need: Need
) -> Expr:
    """An elementwise op on operands of these dtypes, as a C expression that cannot fail."""
    dtype = dtypes[0] if dtypes else result
    if name in ("cast", "fit"):  # one that fits by what has been checked before
        return cast(operands[0], dtype, result, need)
    if name == "select":
        return Conditional(operands[0], operands[1], operands[2])
    if name in COMPARISONS:
        return Infix(COMPARISONS[name], operands[0], operands[1])
    if name in LOGICAL:
        return Infix(LOGICAL[name], operands[0], operands[1])
    if name == "logical_not":
        return Prefix("!", operands[0])
    if name in ("isnan", "isinf", "isfinite"):
        need("math")
        return Infix("!=", Call(name, (operands[0],)), Literal("0"))
    if dtype.is_float:
        return _float(name, dtype, operands, need)
    return _integer(name, dtype, operands, need)


def _float(name: str, dtype: DType, operands: Sequence[Expr], need: Need) -> Expr:
    x = operands[0]
    if name in ARITHMETIC:
        return Infix(ARITHMETIC[name], x, operands[1])
    if name == "divide":
        return Infix("/", x, operands[1])
    if name == "negative":
        return Prefix("-", x)
    if name == "square" and is_atom(x):
        return Infix("*", x, x)
    if name in LIBM:
        need("math")
        return libm(LIBM[name], dtype, operands)
    if name in FUNCTION_NAMES or name == "fma":
        need(f"st_{name}_{dtype}")
        return Call(f"st_{name}_{dtype}", tuple(operands))
    return _supported(name, dtype, operands, need)


def _integer(name: str, dtype: DType, operands: Sequence[Expr], need: Need) -> Expr:
    x = operands[0]
    if name in ARITHMETIC:
        return wrapping(ARITHMETIC[name], dtype, x, operands[1])
    if name == "square" and is_atom(x):
        return wrapping("*", dtype, x, x)
    if name == "negative":
        return wrapping("-", dtype, Literal("0"), x)
    if name in BITWISE:
        return narrow(Infix(BITWISE[name], x, operands[1]), dtype)
    # Of numbers narrower than int gcc suspects what is compared with them: a function has those.
    if name == "bitwise_invert" and (dtype.is_bool or dtype.size >= 4):
        return narrow(Prefix("!" if dtype.is_bool else "~", x), dtype)
    if name in ("maximum", "minimum") and dtype.is_bool:
        return Infix("||" if name == "maximum" else "&&", x, operands[1])
    if name in ("abs", "sign") and dtype.kind in "ub":
        return x if name == "abs" else narrow(Infix("!=", x, Literal("0")), dtype)
    if name == "pow" or name in ("bitwise_left_shift", "bitwise_right_shift", "bitwise_invert"):
        name = name.removeprefix("bitwise_")
    return _supported(name, dtype, operands, need)


def _supported(name: str, dtype: DType, operands: Sequence[Expr], need: Need) -> Expr:
    """A function of the support library for one dtype."""
    if f"{name}_{dtype}" not in snippets():
        raise UnsupportedError(
            f"no back end that writes C has a way to write `{name}` of {dtype}",
            hint="add a row for it, in staged/code/scalars.py where C has the function, else in "
            "`FUNCTIONS` of "
            "staged/code/support/math.py",
        )
    need(f"{name}_{dtype}")
    return Call(f"st_{name}_{dtype}", tuple(operands))


def beats(combine: str, dtype: DType, x: Expr, best: Expr) -> Expr:
    """The condition that maximum or minimum select `x`: NaN beats every number."""
    wins = Infix(EXTREMES[combine], x, best)
    return Junction("||", (wins, Infix("!=", x, x))) if dtype.is_float else wins


def wrapping(op: str, dtype: DType, x: Expr, y: Expr) -> Expr:
    """Integer arithmetic that wraps around."""
    if dtype.kind == "u" and dtype.size >= 4:
        return Infix(op, Cast(dtype.c_name, x) if isinstance(x, Literal) else x, y)
    if dtype.size < 4:
        # C computes in int, which has all results but the products of two u16.
        left = Cast("uint32_t", x) if op == "*" and dtype.name == "u16" else x
        return Cast(dtype.c_name, Infix(op, left, y))
    left, right = (_unsigned(operand, dtype.c_name) for operand in (x, y))
    if isinstance(left, Literal) and isinstance(right, Literal):
        left = Cast(f"u{dtype.c_name}", x)  # `0u - 2u` is of 32 bits, whatever it is cast to
    return Cast(dtype.c_name, Infix(op, left, right))


def _unsigned(x: Expr, c_type: str) -> Expr:
    """`x` in unsigned arithmetic: what was cast back from there is taken as it was, small numbers get a suffix."""
    unsigned = f"u{c_type}"
    match x:
        case Cast(type, Infix(_, left, right) as inner) if type == c_type and any(
            isinstance(side, Cast) and side.type == unsigned for side in (left, right)
        ):
            return inner
        case Literal(text) if text.isdigit() and int(text) < 2**31:
            return Literal(f"{text}u")
    return Cast(unsigned, x)


def narrow(expression: Expr, dtype: DType) -> Expr:
    """C computes in int: back to the small type."""
    return Cast(dtype.c_name, expression) if dtype.size < 4 else expression


def is_atom(expression: Expr) -> bool:
    return isinstance(expression, Name | Literal)


def libm(name: str, dtype: DType, operands: Sequence[Expr]) -> Expr:
    return Call(f"{name}f" if dtype is f32 else name, tuple(operands))


def cast(x: Expr, source: DType, target: DType, need: Need) -> Expr:
    """Conversion; a float out of an integer's range and NaN give the smallest integer (0 or the largest where there is
    no sign): nothing is undefined.
    """
    if source is target:
        return x
    if source.is_half:
        need(f"f32_from_{source}")
        return cast(Call(f"st_f32_from_{source}", (x,)), f32, target, need)
    if target.is_half:
        wide = source if source.is_float else f32 if source.size < 4 else f64
        need(f"{target}_from_{wide}")
        return Call(f"st_{target}_from_{wide}", (cast(x, source, wide, need),))
    if target.is_bool:
        return Infix("!=", x, literal(0, source))
    if source.is_float and target.is_integer:
        need(f"{target}_from_{source}")
        return Call(f"st_{target}_from_{source}", (x,))
    return Cast(target.c_name, x)


def random_call(name: str, dtype: DType, operands: Sequence[Expr], need: Need) -> Expr:
    """`operands`: seed, stream, counter, [probability,] element."""
    function = RANDOM_FUNCTIONS.get(name, f"st_{name}_{dtype}")
    need(function)
    return Call(function, tuple(operands))
