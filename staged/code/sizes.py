"""Functions that differ only in numbers, as one function with these numbers as parameters.

    update of w (64, 128):  for (j < 128)    w[i * 128 + j] -= 0.1f * ...
    update of v (32, 256):  for (j < 256)    v[i * 256 + j] -= 0.2f * ...
    both:                   for (j < j_end)  w[i * j_end + j] -= factor * ...

These numbers can become parameters: sizes, which bound loops or from which addresses are computed, constants of type
`float` or `double`, and the counters of random numbers. Other numbers are part of the function:

- bounds of loops with few iterations and few statements, and of loops that the compiler unrolls;
- factors of the indices of unrolled loops, since a register tile needs constants in its addresses;
- divisors, and indices of local arrays.

Tested by `tests/code/test_sizes.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from staged.code.dialect import C, Dialect
from staged.code.expr import (
    Call,
    Cast,
    Conditional,
    Expr,
    Group,
    Index,
    Infix,
    Literal,
    Name,
    Part,
    Prefix,
    Setting,
    Variable,
)
from staged.code.rebuild import rebuilt
from staged.code.shape import shape_of
from staged.code.tree import Assign, Declare, DeclareTable, For, Function, If, Parameter, Statement, walk
from staged.code.types import INDEX, CType, scalar
from staged.code.uses import mentioned, with_parts
from staged.code.writer import Names
from staged.ir.types import f32, f64, i64

SMALLEST = 16
"""The smallest bound of a short loop that is a parameter; compilers unroll shorter ones."""
LONG = 8
"""A loop of so many statements is not unrolled, whatever its bound."""
MOST = 6
"""So many numbers still leave a call readable."""

_FLOAT = re.compile(r"-?\d+(\.\d+(e[-+]?\d+)?|e[-+]?\d+)f?")
_RANDOM = re.compile("st_(random_bits|uniform|normal|bernoulli)")
_CONSTANTS = {"*": "scale", "+": "offset", "-": "offset"}
"""The role of a constant, by operator."""

Node = TypeVar("Node")
Choose = Callable[[Literal, Variable], Expr]
"""The expression in the place of a number. The variable has its type and its role: `j_end`, `x_stride`, `factor`."""


@dataclass(frozen=True)
class Sized:
    """A function with its numbers, in order of appearance."""

    function: Function
    shape: str
    """Equal for functions that differ only in numbers, comments and names."""
    numbers: tuple[Literal, ...]
    roles: tuple[Variable, ...]

    @staticmethod
    def of(function: Function, dialect: Dialect = C) -> Sized:
        """The numbers of a function."""
        found: list[tuple[Literal, Variable]] = []

        def note(number: Literal, role: Variable) -> Expr:
            found.append((number, role))
            return Name("#" if role.type == INDEX else role.type.text)

        marked = with_numbers(function, note)
        numbers, roles = zip(*found, strict=True) if found else ((), ())
        return Sized(function, shape_of(marked, dialect)[0], numbers, roles)


def with_numbers(function: Function, choose: Choose) -> Function:
    """The function with what is chosen in place of its numbers."""
    return replace(function, body=_Rewriter(choose).statements(function.body))


Numbers = tuple[Literal, ...]


def merged(users: Sequence[Sized], at: int, most: int = MOST) -> tuple[Function, list[Numbers]] | None:
    """One function for users of equal shape, and the values of its new parameters for each of them; None if they are
    more than `most`. The new parameters precede parameter number `at`.
    """
    columns = list(zip(*(user.numbers for user in users), strict=True))
    first = users[0]
    names = Names()
    declared = {parameter.variable for parameter in first.function.parameters}
    declared |= {s.variable for s in walk(first.function.body) if isinstance(s, Declare)}
    names.used |= {variable.text for variable in declared | mentioned(first.function.body)}
    parameters: dict[Numbers, Variable] = {}
    order = sorted(range(len(columns)), key=lambda number: _rank(first.numbers[number], first.roles[number]))
    chosen: dict[int, Expr] = {}
    for number in order:
        column, role = columns[number], first.roles[number]
        if len(set(column)) == 1:
            chosen[number] = column[0]
            continue
        known = (derived(column, other, parameters[other]) for other in parameters) if role.type == INDEX else ()
        value = parameters.get(column) or next(filter(None, known), None)
        if value is None:
            value = parameters[column] = Variable(names.fresh(role.text), role.type)
        chosen[number] = value
    if len(parameters) > most:
        return None
    numbers = iter(range(len(columns)))
    function = with_numbers(first.function, lambda number, role: chosen[next(numbers)])
    new = tuple(Parameter(variable) for variable in parameters.values())
    old = function.parameters
    function = replace(function, parameters=(*old[:at], *new, *old[at:]))
    return function, list(zip(*parameters, strict=True)) or [() for _ in users]


def _rank(number: Literal, role: Variable) -> tuple[bool, int]:
    """Bounds of loops come first, since they give the best names, and sizes before their multiples."""
    return not role.text.endswith("_end"), int(number.text) if role.type == INDEX else sys.maxsize


def derived(column: Numbers, known: Numbers, parameter: Variable) -> Expr | None:
    """A column as `parameter * 2 + 1`, where `known` is the column of the parameter."""
    if parameter.type != INDEX:
        return None
    points = sorted((int(each.text), int(number.text)) for each, number in zip(known, column, strict=True))
    (x, y), (x_2, y_2) = points[0], points[-1]
    factor = (y_2 - y) // (x_2 - x)
    rest = y - x * factor
    if factor < 1 or not 0 <= rest < LONG or any(y != x * factor + rest for x, y in points):
        return None
    product = parameter if factor == 1 else Infix("*", parameter, Literal(str(factor)))
    return Infix("+", product, Literal(str(rest))) if rest else product


class _Rewriter:
    """Rebuilds statements. Sizes are looked for where integers have the type of indices."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.target = ""
        """The beginning of the roles of constants: the variable whose value is rebuilt."""
        self.unrolled: set[Variable] = set()
        """Indices of loops that the compiler unrolls."""

    # ---- statements ----

    def statements(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(map(self.statement, body))

    def statement(self, s: Statement) -> Statement:
        match s:
            case Declare(variable, value, also=also) if value is not None and not s.sizes:
                return replace(
                    s,
                    value=self.value(variable, value),
                    also=tuple((other, self.value(other, more)) for other, more in also),
                )
            case Assign(Variable() as target, value):
                return replace(s, value=self.value(target, value))
            case If(condition) if not self.unrolled.isdisjoint(with_parts([condition])):
                return replace(s, condition=self.index(condition, "bound"), then=self.statements(s.then))
            case For() if s.unroll > 1:
                self.unrolled.add(s.index)
                return replace(s, body=self.statements(s.body))
            case For(index, start, stop, body, step):
                smallest = 1 if is_long(body) else SMALLEST
                return replace(
                    s,
                    start=self.index(start, f"{index.text}_begin", smallest),
                    stop=self.index(stop, f"{index.text}_end", smallest),
                    step=step and self.index(step, f"{index.text}_step", smallest),
                    body=self.statements(body),
                )
            case Declare() | DeclareTable():
                return s
        return self.rebuilt(s)

    def value(self, variable: Variable, value: Expr) -> Expr:
        """The value of a variable."""
        if variable.type == INDEX:
            return self.index(value, variable.text)
        self.target, outside = f"{variable.text}_", self.target
        made, self.target = self.expr(value), outside
        return made

    def rebuilt(self, node: Node) -> Node:
        """A statement or an expression with rebuilt parts."""
        return cast(Node, rebuilt(node, self.part))

    def part(self, part: Any) -> Any:
        if isinstance(part, Expr):
            return self.expr(part)
        return self.statement(part) if isinstance(part, For | Declare | Assign) else self.rebuilt(part)

    # ---- expressions ----

    def expr(self, e: Expr, role: str = "constant") -> Expr:
        """An expression of any type. The number in brackets, and the number added to a pointer, are indices."""
        match e:
            case Setting():
                return self.choose(e, e.parameter)
            case Literal(text):
                type = _type_of(text)
                return e if type is None else self.choose(e, Variable(self.target + role, type))
            case Name():
                return e
            case Cast("int32_t" | "int64_t", operand) if _is_of_indices(operand):
                return replace(e, operand=self.index(operand, role))
            case Call(function, arguments) if _RANDOM.match(function):
                return replace(e, arguments=tuple(self.random(arguments)))
            case Index(base, index):
                array = _array(base)
                return self.rebuilt(e) if array is None else Index(self.expr(base), self.address(index, array))
            case Infix("+" | "-") if (array := _array(e)) is not None:
                return self.address(e, array)
            case Part(address=address, count=count):
                return replace(e, address=self.expr(address), count=self.index(count, "count"))
            case Infix("/", left, Literal()):
                return replace(e, left=self.expr(left))
            case Infix(op, left, right):
                role = _CONSTANTS.get(op, role)
                return replace(e, left=self.expr(left, role), right=self.expr(right, role))
        return self.rebuilt(e)

    def address(self, e: Expr, array: Variable) -> Expr:
        """An index of an array, or a pointer into it. One without an offset has the offset 0."""
        role = f"{array.text}_start"
        place = self.index(e, role)
        if not isinstance(e, Infix) or isinstance(e.right, Literal):
            return place
        offset = self.choose(Literal("0"), Variable(role, INDEX))
        return place if isinstance(offset, Literal) else Infix("+", place, offset)

    def random(self, arguments: tuple[Expr, ...]) -> Iterator[Expr]:
        """The arguments of a function that makes random numbers."""
        roles = ["seed", "stream", "counter"]
        for argument in arguments:
            if isinstance(argument, Prefix) or not roles:
                yield self.expr(argument)
            else:
                role = Variable(roles.pop(0), scalar(i64))
                yield self.choose(argument, role) if isinstance(argument, Literal) else argument

    def index(self, e: Expr, role: str, smallest: int = 1) -> Expr:
        """An expression of indices; `role` is the name of a size in it, which is at least `smallest`."""
        match e:
            case Literal(text) if text.isdigit() and int(text) >= smallest:
                return self.choose(e, Variable(role, INDEX))
            case Infix("*") if any(type(part) is Variable and part in self.unrolled for part in with_parts([e])):
                return e
            case Infix("*", left, right):
                array = role.removesuffix("_end").removesuffix("_start")
                of = max((part.text for part in with_parts([left]) if isinstance(part, Name)), key=len, default=array)
                stride = f"{of if array == 'row' else array}_stride"  # `row_start` has a stride per index
                return Infix("*", self.index(left, stride), self.index(right, stride))
            case Infix("/" | "%" as op, left, right):
                return Infix(op, self.index(left, role), right)
            case Infix("+", left, right):
                left, right = self.index(left, role), self.index(right, role)
                if isinstance(right, Infix) and right.op == "+":
                    return Infix("+", Infix("+", left, right.left), right.right)
                return Infix("+", left, right)
            case Infix("-" | "<" | "<=" | ">" | ">=" | "==" | "!=" as op, left, right):
                return Infix(op, self.index(left, role), self.index(right, role))
            case Conditional(condition, yes, no):
                return Conditional(self.index(condition, role), self.index(yes, role), self.index(no, role))
            case Cast(ctype, operand):
                return Cast(ctype, self.index(operand, role))
            case Group(operand):
                return Group(self.index(operand, role))
        return self.expr(e)


def is_long(body: Sequence[Statement]) -> bool:
    """Return whether a loop has many statements."""
    return sum(1 for _ in walk(body)) >= LONG


def _type_of(text: str) -> CType | None:
    """The type of a constant `0.5f` or `0.5`; None for other literals."""
    if not _FLOAT.fullmatch(text):
        return None
    return scalar(f32 if text.endswith("f") else f64)


def _is_of_indices(e: Expr) -> bool:
    """Return whether an expression depends on indices alone."""
    variables = [part for part in with_parts([e]) if isinstance(part, Name)]
    return bool(variables) and all(type(part) is Variable and part.type == INDEX for part in variables)


def _array(e: Expr) -> Variable | None:
    """The pointer that an address begins with; None for other expressions."""
    while isinstance(e, Infix | Group):
        e = e.left if isinstance(e, Infix) else e.operand
    return e if isinstance(e, Variable) and e.type.is_pointer else None
