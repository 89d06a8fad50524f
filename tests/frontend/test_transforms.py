# ruff: noqa: B007  (programs of users name their loop variables)
"""`grad` and `value_and_grad` as ops; eager gradients; refusals."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import GradientError
from staged.frontend.trace_function import trace
from tests.frontend.harness import ir, ops

X = np.arange(1, 4, dtype=np.float32)


def loss(x, w):
    return (x * w).sum()


def vjp_line(text):
    return next(line.strip() for line in text.splitlines() if " = vjp(" in line)


def test_gradient_by_an_argument() -> None:
    def f(x, w):
        value, d_w = st.value_and_grad(loss, argnums=1)(x, w)
        return value, d_w, st.grad(loss)(x, w)

    text = ir(f, X, X)
    assert ops(text).count("vjp") == 2
    assert vjp_line(text).startswith("value: f32 (), d_w: f32 (3,) = vjp(w, x, ")


def test_tree_of_arguments() -> None:
    def f(params, x):
        def loss(params, x):
            return (params["w"] * x + params["b"]).sum()

        return st.grad(loss)(params, x)

    traced = trace(f, ({"w": X, "b": X}, X))
    assert traced.function.result_paths == ("b", "w")


def test_the_same_array_as_captured_and_as_argument_is_kept_apart() -> None:
    def f(x):
        return st.grad(lambda y: (y * x).sum())(x)

    line = vjp_line(ir(f, X))
    assert "vjp(x, x, " in line
    assert "wrt=(0,)" in line


def test_variables_are_read_before_and_written_after() -> None:
    w = st.Variable(X, name="w")
    count = st.Variable(0, name="count")

    def f(x):
        def loss(x):
            if x.sum() > 0.0:
                count.value += 1
            return (w * x).sum()

        value, (d_w,) = st.value_and_grad(loss, wrt=[w])(x)
        w.value = w - 0.1 * d_w
        return value

    names = [name for name in ops(ir(f, X)) if name.startswith("variable_") or name in ("vjp", "if")]
    assert names == ["variable_read", "variable_read", "vjp", "if", "variable_write", "variable_read", "variable_write"]


def test_variable_written_in_a_loop_of_a_differentiated_function_is_carried() -> None:
    steps = st.Variable(0, name="steps")

    def f(x, n):
        def loss(x):
            total = 0.0
            for i in st.range(n):
                steps.value = steps + 1
                total += x.sum()
            return total

        return st.grad(loss)(x)

    text = ir(f, X, 3)
    assert ops(text).count("variable_write") == 1


def test_aux_and_prints() -> None:
    def f(x):
        def loss(x):
            y = x * 2.0
            print(y)
            return y.sum(), {"y": y, "name": "a"}

        (value, aux), grad = st.value_and_grad(loss, has_aux=True)(x)
        return value, aux, grad

    text = ir(f, X)
    assert ops(text).count("print") == 1
    traced = trace(f, (X,))
    assert traced.rebuild([1.0, 2.0, 3.0]) == (1.0, {"y": 2.0, "name": "a"}, 3.0)


def test_nested_gradient() -> None:
    def f(x):
        return st.grad(lambda y: (st.grad(lambda z: (z * z * z).sum())(y) * y).sum())(x)

    text = ir(f, X)
    assert ops(text).count("vjp") == 2


def test_eager_gradients() -> None:
    np.testing.assert_allclose(np.asarray(st.grad(loss)(X, X * 2.0)), X * 2.0)
    w = st.Variable(X, name="w")

    def by_variable(x):
        total = 0.0
        for i in range(3):
            if i != 1:
                total = total + (w * x).sum()
        return total

    value, grads = st.value_and_grad(by_variable, wrt={"w": w})(X)
    np.testing.assert_allclose(np.asarray(grads["w"]), 2.0 * X)
    np.testing.assert_allclose(np.asarray(value), 2.0 * (X * X).sum())


def test_early_return_in_the_differentiated_function() -> None:
    def f(x, n):
        def loss(x):
            for i in st.range(n):
                if x.sum() * i > 10.0:
                    return x.sum()
            if n > 3:
                return x.sum() * 2.0
            return x.sum() * 3.0

        return st.grad(loss)(x)

    text = ir(f, X, 3)
    assert "scope" in ops(text)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: st.grad(lambda y: y * 2.0)(x), r"needs a scalar, it returns f32 \(3,\)"),
        (lambda x: st.grad(lambda y: st.argmax(y))(x), "needs a float, it returns i64"),
        (lambda x: st.grad(lambda k: k.sum() * 1.0)(st.astype(x, st.i32)), "does not exist: it is not a float"),
        (lambda x: st.grad(lambda y: (y.sum(), y))(x), "needs a float scalar, it returns a tuple"),
        (lambda x: st.grad(lambda y: y.sum(), argnums=3)(x), "the gradient is by number 3"),
        (lambda x: st.grad(lambda y: y.sum(), argnums=0, wrt=[])(x), "exclude each other"),
        (lambda x: st.value_and_grad(lambda y: y.sum(), wrt=[x])(x), "it takes Variables and Modules, in any tree"),
        (lambda x: st.value_and_grad(lambda y: y.sum(), has_aux=True)(x), "returns a pair"),
    ],
)
def test_gradients_that_do_not_exist_are_refused(function, message) -> None:
    with pytest.raises(GradientError, match=message) as caught:
        trace(function, (X,))
    assert caught.value.where is not None
