# ruff: noqa: B007, B023  (programs of users name their loop variables, and close over them)
"""Names that only a loop binds, read after it: arrays, lists, dicts and gradients alike."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.errors import StaticStateError, UnboundNameError
from staged.frontend.trace_function import trace
from tests.frontend.harness import agree

X = np.array([1.0, 2.0], np.float32)


def a_dict(x):
    for i in st.range(3):
        g = {"a": x * i, "name": "last"}
    return g["a"], g["name"]


def a_list_that_grew_in_the_turn(x):
    for i in st.range(3):
        g = [x]
        g.append(x * i)
    return g[0] + g[1], len(g)


def a_tree_before_a_break(x):
    i = 0
    while True:
        g = [x * i, {"b": x + i}]
        i += 1
        if x[0] * i > 3.0:
            break
    return g[0], g[1]["b"]


def lists_of_an_inner_loop(x):
    for i in st.range(3):
        for j in st.range(2):
            g = [x * i + j]
        h = (g, g[0] * 2.0)
    return h[0][0], h[1], g[0]


def a_dict_that_changes_after_the_loop(x):
    for i in st.range(3):
        g = {"a": x * i}
    g["a"] = g["a"] + 1.0
    for i in st.range(2):
        g["a"] = g["a"] * 2.0
    return g["a"]


def an_empty_list(x):
    for i in st.range(3):
        g = []
    return len(g), x


@pytest.mark.parametrize(
    "program",
    [
        a_dict,
        a_list_that_grew_in_the_turn,
        a_tree_before_a_break,
        lists_of_an_inner_loop,
        a_dict_that_changes_after_the_loop,
        an_empty_list,
    ],
)
def test_tree_bound_only_in_a_loop_is_read_after_it(program) -> None:
    agree(program, X)


def test_gradients_bound_only_in_a_loop_are_read_after_it() -> None:
    model = nn.Linear(2, 1)

    @st.function
    def last_gradients(x):
        for i in st.range(2):
            loss, grads = st.value_and_grad(lambda: st.sum(model(x) * i), wrt=model)()
        return loss, grads

    _, grads = last_gradients(X[None])
    np.testing.assert_allclose(grads["weight"], X[None])
    np.testing.assert_allclose(grads["bias"], [1.0])


def test_one_list_under_two_names_of_a_loop_is_not_changed_under_one_of_them() -> None:
    def program(x):
        for i in st.range(3):
            g = {"a": x * i}
            h = g
        h["a"] = x
        return g["a"]

    with pytest.raises(StaticStateError, match="`h` changes in place, and `g` may be the same object"):
        trace(program, (X,))


def test_list_of_a_loop_that_may_not_run_is_refused_at_the_read() -> None:
    def program(x, n):
        for i in st.range(n):
            g = [x]
        return g[0]

    with pytest.raises(UnboundNameError, match="bound only inside the loop"):
        trace(program, (X, 3))
