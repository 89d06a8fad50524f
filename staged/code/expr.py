"""C expressions as trees, printed with C's precedence: parentheses are right by construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from staged.ir.numbers import converted
from staged.ir.types import Device, DType

if TYPE_CHECKING:
    from staged.code.types import CType, Space

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
_BITS = {"&", "|", "^", "<<", ">>"}


class Expr:
    """A C expression."""

    __slots__ = ()

    def __str__(self) -> str:
        return print_expr(self)


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """An identifier."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Name):
    """A declaration in code: a parameter, a local, an array, a loop index. Two with equal names are different."""

    type: CType

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A finished literal, such as `0.5f`; negative ones are printed in parentheses where needed."""

    text: str


@dataclass(frozen=True, slots=True)
class Setting(Literal):
    """A literal or an address for which a function that serves several kernels has a parameter."""

    parameter: Variable = field(compare=False)


@dataclass(frozen=True, slots=True)
class Infix(Expr):
    """`left op right`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Prefix(Expr):
    """`op operand`, for `-`, `!`, `~`, `*`, `&`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """`function(arguments)`, also for macros."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Index(Expr):
    """`base[index]`."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Member(Expr):
    """`base.field` or `base->field`."""

    base: Expr
    field: str
    arrow: bool = True


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """`(type)operand`."""

    type: str | CType
    operand: Expr


@dataclass(frozen=True, slots=True)
class Conditional(Expr):
    """`condition ? yes : no`."""

    condition: Expr
    yes: Expr
    no: Expr


@dataclass(frozen=True, slots=True)
class Junction(Expr):
    """`a < b || c < d`: two or more terms between `&&` or `||`, without parentheses around comparisons."""

    op: str
    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Group(Expr):
    """An operand in parentheses that are always written."""

    operand: Expr


@dataclass(frozen=True, slots=True)
class Items(Expr):
    """`{a, b, c}`, the value of an array; with a `type`, a vector of these."""

    items: tuple[Expr, ...]
    type: str = ""


@dataclass(frozen=True, slots=True)
class Part(Expr):
    """The first `count` items of a vector in memory, or all if there are as many."""

    type: str
    address: Expr
    count: Expr


@dataclass(frozen=True, slots=True)
class Place(Expr):
    """An address in the memory of a `device`; its text is that of `expr`."""

    expr: Expr
    device: Device


@dataclass(frozen=True, slots=True)
class Field(Expr):
    """`.name = value`, an item of a struct's value."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Sizeof(Expr):
    """`sizeof(type)`."""

    type: str


Argument = Expr | str | int
"""An argument as a call takes it: an expression, a name, or a number."""


def argument(given: Argument) -> Expr:
    """The expression of an argument."""
    return given if isinstance(given, Expr) else Name(given) if isinstance(given, str) else Literal(str(given))


def call(function: str, *arguments: Argument) -> Call:
    """`function(arguments)`."""
    return Call(function, tuple(map(argument, arguments)))


def member(base: str, *names: str) -> Expr:
    """`base->a->b`."""
    found: Expr = Name(base)
    for name in names:
        found = Member(found, name)
    return found


def size_of(count: int, type: str) -> Expr:
    """The bytes of so many elements of a type."""
    return Sizeof(type) if count == 1 else Infix("*", Literal(str(count)), Sizeof(type))


class Words:
    """The spelling of names: unchanged in C.

    `prefix` begins the names of the support library's functions, which are `st_...` on the host; `spaces` has, by
    memory, the word before the types of pointers into it.
    """

    def __init__(self, prefix: str = "st_", spaces: Mapping[Space, str] = MappingProxyType({})) -> None:
        self.prefix = prefix
        self.spaces = spaces

    def function(self, text: str) -> str:
        """The name of what is called."""
        return f"{self.prefix}{text.removeprefix('st_')}" if text.startswith("st_") else text

    def variable(self, variable: Variable) -> str:
        """The name of what the code declares."""
        return variable.text

    def type(self, type: CType) -> str:
        """The name of a type: where pointers say into which memory, with that."""
        return self.spaces.get(type.space, "") + type.text if type.is_pointer else type.text


PLAIN = Words()


def print_expr(expr: Expr, outer: int = 0, words: Words = PLAIN) -> str:
    """The text of `expr` inside an operator of precedence `outer`."""
    text, level = _PRINTED[type(expr)](expr, words)
    return f"({text})" if level < outer else text


def _print_infix(expr: Infix, words: Words) -> tuple[str, int]:
    op, level = expr.op, _BINARY[expr.op]
    return f"{_operand(op, expr.left, level, words)} {op} {_operand(op, expr.right, level + 1, words)}", level


def _print_prefix(expr: Prefix, words: Words) -> tuple[str, int]:
    op, inner = expr.op, print_expr(expr.operand, _UNARY, words)
    if op == "*" and inner.startswith("&"):
        return print_expr(Name(inner[1:]), _UNARY, words), _UNARY
    # `- -x` must not become `--x`, nor `& &x` become `&&x`.
    return (f"{op}({inner})" if inner.startswith(op) else f"{op}{inner}"), _UNARY


def _print_call(expr: Call, words: Words) -> tuple[str, int]:
    arguments = ", ".join([print_expr(argument, 0, words) for argument in expr.arguments])
    return f"{words.function(expr.function)}({arguments})", _POSTFIX


def _print_index(expr: Index, words: Words) -> tuple[str, int]:
    return f"{print_expr(expr.base, _POSTFIX, words)}[{print_expr(expr.index, 0, words)}]", _POSTFIX


def _print_member(expr: Member, words: Words) -> tuple[str, int]:
    return f"{print_expr(expr.base, _POSTFIX, words)}{'->' if expr.arrow else '.'}{expr.field}", _POSTFIX


def _print_cast(expr: Cast, words: Words) -> tuple[str, int]:
    type = expr.type if isinstance(expr.type, str) else words.type(expr.type)
    return f"({type}){print_expr(expr.operand, _UNARY, words)}", _UNARY


def _print_conditional(expr: Conditional, words: Words) -> tuple[str, int]:
    condition, yes = (print_expr(each, _CONDITIONAL + 1, words) for each in (expr.condition, expr.yes))
    return f"{condition} ? {yes} : {print_expr(expr.no, _CONDITIONAL, words)}", _CONDITIONAL


def _print_junction(expr: Junction, words: Words) -> tuple[str, int]:
    level = _BINARY[expr.op]
    # `a || b && c` is right, but makes compilers warn.
    parts = [print_expr(term, _COMPARED if isinstance(term, Junction) else level + 1, words) for term in expr.terms]
    return f" {expr.op} ".join(parts), level


def _print_items(expr: Items, words: Words) -> tuple[str, int]:
    items = ", ".join([print_expr(item, 0, words) for item in expr.items])
    return (f"({expr.type}){{{items}}}" if expr.type else f"{{{items}}}"), _POSTFIX


_COMPARED = _BINARY["<"]
_PRINTED: dict[type[Expr], Callable[[Any, Words], tuple[str, int]]] = {
    Name: lambda expr, words: (expr.text, _POSTFIX),
    Variable: lambda expr, words: (words.variable(expr), _POSTFIX),
    Literal: lambda expr, words: (expr.text, _BINARY["-"] if expr.text.startswith("-") else _POSTFIX),
    Setting: lambda expr, words: (expr.text, _UNARY),
    Infix: _print_infix,
    Prefix: _print_prefix,
    Call: _print_call,
    Index: _print_index,
    Member: _print_member,
    Cast: _print_cast,
    Conditional: _print_conditional,
    Junction: _print_junction,
    Part: lambda expr, words: _print_call(Call(f"st_load_{expr.type}", (expr.address, expr.count)), words),
    Place: lambda expr, words: _PRINTED[type(expr.expr)](expr.expr, words),
    Field: lambda expr, words: (f".{expr.name} = {print_expr(expr.value, 0, words)}", 0),
    Sizeof: lambda expr, words: (f"sizeof({expr.type})", _POSTFIX),
    Group: lambda expr, words: (f"({print_expr(expr.operand, 0, words)})", _POSTFIX),
    Items: _print_items,
}


def _operand(op: str, operand: Expr, level: int, words: Words) -> str:
    text, inner = _PRINTED[type(operand)](operand, words)
    if inner < level:
        return f"({text})"
    if type(operand) is Infix:
        if op in _BITS:
            return f"({text})"
        # `a && b && c` is clear; `a != b != c` is not.
        same = operand.op == op and op not in _COMPARISONS
        if not same and op in _AMBIGUOUS and operand.op in _AMBIGUOUS:
            return f"({text})"
    return text


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that an expression is directly made of."""
    parts = _PARTS.get(type(expr))
    return parts(expr) if parts is not None else ()


_PARTS: dict[type[Expr], Callable[[Any], tuple[Expr, ...]]] = {
    Infix: lambda expr: (expr.left, expr.right),
    Prefix: lambda expr: (expr.operand,),
    Cast: lambda expr: (expr.operand,),
    Group: lambda expr: (expr.operand,),
    Part: lambda expr: (expr.address, expr.count),
    Place: lambda expr: (expr.expr,),
    Field: lambda expr: (expr.value,),
    Call: lambda expr: expr.arguments,
    Junction: lambda expr: expr.terms,
    Items: lambda expr: expr.items,
    Index: lambda expr: (expr.base, expr.index),
    Member: lambda expr: (expr.base,),
    Conditional: lambda expr: (expr.condition, expr.yes, expr.no),
}


def substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """A product, or its negative, with expressions in the place of names."""
    match expr:
        case Name(text):
            return values.get(text, expr)
        case Infix(op, left, right):
            return Infix(op, substituted(left, values), substituted(right, values))
        case Prefix(op, operand):
            return Prefix(op, substituted(operand, values))
    return expr


def names_in(expr: Expr) -> set[str]:
    """The names in an expression, those of fields among them, but not those of functions and types."""
    own = {expr.text} if isinstance(expr, Name) else {expr.field} if isinstance(expr, Member) else set()
    return own.union(*map(names_in, parts_of(expr)))


def literal(value: float | int | bool, dtype: DType) -> Expr:
    """A C literal of exactly `value` in `dtype`: shortest text that reads back as the same number."""
    if dtype.is_bool:
        return Name("true" if value else "false")
    if dtype.is_integer:
        return _integer(int(value), dtype)
    number = float(value)
    if dtype.is_half:  # its bits
        bits = int(converted(np.asarray(number), dtype).view(np.uint16))
        return Literal(f"0x{bits:04x}" if bits else "0")
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
        number = Literal(f"{value}u")
        return (
            Cast(dtype.c_name, number) if dtype.size == 8 and value < 2**32 else number
        )  # else of 32 bits: `~` shows it
    return Literal(str(value))


def infix_sum(terms: list[Expr]) -> Expr:
    """`a + b - 1`; `0` for no terms."""
    if not terms:
        return Literal("0")
    total = terms[0]
    for term in terms[1:]:
        if isinstance(term, Literal) and term.text.startswith("-"):
            total = Infix("-", total, Literal(term.text[1:]))
        else:
            total = Infix("+", total, term)
    return total


def scaled(index: Expr, stride: int) -> Expr:
    """`index * stride`, or `index`."""
    return index if stride == 1 else Infix("*", index, Literal(str(stride)))


def address(array: Expr, index: Expr) -> Expr:
    """`array + i * 100 + j`."""
    if isinstance(index, Literal) and index.text == "0":
        return array
    if isinstance(index, Infix) and index.op in ("+", "-"):
        return Infix(index.op, address(array, index.left), index.right)
    return Infix("+", array, index)
