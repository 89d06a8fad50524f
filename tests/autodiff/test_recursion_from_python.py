"""Derivatives of recursive staged functions: the compiled program, and the IR run by the interpreter, against eager mode's tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import staged as st
from tests.autodiff.test_from_python import check

RANDOM = np.random.default_rng(3)
LEFT = np.array([1, 3, -1, -1, -1])
RIGHT = np.array([2, 4, -1, -1, -1])
WORDS = RANDOM.normal(size=(5, 3))
WEIGHTS = RANDOM.normal(size=(3, 3)) * 0.6


@st.function
def power(x, n):
    if n < 1:
        return 1.0
    return x * power(x, n - 1)


@st.function
def tree(node, left, right, words, w):
    """A state and a loss, over a binary tree in arrays; leaves early where the state is large."""
    if node < 0:
        return 0.1 * words[0], 0.0
    h, a = tree(left[node], left, right, words, w)
    g, b = tree(right[node], left, right, words, w)
    for _ in st.range(3):
        if st.sum(h) > 0.6:
            return h, a + b
        h = h * 1.4 + g
    made = st.tanh(h @ w + g * words[node])
    return made, a + b + st.sum(made * made)


@st.function
def even(n, x, w):
    if n < 1:
        return x * w
    return odd(n - 1, st.sin(x) + w, w)


@st.function
def odd(n, x, w):
    if n < 1:
        return x - w
    total = x
    while total < 2.0:
        total = total * 1.5 + w * w
    return even(n - 1, total * 0.3, w)


@st.function
def halved(x):
    """Decides by a float, and returns a tuple."""
    if x < 0.1:
        return x, 0
    y, n = halved(x * 0.5)
    return y * x + st.checkpoint(st.sin)(x), n + 1


def of_power(x, n):
    return power(x, n)


def of_tree(w, words, left, right):
    h, loss = tree(0, left, right, words, w)
    return loss + st.sum(h * h)


def of_even(x, w, n):
    total = 0.0
    for i in st.range(n):
        total += even(i, x, w) * even(2, x, x)
    return total


def of_halved(x):
    y, n = halved(x)
    return y * n


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = [
    (of_power, (np.float64(1.3), np.int64(5)), (0,)),
    (of_power, (np.float64(1.3), np.int64(0)), (0,)),
    (of_tree, (WEIGHTS, WORDS, LEFT, RIGHT), (0, 1)),
    (of_tree, (WEIGHTS * 2.0, WORDS * 0.3, LEFT, RIGHT), (0,)),
    (of_even, (np.float64(0.4), np.float64(0.7), np.int64(4)), (0, 1)),
    (of_halved, (np.float64(1.7),), (0,)),
]


def gradient(f: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
    return lambda *arguments: st.value_and_grad(f, argnums=argnums)(*arguments)


def product(f: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
    """Forward over reverse: the Hessian in the direction of the arguments themselves."""

    def along(*arguments: Any) -> Any:
        moved = tuple(arguments[number] for number in argnums)

        def slopes(*moved: Any) -> Any:
            given = list(arguments)
            for number, value in zip(argnums, moved, strict=True):
                given[number] = value
            return st.grad(f, argnums=argnums)(*given)

        return st.jvp(slopes, moved, moved)

    return along


def twice(f: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
    """Reverse over reverse: the gradient of the gradient's squared length."""

    def squared(*arguments: Any) -> Any:
        return sum(st.sum(slope * slope) for slope in st.grad(f, argnums=argnums)(*arguments))

    return lambda *arguments: st.grad(squared, argnums=argnums)(*arguments)


@pytest.mark.parametrize("derivative", [gradient, product, twice])
@pytest.mark.parametrize(("f", "arguments", "argnums"), PROGRAMS)
def test_recursion(f: Any, arguments: Any, argnums: Any, derivative: Any) -> None:
    wanted = derivative(f, argnums)
    check(wanted, *arguments)
    with st.eager():
        expected = optree.tree_leaves(wanted(*arguments))
    for got, value in zip(optree.tree_leaves(st.function(wanted)(*arguments)), expected, strict=True):
        np.testing.assert_allclose(got, np.asarray(value), rtol=1e-9, atol=1e-12)
