# ruff: noqa: B007  (programs of users name their loop variables)
"""Branches and loops with a leading axis: the mapped program, its gradient, and the mapped gradient, against a loop over rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramOverflowError
from tests.batching.harness import agrees, ops_of

RNG = np.random.default_rng(5)
X = RNG.normal(size=(6, 3))
N = np.array([3, 0, 5, 1, 2, 5])


def choose(r: Any, n: Any) -> Any:
    if r[0] > 0.0:
        return st.sin(r).sum()
    return (r * 2.0).sum()


def singular(r: Any, n: Any) -> Any:
    """Each branch is only right for the elements that take it: logarithms and divisions by what may be 0."""
    if r[0] > 0.0:
        y = st.log(r[0]) * r + st.sqrt(r[0])
    else:
        y = r / (r[0] - 1e-300)
    return y.sum()


def only_then(r: Any, n: Any) -> Any:
    y = r.sum()
    if r[1] > 0.0:
        y = y * st.exp(r[1] * 800.0 - 800.0)
    return y


def nested(r: Any, n: Any) -> Any:
    s = 0.0
    if r[0] > 0.0:
        for k in st.range(3):
            if r[1] > 0.0:
                s = s + st.sqrt(r[1]) * r[0] * k
            else:
                s = s - 1.0 / r[1]
    elif n > 2:
        s = r.sum()
    return s


def early_return(r: Any, n: Any) -> Any:
    if r[0] > 0.0:
        return r[0] * 2.0
    if n > 1:
        return st.exp(r).sum()
    return -r[2]


def counted(r: Any, n: Any) -> Any:
    t = 0.0
    for i in st.range(5):
        t = t + r[i % 3] * st.sin(t + 1.0)
    return t


def counted_to_n(r: Any, n: Any) -> Any:
    t = 0.0
    for i in st.range(n):
        t = t + r[i % 3] * st.sin(t + 1.0)
    return t


def counted_from_n(r: Any, n: Any) -> Any:
    t = 1.0
    for i in st.range(n, 0, -1):
        t = t * (r[0] + i)
    return t


def counted_both_ways(r: Any, n: Any) -> Any:
    t = 1.0
    for i in st.range(n, n + 3):
        t = t + r[0] * i
    for i in st.range(2 * n, -2, -3):
        t = t * (r[1] + i)
    for i in st.range(5 - n, 2 * n, 2):
        t = t + st.sin(r[2] * t * i)
    return t


def table_by_n(r: Any, n: Any) -> Any:
    """Reads at the loop index: an element that is done must not read on, past the end of its own range."""
    t = 0.0
    for i in st.range(n):
        t = t + r[i if i < 3 else 0] / (n - i)
    return t


def until(r: Any, n: Any) -> Any:
    a = r[0] * r[0] + 1.1
    while a < 100.0:
        a = a * (1.5 + r[1] * r[1])
    return a


def until_alike(r: Any, n: Any) -> Any:
    k, a = 0, r[0]
    while k < 4:
        a, k = st.sin(a) + r[1], k + 1
    return a


def newton(r: Any, n: Any) -> Any:
    a = r[0] * r[0] + 0.5
    x = a
    while st.abs(x * x - a) > 1e-13:
        x = 0.5 * (x + a / x)
    return x


def left_early(r: Any, n: Any) -> Any:
    t = 0.0
    for k in st.range(5):
        t = t + r[0] * r[0]
        if t > 1.0:
            break
        if r[1] > 0.0:
            continue
        t = t + 0.1 * r[2]
    return t


def returned_from_a_loop(r: Any, n: Any) -> Any:
    t = r[0]
    for k in st.range(4):
        t = t * t + 0.1
        if t > 0.5:
            return t * r[1]
    return t


def loops_in_loops(r: Any, n: Any) -> Any:
    t = 0.0
    for i in st.range(n):
        for j in st.range(i):
            t = t + r[j % 3] * (t + 1.0) * 0.1
    return t


def rows_written(r: Any, n: Any) -> Any:
    out = r * 0.0
    for i in st.range(3):
        if r[i] > 0.0:
            out[i] = r[i] * r[0]
    return out.sum() * r[1]


PROGRAMS: list[Callable[..., Any]] = [
    choose, singular, only_then, nested, early_return, counted, counted_to_n, counted_from_n, counted_both_ways, table_by_n, until,
    until_alike, newton, left_early, returned_from_a_loop, loops_in_loops, rows_written,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_value(program: Any) -> None:
    agrees(lambda x, n: st.vmap(program)(x, n), X, N)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradient_of_the_mapped_program(program: Any) -> None:
    found = agrees(lambda x, n: st.grad(lambda x: st.vmap(program)(x, n).sum())(x), X, N, rtol=1e-11)
    assert np.isfinite(np.asarray(found)).all()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_mapped_gradient(program: Any) -> None:
    agrees(lambda x, n: st.vmap(st.grad(program))(x, n), X, N, rtol=1e-11)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_forward_mode_both_ways(program: Any) -> None:
    def f(x, n):
        outside = st.jvp(lambda x: st.vmap(program)(x, n), (x,), (st.cos(x),))
        inside = st.vmap(lambda r, n: st.jvp(lambda r: program(r, n), (r,), (st.cos(r),)))(x, n)
        return outside, inside

    agrees(f, X, N, rtol=1e-11)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("rows", [slice(0, 0), slice(2, 3)])
def test_no_element_and_one(program: Any, rows: slice) -> None:
    agrees(lambda x, n: st.vmap(program)(x, n), X[rows], N[rows])


def test_mapped_twice() -> None:
    def f(x, n):
        return st.vmap(lambda r: st.vmap(lambda n: nested(r, n) + counted_to_n(r, n))(n))(x)

    agrees(f, X, N)


def test_a_branch_for_no_element_is_not_run() -> None:
    def f(x):
        def element(r):
            if r > 100.0:
                r = 1.0 / st.astype(10 // st.astype(r * 0.0, st.i64), st.f64)
            return r

        return st.vmap(element)(x)

    agrees(f, np.arange(4.0))


def test_a_condition_that_is_the_same_for_all_stays_a_branch() -> None:
    def f(x, flag):
        return st.vmap(lambda r: st.log(r * r) if flag > 0 else r)(x)

    names = ops_of(f, X, 1)
    assert names.count("if") == 1 and "select" not in names
    agrees(f, X, 1)
    agrees(f, X, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_element_whose_branch_is_not_taken_spoils_no_gradient(bad: float) -> None:
    """Missing data marked by NaN: 0 times NaN must not reach the weights that all elements share."""

    def linear(r, w):
        if st.isfinite(r[0]):
            return st.sum(r * w) * r[0]
        return st.sum(w) * 0.5

    def curved(r, w):
        if not st.isfinite(r[0]):
            return st.sum(w)
        return st.sum(st.exp(r) / w)

    x, w = X.copy(), np.array([1.0, 2.0, 3.0])
    x[1], x[4, 0] = bad, bad
    for program in (linear, curved):
        mapped = st.vmap(program, in_axes=(0, None))
        d_x, d_w = agrees(lambda x, w, f=mapped: st.grad(lambda x, w: f(x, w).sum(), argnums=(0, 1))(x, w), x, w)
        assert np.isfinite(np.asarray(d_x)).all() and np.isfinite(np.asarray(d_w)).all()


def test_harmless_branches_become_a_choice() -> None:
    assert "if" not in ops_of(lambda x, n: st.vmap(choose)(x, n), X, N)
    assert ops_of(lambda x, n: st.vmap(singular)(x, n), X, N).count("if") == 2


# ---- functions of the program ---------------------------------------------------------------------


@st.function
def power(x, n):
    if n <= 0:
        return x * 0.0 + 1.0
    return x * power(x, n - 1)


@st.function
def halves(x, low, high):
    """The sum by halves."""
    if high - low == 1:
        return x[low]
    middle = (low + high) // 2
    return halves(x, low, middle) * 1.5 + halves(x, middle, high)


def test_recursion() -> None:
    agrees(lambda x, n: st.vmap(lambda r: power(r, n))(x), X, 4)
    agrees(lambda x, n: st.vmap(power)(x, n), X, N)
    agrees(lambda x: st.vmap(lambda r: halves(r, 0, 3))(x), X)
    agrees(lambda x, n: st.vmap(lambda r, n: halves(r, 0, n % 3 + 1))(x, n), X, N)


def test_recursion_and_derivatives() -> None:
    agrees(lambda x, n: st.grad(lambda x: st.vmap(power)(x, n).sum())(x), X, N)
    agrees(lambda x, n: st.vmap(st.grad(lambda r, n: power(r, n).sum()))(x, n), X, N)
    agrees(lambda x, n: st.jacrev(lambda r: power(r, n))(x), X[0], 3)
    agrees(lambda x, n: st.jacfwd(lambda r: power(r, n))(x), X[0], 3)
    agrees(lambda x, n: st.hessian(lambda r: power(r, n).sum())(x), X[0], 3)
    agrees(lambda x: st.hessian(lambda r: halves(r * r, 0, 3))(x), X[0])


def message_of_an_element(r: Any, n: Any) -> Any:
    assert n > 0, f"{n} is not positive"
    return r * n


def test_the_message_of_an_assertion_speaks_of_the_first_element_that_fails() -> None:
    rows = np.arange(8.0).reshape(4, 2)

    def mapped(x: Any, n: Any) -> Any:
        return st.vmap(message_of_an_element)(x, n)

    counts = np.array([3, 1, 4, 1])
    np.testing.assert_array_equal(st.function(mapped)(rows, counts), rows * counts[:, None])
    wrong = np.array([3, -7, 0, 1])
    for context in (contextlib.nullcontext(), st.eager()):
        with context, pytest.raises(AssertionError, match="-7 is not positive"):
            st.function(mapped)(rows, wrong)


def test_a_number_of_one_element_that_does_not_fit_stops_the_program() -> None:
    x = np.array([1, 2, 250], np.uint8)

    def mapped(n: Any) -> Any:
        return st.vmap(lambda n: x + int(n))(n)

    def where_it_fits(n: Any) -> Any:
        def each(n: Any) -> Any:
            return x * int(n) if n < 256 else x

        return st.vmap(each)(n)

    np.testing.assert_array_equal(agrees(mapped, np.array([0, 255])), np.array([x, x - np.uint8(1)]))
    np.testing.assert_array_equal(agrees(where_it_fits, np.array([300, 2, 256])), np.array([x, x * np.uint8(2), x]))
    for run in (st.function(mapped), lambda n: agrees(mapped, n)):
        with pytest.raises(ProgramOverflowError, match=r"256 does not fit u8 \(0 to 255\)"):
            run(np.array([3, 256, 255]))
