"""Variables, read at the border of their lives: in branches, loops of no iterations, calls that write, and where a program
stops. What is right is plain Python on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import StagedError
from tests.interrupts import interrupt_after, stays_inside

F = np.float64
X = F([0.5, -1.25, 0.75])


class Cell:
    """A Variable of plain Python."""

    def __init__(self, value: Any) -> None:
        self.value = np.array(value, F)


def flow(v: Any, u: Any, bump: Callable[[Any], Any], turns: Callable[[Any], Any]) -> Callable[..., Any]:
    """One body for a staged function and for Python."""

    def body(x, n, c):
        a = v.value
        b = bump(a)
        total = a * 0.0
        for i in turns(n):
            k = v.value
            if c > 0:
                u.value = k * 2.0
                bump(u.value)
            else:
                v.value = u.value
                if i == 1:
                    break
            total = total + k * v.value
        if c > 0:
            u.value = a
        return a, b, total, v.value, u.value, bump(v.value)

    return body


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_reads_see_the_last_write_on_every_path(way):
    v, u = st.Variable(F([1, 2, 3])), st.Variable(F([9, 8, 7]))

    @st.function
    def bump(x):
        old = v.value
        v.value = v.value + x
        return old

    staged = st.function(flow(v, u, bump, st.range))
    w, t = Cell([1, 2, 3]), Cell([9, 8, 7])

    def python_bump(x):
        old, w.value = w.value, w.value + x
        return old

    plain = flow(w, t, python_bump, range)
    for n in (0, 1, 3):
        for c in (0, 1):
            v.value, u.value, w.value, t.value = F([1, 2, 3]), F([9, 8, 7]), F([1, 2, 3]), F([9, 8, 7])
            if way == "eager":
                with st.eager():
                    found = staged(X, n, c)
            else:
                found = staged(X, n, c)
            for got, right in zip((*found, v.value, u.value), (*plain(X, n, c), w.value, t.value), strict=True):
                np.testing.assert_array_equal(np.asarray(got), right, err_msg=f"n = {n}, c = {c}")


def stops(v, w, x, i, case):
    """Something that may stop the program, before, after and between writes."""
    if case == 0:
        v[i] += 1.0
    elif case == 1:
        v.value = x * 2.0
        v[i] = 7.0
    elif case == 2:
        scaled = x * 2.0
        v.value = scaled + st.sum(st.take(x, i))
    elif case == 3:
        v.value = st.take(x, i)
    elif case == 4:
        y = x + 1.0
        for k in st.range(3):
            v.value = y
            y = y * 2.0
            w[k] = v.value[i[k]]
    elif case == 5:
        kept = v.value + 1.0
        v.value = w.value
        w.value = kept
        assert i[0] > 0, "the first is 0"
        v.value = x
    else:
        v.value = x
        quotients = st.astype(x, st.i64) // (i - i)
        v.value = st.astype(quotients, st.f64)
    return v.value


AFTER = {
    0: ([50, 60, 70], [1, 2, 3]),
    1: (X * 2, [1, 2, 3]),
    2: ([50, 60, 70], [1, 2, 3]),
    3: ([50, 60, 70], [1, 2, 3]),
    4: ((X + 1) * 4, [X[0] + 1, (X[1] + 1) * 2, 3]),
    5: ([1, 2, 3], [51, 61, 71]),
    6: (X, [1, 2, 3]),
}


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_a_program_that_stops_has_written_what_stands_before_that_and_nothing_else(way):
    v, w = st.Variable(F([50, 60, 70])), st.Variable(F([1, 2, 3]))
    run = st.function(lambda x, i, case: stops(v, w, x, i, case))
    for case, right in AFTER.items():
        v.value, w.value = F([50, 60, 70]), F([1, 2, 3])
        with pytest.raises(StagedError):
            if way == "eager":
                with st.eager():
                    run(X, np.array([0, 1, 9]), case)
            else:
                run(X, np.array([0, 1, 9]), case)
        for got, state in zip((v.value, w.value), right, strict=True):
            np.testing.assert_array_equal(np.asarray(got), F(state), err_msg=f"case {case}")


@stays_inside()
def test_ctrl_c_in_a_loop_finds_what_was_written_before_it_and_nothing_else():
    v = st.Variable(F([50, 60, 70]))

    @st.function
    def spin(x, n):
        for k in range(30):  # enough for a function of its own, where it is called twice
            x = st.tanh(x) * (1.0 + k)
        for _ in st.range(n):
            x = st.tanh(x) + 1.0
        return x

    @st.function
    def run(x, n, case):
        if case == 0:
            y = x + v.value
            v.value = y
            for _ in st.range(n):
                y = st.tanh(y)
            v.value = y * 2.0
        elif case == 1:
            y = x + v.value
            v.value = y
            while y[0] < 1e6 + n:
                y = y + 1e-9
            v.value = y * 2.0
        else:
            first = spin(x, n // 10**12)
            y = x * 2.0
            second = spin(y, n)
            v.value = y
            x = first + second
        return x

    for case, right in enumerate((X + F([50, 60, 70]), X + F([50, 60, 70]), F([50, 60, 70]))):
        run(X, -(10**6), case)  # compiled
        v.value = F([50, 60, 70])
        with pytest.raises(KeyboardInterrupt):
            interrupt_after(0.2)
            run(X, 10**12 - 1, case)
        np.testing.assert_array_equal(np.asarray(v.value), right, err_msg=f"case {case}")


def test_the_value_of_a_variable_may_be_an_argument():
    v = st.Variable(F([1, 2, 3]))

    @st.function
    def run(x):
        v.value = v.value * 2.0
        y = x + v.value
        v[0] = 100.0
        return y, x, v.value

    first = run(v.value)
    kept = [np.array(each) for each in first]
    for got, right in zip(first, ([3, 6, 9], [1, 2, 3], [100, 4, 6]), strict=True):
        np.testing.assert_array_equal(got, right)
    run(v.value)
    for got, right in zip(first, kept, strict=True):
        np.testing.assert_array_equal(got, right)
