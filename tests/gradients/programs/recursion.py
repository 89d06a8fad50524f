"""Recursion: of scalars, over trees with shared weights, mutual, with loops, branches and early returns in and around it."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.gradients.faults import (
    earlier_uses_forgotten,
    frame_of_another_call,
    last_iteration_left_out,
    lost_operand,
    residuals_of_the_first_iteration,
    sums_over_calls_begin_anew,
    wrong_rule,
)
from tests.gradients.harness import program

X = np.array([0.5, 1.25, -0.75])
W = np.array([[0.3, -0.2, 0.1], [0.4, 0.25, -0.6], [-0.1, 0.7, 0.2]])
LEFT = np.array([1, 3, -1, -1, -1, -1])
RIGHT = np.array([2, 4, 5, -1, -1, -1])
LEAVES = np.linspace(-0.8, 0.9, 18).reshape(6, 3)


@st.function
def by_squaring(x, n):
    if n == 0:
        return 1.0
    half = by_squaring(x, n // 2)
    if n % 2 == 1:
        return half * half * x
    return half * half


@program((1.3, 0), (1.3, 1), (-0.7, 6), (0.9, 13), fault=wrong_rule("multiply"))
def recursive_power(x, n):
    return by_squaring(x, n) * x


@st.function
def iterate(x, w, n):
    """A tail call: the array that goes down is not the one that came in."""
    return st.tanh(x @ w) if n == 0 else iterate(st.tanh(x @ w) + x, w, n - 1)


@program((X, W, 0), (X, W, 3), fault=earlier_uses_forgotten, wrt=(0, 1))
def shared_weights_of_a_chain(x, w, n):
    return iterate(x, w, n).sum()


@st.function
def encode(node, left, right, leaves, w):
    """A small tree network: a loss at every node."""
    if node < 0:
        return st.zeros((3,), st.f64), 0.0
    a, loss_a = encode(left[node], left, right, leaves, w)
    b, loss_b = encode(right[node], left, right, leaves, w)
    h = st.tanh((a + 0.5 * b) @ w + leaves[node])
    return h, loss_a + loss_b + st.sum(h * h)


@program((LEAVES, W, LEFT, RIGHT), fault=frame_of_another_call, wrt=(0, 1))
def loss_at_every_node_of_a_tree(leaves, w, left, right):
    return encode(0, left, right, leaves, w)[1]


@program((LEAVES, W, LEFT, RIGHT), fault=sums_over_calls_begin_anew, wrt=(0, 1))
def two_roots_and_both_results(leaves, w, left, right):
    a, loss = encode(1, left, right, leaves, w)
    b, _ = encode(2, left, right, leaves, w * 0.5)
    return (a * b).sum() * loss


@st.function
def swing(x, n):
    if n <= 0:
        return x
    return st.sin(back(x * 1.5, n - 1))


@st.function
def back(x, n):
    if n <= 0:
        return x * x
    return st.exp(-back(x, n - 2)) + x * swing(x, n - 1)


@program((0.7, 0), (0.7, 1), (0.4, 6), fault=wrong_rule("exp"))
def mutual_recursion(x, n):
    return swing(x, n)


@st.function
def branching(x, depth, width):
    """Calls itself in a loop, which carries a sum."""
    total = x * x
    if depth > 0:
        for i in st.range(width):
            total = total + branching(x * (i + 0.5) * 0.4, depth - 1, width) * x
    return total


@program((0.9, 0, 3), (0.9, 2, 3), (0.9, 3, 0), fault=residuals_of_the_first_iteration)
def calls_from_a_loop(x, depth, width):
    return branching(x, depth, width)


@st.function
def loop_inside(x, w, n):
    if n == 0:
        return x
    h = x
    while st.sum(h * h) < 4.0 * n:
        h = h * 1.5 + w
    for k in st.range(n):
        h = h * w - k * x
    return loop_inside(h * 0.1, w, n - 1) + x


@program((X, X * X, 0), (X, X * X, 1), (X, X * X, 3), fault=last_iteration_left_out, wrt=(0, 1))
def loops_inside(x, w, n):
    return (loop_inside(x, w, n) * w).sum()


@st.function
def leaves_early(x, n):
    if x.sum() > 6.0:
        return x * 2.0
    for i in st.range(3):
        if x[i] > 2.0:
            return x * x[i]
        if n < i:
            break
        x = x + 0.3 * x * x
    if n == 0:
        return x
    return leaves_early(x * 1.2, n - 1) * x[0]


@program((X, 0), (X, 2), (X, 5), (X * 3.0, 4), fault=wrong_rule("multiply"))
def early_returns(x, n):
    return leaves_early(x, n).sum()


@program((X, 3), fault=last_iteration_left_out)
def calls_in_an_outer_loop(x, n):
    total = x.sum() * 0.0
    for i in st.range(n):

        @st.function
        def down(k, y):
            return y * x[0] if k == 0 else st.sin(down(k - 1, y + x * i))  # noqa: B023

        total = total + down(i, x * 2.0).sum()
    return total


@st.function
def bisect(x, low, high):
    """Halves by index: integers control, floats flow."""
    if high - low <= 1:
        return st.exp(x[low])
    middle = (low + high) // 2
    return bisect(x, low, middle) * 0.5 + st.sin(bisect(x, middle, high)) * x[middle]


@program((LEAVES.reshape(-1)[:7], 7), (LEAVES.reshape(-1)[:7], 1), fault=lost_operand("multiply", 1))
def divide_and_conquer(x, n):
    return bisect(x, 0, n)
