"""The values of the transforms: eager mode and the program agree, and both are right.

Programs run by the interpreter, after all transforms are fulfilled; eager mode differentiates on its tape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.testing import assert_backends_agree, captured_prints
from tests.batching.harness import agrees, ops_of

RNG = np.random.default_rng(7)
X = RNG.normal(size=3)
V = RNG.normal(size=3)
W = RNG.normal(size=(2, 3))


def smooth(x: Any) -> Any:
    return st.sum(st.sin(x) * x * x) + x[0] * x[1] * x[2]


def smooth_hessian(x: np.ndarray) -> np.ndarray:
    diagonal = -np.sin(x) * x * x + 4.0 * x * np.cos(x) + 2.0 * np.sin(x)
    others = np.array([[0.0, x[2], x[1]], [x[2], 0.0, x[0]], [x[1], x[0], 0.0]])
    return np.diag(diagonal) + others


def looped(x: Any) -> Any:
    t = x[0] * 0.0
    for i in st.range(4):
        if t < 1.0:
            t = t + x[i % 3] * x[i % 3]
        else:
            t = st.sin(t) * x[1]
    while t < 3.0:
        t = t * 1.5 + x[2] * x[2]
    return t


def close(have: Any, want: Any, rtol: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=rtol, atol=1e-10)


# ---- perturbations are not confused ---------------------------------------------------------------
# Siskind and Pearlmutter, Perturbation confusion and referential transparency, 2005; Manzyuk and others, 2019.


def d_fwd(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: st.jvp(f, (x,), (x * 0.0 + 1.0,))[1]


def d_rev(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return st.grad(f)


def d_pull(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: st.vjp(f, x)[1](x * 0.0 + 1.0)[0]


@pytest.mark.parametrize("outer", [d_fwd, d_rev, d_pull])
@pytest.mark.parametrize("inner", [d_fwd, d_rev, d_pull])
def test_nested_derivatives(outer: Any, inner: Any) -> None:
    # d/dx x (d/dy (x + y)) = 1, not 2
    close(agrees(lambda x: outer(lambda x: x * inner(lambda y: x + y)(x * 0.0 + 1.0))(x), 1.0), 1.0)
    # d/dx x (d/dy x y) = 2 x
    close(agrees(lambda x: outer(lambda x: x * inner(lambda y: x * y)(x))(x), 3.0), 6.0)
    # d/dx (d/dy x y^2 at y = x^2) = d/dx 2 x^3
    close(agrees(lambda x: outer(lambda x: inner(lambda y: x * y * y)(x * x))(x), 2.0), 24.0)
    # the inner function returns a function of both
    close(agrees(lambda x: outer(lambda x: inner(lambda y: inner(lambda z: x * y * z * z)(y))(x))(x), 2.0), 16.0)


@pytest.mark.parametrize("first", [d_fwd, d_rev])
@pytest.mark.parametrize("second", [d_fwd, d_rev])
@pytest.mark.parametrize("third", [d_fwd, d_rev])
def test_third_derivative(first: Any, second: Any, third: Any) -> None:
    close(agrees(lambda x: third(second(first(lambda x: x**5 + st.sin(x))))(x), 1.5), 60 * 1.5**2 - np.cos(1.5))


def test_derivative_of_a_function_that_closes_over_what_is_differentiated() -> None:
    def outer(a):
        scale = st.sin(a)

        def inner(x):
            return st.sum(x * x) * scale

        return st.sum(st.grad(inner)(a * st.astype(X, st.f64)))

    close(agrees(lambda a: st.grad(outer)(a), 0.7), 2.0 * X.sum() * (np.sin(0.7) + 0.7 * np.cos(0.7)))


# ---- Jacobians and Hessians -----------------------------------------------------------------------


@pytest.mark.parametrize("jacobian", [st.jacfwd, st.jacrev])
def test_jacobian_of_an_array(jacobian: Any) -> None:
    found = agrees(lambda x, w: jacobian(lambda x: st.tanh(w @ x))(x), X, W)
    close(found, (1.0 - np.tanh(W @ X) ** 2)[:, None] * W)


@pytest.mark.parametrize("jacobian", [st.jacfwd, st.jacrev])
def test_jacobian_of_trees(jacobian: Any) -> None:
    def f(p, s):
        return {"a": p["w"] @ p["x"] * s, "b": (s * s, st.argmax(p["x"]))}

    found = agrees(lambda p, s: jacobian(f, argnums=(0, 1))(p, s), {"w": W, "x": X}, 1.5)
    d_p, d_s = found["a"]
    assert d_p["w"].shape == (2, 2, 3) and d_p["x"].shape == (2, 3)
    close(d_p["x"], W * 1.5)
    close(d_p["w"][0], np.stack([X * 1.5, X * 0.0]))
    close(d_s, W @ X)
    (zeros, twice), nothing = found["b"]
    close(zeros["w"], np.zeros((2, 3)))
    close(twice, 3.0)
    assert nothing is None


@pytest.mark.parametrize("jacobian", [st.jacfwd, st.jacrev, st.hessian])
def test_aux_comes_along(jacobian: Any) -> None:
    def f(x):
        return smooth(x), {"double": x * 2.0, "name": "aux"}

    found, aux = agrees(lambda x: jacobian(f, has_aux=True)(x), X)
    close(found, smooth_hessian(X) if jacobian is st.hessian else np.asarray(st.grad(smooth)(X)))
    close(aux["double"], X * 2.0)
    assert aux["name"] == "aux"


def test_hessian_by_four_ways() -> None:
    expected = smooth_hessian(X)
    ways = [
        st.hessian(smooth),
        st.jacrev(st.jacrev(smooth)),
        st.jacfwd(st.jacfwd(smooth)),
        st.jacrev(st.jacfwd(smooth)),
    ]
    for way in ways:
        close(agrees(lambda x, way=way: way(x), X), expected)


def test_hessian_vector_product_forward_over_reverse() -> None:
    def product(f):
        return lambda x, v: st.jvp(st.grad(f), (x,), (v,))[1]

    close(agrees(product(smooth), X, V), smooth_hessian(X) @ V)
    found = agrees(product(looped), X, V)
    step = 1e-6
    slopes = [np.asarray(st.grad(looped)(X + sign * step * V)) for sign in (1, -1)]
    close(found, (slopes[0] - slopes[1]) / (2.0 * step), rtol=1e-5)


def test_hessian_through_control_flow() -> None:
    found = agrees(lambda x: st.hessian(looped)(x), X)
    close(found, np.asarray(found).T)
    agrees(lambda x: st.jacrev(st.jacfwd(looped))(x), X)


def test_code_does_not_grow_with_the_number_of_inputs() -> None:
    counts = {
        size: [
            len(ops_of(lambda x, t=t: t(lambda x: st.sin(x) * x.sum())(x), np.ones(size)))
            for t in (st.jacfwd, st.jacrev)
        ]
        for size in (3, 300)
    }
    assert counts[3] == counts[300]


# ---- vjp and jvp ----------------------------------------------------------------------------------


def test_pullback_is_called_several_times_and_in_staged_control_flow() -> None:
    def f(x, n):
        (_, total), pull = st.vjp(lambda x: (st.sin(x), x.sum()), x)
        t = x * 0.0
        for _ in st.range(n):
            t = t + pull((t + 1.0, None))[0]
        if x[0] > 0.0:
            t = t * pull((None, 2.0))[0]
        return t, total

    t = X * 0.0
    for _ in range(3):
        t = t + np.cos(X) * (t + 1.0)
    found, _ = agrees(f, X, 3)
    close(found, t * 2.0 if X[0] > 0 else t)


def test_vjp_and_jvp_of_trees_are_transposes() -> None:
    def f(p, s):
        return {"a": st.sin(p["w"] @ p["x"]), "b": [s * p["x"], st.argmax(p["x"])]}

    def program(p, s, dp, ds, ct):
        out, d_out = st.jvp(f, (p, s), (dp, ds))
        _, pull = st.vjp(f, p, s)
        return out, d_out, pull({"a": ct["a"], "b": [ct["b"], None]})

    p, dp = {"w": W, "x": X}, {"w": W * 0.3, "x": V}
    ct = {"a": np.array([0.2, -1.0]), "b": V * 2.0}
    out, d_out, (back_p, back_s) = agrees(program, p, 1.5, dp, 0.7, ct)
    assert d_out["b"][1] is None and out["b"][1] == np.argmax(X)
    forward = (ct["a"] * d_out["a"]).sum() + (ct["b"] * d_out["b"][0]).sum()
    reverse = (back_p["w"] * dp["w"]).sum() + (back_p["x"] * dp["x"]).sum() + back_s * 0.7
    close(float(forward), float(reverse))


def test_effects_happen_once() -> None:
    w = st.Variable(np.float64(2.0) * np.ones(3), name="w")
    count = st.Variable(np.zeros((), np.int64), name="count")

    def f(x):
        count.value = count + 1
        print(f"sum {st.sum(x):.2f}")
        return st.sum(w * x * x)

    def program(x):
        out, pull = st.vjp(f, x)
        first, second = pull(1.0)[0], pull(2.0)[0]
        (
            value,
            tangent,
        ) = st.jvp(f, (x,), (x,))
        return out, first, second, value, tangent, st.checkpoint(f)(x), st.grad(st.checkpoint(f))(x)

    with captured_prints() as captured:
        out, first, second, value, tangent, kept, gradient = st.function(program)(X)
    assert captured.lines == [f"sum {X.sum():.2f}"] * 4
    assert int(count) == 4
    close(first, 4.0 * X)
    close(second, 8.0 * X)
    close(gradient, 4.0 * X)
    close(tangent, 4.0 * (X * X).sum())
    assert out == value == kept
    assert_backends_agree(program, X, variables=[count])


def test_tangents_of_numbers_and_none_for_zero() -> None:
    out, tangent = agrees(lambda x, s: st.jvp(lambda x, s: x * s, (x, s), (None, 2.0)), X, 3.0)
    close(out, X * 3.0)
    close(tangent, X * 2.0)
    _, zero = agrees(lambda x: st.jvp(lambda x: st.ones((2,)), (x,), (x,)), X)
    close(zero, np.zeros(2))


# ---- custom_vjp, checkpoint, stop_gradient --------------------------------------------------------


@st.custom_vjp
def clipped(x, limit):
    """x, with its gradient clipped."""
    return st.sum(x * x * limit)


clipped.defvjp(
    lambda x, limit: (st.sum(x * x * limit), (x, limit)),
    lambda kept, ct: (st.clip(2.0 * kept[0] * ct, -kept[1], kept[1]), None),
)


def test_custom_vjp() -> None:
    def program(x, limit):
        first = st.grad(clipped)(x, limit)
        second = st.grad(lambda x: st.sum(st.grad(clipped)(x, limit) * x))(x)
        both = st.grad(clipped, argnums=(0, 1))(x, limit)
        return clipped(x, limit), first, second, both

    value, first, second, (_, d_limit) = agrees(program, X, 0.8)
    close(value, (X * X * 0.8).sum())
    close(first, np.clip(2.0 * X, -0.8, 0.8))
    inside = np.abs(2.0 * X) < 0.8
    close(second, np.where(inside, 4.0 * X, np.clip(2.0 * X, -0.8, 0.8)))
    assert d_limit == 0.0


def test_custom_vjp_mapped_and_in_a_loop() -> None:
    rows = RNG.normal(size=(4, 3))

    def program(rows, limit, n):
        def loop(x):
            t = 0.0
            for _ in st.range(n):
                t = t + clipped(x * (t + 1.0), limit)
            return t

        mapped = st.vmap(clipped, in_axes=(0, None))
        return (
            mapped(rows, limit),
            st.grad(lambda rows: mapped(rows, limit).sum())(rows),
            st.vmap(st.grad(clipped), in_axes=(0, None))(rows, limit),
            st.grad(lambda limit: mapped(rows, limit).sum())(limit),
            st.grad(loop)(rows[0]),
        )

    _, of_mapped, mapped_gradient, d_limit, _ = agrees(program, rows, 0.8, 2)
    close(of_mapped, mapped_gradient)
    assert d_limit == 0.0


def test_custom_vjp_with_static_arguments_trees_and_what_it_closes_over() -> None:
    scale = np.array([1.0, 2.0, 3.0])

    @st.custom_vjp
    def f(p, x):
        return {"y": p["w"] * x * scale, "i": st.argmax(x)}

    def forward(p, x):
        return f(p, x), (p, x, "label")

    def backward(kept, ct):
        p, x, label = kept
        assert label == "label" and ct["i"] is None
        return {"w": ct["y"] * x * scale * 10.0}, ct["y"] * p["w"] * scale

    f.defvjp(forward, backward)

    def loss(p, x):
        return st.sum(f(p, x)["y"])

    d_p, d_x = agrees(lambda p, x: st.grad(loss, argnums=(0, 1))(p, x), {"w": V}, X)
    close(d_p["w"], X * scale * 10.0)
    close(d_x, V * scale)

    # By keyword, too.
    close(agrees(lambda x: st.grad(lambda x: clipped(limit=0.8, x=x))(x), X), np.clip(2.0 * X, -0.8, 0.8))

    powers = st.custom_vjp(lambda n, x: x**n, nondiff_argnums=(0,))
    powers.defvjp(lambda n, x: (x**n, x), lambda n, x, ct: (ct * n * x ** (n - 1) * 100.0,))
    close(agrees(lambda x: st.grad(lambda x: powers(3, x).sum())(x), X), 300.0 * X * X)


def test_a_method_may_have_a_custom_vjp() -> None:
    class Layer:
        def __init__(self, scale):
            self.scale = scale

        @st.custom_vjp
        def __call__(self, x):
            return st.sum(x * self.scale)

        __call__.defvjp(
            lambda self, x: (st.sum(x * self.scale), None), lambda self_, ct: (None, ct * st.ones((3,), st.f64) * 7.0)
        )

    layer = Layer(2.0)
    close(agrees(lambda x: st.grad(lambda x: layer(x))(x), X), np.full(3, 7.0))


def test_checkpoint_has_the_derivatives_of_the_function() -> None:
    def program(x):
        kept = st.checkpoint(looped)
        return kept(x), st.grad(kept)(x), st.jvp(kept, (x,), (x,)), st.grad(lambda x: st.sum(st.grad(kept)(x)))(x)

    value, gradient, (_, tangent), second = agrees(program, X)
    close(value, np.asarray(looped(X)))
    close(gradient, np.asarray(st.grad(looped)(X)))
    close(tangent, (np.asarray(gradient) * X).sum())
    close(second, np.asarray(st.hessian(looped)(X)).sum(0))


def test_stop_gradient_in_both_modes() -> None:
    def f(x):
        return st.sum(st.stop_gradient(x) * x)

    gradient, (_, tangent) = agrees(lambda x: (st.grad(f)(x), st.jvp(f, (x,), (V,))), X)
    close(gradient, X)
    close(tangent, (X * V).sum())


# ---- vmap -----------------------------------------------------------------------------------------


def test_vmap_axes_and_trees() -> None:
    def f(p, s, mode, scale=1.0):
        assert mode == "sum"
        return {"a": p["w"] * s * scale, "b": (p["x"].sum(), s)}

    def program(w, x, s):
        first = st.vmap(f, in_axes=({"w": 1, "x": None}, None, None))({"w": w, "x": x}, s, "sum")
        axes = {"a": 1, "b": (None, None)}
        second = st.vmap(f, in_axes=({"w": -1, "x": None}, None, None), out_axes=axes)({"w": w, "x": x}, s, "sum")
        return first, second, st.vmap(f, in_axes=(0, None, None))({"w": w, "x": w}, s, "sum", scale=w[:, 0])

    first, second, _ = agrees(program, W, X, 2.0)
    close(first["a"], W.T * 2.0)
    close(second["a"], W * 2.0)
    assert np.shape(first["b"][0]) == (3,) and np.shape(second["b"][0]) == ()


def test_vmap_of_grad_gives_a_gradient_for_each_example() -> None:
    xs = RNG.normal(size=(5, 3))
    found = agrees(lambda xs: st.vmap(st.grad(smooth))(xs), xs)
    close(found, np.stack([np.asarray(st.grad(smooth)(x)) for x in xs]))
    whole = agrees(lambda xs: st.grad(lambda xs: st.vmap(smooth)(xs).sum())(xs), xs)
    close(found, whole)
    hessians = agrees(lambda xs: st.vmap(st.hessian(smooth))(xs), xs)
    close(hessians, np.stack([smooth_hessian(x) for x in xs]))
