# ruff: noqa: B007
"""Ways out: `break`, `continue`, early `return`, `else` on loops."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.gradients.faults import (
    earlier_uses_forgotten,
    first_result_of_branches_inactive,
    last_iteration_left_out,
    loop_sum_forgotten,
    other_branch_taken,
    residuals_of_the_first_iteration,
    results_of_loops_inactive,
)
from tests.gradients.harness import program

X = np.array([0.5, 1.25, -0.75, 2.0])
M = np.linspace(-1.0, 1.4, 12).reshape(4, 3)


@program((X, 0.6), (X, 3.1), (X, 100.0), fault=last_iteration_left_out)
def break_out_of_a_loop(x, limit):
    a = x[0]
    for i in st.range(6):
        a = a * x[1] + 0.3
        if a > limit:
            break
        a = a + x[3] * 0.1
    return a


@program((X,), (-X,), fault=loop_sum_forgotten)
def continue_past_the_rest(x):
    total = 0.0
    for i in st.range(4):
        if x[i] < 0.0:
            continue
        total = total + x[i] * x[i] * x[1]
    return total


@program((X, 1.4), (X, 4.1), fault=residuals_of_the_first_iteration)
def break_and_continue(x, limit):
    a = x[0]
    for i in st.range(9):
        if i % 3 == 1:
            continue
        a = a * x[1]
        if a > limit:
            a = a * a
            break
    return a * x[3]


@program((X, 0.7), (X, 1.3), (X, 50.0), fault=first_result_of_branches_inactive)
def return_out_of_a_loop(x, limit):
    a = x[0]
    for i in st.range(5):
        a = a * x[1] + 0.1
        if a > limit:
            return a * a * x[3]
    return st.sin(a)


@program((M, 0.2), (M, 1.1), (M, 50.0), fault=residuals_of_the_first_iteration)
def return_out_of_nested_loops(m, limit):
    total = 0.0
    for i in st.range(4):
        for j in st.range(3):
            total = total + m[i, j] * m[i, j]
            if total > limit:
                return total * m[0, 0]
        total = total * 0.9
    return total * total


@program((X, 0.7), (X, 2.1), (X, 50.0), fault=earlier_uses_forgotten)
def return_out_of_a_helper(x, limit):
    def grown(value):
        for i in st.range(3):
            value = value * x[1]
            if value > limit:
                return value - x[2] * x[2]
        return value * value

    return grown(x[0]) * grown(x[3] * 0.4)


@program((X, 0.4), (X, 1.6), (X, 50.0), fault=other_branch_taken)
def else_on_a_for(x, limit):
    a = x[0] * x[0]
    for i in st.range(4):
        a = a + x[i] * x[i]
        if a > limit:
            break
    else:
        a = a * x[1]
    return a * x[3]


@program((X, 4, 0.9), (X, 4, 2.5), (X, 0, 2.5), fault=results_of_loops_inactive)
def else_on_a_while(x, n, limit):
    i = 0
    a = x[0]
    while i < n:
        i += 1
        a = a + st.exp(x[1]) * 0.1
        if a > limit:
            break
    else:
        a = st.sin(a) * x[3]
    return a


@program((M, 0.1), (M, 0.5), (M, 50.0), fault=last_iteration_left_out)
def else_that_continues_the_outer_loop(m, limit):
    total = m[0, 0]
    for i in st.range(4):
        for j in st.range(3):
            total = total + m[i, j] * total * 0.5
            if m[i, j] > limit:
                break
        else:
            total = total * 1.1
            continue
        total = total - m[i, 0] * m[i, 1]
    return total


@program((X, 3.1), (X, 0.2), fault=last_iteration_left_out)
def while_true_with_several_exits(x, limit):
    a = x[0]
    i = 0
    while True:
        i += 1
        if i > 12:
            return a * x[2]
        if i % 4 == 0:
            continue
        a = a * x[1] + 0.05
        if a > limit:
            break
    return a * a


@program((X, 1.4), (X, 40.0), fault=residuals_of_the_first_iteration)
def exits_of_unrolled_loops(x, limit):
    a = x[0]
    for k in range(4):
        for i in st.range(k + 1):
            a = a * x[1]
            if a > limit:
                break
        if a > limit * 1.5:
            break
        if k == 1:
            continue
        a = a + x[3] * x[k]
    return a


@program((X, 2), (X, 0), (X, 7), fault=last_iteration_left_out)
def return_in_both_branches_of_a_loop(x, n):
    a = x[0]
    for i in st.range(4):
        a = a * x[1] + x[2] * 0.1
        if i == n:
            if a > 1.0:
                return a * a
            else:
                return a * x[3]
    return a
