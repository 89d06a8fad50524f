"""Names that a loop alone binds, read after it: they have a value where the loop is certain to bind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from tests.frontend.harness import Case, checks_of

X = np.array([1.0, 2.0, 3.0])


def loss_of_the_last_step(x):
    for i in st.range(3):
        y = x[i] * x[0]
        loss = y * y
    return loss + y, i


def while_true_binds_before_each_break(x, tol):
    while True:
        y = 0.5 * x
        if abs(y - x).max() < tol:
            why = 1
            break
        if y[0] < 1e-3:
            why = 2
            break
        x = y
    return y, why


def nested_loops(x):
    for i in st.range(3):
        for j in st.range(2):
            t = x[i] * (j + 1.0)
            u = st.zeros(2, dtype=st.f64) + j
    return t, i, j, u


def loop_in_one_branch(x, over_all):
    if over_all:
        for v in x:
            r = v * 2
    else:
        r = x[0]
    return r


def left_by_break_or_by_else(x, n):
    for i, v in enumerate(x):
        w = v + 1
        if i == n:
            break
    else:
        w = w + 10
    return w, i


def last_square(x):
    for v in x:
        y = v * v
    return y


def in_a_helper_called_twice(x):
    return last_square(x) + last_square(2 * x)


def return_in_the_loop_or_after_it(x, n):
    for i in st.range(4):
        q = x[0] * i
        if q > n:
            return q
    return q - 1


def static_values(x):
    for v in x:
        count = 3
        print(v)
    return count


CASES = [
    Case(loss_of_the_last_step, [(X,)], wrt=(0,)),
    Case(while_true_binds_before_each_break, [(X, 1e-6), (X, 10.0)], wrt=(0,)),
    Case(nested_loops, [(X,)], wrt=(0,)),
    Case(loop_in_one_branch, [(X, True), (X, False)], wrt=(0,)),
    Case(left_by_break_or_by_else, [(X, 2), (X, 1), (X, 5)], wrt=(0,)),
    Case(in_a_helper_called_twice, [(X,)], wrt=(0,)),
    Case(return_in_the_loop_or_after_it, [(X, 2), (X, 9)]),
    Case(static_values, [(X,)]),
]

test_programs, test_gradients = checks_of(CASES)


def may_run_zero_times(x, n):
    for i in st.range(n):
        y = x[i]
    return y


def skipped_by_continue(x):
    for v in x:
        if v > 1:
            continue
        y = v
    return y


def read_in_the_first_turn(x):
    for v in x:
        if v > 1:
            v = v + y  # noqa: F821
        y = v
    return y


def a_break_before_it_is_bound(x):
    while True:
        if x[0] > 1:
            break
        y = x
        if x[0] > -2:
            break
    return y


def inner_loop_may_run_zero_times(x):
    for i in st.range(2):
        for j in st.range(i):
            y = x[j]
    return y


@pytest.mark.parametrize(
    ("function", "args", "word", "line"),
    [
        (may_run_zero_times, (X, 2), "may run zero times", 3),
        (skipped_by_continue, (X,), "not bound on every path", 5),
        (read_in_the_first_turn, (X,), "read before it is bound", 3),
        (a_break_before_it_is_bound, (X,), "not bound on every path", 7),
        (inner_loop_may_run_zero_times, (X,), "not bound on every path", 4),
    ],
)
def test_refusals(function: Any, args: tuple[Any, ...], word: str, line: int) -> None:
    with pytest.raises(st.UnboundNameError, match=f"`y` is .*{word}") as caught:
        st.function(function)(*args)
    assert caught.value.where is not None
    assert caught.value.where.line == function.__code__.co_firstlineno + line


def test_python_state_changed_while_tracing_is_changed_once() -> None:
    seen: list[int] = []

    @st.function
    def program(x):
        seen.append(1)
        for v in x:
            y = v
        return y

    program.stage(X)
    assert seen == [1]
