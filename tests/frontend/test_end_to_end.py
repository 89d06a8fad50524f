"""Whole programs: eager mode and the compiled program agree on results, gradients and prints."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.testing import assert_backends_agree

X = np.array([1.5, 2.0, 3.0, 0.5])


def product(x):
    a = 1.0
    for i in st.range(x.shape[0]):
        a *= x[i]
    return a


def square_of_sum(x):
    s = 0.0
    for i in st.range(x.shape[0]):
        s += x[i]
    return s * s


def grow(x):
    a = 1.0
    while a < 100.0:
        a = a * x[1]
    return a


def exits(x):
    total = 0.0
    for i in st.range(9):
        if i == 2:
            continue
        if total > 50.0:
            break
        total += (x * x).sum() * i
    return total


def returns(x):
    for i in st.range(6):
        if x.sum() * i > 25.0:
            return x.sum() * i
    if x.sum() > 100.0:
        return x[0]
    return (x * x).sum()


@pytest.mark.parametrize("function", [product, square_of_sum, grow, exits, returns])
def test_gradient_through_control_flow(function) -> None:
    def program(x):
        return st.value_and_grad(function)(x)

    assert_backends_agree(program, X)


def test_training_with_variables_batches_and_prints() -> None:
    def train(x, y, epochs):
        w1 = st.Variable(st.random.normal((4, 8)), name="w1")
        w2 = st.Variable(st.random.normal((8, 3)), name="w2")
        steps = st.Variable(0, name="steps")

        def loss(x, y):
            steps.value += 1
            return st.cross_entropy(st.relu(x @ w1) @ w2, y)

        for epoch in st.range(epochs):
            total = 0.0
            for a, b in st.batches(x, y, size=2, shuffle=True):
                value, (d_w1, d_w2) = st.value_and_grad(loss, wrt=[w1, w2])(a, b)
                w1.value -= 0.1 * d_w1
                w2.value -= 0.1 * d_w2
                total += value
            if epoch % 2 == 0:
                print(f"epoch {epoch}: {total:.3f}")
        return w1.value, w2.value, steps.value

    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 4)).astype(np.float32)
    y = np.array([0, 1, 2, 0, 1, 2], np.int32)
    _, _, steps = assert_backends_agree(train, x, y, 4, rtol=1e-4)
    assert steps == 12


def test_outer_variables_keep_their_buffers_between_calls() -> None:
    w = st.Variable(np.ones(4), name="w")

    def step(x, lr):
        value, d_w = st.value_and_grad(lambda: (w * w * x).sum(), wrt=w)()
        w.value -= lr * d_w
        return value

    assert_backends_agree(step, X, 0.1, variables=[w])
    staged = st.function(step)
    first, second = staged(X, 0.1), staged(X, 0.1)
    assert second < first
