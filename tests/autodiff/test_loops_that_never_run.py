"""Derivatives of loops that never run: nothing of what their iterations compute alike may be computed in front of them."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

X = np.float64([1.0, 2.0, 3.0])


def divides(y, k, n, m):
    for _ in st.range(k):
        y = y * (n // m)
    return y


def remainders(y, k, n, m):
    for _ in st.range(k):
        y = y + y * (n % m)
    return y


def indexes(y, k, n, m):
    for _ in st.range(k):
        y = y * X[m]
    return y


def waits(y, k, n, m):
    i = 0
    while i < k:
        y = y * (n // m) + y * X[m]
        i += 1
    return y


def nested(y, k, n, m):
    for _ in st.range(2):
        for _ in st.range(k):
            y = y * (n // m)
    return y


def branches(y, k, n, m):
    for _ in st.range(2):
        if k > 0:
            y = y * (n // m) * X[m]
    return y


@pytest.mark.parametrize("program", [divides, remainders, indexes, waits, nested, branches], ids=lambda f: f.__name__)
def test_what_would_stop_the_program_does_not_where_the_loop_never_runs(program):
    @st.function
    def run(y, k, n, m):
        return (*st.value_and_grad(program)(y, k, n, m), st.jvp(lambda y: program(y, k, n, m), (y,), (1.0,))[1])

    bad = 5 if program is indexes else 0  # out of range, or a division by zero
    assert run(2.0, 0, 4, bad) == (2.0, 1.0, 1.0)
    value, slope, tangent = run(2.0, 1, 5, 2)
    factor = {"divides": 2.0, "remainders": 2.0, "indexes": 3.0, "waits": 5.0, "nested": 4.0, "branches": 36.0}[program.__name__]
    assert (value, slope, tangent) == (2.0 * factor, factor, factor)
    with pytest.raises((ZeroDivisionError, IndexError)):
        run(2.0, 1, 4, bad)
