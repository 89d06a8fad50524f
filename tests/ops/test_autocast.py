"""`st.autocast`: products in low precision, reductions in f32; weights and their gradients stay f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from tests.torch_reference import reference

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 8)).astype(np.float32)
W = RNG.normal(size=(8, 5)).astype(np.float32)
IMAGES = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
KERNEL = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "matmul": (lambda: st.asarray(X) @ W, lambda t, a: a(X) @ a(W)),
    "einsum": (lambda: st.einsum("ij,jk->ki", X, W), lambda t, a: t.einsum("ij,jk->ki", a(X), a(W))),
    "conv2d": (lambda: st.conv2d(IMAGES, KERNEL), lambda t, a: t.nn.functional.conv2d(a(IMAGES), a(KERNEL))),
    "attention": (
        lambda: st.scaled_dot_product_attention(X[None], X[None], X[None]),
        lambda t, a: t.nn.functional.scaled_dot_product_attention(a(X)[None], a(X)[None], a(X)[None]),
    ),
    "relu of a product": (lambda: st.relu(st.matmul(X, W)), lambda t, a: t.relu(a(X) @ a(W))),
    "product and number": (lambda: st.matmul(X, W) * 0.3, lambda t, a: (a(X) @ a(W)) * 0.3),
    "product and f32": (lambda: st.matmul(X, W) + X[:, :5], lambda t, a: (a(X) @ a(W)) + a(X)[:, :5]),
    "elementwise": (lambda: st.asarray(X) * X + 1, lambda t, a: a(X) * a(X) + 1),
    "softmax": (lambda: st.softmax(st.matmul(X, W)), lambda t, a: t.softmax(a(X) @ a(W), -1)),
    "layer_norm": (
        lambda: st.layer_norm(st.matmul(X, W), (5,)), lambda t, a: t.nn.functional.layer_norm(a(X) @ a(W), (5,))
    ),
    "mse_loss": (
        lambda: st.mse_loss(st.matmul(X, W), X[:, :5]),
        lambda t, a: t.nn.functional.mse_loss(a(X) @ a(W), a(X)[:, :5]),
    ),
    "cross_entropy": (
        lambda: st.cross_entropy(st.matmul(X, W), np.arange(6) % 5),
        lambda t, a: t.nn.functional.cross_entropy(a(X) @ a(W), t.arange(6) % 5),
    ),
    "f64": (lambda: st.softmax(st.asarray(X.astype(np.float64))), lambda t, a: t.softmax(a(X).double(), -1)),
}  # fmt: skip

F32_ON_CUDA = ("softmax", "layer_norm")
"""These take f32 in torch's list for CUDA, which is ours, and not in that for CPUs."""


@pytest.mark.parametrize("name", CASES)
def test_dtypes_and_values_are_those_of_torch(name: str) -> None:
    def compute(torch: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = CASES[name][1](torch, torch.tensor)
        return str(found.dtype), found.float()

    dtype, expected = reference(compute)
    f = st.function(CASES[name][0])
    for mode in (st.autocast(st.bf16), st.autocast("cpu", dtype="bfloat16")):
        with mode:
            compiled = f()
            with st.eager():
                eager = np.asarray(f())
        for found in (compiled, eager):
            assert f"torch.{found.dtype}" == ("torch.float32" if name in F32_ON_CUDA else dtype)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(found.astype(np.float32), expected, rtol=2**-7, atol=2**-8 * scale)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "logsumexp", "cumsum", "norm"])
def test_reductions_of_low_precision_are_f32(name: str) -> None:
    f = getattr(st, name)
    with st.autocast(st.f16):
        y = st.matmul(X, W)
        assert y.dtype == st.f16
        assert f(y, axis=1).dtype == st.f32
        assert st.max(y).dtype == st.f16
    assert f(y, axis=1).dtype == st.f16


def test_weights_and_gradients_stay_f32() -> None:
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 2))

    @st.function
    def step(x: Any, low: bool) -> Any:
        def loss() -> Any:
            with st.autocast(dtype=st.bf16, enabled=low):
                y = model(x)
                return st.mean(y * y), y

        (value, y), grads = st.value_and_grad(loss, wrt=model, has_aux=True)()
        return value, y, grads

    value, y, grads = step(X, True)
    exact, wide, expected = step(X, False)
    assert [y.dtype, wide.dtype, value.dtype] == [st.bf16, st.f32, st.f32]
    assert {weight.dtype for weight in model.parameters()} == {st.f32}
    assert value == pytest.approx(exact, rel=2e-2)
    assert not np.array_equal(value, exact)
    for name, grad in grads.items():
        assert grad.dtype == np.float32
        np.testing.assert_allclose(grad, expected[name], rtol=0.1, atol=3e-2 * np.abs(expected[name]).max())


def test_a_program_is_of_its_autocast() -> None:
    f = st.function(lambda: st.matmul(X, W))
    found = []
    for low in (None, st.bf16, st.f16, None, st.bf16):
        with st.autocast(dtype=low, enabled=low is not None):
            found.append(st.dtype_of(f().dtype))
    assert found == [st.f32, st.bf16, st.f16, st.f32, st.bf16]
    assert len(f.programs) == 3


def test_it_decorates_nests_and_ends_at_an_error() -> None:
    @st.function
    @st.autocast(st.bf16)
    def low(x: Any) -> Any:
        with st.autocast(enabled=False):
            wide = x @ x.T
        return x @ x.T, wide

    assert [y.dtype for y in map(st.asarray, low(X))] == [st.bf16, st.f32]
    with pytest.raises(ZeroDivisionError), st.autocast(st.f16):
        1 / 0  # noqa: B018
    assert st.matmul(X, W).dtype == st.f32


def test_recursive_functions_are_traced_for_each() -> None:
    @st.function
    def power(x: Any, n: Any) -> Any:
        if n <= 0:
            return x
        return st.astype(power(x @ x * 0.1, n - 1), st.f32)

    @st.function
    def both(x: Any) -> Any:
        wide = power(x, 2)
        with st.autocast(st.bf16):
            return wide, power(x, 2)

    wide, low = both(X[:, :6])
    assert not np.array_equal(wide, low)
    np.testing.assert_allclose(low, wide, atol=3e-2 * np.abs(wide).max())


def test_another_dtype_is_refused() -> None:
    for dtype in (st.f32, "i8", "text"):
        with pytest.raises(st.DTypeError, match="f16 or bf16"):
            st.autocast(dtype)


def test_recurrent_layers_and_attention_take_f32_weights() -> None:
    for layer, x in (
        (nn.LSTM(8, 4), X[:, None]),
        (nn.GRU(8, 4), X[:, None]),
        (nn.MultiheadAttention(8, 2), X[:, None]),
        (nn.Conv1d(3, 2, 3), IMAGES[:, :, 0]),
        (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), X[:, None]),
    ):
        call = (lambda x, layer=layer: layer(x, x, x)[0]) if isinstance(layer, nn.MultiheadAttention) else (
            lambda x, layer=layer: layer(x))  # fmt: skip
        f = st.function(lambda x, call=call: (lambda y: y[0] if isinstance(y, tuple) else y)(call(x)))
        exact = f(x)
        with st.autocast(st.bf16):
            low = f(x)
        assert exact.dtype == np.float32
        assert not np.array_equal(low, exact)
        np.testing.assert_allclose(low.astype(np.float32), exact, atol=5e-2 * np.abs(exact).max())


def test_training_goes_as_in_f32() -> None:
    def train(low: Any) -> list[float]:
        st.seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
        opt = optim.Adam(model.parameters(), lr=0.02)

        @st.function
        def step(x: Any, y: Any) -> Any:
            def loss() -> Any:
                with st.autocast(dtype=low, enabled=low is not None):
                    return st.mse_loss(model(x), y)

            value, grads = st.value_and_grad(loss, wrt=model)()
            opt.step(grads)
            return value

        return [float(step(X, X @ W)) for _ in range(50)]

    exact = train(None)
    for low in (st.bf16, st.f16):
        np.testing.assert_allclose(train(low), exact, rtol=2e-2)
