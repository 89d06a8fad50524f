"""Small loops whose gradients NVIDIA Warp 1.19 gets wrong without a word; with the exact gradients."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.gradients.faults import last_iteration_left_out, residuals_of_the_first_iteration, wrong_rule
from tests.gradients.harness import program

X = np.array([1.5, 2.0, 3.0, 0.5])
Y = np.array([1.5, 2.0, 3.0, 1.0])


@program((X, 4), (X, 0), (X, 1), fault=residuals_of_the_first_iteration)
def product_in_a_loop(x, n):
    a = 1.0
    for i in st.range(n):
        a *= x[i]
    return a


@program((Y, 4), fault=wrong_rule("multiply"))
def sum_in_a_loop_then_square(x, n):
    a = 0.0
    for i in st.range(n):
        a = a + x[i]
    return a * a


@program((X,), (X * 0.9,), fault=last_iteration_left_out)
def multiply_until_a_hundred(x):
    a = x[0]
    while a < 100.0:
        a *= x[1]
    return a


EXACT = [
    (product_in_a_loop, (X, 4), [3.0, 2.25, 1.5, 9.0]),
    (sum_in_a_loop_then_square, (Y, 4), [15.0, 15.0, 15.0, 15.0]),
    # 1.5 * 2 ** 7 = 192: seven iterations, d/dx0 = 2 ** 7, d/dx1 = 1.5 * 7 * 2 ** 6.
    (multiply_until_a_hundred, (X,), [128.0, 672.0, 0.0, 0.0]),
]
"""(function, point, gradient), where the point is the one that the reports name."""
