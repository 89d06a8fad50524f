"""Code without a derivative is refused while staging, with the user's line and the way out; code that only looks like it is not."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import GradientError, StagedError
from tests.autodiff.test_from_python import check

X = np.array([1.0, 2.0, 3.0])


@st.custom_vjp
def sine(x):
    return st.sin(x)


sine.defvjp(lambda x: (st.sin(x), st.cos(x)), lambda cosine, ct: (cosine * ct,))


@st.function
def slope_of_itself(x, n):
    if n < 1:
        return x * x
    return st.grad(lambda y: slope_of_itself(y, n - 1))(x)


def forward_through_custom_vjp(x):
    return st.jvp(lambda y: st.sum(sine(y)), (x,), (x,))  # here


def forward_through_custom_vjp_in_a_function(x):
    @st.function
    def inner(y, n):
        if n < 1:
            return st.sum(y)
        return inner(sine(y), n - 1)  # here

    return st.jvp(lambda y: inner(y, 2), (x,), (x,))


def custom_vjp_that_closes_over_what_moves(x):
    def f(y):
        z = y * 2.0

        @st.custom_vjp
        def g(a):
            return a * z

        g.defvjp(lambda a: (a * z, ()), lambda residuals, ct: (ct,))
        return st.sum(g(y * y))  # here

    return st.grad(f)(x)


def clock_in_a_checkpoint(x):
    @st.checkpoint
    def f(y):
        begin = time.perf_counter()  # here
        return y * (begin * 0.0 + 1.0)

    return st.grad(lambda y: st.sum(f(y)))(x)


def clock_in_a_checkpoint_in_a_loop(x):
    @st.checkpoint
    def f(y):
        begin = time.perf_counter()  # here
        return st.sin(y) * begin

    def loss(y):
        for _ in st.range(3):
            y = f(y)
        return st.sum(y)

    return st.grad(loss)(x)


def integer_result(x):
    return st.grad(lambda y: st.sum(st.astype(y, st.i64)))(x)  # here


def integer_argument(x):
    return st.grad(lambda n: st.sum(x) * n)(st.astype(x[0], st.i64))  # here


def derivative_of_itself(x):
    return slope_of_itself(x[0], st.argmax(x))


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (forward_through_custom_vjp, "forward mode through `sine`"),
    (forward_through_custom_vjp_in_a_function, "forward mode through `sine`"),
    (custom_vjp_that_closes_over_what_moves, "`g`, a `custom_vjp`, reads a value that is being differentiated"),
    (clock_in_a_checkpoint, "a `checkpoint` computes with what `clock` reads"),
    (clock_in_a_checkpoint_in_a_loop, "a `checkpoint` computes with what `clock` reads"),
    (integer_result, "needs a float, it returns i64"),
    (integer_argument, "it is not a float"),
    (derivative_of_itself, "inside `slope_of_itself` needs `slope_of_itself` itself"),
]


@pytest.mark.parametrize(("f", "words"), REFUSED)
def test_refused_with_the_line_and_the_way_out(f: Callable[..., Any], words: str) -> None:
    with pytest.raises(StagedError, match=words) as caught:
        st.function(f).stage(X).source  # noqa: B018
    error = caught.value
    assert isinstance(error, GradientError)
    assert error.where is not None and error.hint
    lines, first = inspect.getsourcelines(f)
    marked = [first + number for number, line in enumerate(lines) if line.rstrip().endswith("# here")]
    assert not marked or error.where.line in marked


# ---- looks alike, and has a derivative -----------------------------------------------------------


def clock_beside(x):
    def f(y):
        begin = time.perf_counter()
        return st.sum(st.sin(y)) * (begin * 0.0 + 1.0)

    return st.grad(f)(x)


def print_in_a_checkpoint(x):
    @st.checkpoint
    def f(y):
        begin = time.perf_counter()
        print("begun", begin * 0.0)
        return st.sin(y)

    return st.grad(lambda y: st.sum(f(y)))(x)


def through_integers_there_is_zero(x):
    return st.grad(lambda y: st.sum(st.astype(st.astype(y, st.i64), st.f64) + y))(x)


def through_a_stack(x):
    def f(y):
        rows = st.Stack(y, max=4)
        for i in st.range(3):
            rows.append(st.sin(y) * i)
        total = 0.0
        while rows:
            total += st.sum(rows.pop() * y)
        return total

    return st.grad(f)(x)


def gradient_through_a_variable(x):
    kept = st.Variable(np.array(2.0))

    @st.function
    def scaled(y, n):
        kept.value = kept.value * st.sum(y)
        if n < 1:
            return kept.value
        return scaled(y * 0.5, n - 1) + kept.value

    return st.grad(lambda y: scaled(y, 2) + kept.value)(x)


@pytest.mark.parametrize(
    "f",
    [
        clock_beside,
        print_in_a_checkpoint,
        through_integers_there_is_zero,
        through_a_stack,
        gradient_through_a_variable,
    ],
)
def test_has_a_derivative(f: Callable[..., Any]) -> None:
    with st.eager():
        expected = np.asarray(f(X))
    np.testing.assert_allclose(st.function(f)(X), expected, rtol=1e-12)
    if f not in (clock_beside, print_in_a_checkpoint):  # the interpreter has no clock
        check(f, X)
