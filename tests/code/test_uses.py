"""The things that trees of code mention, wherever they stand."""

from __future__ import annotations

import pytest

from staged.code.expr import (
    Call,
    Cast,
    Conditional,
    Expr,
    Group,
    Index,
    Infix,
    Items,
    Junction,
    Literal,
    Member,
    Prefix,
    Variable,
)
from staged.code.tree import Assign, Block, Declare, Do, For, ForBits, If, Statement, Unused, While
from staged.code.types import INDEX
from staged.code.uses import is_unrolled, mentioned

X, I, J = (Variable(name, INDEX) for name in "xij")  # noqa: E741
ZERO = Literal("0")


@pytest.mark.parametrize(
    "expr",
    [
        X,
        Infix("+", ZERO, X),
        Prefix("-", X),
        Call("f", (ZERO, X)),
        Index(X, ZERO),
        Index(ZERO, X),
        Member(X, "at"),
        Cast("int", X),
        Conditional(ZERO, ZERO, X),
        Conditional(X, ZERO, ZERO),
        Junction("||", (ZERO, X)),
        Group(X),
        Items((ZERO, X)),
    ],
)
def test_variables_are_found_in_every_expression(expr: Expr) -> None:
    assert mentioned((Do(expr),)) == {X}


@pytest.mark.parametrize(
    "statement",
    [
        Declare(J, X),
        Declare(J, ZERO, also=((I, X),)),
        Declare(J, sizes=(X,)),
        Assign(X, ZERO),
        Assign(Index(ZERO, X), ZERO),
        Assign(ZERO, X),
        For(I, X, ZERO, ()),
        For(I, ZERO, X, ()),
        For(I, ZERO, ZERO, (), X),
        For(I, ZERO, ZERO, (Do(X),)),
        ForBits(I, X, ()),
        ForBits(I, ZERO, (Do(X),)),
        While(X, ()),
        While(ZERO, (Do(X),)),
        If(X, ()),
        If(ZERO, (Do(X),)),
        If(ZERO, (), (Do(X),)),
        Block((Do(X),)),
        Unused((X,)),
    ],
)
def test_variables_are_found_in_every_statement(statement: Statement) -> None:
    assert mentioned((Block((statement,)),)) == {X}


def test_variables_of_one_name_are_not_one() -> None:
    assert mentioned((Declare(X, Variable("x", INDEX)),)) != {X}


def test_an_unrolled_loop_is_found_inside_others() -> None:
    inner = For(I, ZERO, ZERO, (), unroll=4)
    assert is_unrolled((If(ZERO, (), (inner,)),))
    assert not is_unrolled((For(I, ZERO, ZERO, ()),))
