"""What the fuzzer found, each as a program of its own: the same in eager mode and compiled, with the right gradient."""

from __future__ import annotations

import numpy as np

import staged as st
from staged.testing import assert_backends_agree, check_grads

X = np.array([0.5, -1.5, 2.0])


def zip_with_an_empty_array(x, n):
    empty = x[:0]
    total = st.sum(x)
    for i, row in zip(st.range(n), empty, strict=False):
        total += row * i
    return total


def test_zip_of_a_staged_range_and_an_empty_array_runs_its_body_never() -> None:
    assert_backends_agree(zip_with_an_empty_array, X, 3)


def a_variable_on_one_side(x, n):
    scale = st.Variable(st.sum(x))
    value = scale if n > 2 else 0.5 * x[0]
    scale.value = scale * 2.0
    return value + scale


def test_a_variable_on_one_side_of_a_conditional_expression_is_what_it_holds() -> None:
    for n in (1, 3):
        assert_backends_agree(a_variable_on_one_side, X, n)
        check_grads(a_variable_on_one_side, (X, n))
