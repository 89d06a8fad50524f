"""`a if c else b` and chained comparisons: only what is asked for is evaluated."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.frontend.harness import Case, checks_of, ir, ops

X = np.array([0.5, 2.0, -1.0, 3.0], np.float32)


def chained(x, low, high):
    total = 0.0
    for i in st.range(4):
        if low < x[i] <= high:
            total = total + x[i] * x[i]
        if low < x[i] < x[3 - i] < high:
            total = total + 10.0 * x[i]
        if 0 <= i != 2 < 4:
            total = total - x[i]
    return total


def chained_stops_at_the_first_false(x, i):
    def loud(value):
        print(f"asked {value}")
        return value

    return loud(0) <= loud(i) < loud(4) and x[i] > 0.0


def chained_guards_an_index(x, i):
    return 0 <= i < 4 and -2.0 < x[i] < 2.5


def chained_in_conditions(x, n):
    count = 0
    i = 0
    while 0 <= i < n < 5:
        count += 1 if 0.0 < x[i] < 2.5 else 10
        i += 2 if x[i] > 0.0 > -x[i] else 1
    return count, i


def chained_with_membership(x, k):
    return (0 < k in (1, 2, 3)), (k not in (4, 5) == True), x.sum() * (1 if 0 < k < 3 else -1)


def conditional_values(x, n):
    y = x if n > 2 else -x
    scale = 1 if n > 3 else 2.5
    z = (x * 2.0 if n == 0 else x + 1.0) if n < 2 else x * scale
    return y * z, scale


def conditional_guards_what_fails(x, i):
    value = x[i] if 0 <= i < 4 else 0.0
    other = 100 // i if i != 0 else -1
    return value * 2.0, other


def conditional_in_a_loop(x, limit):
    total = 0.0
    for i in st.range(4):
        total = total + (x[i] if x[i] > limit else limit - x[i] * x[i]) * (2.0 if i % 2 == 0 else 1.0)
    return total


def conditional_evaluates_one_side(x, n):
    def loud(name, value):
        print(name)
        return value

    return loud("then", x * 2.0) if n > 2 else loud("else", x * 3.0)


def conditional_of_trees(x, n):
    a, (b, c) = (x, (x[0], 1)) if n > 2 else (x * 2.0, (x[1], 2))
    return a * b, c


def short_circuit_values(a, b):
    return (a and b), (a or b), (a > 1 and b > 1 and a > b), (a > 1 or b > 1 or a == b), not (a and b)


def short_circuit_guards(x, i):
    in_range = i >= 0 and i < 4
    big = in_range and x[i] > 1.0
    out = not in_range or x[i] < 0.0
    either = i == 0 or 10 // i > 3
    return big, out, either


def short_circuit_with_effects(x, n):
    seen = st.Variable(0)

    def touch(k, answer):
        seen.value = seen.value * 10 + k
        return answer

    first = touch(1, n > 1) and touch(2, n > 2) and touch(3, n > 3)
    second = touch(4, n > 1) or touch(5, n > 0)
    return first, second, seen.value, x * 1.0


INDICES = [(X, 0), (X, 2), (X, 3), (X, 4), (X, -1), (X, 400)]
CASES = [
    Case(chained, [(X, 0.1, 2.5), (X, -5.0, 5.0), (X, 5.0, -5.0)], wrt=(0,)),
    Case(chained_stops_at_the_first_false, INDICES),
    Case(chained_guards_an_index, INDICES),
    Case(chained_in_conditions, [(X, 0), (X, 4), (X, 9)]),
    Case(chained_with_membership, [(X, 0), (X, 2), (X, 3), (X, 7)], wrt=(0,)),
    Case(conditional_values, [(X, 0), (X, 1), (X, 3), (X, 5)], wrt=(0,)),
    Case(conditional_guards_what_fails, INDICES, wrt=(0,)),
    Case(conditional_in_a_loop, [(X, 0.3), (X, 10.0), (X, -10.0)], wrt=(0,)),
    Case(conditional_evaluates_one_side, [(X, 1), (X, 3)], wrt=(0,)),
    Case(conditional_of_trees, [(X, 1), (X, 3)], wrt=(0,)),
    Case(short_circuit_values, [(0, 0), (3, 0), (0, 2), (3, 2), (2, 3), (1, 1)]),
    Case(short_circuit_guards, INDICES),
    Case(short_circuit_with_effects, [(X, 0), (X, 1), (X, 2), (X, 3), (X, 4)]),
]

test_programs, test_gradients = checks_of(CASES)


def test_a_chain_without_failures_is_one_expression() -> None:
    def f(a, b):
        return 0 < a < b < 9

    assert "if" not in ops(ir(f, 1, 2))
    assert "if" in ops(ir(chained_guards_an_index, X, 1))
