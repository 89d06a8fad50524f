# ruff: noqa: B007
"""State and memory: Variables, elements read and written, gather and scatter, under control flow."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.gradients.faults import (
    earlier_uses_forgotten,
    loop_sum_forgotten,
    other_branch_taken,
    residuals_of_the_first_iteration,
    results_of_loops_inactive,
    wrong_rule,
)
from tests.gradients.harness import program

X = np.array([0.5, 1.25, -0.75, 2.0])
M = np.linspace(-1.0, 1.4, 12).reshape(4, 3)
K = np.array([3, 0, 2, 3, 1], np.int64)


@program((X, 4), (X, 0), fault=residuals_of_the_first_iteration)
def variable_written_in_a_loop(x, n):
    state = st.Variable(x[0:1] * x[1])
    for i in st.range(n):
        state.value = st.sin(state.value) * x[3] + x[i]
    return state.value * x[2]


@program((X, 1), (X, 5), fault=other_branch_taken)
def variable_written_in_a_branch(x, n):
    state = st.Variable(x * 1.0)
    if n > 2:
        state.value = state.value * x[1] + state.value ** 2
    else:
        state.value = st.exp(state.value)
    return state.value * x


@program((X, 2.0), (X, 60.0), fault=results_of_loops_inactive)
def variable_and_break(x, limit):
    total = st.Variable(x[0:1] * 1.0)
    count = st.Variable(0)
    for i in st.range(8):
        total.value = total.value * x[1] + 0.2
        if total.value[0] > limit:
            break
        count.value = count.value + 1
    return total.value * count.value


@program((X, 3), fault=earlier_uses_forgotten)
def variable_read_before_and_after_its_write(x, n):
    state = st.Variable(x[0:1] * 1.0)
    before = state.value * x[1]
    for i in st.range(n):
        state.value = state.value + before * x[i]
        before = before + state.value * 0.5
    return before * state.value


@program((X, K), fault=wrong_rule("take"))
def gather_by_an_index_array(x, k):
    return x[k] * x[k] * st.astype(k, st.f64)


@program((X, K), fault=loop_sum_forgotten)
def gather_in_a_loop(x, k):
    total = 0.0
    for i in st.range(5):
        total = total + x[k[i]] * x[1] * (i + 1)
    return total


@program((X, K), fault=residuals_of_the_first_iteration)
def scatter_in_a_loop(x, k):
    out = x * 0.5
    for i in st.range(5):
        out[k[i]] = out[k[i]] * x[i % 4] + x[0]
    return out * out


@program((X, K), fault=wrong_rule("scatter"))
def elements_written_by_an_index_array(x, k):
    out = x * x
    out[k] += x[k] * 2.0
    return out * out


@program((X, 4), fault=residuals_of_the_first_iteration)
def elements_written_and_read_again(x, n):
    y = x * 1.0
    for i in st.range(1, n):
        y[i] = y[i - 1] * x[i] + st.sin(y[i])
    return y


@program((M, 3), fault=wrong_rule("dynamic_update"))
def rows_written_in_a_loop(m, n):
    y = m * 0.0
    for i in st.range(n):
        y[i] = m[i] * m[i + 1]
    return y * y


@program((X, 4), fault=other_branch_taken)
def elements_written_in_branches(x, n):
    y = x * x
    for i in st.range(n):
        if x[i] > 0.0:
            y[i] = y[i] * x[3]
        else:
            y[3 - i] += x[i] * x[0]
    return y * x


@program((X, 3), fault=residuals_of_the_first_iteration)
def index_computed_in_the_loop(x, n):
    a = x[0]
    k = 1
    for i in st.range(n):
        a = a * x[k] + x[(k + 2) % 4]
        k = (k * 3 + i) % 4
    return a


@program((M,), fault=earlier_uses_forgotten)
def slices_overlap(m):
    total = m[0:2] * 1.0
    for i in st.range(2):
        total = total * m[i : i + 2] + m[i + 1 : i + 3]
    return total


@program((X, 5), fault=loop_sum_forgotten)
def checkpointed_body(x, n):
    step = st.checkpoint(lambda a, x: st.sin(a * x[1]) + x[3] * a * 0.1)
    a = x[0]
    for i in st.range(n):
        a = step(a, x)
    return a


@program((X, 3), fault=wrong_rule("tanh"))
def prints_and_assertions_in_between(x, n):
    a = x[0]
    for i in st.range(n):
        a = st.tanh(a + x[i])
        print(f"{i}: {a:.3f}")
        assert a < 2.0, f"a is {a}"
    return a * a
