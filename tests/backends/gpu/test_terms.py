"""Expressions of kernels written with Python's operators, and what is printed."""

from __future__ import annotations

import pytest

from staged.backends.gpu.terms import Term, both, chosen
from staged.code.expr import Name

A, B, X = (Term(Name(name)) for name in "abx")


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (A + B * 2, "a + b * 2"),
        ((A + B) * 2, "(a + b) * 2"),
        (A - (B - 1), "a - (b - 1)"),
        (1 - A, "1 - a"),
        (A // B % 4, "a / b % 4"),
        (A // 1, "a"),
        (A * 1 + 0, "a"),
        (0 + A, "a"),
        (2 + A, "2 + a"),
        (A / B, "a / b"),
        (-A, "-a"),
        (X[A + 1][B], "x[a + 1][b]"),
        (X.member("at")[0], "x.at[0]"),
        ((A <= B).otherwise(A, 0), "a <= b ? a : 0"),
        (A.is_equal(0), "a == 0"),
    ],
)
def test_operators_make_the_tree_of_the_same_operators(term: Term, text: str) -> None:
    assert str(term.expr) == text


def test_conditions_that_always_hold_are_left_out() -> None:
    condition = both(A < B, None, B > 2)
    assert condition is not None and str(condition.expr) == "a < b && b > 2"
    assert both(None, A >= B) == (A >= B) and both(None, None) is None
    assert chosen(None, A, B) is A and str(chosen(A < 1, A, B).expr) == "a < 1 ? a : b"
