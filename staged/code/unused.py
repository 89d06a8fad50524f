"""Removal of unused locals: the C compiler would warn, and a reader would wonder.

A value may lose its reader while code is made (the index of a dimension of one element moves nothing), so this looks
at the finished tree of a function. Locals of the host's functions are known by their names, which are unique in each.

Tested by `tests/code/test_unused.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from staged.code.expr import Expr, Name, Variable
from staged.code.tree import (
    Assign,
    Declare,
    Do,
    If,
    Statement,
    Unused,
    walk,
    with_inner,
)
from staged.code.uses import expressions_of, expressions_within, mentioned, with_parts


def drop_unused_locals(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements without constants that are unused; of a value with effects only its computation stays.

    A variable that is only ever assigned to is marked as unused, as is a pointer through which others may write.
    """
    return _dropped(body, _has_read_name)


def drop_unused_variables(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """The same where blocks beside one another have variables of one name: these are known by their identity."""
    return _dropped(body, lambda body: mentioned(body).__contains__)


def without_copies(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements, in which a constant is stored at once if nothing else reads it: `x[i] = sum` without `sum`."""
    parts = with_parts(expressions_within(body))
    uses = Counter(part for part in parts if isinstance(part, Variable))

    def joined(body: Sequence[Statement]) -> Iterator[Statement]:
        is_stored = False
        for s, following in zip(body, (*body[1:], None), strict=False):
            if is_stored:
                is_stored = False
                continue
            match s, following:
                case Declare(Variable() as x, Expr() as value, True, ()), Assign(_, Variable() as stored, "") if (
                    stored is x and uses[x] == 1 and not s.also
                ):
                    yield replace(following, value=value)
                    is_stored = True
                case _:
                    yield with_inner(s, joined)

    return tuple(joined(body))


def _has_read_name(body: Sequence[Statement]) -> Callable[[Variable], bool]:
    names = names_read(body)
    return lambda variable: variable.text in names


def _dropped(
    body: Sequence[Statement], used_in: Callable[[Sequence[Statement]], Callable[[Variable], bool]]
) -> tuple[Statement, ...]:
    while True:
        is_used = used_in(body)
        unused = {id(s) for s in walk(body) if isinstance(s, Declare) and not s.sizes and not is_used(s.variable)}
        if not unused:
            return tuple(body)
        body = tuple(_without(body, unused))


def names_read(body: Sequence[Statement]) -> set[str]:
    """The names that statements read: a variable that is assigned to is not one of them."""
    return _names(
        expr
        for s in walk(body)
        for expr in (
            (s.value,) if isinstance(s, Assign) and isinstance(s.target, Name) and not s.op else expressions_of(s)
        )
    )


def names_used(body: Sequence[Statement]) -> set[str]:
    """The names that statements read or assign to."""
    return _names(expressions_within(body))


def _names(expressions: Iterable[Expr]) -> set[str]:
    return {expr.text for expr in with_parts(expressions) if isinstance(expr, Name)}


def _without(body: Sequence[Statement], unused: set[int]) -> Iterator[Statement]:
    """The statements, in which these declarations are dropped or marked."""
    for s in body:
        match s:
            case Declare() if id(s) in unused:
                is_constant = s.variable.type.is_const if s.variable.type.is_pointer else s.is_const
                if not is_constant or s.value is None or s.is_kept:
                    yield s
                    yield Unused((s.variable,))
                elif s.has_effects:
                    yield Do(s.value)
            case If() if not unused & {id(inner) for inner in walk((*s.then, *s.other))}:
                yield s
            case _:
                yield with_inner(s, lambda inner: _without(inner, unused))
