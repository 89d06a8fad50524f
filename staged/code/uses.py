"""The reads of a tree of code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from staged.code.expr import Call, Expr, Items, Member, Name, Prefix, Variable, parts_of
from staged.code.tree import (
    Assign,
    Block,
    Declare,
    DeclareStruct,
    DeclareTable,
    Do,
    For,
    ForAny,
    ForBits,
    If,
    Jump,
    Statement,
    Unused,
    While,
    walk,
)


def expressions_of(statement: Statement) -> Iterator[Expr]:
    """The expressions of a statement, not of those inside it; of a declaration not what it declares."""
    match statement:
        case Declare(_, value, _, sizes, also):
            yield from sizes
            if value is not None:
                yield value
            for _, other in also:
                yield other
        case DeclareStruct(_, fields):
            for _, value in fields:
                yield value
        case DeclareTable(_, rows):
            yield from rows
        case Assign(target, value):
            yield target
            yield value
        case Do(expr) | If(expr):
            yield expr
        case While(condition) if condition is not None:
            yield condition
        case For(_, start, stop, step=step):
            yield start
            yield stop
            if step is not None:
                yield step
        case ForAny(_, start, condition, onwards):
            yield start
            yield condition
            yield from expressions_of(onwards)
        case Jump(value=value) if value is not None:
            yield value
        case ForBits(_, mask):
            yield mask
        case Unused(names):
            yield from names
        case Block():
            pass


def expressions_within(body: Sequence[Statement]) -> Iterator[Expr]:
    """The expressions of statements and of those inside them."""
    return (expr for statement in walk(body) for expr in expressions_of(statement))


def with_parts(expressions: Iterable[Expr]) -> Iterator[Expr]:
    """Expressions and all that they are made of."""
    left = list(expressions)
    while left:
        expr = left.pop()
        yield expr
        left += parts_of(expr)


def mentioned(body: Sequence[Statement]) -> set[Variable]:
    """The variables that statements use, to read or to write, beyond declaring them."""
    return {expr for expr in with_parts(expressions_within(body)) if type(expr) is Variable}


def is_unrolled(body: Sequence[Statement]) -> bool:
    """Return whether some loop is to be unrolled."""
    return any(isinstance(statement, For) and statement.unroll > 1 for statement in walk(body))


def is_rolled(body: Sequence[Statement]) -> bool:
    """Return whether some loop must not be unrolled."""
    return any(isinstance(statement, For) and statement.unroll == 1 for statement in walk(body))


def functions_called(body: Sequence[Statement]) -> set[str]:
    """The names of the functions that statements call."""
    return {expr.function for expr in with_parts(expressions_within(body)) if isinstance(expr, Call)}


def written_names(body: Sequence[Statement]) -> set[str]:
    """The names whose variables statements change, or whose addresses they use; programs only read through a table."""
    found: set[str] = set()
    for statement in walk(body):
        if isinstance(statement, Assign):
            found |= root_names(statement.target)
        if isinstance(statement, ForAny) and isinstance(statement.onwards, Assign):
            found |= root_names(statement.onwards.target)
        match statement:
            case DeclareTable() | Assign(value=Items()):
                continue
        for part in with_parts(expressions_of(statement)):
            match part:
                case Prefix("++" | "--" | "&", operand):
                    found |= root_names(operand)
    return found


def root_names(target: Expr) -> set[str]:
    """The variable that an assignment changes, if it is a local."""
    while isinstance(target, Member) and not target.arrow:
        target = target.base
    return {target.text} if isinstance(target, Name) else set()
