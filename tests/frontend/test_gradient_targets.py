"""The inputs of a gradient: arguments and Variables that are named twice, Modules in trees, and how the result is laid out."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import nn

X = np.array([2.0, 3.0])


def twice(x, y):
    """Everything that may be named twice, by closed forms: x * x * y has the derivatives 2 x y and x * x."""
    w = st.Variable(X, name="w")

    def f(x, y):
        return st.sum(x * x * y)

    def by_w():
        return st.sum(w * w)

    return {
        "arguments": st.grad(f, argnums=(0, 0, 1, -2))(x, y),
        "list": st.grad(by_w, wrt=[w, w])(),
        "dict": st.value_and_grad(by_w, wrt={"a": w, "b": (w, [w])})()[1],
        "jacobian": st.jacrev(lambda x: x * x, argnums=(0, 0))(x),
        "forward jacobian": st.jacfwd(lambda x: x * x, argnums=(0, -1))(x),
        "hessian": st.hessian(lambda x: st.sum(x * x * x), argnums=(0, 0))(x),
    }


def check_twice(found) -> None:
    d_x, d_y = 2.0 * X * 5.0, X * X
    np.testing.assert_allclose(found["arguments"], [d_x, d_x, d_y, d_x])
    assert isinstance(found["arguments"], tuple) and len(found["arguments"]) == 4
    np.testing.assert_allclose(found["list"], [2.0 * X, 2.0 * X])
    assert isinstance(found["list"], list)
    np.testing.assert_allclose(found["dict"]["a"], 2.0 * X)
    np.testing.assert_allclose(found["dict"]["b"][0], 2.0 * X)
    np.testing.assert_allclose(found["dict"]["b"][1][0], 2.0 * X)
    for name in ("jacobian", "forward jacobian"):
        np.testing.assert_allclose(found[name], [np.diag(2.0 * X)] * 2)
    np.testing.assert_allclose(found["hessian"], [[np.diag(6.0 * X)] * 2] * 2)


def test_what_is_named_twice_has_its_gradient_twice() -> None:
    check_twice(st.function(twice)(X, np.full(2, 5.0)))
    with st.eager():
        check_twice(twice(X, np.full(2, 5.0)))


def test_modules_stand_in_any_tree_of_wrt() -> None:
    a, b = nn.Linear(2, 3), nn.Linear(3, 1)

    def gradients(x):
        def loss():
            return st.sum(b(a(x)))

        return (
            st.grad(loss, wrt=[a, b])(),
            st.grad(loss, wrt={"all": a, "one": (b.weight, a)})(),
            st.grad(loss, wrt=a)(),
        )

    x = np.array([[1.0, -2.0]], np.float32)
    weight, hidden = np.asarray(b.weight.value), np.asarray(a(x))
    d_a = {"weight": weight.T @ x, "bias": weight[0]}
    with st.eager():
        eagerly = gradients(x)
    for listed, tree, alone in (st.function(gradients)(x), eagerly):
        for found in (listed[0], tree["all"], tree["one"][1], alone):
            assert set(found) == {"weight", "bias"}
            for name, expected in d_a.items():
                np.testing.assert_allclose(found[name], expected, rtol=1e-6)
        np.testing.assert_allclose(listed[1]["weight"], hidden, rtol=1e-6)
        np.testing.assert_allclose(tree["one"][0], hidden, rtol=1e-6)


def test_anything_else_in_wrt_is_refused_with_what_it_takes() -> None:
    with pytest.raises(st.GradientError, match="holds a float, it takes Variables and Modules, in any tree"):
        st.grad(lambda: 1.0, wrt=[st.Variable(X), 2.0])()


def test_the_array_apis_name_of_bools_is_there() -> None:
    assert st.bool is st.bool_
    np.testing.assert_array_equal(st.astype(X - 2.0, st.bool), [False, True])


def test_one_bias_of_a_recurrent_layer_is_refused_with_a_way_out() -> None:
    arguments = np.ones((3, 1, 2)), None, np.ones((4, 2)), np.ones((4, 1))
    with pytest.raises(st.ShapeError, match="got `b_ih` alone") as caught:
        st.lstm(*arguments, np.ones(4))
    assert "zeros_like(b_ih)" in caught.value.hint
    with pytest.raises(st.ShapeError, match="got `b_hh` alone"):
        st.lstm(*arguments, None, np.ones(4))
