"""State under a transform: random numbers and Variables in the right side of `or`, and seeds that are set inside."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.frontend.values.generator import numbers_again


@st.function
def grows(x, n):
    return x if n <= 0 else shrinks(x * 1.5, n - 1)


@st.function
def shrinks(x, n):
    if n <= 0:
        return x
    below = grows(x, n - 2)
    for _ in st.range(n):
        below = below + 0.1 * st.random.uniform((), dtype=st.f64)
    return below


@st.function
def drawing(x, n):
    """Random numbers drawn in functions that call each other, in what `or` may not reach."""

    def f(x):
        y = x * 2.0 if n > 2 or shrinks(x, n % 3) <= x + 0.1 else x * 3.0
        return y * st.random.uniform((), dtype=st.f64)

    return st.value_and_grad(f)(x), st.random.uniform(())


@st.function
def writing(x, n):
    """A Variable and a nonlocal name, written in what `or` and `and` may not reach."""
    v, seen = st.Variable(x, name="v"), x * 0.0

    def look(y):
        nonlocal seen
        v.value = v.value + y
        for _ in st.range(n):
            v.value = v.value * 2.0
            seen = seen * 2.0 + y
        return y > 1.0

    def f(x):
        first = x > 3.0 or look(x)
        second = x > 0.5 and look(x + 1.0)
        return v.value * x if first or second else x

    return st.value_and_grad(f)(x), v.value


@st.function
def nonlocal_name(x, n):
    seen = x * 0.0

    def look(y):
        nonlocal seen
        seen = seen + y
        for _ in st.range(n):
            seen = seen * 2.0
        return y > 1.0

    first = x > 3.0 or look(x)
    second = x > 0.5 and look(x + 1.0)
    return seen, first, second


@st.function
def seeded(x, k):
    """Draws after the transform continue from the seed that it has set."""
    before = st.random.uniform(())

    def f(x):
        st.seed(k)
        return x * st.random.uniform((), dtype=st.f64)

    value, slope = st.value_and_grad(f)(x)
    after = st.random.uniform(())
    pushed = st.jvp(lambda x: f(x) * x, (x,), (1.0,))
    return before, value, slope, after, pushed, st.random.uniform(())


@pytest.mark.parametrize("function", [drawing, writing, nonlocal_name, seeded])
@pytest.mark.parametrize("x", [4.0, 2.0, 0.3])
def test_state_is_that_of_eager_mode(function, x) -> None:
    for n in (1, 2, 3):
        with numbers_again():
            found = function(np.array(x), n)
        with st.eager():
            expected = function(np.array(x), n)
        for have, want in zip(flat(found), flat(expected), strict=True):
            np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-6)


def flat(tree):
    if isinstance(tree, tuple):
        for item in tree:
            yield from flat(item)
    else:
        yield tree


def test_a_seed_inside_a_transform_draws_the_same_numbers_again() -> None:
    _, value, slope, after, _, again = seeded(np.array(2.0), 3)
    assert float(value) == 2.0 * float(slope)
    assert float(after) == float(again)
