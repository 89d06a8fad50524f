# ruff: noqa: B007
"""Branches: alone, in each other, in loops; conditional expressions, chained comparisons, booleans that control."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.gradients.faults import (
    earlier_uses_forgotten,
    first_result_of_branches_inactive,
    last_iteration_left_out,
    other_branch_taken,
    residuals_of_the_first_iteration,
    wrong_rule,
)
from tests.gradients.harness import program

X = np.array([0.5, 1.25, -0.75, 2.0])


@program((X,), (-X,), fault=other_branch_taken)
def if_and_else(x):
    if x[0] > 0.0:
        a = st.exp(x[0]) * x[1]
    else:
        a = x[0] * x[2] + x[3] ** 2
    return a * x[1]


@program((X, 0), (X, 1), (X, 2), (X, 9), fault=first_result_of_branches_inactive)
def elif_chain(x, n):
    if n == 0:
        a = x[0] * x[1]
    elif n == 1:
        a = st.sin(x[0] * x[2])
    elif n == 2:
        a = x[3] / x[1]
    else:
        a = x.sum()
    return a * a


@program((X,), (-X,), (X * 0.1,), fault=other_branch_taken)
def if_in_if(x):
    a = x[1] * x[1]
    if x[0] > 0.0:
        b = st.exp(a)
        if x[3] > 1.0:
            a = b * x[2]
        else:
            a = b + a * x[2]
    else:
        if x[1] < 0.0:
            a = a * x[0]
    return a * x[3]


@program((X,), (-X,), fault=earlier_uses_forgotten)
def value_used_by_both_branches_and_after(x):
    shared = x[0] * x[1] + x[2]
    if shared > 0.0:
        a = shared * shared
    else:
        a = shared * 3.0
    return a + shared * x[3]


@program((X, 4), fault=other_branch_taken)
def branch_in_a_loop(x, n):
    a = x[0]
    for i in st.range(n):
        if x[i] > 0.0:
            a = a * x[1] + x[i]
        else:
            a = st.cos(a) * x[3]
    return a


@program((X, 5), fault=residuals_of_the_first_iteration)
def branch_on_the_carried_value(x, n):
    a = x[0]
    for i in st.range(n):
        if a < 1.0:
            a = a * 1.7 + x[1] * 0.1
        else:
            a = st.sin(a) * x[3] * 0.6
    return a


@program((X, 3), (X, -1), fault=last_iteration_left_out)
def loop_in_a_branch(x, n):
    shared = x[0] * x[1]
    if n > 0:
        a = x[2]
        for i in st.range(n):
            a = a * x[1] + st.sin(shared)
    else:
        a = shared * shared
    return a * shared


@program((X,), (-X,), fault=other_branch_taken)
def conditional_expression(x):
    return (x[0] * x[1] if x[0] > 0.0 else st.exp(x[1])) * (x[2] if x[3] < 0.0 else x[3] * x[3])


@program((X, 4), fault=first_result_of_branches_inactive)
def chained_comparison_guards_the_index(x, n):
    total = x[0]
    for i in st.range(-1, n + 1):
        if 0 <= i < n and -1.0 < x[i] < 1.5:
            total = total + x[i] * x[i] * total
    return total


@program((X, True, 2), (X, False, 2), (X, False, 0), fault=other_branch_taken)
def booleans_that_control(x, flag, n):
    strong = flag or n > 1
    both = flag and n > 1
    a = x[0] * x[1]
    if strong and not both:
        a = a * a
    if both or a < 0.0:
        a = st.exp(a) * x[2]
    return a


@program((X, 6), fault=other_branch_taken)
def integer_state_in_a_loop(x, n):
    phase = 0
    a = x[0]
    for i in st.range(n):
        if phase == 0:
            a = a + x[1] * a * 0.3
        elif phase == 1:
            a = a * x[3] * 0.7
        else:
            a = st.sin(a)
        phase = (phase * 2 + i) % 3
    return a


@program((X, 3), (X, 0), fault=wrong_rule("select"))
def where_beside_if(x, n):
    y = st.where(x > 0.0, x * x, -0.5 * x)
    if n > 1:
        y = st.where(x > 1.0, y * n, x)
    return y * y


@program((X, 2), (X, 0), fault=first_result_of_branches_inactive)
def trees_joined_by_a_branch(x, n):
    state = {"a": x[0], "b": (x, x[1])}
    if n > 1:
        state = {"a": state["b"][1] * x[2], "b": (x * x, state["a"])}
    return state["a"] * state["b"][1], state["b"][0] * state["a"]
