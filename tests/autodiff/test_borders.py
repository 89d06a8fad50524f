"""Derivatives at the borders of what the rewrites say of themselves: loops of no iterations, one value in two places, zeros, NaN.

One program takes the gradient (reverse mode), the tangent (forward mode) and the second derivative of each function; the number of
iterations and the conditions are its arguments. What is right is a closed form.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import staged as st


def carried(x, n, c):
    total, power = x * 3.0, x
    for _ in st.range(n):
        power = power * x
        total += power
    return total + power


def never_entered(x, n, c):
    y, k = x * x, 0
    while k < n:
        y = y * x
        k += 1
    return y


def inner_of_no_turns(x, n, c):
    y = x
    for i in st.range(3):
        for _ in st.range(i * n):
            y = y + x * x
        y = y * 2.0
    return y


def swapped(x, n, c):
    a, b = x, x * x
    for _ in st.range(n):
        a, b = b, a
    return a * 3.0 + b


def one_value_twice(x, n, c):
    a = b = x * 2.0
    for _ in st.range(n):
        a, b = a * b, a * b
    return a + b


def passed_through(x, n, c):
    kept, y = x * 5.0, x
    for _ in st.range(n):
        kept, y = kept, y * kept
    return kept + y


def left_early(x, n, c):
    y = x
    for i in st.range(5):
        if i >= n:
            break
        y = y * x
    return y * x


def one_branch(x, n, c):
    y = x * x if c else 4.0
    return y * 3.0 + x


def untaken_root(x, n, c):
    y = st.sqrt(x - 2.0) if c else x * 7.0
    return y


def in_loop_of_branches(x, n, c):
    y = x
    for i in st.range(n):
        if c:
            y = y * x
        elif i > 0:
            y = y + x
    return y


def elements(x, n, c):
    table = st.zeros((4,), dtype=x.dtype) + x
    for i in st.range(n):
        table[i] = table[i] * x
        table[i] += table[0]
    return st.sum(table)


@st.function
def power(x, n):
    return x if n <= 0 else x * power(x, n - 1)


def recursive(x, n, c):
    return power(x, n)


@st.function
def product(a, b):
    return a * b * b


def one_argument_twice(x, n, c):
    return product(x, x) + product(x * 2.0, x)


def checkpointed(x, n, c):
    def inside(y):
        for _ in st.range(n):
            y = y * x
        return y * y

    return st.checkpoint(inside)(x)


def nothing(x, n, c):
    return st.stop_gradient(x) * 2.0 + n * 1.0


CASES = (
    carried, never_entered, inner_of_no_turns, swapped, one_value_twice, passed_through, left_early, one_branch, untaken_root,
    in_loop_of_branches, elements, recursive, one_argument_twice, checkpointed, nothing,
)  # fmt: skip
X = 2.0


def polynomials(n: int, c: bool) -> dict[str, np.polynomial.Polynomial]:
    """The same functions of x as polynomials, by plain Python."""
    x = np.polynomial.Polynomial([0.0, 1.0])
    one = np.polynomial.Polynomial([1.0])
    twice = [x * 2.0, x * 2.0]
    for _ in range(n):
        twice = [twice[0] * twice[1]] * 2
    nested = x
    for i in range(3):
        nested = (nested + i * n * x * x) * 2.0
    branches = x
    for i in range(n):
        branches = branches * x if c else branches + x if i > 0 else branches
    table = [x] * 4
    for i in range(n):
        table[i] = table[i] * x
        table[i] = table[i] + table[0]
    return {
        "carried": x * 3.0 + sum((x ** (k + 2) for k in range(n)), 0.0 * one) + x ** (n + 1),
        "never_entered": x ** (n + 2),
        "inner_of_no_turns": nested,
        "swapped": (x * 3.0 + x * x) if n % 2 == 0 else (x * x * 3.0 + x),
        "one_value_twice": twice[0] + twice[1],
        "passed_through": x * 5.0 + x * (x * 5.0) ** n,
        "left_early": x ** (n + 2),
        "one_branch": (x * x if c else 4.0 * one) * 3.0 + x,
        "untaken_root": x * 7.0,
        "in_loop_of_branches": branches,
        "elements": sum(table, 0.0 * one),
        "recursive": x ** (n + 1),
        "one_argument_twice": x**3 * 3.0,
        "checkpointed": x ** (2 * n + 2),
        "nothing": 0.0 * one,
    }


@st.function
def derivatives(x, n, choice):
    found, c = {}, choice > 0
    for function in CASES:

        def f(x, function=function):
            return function(x, n, c)

        second = [
            st.grad(st.grad(f))(x),
            st.jvp(st.grad(f), (x,), (1.0,))[1],
            st.grad(lambda x, f=f: st.jvp(f, (x,), (1.0,))[1])(x),
        ]
        found[function.__name__] = (st.grad(f)(x), st.jvp(f, (x,), (1.0,))[1], second)
    return found


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_derivatives_of_loops_of_no_iterations_and_of_values_in_two_places(mode) -> None:
    for n in (0, 1, 2):
        for c in (False, True):
            if mode == "compiled":
                found = derivatives(X, n, int(c))
            else:
                with st.eager():
                    found = derivatives(X, n, int(c))
            for name, polynomial in polynomials(n, c).items():
                if name == "untaken_root" and c:
                    continue  # the root of 0 is taken
                first, second = polynomial.deriv()(X), polynomial.deriv(2)(X)
                reverse, forward, twice = found[name]
                message = f"{name}, n = {n}, c = {c}"
                np.testing.assert_allclose([float(reverse), float(forward)], [first] * 2, rtol=1e-12, err_msg=message)
                np.testing.assert_allclose([float(one) for one in twice], [second] * 3, rtol=1e-12, err_msg=message)


def test_the_root_of_0_has_an_infinite_slope_only_where_it_is_taken() -> None:
    reverse, forward, _ = derivatives(X, 0, 1)["untaken_root"]
    assert float(reverse) == float(forward) == math.inf
