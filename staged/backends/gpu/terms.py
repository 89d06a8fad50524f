"""Expressions of kernels, written with Python's operators: `Term(x)[row] * 2 + 1` is the tree of `x[row] * 2 + 1`.

Tested by `tests/backends/gpu/test_terms.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.code.expr import Conditional, Expr, Index, Infix, Junction, Literal, Member, Prefix


def expression(given: Term | Expr | int) -> Expr:
    """The expression of a term, or of a number."""
    if isinstance(given, Term):
        return given.expr
    return given if isinstance(given, Expr) else Literal(str(given))


@dataclass(frozen=True, slots=True)
class Term:
    """An expression with operators. Quotients and remainders are of integers that are not negative."""

    expr: Expr

    def __add__(self, other: Term | Expr | int) -> Term:
        return self if other == 0 else Term(Infix("+", self.expr, expression(other)))

    def __radd__(self, other: int) -> Term:
        return self if other == 0 else Term(Infix("+", expression(other), self.expr))

    def __sub__(self, other: Term | Expr | int) -> Term:
        return Term(Infix("-", self.expr, expression(other)))

    def __rsub__(self, other: Expr | int) -> Term:
        return Term(Infix("-", expression(other), self.expr))

    def __mul__(self, other: Term | Expr | int) -> Term:
        return self if other == 1 else Term(Infix("*", self.expr, expression(other)))

    def __truediv__(self, other: Term | Expr | int) -> Term:
        return Term(Infix("/", self.expr, expression(other)))

    def __floordiv__(self, other: Term | Expr | int) -> Term:
        return self if other == 1 else Term(Infix("/", self.expr, expression(other)))

    def __mod__(self, other: Term | Expr | int) -> Term:
        return Term(Infix("%", self.expr, expression(other)))

    def __neg__(self) -> Term:
        return Term(Prefix("-", self.expr))

    def __getitem__(self, index: Term | Expr | int) -> Term:
        return Term(Index(self.expr, expression(index)))

    def __lt__(self, other: Term | Expr | int) -> Term:
        return Term(Infix("<", self.expr, expression(other)))

    def __le__(self, other: Term | Expr | int) -> Term:
        return Term(Infix("<=", self.expr, expression(other)))

    def __gt__(self, other: Term | Expr | int) -> Term:
        return Term(Infix(">", self.expr, expression(other)))

    def __ge__(self, other: Term | Expr | int) -> Term:
        return Term(Infix(">=", self.expr, expression(other)))

    def is_equal(self, other: Term | Expr | int) -> Term:
        """`a == b` of the kernel; Python's compares the trees."""
        return Term(Infix("==", self.expr, expression(other)))

    def member(self, name: str) -> Term:
        """`a.name`."""
        return Term(Member(self.expr, name, arrow=False))

    def otherwise(self, yes: Term | Expr | int, no: Term | Expr | int) -> Term:
        """`a ? yes : no`."""
        return Term(Conditional(self.expr, expression(yes), expression(no)))


def chosen(condition: Term | None, yes: Term, no: Term) -> Term:
    """`condition ? yes : no`; `yes` without a condition."""
    return yes if condition is None else condition.otherwise(yes, no)


def both(*conditions: Term | None) -> Term | None:
    """`a && b`, of those conditions that there are; None where there is none."""
    given = tuple(condition.expr for condition in conditions if condition is not None)
    if not given:
        return None
    return Term(given[0]) if len(given) == 1 else Term(Junction("&&", given))
