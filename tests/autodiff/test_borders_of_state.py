"""Derivatives where the program's state moves between a value and its reverse: Variables, random keys, elements written over; and
rules of the user's own. What is right is a closed form, or NumPy's complex step."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

F = np.float64
X, V = F([1.5, -2.0, 0.75]), F([2.0, 3.0, -1.0])
v = st.Variable(V)


def variables_between(x):
    def f(x):
        y = v.value * x
        v.value = v.value * 10.0
        z = y * v.value
        v.value = v.value + 1.0
        return st.sum(z * z * v.value)

    return st.grad(f)(x), v.value


def variables_in_a_loop(x):
    def f(x):
        y = x
        for _ in st.range(3):
            y = y * v.value * x
            v.value = v.value + 1.0
        return st.sum(y)

    return st.grad(f)(x), v.value


def a_checkpoint_reads_what_changes_later(x):
    def inner(x):
        y = x * v.value
        return y * y * v.value

    def f(x):
        y = st.checkpoint(inner)(x)
        v.value = v.value * 100.0
        return st.sum(y)

    return st.grad(f)(x), v.value


def a_checkpoint_writes(x):
    def inner(x):
        y = x * v.value
        v.value = v.value + 1.0
        return y * y * v.value

    return st.grad(lambda x: st.sum(st.checkpoint(inner)(x)))(x), v.value


def a_checkpoint_draws(x):
    y, pull = st.vjp(st.checkpoint(lambda x: x * st.random.uniform((3,), low=1.0, dtype=st.f64)), x)
    drawn = y / x
    return pull(st.ones((3,), dtype=st.f64))[0] - drawn, drawn * 0.0


@st.custom_vjp
def given(x, k):
    return x * 2.0, x + 1.0, k


given.defvjp(lambda x, k: ((x * 2.0, x + 1.0, k), (x,)), lambda left, d: (d[0] * 7.0 + d[1] * 100.0 * left[0], None))


def a_rule_of_the_user(x):
    first = st.grad(lambda x: st.sum(given(x, 3)[0]))(x)
    second = st.grad(lambda x: st.sum(given(x, 3)[1]))(x)
    neither = st.grad(lambda x: st.sum(x) + given(x, 3)[2] * 1.0)(x)
    return first * neither, second


def written_over(x, i=1):
    t = x * 2.0
    total = st.sum(t * t)
    t[i] = t[i] * x[0]
    total += st.sum(t[i : i + 2])
    t[:2] = x[1:] * x[1:]
    old = t
    t = t + 0.0
    t[0] = 5.0
    return total + st.sum(t * old)


def elements_written_over(x):
    forward = [st.jvp(written_over, (x,), (st.asarray(unit),))[1] for unit in np.eye(3)]
    return st.grad(written_over)(x), st.stack(forward)


def in_numpy(x):
    t = x * 2
    total = (t * t).sum()
    t[1] = t[1] * x[0]
    total = total + t[1:3].sum()
    t[:2] = x[1:] * x[1:]
    old = t.copy()
    t[0] = 5
    return total + (t * old).sum()


def early_exits(x):
    """A history of iterations that are left early, and of a loop of no iterations inside."""

    def f(x):
        y = x
        z = x * 0.0
        for i in st.range(6):
            t = st.sin(y) * x
            if i == 4:
                break
            if i % 2 == 1:
                z = z + t
                continue
            u = t * t
            y = u + t
            for _ in st.range(i):
                y = y * 0.5 + t
                z = z + y * u
        return st.sum(y * z + z)

    return st.grad(f)(x), x


def early_exits_in_numpy(x):
    y, z = x, x * 0
    for i in range(4):
        t = np.sin(y) * x
        if i % 2 == 1:
            z = z + t
            continue
        u = t * t
        y = u + t
        for _ in range(i):
            y = y * 0.5 + t
            z = z + y * u
    return (y * z + z).sum()


@st.function
def tree(x, depth, s):
    """Frames with arrays that are kept twice, and calls of other depths."""
    if depth <= 0:
        return x * s
    a = st.tanh(x * s)
    left, right = tree(a, depth - 1, s), tree(a * a, depth - 2, s)
    return left * right + a * left


def tree_in_numpy(x, depth, s):
    if depth <= 0:
        return x * s
    a = np.tanh(x * s)
    left, right = tree_in_numpy(a, depth - 1, s), tree_in_numpy(a * a, depth - 2, s)
    return left * right + a * left


def recursive(x):
    return st.grad(lambda x: st.sum(tree(x, 4, x + 0.5)))(x), st.grad(lambda x: st.sum(tree(x, 0, x)))(x)


def steps(f, x):
    """The gradient of an analytic function, without cancellation."""
    return F([f(x + 1e-30j * unit).imag / 1e-30 for unit in np.eye(3)])


RIGHT = {
    variables_between: (200 * V**4 * X * (10 * V + 1), 10 * V + 1),
    variables_in_a_loop: (4 * X**3 * V * (V + 1) * (V + 2), V + 3),
    a_checkpoint_reads_what_changes_later: (2 * X * V**3, V * 100),
    a_checkpoint_writes: (2 * X * V**2 * (V + 1), V + 1),
    a_checkpoint_draws: (np.zeros(3), np.zeros(3)),
    a_rule_of_the_user: (np.full(3, 7.0), 100 * X),
    elements_written_over: (steps(in_numpy, X), steps(in_numpy, X)),
    early_exits: (steps(early_exits_in_numpy, X), X),
    recursive: (steps(lambda x: tree_in_numpy(x, 4, x + 0.5).sum(), X), 2 * X),
}


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_a_reverse_computes_with_what_the_primal_has_seen(program, way):
    v.value = V
    run = st.function(program)
    if way == "eager":
        with st.eager():
            found = run(X)
    else:
        found = run(X)
    for got, right in zip(found, RIGHT[program], strict=True):
        np.testing.assert_allclose(np.asarray(got), right, rtol=1e-12, atol=1e-14)
