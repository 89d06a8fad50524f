"""The reads of a tree of code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from staged.backends.c_family.code.tree import (
    Assign,
    Block,
    Declare,
    Do,
    For,
    ForBits,
    If,
    Statement,
    Unused,
    While,
    walk,
)
from staged.backends.c_family.expr import Expr, Variable, parts_of


def expressions_of(statement: Statement) -> Iterator[Expr]:
    """The expressions of a statement, not of those inside it; of a declaration not what it declares."""
    match statement:
        case Declare(_, value, _, sizes, also):
            yield from sizes
            if value is not None:
                yield value
            for _, other in also:
                yield other
        case Assign(target, value):
            yield target
            yield value
        case Do(expr) | While(expr) | If(expr):
            yield expr
        case For(_, start, stop, step=step):
            yield start
            yield stop
            if step is not None:
                yield step
        case ForBits(_, mask):
            yield mask
        case Unused(names):
            yield from names
        case Block():
            pass


def mentioned(body: Sequence[Statement]) -> set[Variable]:
    """The variables that statements use, to read or to write, beyond declaring them."""
    found: set[Variable] = set()
    left = [expr for statement in walk(body) for expr in expressions_of(statement)]
    while left:
        expr = left.pop()
        if type(expr) is Variable:
            found.add(expr)
        else:
            left += parts_of(expr)
    return found


def is_unrolled(body: Sequence[Statement]) -> bool:
    """Return whether some loop is to be unrolled."""
    return any(isinstance(statement, For) and statement.unroll for statement in walk(body))
