"""The tables' checks notice an answer, a gradient or an error that differs."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.frontend.harness import Case, check_gradient, check_program

X = np.array([1.0, 2.0, 3.0], np.float32)


def weighted(x, n):
    total = 0.0
    for i in st.range(n):
        total += x[i] * (i + 1)
        print(f"{total:.2f}")
    return total


def loud(x, n):
    print("loud")
    return weighted(x, n)


def twice(x, n):
    return weighted(x, n) * 2.0


def fails(x, n):
    raise ZeroDivisionError


def test_a_right_program_passes() -> None:
    check_program(Case(weighted, [(X, 3), (X, 0), (X, 4)], wrt=(0,)))
    check_gradient(Case(weighted, [(X, 3), (X, 0), (X, 4)], wrt=(0,)))


@pytest.mark.parametrize("meaning", [twice, loud, fails])
def test_a_wrong_program_fails(meaning) -> None:
    with pytest.raises(AssertionError):
        check_program(Case(weighted, [(X, 3)], meaning=meaning))


def test_a_wrong_gradient_fails() -> None:
    with pytest.raises(AssertionError):
        check_gradient(Case(weighted, [(X, 3)], wrt=(0,), meaning=twice))


def test_a_gradient_without_a_run_fails() -> None:
    with pytest.raises(AssertionError, match="no run"):
        check_gradient(Case(weighted, [(X, 4)], wrt=(0,)))
