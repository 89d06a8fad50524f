"""Functions that differ only in sizes, as one function with these sizes as parameters.

    update of w (64, 128):  for (j < 128)    w[i * 128 + j] -= ...
    update of v (32, 256):  for (j < 256)    v[i * 256 + j] -= ...
    both:                   for (j < j_end)  w[i * j_end + j] -= ...

A size is an integer of at least `SMALLEST` that bounds a loop, or that an address is computed from. Other integers are
part of the function:

- bounds of short loops, and of loops that the compiler unrolls;
- factors of the indices of unrolled loops, since a register tile needs constants in its addresses;
- divisors, and indices of local arrays.

Tested by `tests/code/test_sizes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from staged.code.dialect import C, Dialect
from staged.code.expr import Cast, Conditional, Expr, Group, Index, Infix, Literal, Name, Variable
from staged.code.rebuild import rebuilt
from staged.code.shape import shape_of
from staged.code.tree import Assign, Declare, For, Function, Parameter, Statement, walk
from staged.code.types import INDEX
from staged.code.uses import mentioned, with_parts
from staged.code.writer import Names

SMALLEST = 16
"""The smallest size that is a parameter; smaller numbers bound loops that compilers unroll."""
MOST = 6
"""So many sizes still leave a call readable."""

Node = TypeVar("Node")
Choose = Callable[[int, str], Expr]
"""The expression in the place of a size, which is given with its role: `j_end`, `x_stride`."""


@dataclass(frozen=True)
class Sized:
    """A function with its sizes, in order of appearance."""

    function: Function
    shape: str
    """Equal for functions that differ only in sizes, comments and names."""
    sizes: tuple[int, ...]
    roles: tuple[str, ...]

    @staticmethod
    def of(function: Function, dialect: Dialect = C) -> Sized:
        """The sizes of a function."""
        found: list[tuple[int, str]] = []

        def note(size: int, role: str) -> Expr:
            found.append((size, role))
            return Name("#")

        marked = with_sizes(function, note)
        sizes, roles = zip(*found, strict=True) if found else ((), ())
        return Sized(function, shape_of(marked, dialect)[0], sizes, roles)


def with_sizes(function: Function, choose: Choose) -> Function:
    """The function with what is chosen in place of its sizes."""
    return replace(function, body=_Rewriter(choose).statements(function.body))


def merged(users: Sequence[Sized], at: int, most: int = MOST) -> tuple[Function, list[tuple[int, ...]]] | None:
    """One function for users of equal shape, and the values of its new parameters for each of them; None if they are
    more than `most`. The new parameters precede parameter number `at`.
    """
    columns = list(zip(*(user.sizes for user in users), strict=True))
    first = users[0]
    names = Names()
    declared = {parameter.variable for parameter in first.function.parameters}
    declared |= {s.variable for s in walk(first.function.body) if isinstance(s, Declare)}
    names.used |= {variable.text for variable in declared | mentioned(first.function.body)}
    parameters: dict[tuple[int, ...], Variable] = {}
    # Bounds of loops first: they give the best names.
    order = sorted(range(len(columns)), key=lambda number: (not first.roles[number].endswith("_end"), number))
    chosen: dict[int, Expr] = {}
    for number in order:
        column = columns[number]
        if len(set(column)) == 1:
            chosen[number] = Literal(str(column[0]))
            continue
        multiple = next(filter(None, (_multiple(column, known) for known in parameters)), None)
        if multiple is None:
            parameters[column] = Variable(names.fresh(first.roles[number]), INDEX)
            multiple = column, 1
        known, factor = multiple
        chosen[number] = parameters[known] if factor == 1 else Infix("*", parameters[known], Literal(str(factor)))
    if len(parameters) > most:
        return None
    numbers = iter(range(len(columns)))
    function = with_sizes(first.function, lambda size, role: chosen[next(numbers)])
    new = tuple(Parameter(variable) for variable in parameters.values())
    old = function.parameters
    function = replace(function, parameters=(*old[:at], *new, *old[at:]))
    return function, list(zip(*parameters, strict=True)) or [() for _ in users]


def _multiple(column: tuple[int, ...], known: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
    """`known` and its factor, if one column is the same multiple of the other for all users."""
    factor, rest = divmod(column[0], known[0])
    return (known, factor) if not rest and all(a == b * factor for a, b in zip(column, known, strict=True)) else None


class _Rewriter:
    """Rebuilds statements. Sizes are looked for where integers have the type of indices."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
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
            case For() if s.unroll > 1:
                self.unrolled.add(s.index)
                return replace(s, body=self.statements(s.body))
            case For(index, start, stop, body):
                return replace(
                    s,
                    start=self.index(start, f"{index.text}_begin"),
                    stop=self.index(stop, f"{index.text}_end"),
                    body=self.statements(body),
                )
            case Declare():
                return s
        return self.rebuilt(s)

    def value(self, variable: Variable, value: Expr) -> Expr:
        """The value of a variable."""
        return self.index(value, variable.text) if variable.type == INDEX else self.expr(value)

    def rebuilt(self, node: Node) -> Node:
        """A statement or an expression with rebuilt parts."""
        return cast(Node, rebuilt(node, self.part))

    def part(self, part: Any) -> Any:
        if isinstance(part, Expr):
            return self.expr(part)
        return self.statement(part) if isinstance(part, For | Declare | Assign) else self.rebuilt(part)

    # ---- expressions ----

    def expr(self, e: Expr) -> Expr:
        """An expression of any type. The number in brackets, and the number added to a pointer, are indices."""
        match e:
            case Name() | Literal():
                return e
            case Index(base, index):
                array = _array(base)
                return (
                    self.rebuilt(e)
                    if array is None
                    else Index(self.expr(base), self.index(index, f"{array.text}_start"))
                )
            case Infix("+" | "-") if (array := _array(e)) is not None:
                return self.index(e, f"{array.text}_start")
        return self.rebuilt(e)

    def index(self, e: Expr, role: str) -> Expr:
        """An expression of indices; `role` is the name of a size in it."""
        match e:
            case Literal(text) if text.isdigit() and int(text) >= SMALLEST:
                return self.choose(int(text), role)
            case Infix("*") if any(type(part) is Variable and part in self.unrolled for part in with_parts([e])):
                return e
            case Infix("*", left, right):
                stride = f"{role.removesuffix('_end').removesuffix('_start')}_stride"
                return Infix("*", self.index(left, stride), self.index(right, stride))
            case Infix("/" | "%" as op, left, right):
                return Infix(op, self.index(left, role), right)
            case Infix("+" | "-" | "<" | "<=" | ">" | ">=" | "==" | "!=" as op, left, right):
                return Infix(op, self.index(left, role), self.index(right, role))
            case Conditional(condition, yes, no):
                return Conditional(self.index(condition, role), self.index(yes, role), self.index(no, role))
            case Cast(ctype, operand):
                return Cast(ctype, self.index(operand, role))
            case Group(operand):
                return Group(self.index(operand, role))
        return self.expr(e)


def _array(e: Expr) -> Variable | None:
    """The pointer that an address begins with; None for other expressions."""
    while isinstance(e, Infix | Group):
        e = e.left if isinstance(e, Infix) else e.operand
    return e if isinstance(e, Variable) and e.type.is_pointer else None
