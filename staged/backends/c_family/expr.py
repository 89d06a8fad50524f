"""C expressions as trees, printed with C's precedence: parentheses are right by construction."""

from __future__ import annotations

import math
from dataclasses import dataclass

from staged.ir.types import DType

# Precedence levels of C11, higher binds tighter.
_BINARY = {
    "*": 13, "/": 13, "%": 13,
    "+": 12, "-": 12,
    "<<": 11, ">>": 11,
    "<": 10, "<=": 10, ">": 10, ">=": 10,
    "==": 9, "!=": 9,
    "&": 8, "^": 7, "|": 6,
    "&&": 5, "||": 4,
}  # fmt: skip
_CONDITIONAL, _UNARY, _POSTFIX = 3, 14, 15

# Mixing these without parentheses is right but makes gcc's -Wparentheses (and readers) unhappy.
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_AMBIGUOUS = {"<<", ">>", "&", "^", "|", "&&", "||", *_COMPARISONS}


class Expr:
    """A C expression."""

    __slots__ = ()

    def __str__(self) -> str:
        return print_expr(self)


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """An identifier."""

    text: str

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A finished literal, such as `0.5f`; negative ones are printed in parentheses where needed."""

    text: str

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Infix(Expr):
    """`left op right`."""

    op: str
    left: Expr
    right: Expr

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Prefix(Expr):
    """`op operand`, for `-`, `!`, `~`, `*`, `&`."""

    op: str
    operand: Expr

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """`function(arguments)`, also for macros."""

    function: str
    arguments: tuple[Expr, ...]

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Index(Expr):
    """`base[index]`."""

    base: Expr
    index: Expr

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Member(Expr):
    """`base.field` or `base->field`."""

    base: Expr
    field: str
    arrow: bool = True

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """`(type)operand`."""

    type: str
    operand: Expr

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Conditional(Expr):
    """`condition ? yes : no`."""

    condition: Expr
    yes: Expr
    no: Expr

    __str__ = Expr.__str__


def print_expr(expr: Expr, outer: int = 0) -> str:
    """The text of `expr` inside an operator of precedence `outer`."""
    text, level = _print(expr)
    return f"({text})" if level < outer else text


def _print(expr: Expr) -> tuple[str, int]:
    match expr:
        case Name(text):
            return text, _POSTFIX
        case Literal(text):
            return text, _BINARY["-"] if text.startswith("-") else _POSTFIX
        case Infix(op, left, right):
            level = _BINARY[op]
            return f"{_operand(op, left, level)} {op} {_operand(op, right, level + 1)}", level
        case Prefix(op, operand):
            inner = print_expr(operand, _UNARY)
            # `- -x` must not become `--x`, nor `& &x` become `&&x`.
            return (f"{op}({inner})" if inner.startswith(op) else f"{op}{inner}"), _UNARY
        case Call(function, arguments):
            return f"{function}({', '.join(map(print_expr, arguments))})", _POSTFIX
        case Index(base, index):
            return f"{print_expr(base, _POSTFIX)}[{print_expr(index)}]", _POSTFIX
        case Member(base, field, arrow):
            return f"{print_expr(base, _POSTFIX)}{'->' if arrow else '.'}{field}", _POSTFIX
        case Cast(type, operand):
            return f"({type}){print_expr(operand, _UNARY)}", _UNARY
        case Conditional(condition, yes, no):
            return (
                f"{print_expr(condition, _CONDITIONAL + 1)} ? {print_expr(yes, _CONDITIONAL + 1)} : "
                f"{print_expr(no, _CONDITIONAL)}",
                _CONDITIONAL,
            )
    raise AssertionError(f"not an expression: {expr!r}")


def _operand(op: str, operand: Expr, level: int) -> str:
    text, inner = _print(operand)
    # `a && b && c` is clear; `a != b != c` is not.
    same = isinstance(operand, Infix) and operand.op == op and op not in _COMPARISONS
    clash = isinstance(operand, Infix) and not same and (op in _AMBIGUOUS and operand.op in _AMBIGUOUS)
    mixed_bits = isinstance(operand, Infix) and op in {"&", "|", "^", "<<", ">>"}
    return f"({text})" if inner < level or clash or mixed_bits else text


def literal(value: float | int | bool, dtype: DType) -> Expr:
    """A C literal of exactly `value` in `dtype`: shortest text that reads back as the same number."""
    if dtype.is_bool:
        return Name("true" if value else "false")
    if dtype.is_integer:
        return _integer(int(value), dtype)
    number = float(value)
    suffix = "f" if dtype.name == "f32" else ""
    if math.isnan(number):
        return Name("NAN") if suffix else Cast("double", Name("NAN"))
    if math.isinf(number):
        infinity: Expr = Name("INFINITY") if suffix else Cast("double", Name("INFINITY"))
        return infinity if number > 0 else Prefix("-", infinity)
    text = str(dtype.numpy.type(number)) if suffix else repr(number)
    if "e" not in text and "." not in text:
        text += ".0"
    return Literal(text + suffix)


def _integer(value: int, dtype: DType) -> Expr:
    if dtype.name == "i64" and not -(2**31) < value < 2**31:
        if value == -(2**63):
            return Name("INT64_MIN")
        return Call("INT64_C", (Literal(str(value)),))
    if dtype.name == "i32" and value == -(2**31):
        return Name("INT32_MIN")
    if dtype.kind == "u" and value >= 2**31:
        return Literal(f"{value}u")
    return Literal(str(value))


def infix_sum(terms: list[Expr]) -> Expr:
    """`a + b + c`; `0` for no terms."""
    if not terms:
        return Literal("0")
    total = terms[0]
    for term in terms[1:]:
        total = Infix("+", total, term)
    return total


def scaled(index: Expr, stride: int) -> Expr | None:
    """`index * stride`, without the trivial cases; None for stride 0."""
    if stride == 0:
        return None
    return index if stride == 1 else Infix("*", index, Literal(str(stride)))


def address(array: Expr, index: Expr) -> Expr:
    """`array + i * 100 + j`."""
    if isinstance(index, Literal) and index.text == "0":
        return array
    if isinstance(index, Infix) and index.op == "+":
        return Infix("+", address(array, index.left), index.right)
    return Infix("+", array, index)
