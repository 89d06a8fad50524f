"""Bugs found in control flow, Variables and the text around kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.testing import assert_backends_agree

X = np.array([1.5, 2.0, 3.0, 0.5])


def test_variable_made_in_a_differentiated_function_with_an_early_return() -> None:
    # Each try of the trace made another Variable: "tracing does not settle".
    def loss(x):
        v = st.Variable(2.0 * x)
        for i in st.range(4):
            if x.sum() * i > 12.0:
                return x.sum() * i
        return (v * v).sum()

    for x in (X, 0.1 * X):
        assert_backends_agree(lambda x: st.value_and_grad(loss)(x), x)


def test_variable_of_an_argument_stays_on_the_tape() -> None:
    # Eager mode cut it off: the gradient was 0.
    def loss(x):
        v = st.Variable(x)
        v.value = v * x
        return v.sum()

    gradient = assert_backends_agree(lambda x: st.grad(loss)(x), X)
    np.testing.assert_allclose(gradient, 2 * X)


def test_nested_gradients_with_variables_made_inside() -> None:
    def inner(x):
        v = st.Variable(x)
        v.value = st.sin(v) * x
        return v.sum()

    def outer(x):
        v = st.Variable(st.grad(inner)(x))
        v.value += x
        return (v * v).sum()

    assert_backends_agree(lambda x: st.value_and_grad(outer)(x), X)


def test_second_order_through_a_loop() -> None:
    def inner(x):
        v = x
        for _ in st.range(3):
            v = st.sin(v) * x
        return v.sum()

    def program(x):
        return st.grad(lambda x: st.grad(inner)(x).sum())(x)

    assert_backends_agree(program, X)


def test_returned_inner_variable_is_what_it_holds() -> None:
    def program(x):
        v = st.Variable(2.0 * x)
        v.value += 1.0
        return {"v": v, "x": x}

    assert_backends_agree(program, X)


def test_variable_carried_as_a_name_is_refused_with_the_way_out() -> None:
    v = st.Variable(np.ones(4), name="v")

    def program(x):
        w = v
        for _ in st.range(3):
            w = w + x
        return w

    with pytest.raises(st.CarriedValueError, match="a Variable of f64") as caught:
        st.function(program)(X)
    assert "w = v.value" in str(caught.value)


def test_relu_of_numbers() -> None:
    def program(x, a):
        return st.relu(a), st.relu(-1.5), st.grad(lambda x: (st.relu(a * x) * st.relu(a)).sum())(x)

    for a in (2.5, -2.5):
        assert_backends_agree(program, X, a)


def test_locals_that_nothing_reads_leave_the_text() -> None:
    def program(x, i):
        for k in st.range(3):
            _a = x[(k * 2) % 3]
            _b = st.reshape(x, (4, 1))[i, (k * 3) % 1]
        return x.sum()

    assert_backends_agree(program, X, 2)
    text = st.function(program).stage(X, 2).source
    assert "st_check_index" in text and not re.search(r"= st_check_index", text)
    with pytest.raises(IndexError):
        assert_backends_agree(program, X, 7)


def test_locals_called_like_those_of_the_entry_point() -> None:
    @st.function
    def f(x, n):
        m = x[n]
        base = m * 2.0
        buffers = x * 0.0
        for i in st.range(n):
            buffers[i] = base
            m = m + buffers[i]
        return m

    np.testing.assert_allclose(f(np.ones((3, 3)), 2), [5.0, 5.0, 5.0])


def test_a_shared_kernel_may_be_called_like_what_its_wrapper_is_given() -> None:
    # `a(a->x, ...)` did not compile.
    def named_a(x):
        a = st.tanh(x @ x) * 2.0
        return a

    def named_begin(x):
        begin = st.tanh(x @ x) * 2.0
        return begin

    x = np.random.default_rng(0).normal(size=(256, 256))
    for f in (named_a, named_begin):
        np.testing.assert_allclose(st.function(f)(x), np.tanh(x @ x) * 2.0, rtol=1e-9)
