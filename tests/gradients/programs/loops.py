# ruff: noqa: B007, B905
"""Loops: counted, conditional, nested, over arrays and batches, and values used after them."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.gradients.faults import (
    cotangent_before_the_loop_forgotten,
    earlier_uses_forgotten,
    first_turn_left_out,
    last_iteration_left_out,
    loop_sum_forgotten,
    lost_operand,
    residuals_of_the_first_iteration,
    results_of_loops_inactive,
    wrong_rule,
)
from tests.gradients.harness import program

X = np.array([0.5, 1.25, -0.75, 2.0])
M = np.linspace(-1.0, 1.4, 12).reshape(4, 3)


@program((X, 0), (X, 1), (X, 5), fault=residuals_of_the_first_iteration)
def nonlinear_recurrence(x, n):
    a = x[0]
    for i in st.range(n):
        a = st.sin(a) * x[1] + x[2] * a * a
    return a


@program((X, 4), (X, 0), fault=earlier_uses_forgotten)
def power_sum_with_the_index(x, n):
    total = 0.0
    for i in st.range(n):
        total = total + x[i] ** 3 * i
    return total + x[0] * x[0]


@program((X, 3), (X, 0), fault=loop_sum_forgotten)
def loop_invariant_used_in_each_turn(x, n):
    scale = st.exp(x[1])
    a = x[0]
    for i in st.range(n):
        a = a * 0.5 + scale * x[3]
    return a * scale


@program((X, 5), fault=residuals_of_the_first_iteration)
def counting_down_in_steps(x, n):
    a = x[0]
    for i in st.range(n, -1, -2):
        a = a * x[1] + i * x[2] * a
    return a


@program((X, 1, 6, 2), (X, 6, 1, -2), (X, 3, 3, 1), fault=residuals_of_the_first_iteration)
def bounds_and_step_of_the_run(x, start, stop, step):
    a = x[0]
    for i in st.range(start, stop, step):
        a = st.tanh(a + x[i % 4]) * (i + 1)
    return a


@program((X, 3), (X, 0), fault=last_iteration_left_out)
def nested_counted_loops(x, n):
    a = x[0]
    for i in st.range(n):
        b = a
        for j in st.range(i + 1):
            b = st.sin(b) * x[1] + x[j] * 0.5
        a = a + b * x[3]
    return a


@program((X, 2), fault=first_turn_left_out)
def three_loops_deep(x, n):
    a = x[0]
    for i in st.range(n):
        for j in st.range(n):
            for k in st.range(j + 1):
                a = a * x[1] + st.cos(a) * x[k]
    return a


@program((X, 3.0), (X, 0.1), (X, 40.0), fault=last_iteration_left_out)
def while_until_a_limit(x, limit):
    a = x[0]
    while a < limit:
        a = a * 1.3 + x[1] * x[1]
    return a * x[3]


@program((X + 3.0,), fault=results_of_loops_inactive)
def newton_iteration_to_convergence(x):
    root = x[0]
    while abs(root * root - x[1]) > 1e-12:
        root = 0.5 * (root + x[1] / root)
    return root * x[2]


@program((X, 4), (X, 1), fault=residuals_of_the_first_iteration)
def while_with_a_compound_condition(x, n):
    a = x[0] + 1.0
    i = 0
    while i < n and x[i] > -1.0 and not a > 50.0:
        a = a * (1.0 + x[i] * x[i])
        i += 1
    return a


@program((X, 3), fault=last_iteration_left_out)
def while_in_for(x, n):
    a = x[0]
    for i in st.range(n):
        b = a * a + 0.1
        while b < 2.0:
            b = b * 1.7 + x[1] * 0.1
        a = b * x[3] * 0.5
    return a


@program((X, 6.0), fault=last_iteration_left_out)
def for_in_while(x, limit):
    a = x[0]
    while a < limit:
        for i in st.range(3):
            a = a + x[3] * st.exp(-a) * 0.5 + 0.3 * x[1]
    return a * a


@program((M,), fault=wrong_rule("dynamic_slice"))
def rows_of_an_array(m):
    state = m[0] * 0.0
    for row in m:
        state = st.tanh(state + row) * row
    return state


@program((X, M), fault=loop_sum_forgotten, wrt=(0, 1))
def enumerate_and_zip(x, m):
    total = m[0] * 0.0
    for i, (value, row) in enumerate(zip(x, m)):
        total = total * value + row * row * (i + 1)
    return total


@program((X,), fault=residuals_of_the_first_iteration)
def reversed_elements(x):
    a = 0.5
    for value in reversed(x):
        a = a * value + st.sin(value)
    return a


@program((X, 4), fault=residuals_of_the_first_iteration)
def reversed_range_in_a_horner_scheme(x, n):
    a = 0.0
    for i in reversed(st.range(n)):
        a = a * x[1] + x[i]
    return a


@program((M, X), fault=wrong_rule("dynamic_slice"), wrt=(0, 1))
def batches_with_a_rest(m, x):
    weight = x[0]
    for rows in st.batches(m, size=3, drop_last=False):
        weight = weight - 0.1 * ((rows * weight - x[1]) * rows).mean()
    return weight


@program((X, 4), (X, 0), fault=cotangent_before_the_loop_forgotten)
def value_used_in_and_after_the_loop(x, n):
    shared = x[1] * x[2]
    a = x[0]
    for i in st.range(n):
        a = a + st.sin(shared * (i + 1))
    return a * shared + st.cos(shared)


@program((X, 4), fault=results_of_loops_inactive)
def two_results_of_one_loop(x, n):
    a, b = x[0], x[1]
    for i in st.range(n):
        a, b = b, a * x[2] + b * b * 0.3
    return a * b, a - b


@program((X, 3), fault=lost_operand("multiply", 0))
def loop_after_loop(x, n):
    a = x[0]
    for i in st.range(n):
        a = a * x[1]
    b = a
    for i in st.range(n + 1):
        b = b * a + x[3]
    return b


@program((M, 3), fault=residuals_of_the_first_iteration)
def arrays_carried_through_products(m, n):
    state = m[0:3]
    for i in st.range(n):
        state = st.tanh(state @ state) + m[1:4] * 0.5
    return state


@program((X, 12), fault=residuals_of_the_first_iteration)
def integer_counter_decides_the_factor(x, n):
    a = x[0] + 1.0
    k = 1
    while k < n:
        a = a * (x[1] + 0.1 * k)
        k = k * 2 + (k % 3)
    return a


@program((X, 3), fault=wrong_rule("sin"))
def unrolled_and_staged_loops(x, n):
    a = x[0]
    for k in range(3):
        for i in st.range(n):
            a = st.sin(a) + x[k] * (i + 1)
    return a
