"""Functions and their gradients against PyTorch's: eagerly and compiled, in f64 and in f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staged as st
from staged.eager_mode.context import EagerContext, wrap
from staged.ops.context import use_context
from tests.torch_reference import reference


def gradient(f, *primals):
    """f's value, and the gradients of sum(f * weights) by the primals, by the tape."""
    context = EagerContext()
    with use_context(context):
        (value,), pullback = context.vjp(lambda *xs: [f(*xs)], primals)
        weights = np.cos(np.arange(value.size)).reshape(value.shape).astype(value.dtype.numpy)
        back = pullback([wrap(weights)])
    return np.asarray(value), [np.asarray(one) for one in back]


def torch_gradient(f, *primals):
    """As `gradient`, by PyTorch: `f` takes `torch.nn.functional` and tensors."""

    def compute(torch, *primals):
        inputs = [torch.tensor(primal, requires_grad=True) for primal in primals]
        value = f(torch.nn.functional, *inputs)
        weights = np.cos(np.arange(value.numel())).reshape(tuple(value.shape))
        cotangent = torch.tensor(weights, dtype=value.dtype)
        return value, list(torch.autograd.grad(value, inputs, cotangent, allow_unused=True, materialize_grads=True))

    return reference(compute, *primals)


def agree(ours, theirs, *primals) -> None:
    value, back = gradient(ours, *primals)
    expected, expected_back = torch_gradient(theirs, *primals)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-13)
    for mine, other in zip(back, expected_back, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


def compiled_gradient(f: Callable[..., Any], *primals: Any) -> list[tuple[np.ndarray, list[np.ndarray]]]:
    """As `gradient`, by a compiled program: in f64, then in f32."""

    @st.function
    def run(precisions: Any) -> Any:
        found = []
        for xs, weights in precisions:

            def loss(*xs: Any, weights: Any = weights) -> Any:
                value = f(*xs)
                return st.sum(value * weights), value

            (_, value), back = st.value_and_grad(loss, argnums=tuple(range(len(xs))), has_aux=True)(*xs)
            found.append((value, back))
        return found

    shape = f(*map(wrap, primals)).shape
    weights = np.cos(np.arange(int(np.prod(shape)))).reshape(shape)
    given = []
    for dtype in (np.float64, np.float32):
        given.append((tuple(np.asarray(primal, dtype) for primal in primals), weights.astype(dtype)))
    return [(np.asarray(value), [np.asarray(one) for one in back]) for value, back in run(given)]


def agree_compiled(ours: Callable[..., Any], theirs: Callable[..., Any], *primals: Any, f32: float = 2e-4) -> None:
    """Value and gradients agree with torch's: eagerly and compiled in f64, compiled in f32 to `f32` of the largest."""
    agree(ours, theirs, *primals)
    expected, expected_back = torch_gradient(theirs, *primals)
    double, single = compiled_gradient(ours, *primals)
    np.testing.assert_allclose(double[0], expected, rtol=1e-10, atol=1e-12)
    for mine, other in zip(double[1], expected_back, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10)
    for mine, other in zip([single[0], *single[1]], [expected, *expected_back], strict=True):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, other, rtol=f32, atol=f32 * max(1.0, float(np.abs(other).max())))
