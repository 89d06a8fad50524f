"""The five programs that compute-sanitizer looks at: between them they have all kinds of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from examples.mnist import train as digits
from staged import GPU, with_backend


@st.function
def packs(x: Any, y: Any) -> Any:
    """A fused elementwise kernel that reads and writes 16 bytes at a time."""
    with with_backend(GPU, x, y):
        z = st.exp(x) * 2.0 + st.tanh(y) * st.sqrt(st.abs(x))
    return z


@st.function
def reductions(x: Any) -> Any:
    """Sums by warps, by blocks and of columns, with an operand of a team in shared memory."""
    with with_backend(GPU, x):
        rows, columns, total = st.softmax(x, axis=1), st.sum(x, axis=0), st.sum(x * x)
        y = (rows - st.mean(rows, axis=1, keepdims=True)) / st.sqrt(st.var(rows, axis=1, keepdims=True) + 1e-5)
    return y, columns, total, st.argmax(y, axis=1)


@st.function
def scatter(table: Any, index: Any, weights: Any) -> Any:
    """The gradient of an embedding: each warp searches the indices of its row."""
    with with_backend(GPU, table, index, weights):
        d_table = st.grad(lambda rows: st.sum(st.sin(rows[index]) * weights))(table)
    return table - 0.1 * d_table


@st.function
def attend(q: Any, k: Any, v: Any) -> Any:
    """Causal attention and its three gradients, by the program's own kernels."""
    with with_backend(GPU, q, k, v):
        y = st.scaled_dot_product_attention(q, k, v, is_causal=True)
        d = st.grad(
            lambda *parts: st.sum(st.cos(st.scaled_dot_product_attention(*parts, is_causal=True))), argnums=(0, 1, 2)
        )(q, k, v)
    return y, d[0], d[1], d[2]


@st.function
def mnist(images: Any, labels: Any, test_images: Any, test_labels: Any, epochs: Any, lr: Any, seed: Any) -> Any:
    """The convolutional network with dropout and shuffled batches, an epoch of two steps, and its accuracy."""
    with with_backend(GPU, images, labels, test_images, test_labels):
        return digits.train(images, labels, test_images, test_labels, epochs, lr, seed, batch=20)


def _normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _digits() -> dict[str, Any]:
    labels = np.random.default_rng(1).integers(0, 10, 40)
    data = {f"{name}{kind}": value for name in ("", "test_") for kind, value in (
        ("images", _normal(2, 40, 1, 28, 28)), ("labels", labels))}  # fmt: skip
    return data | {"epochs": 1, "lr": 0.05, "seed": 0}


EXAMPLES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (mnist, _digits()),
    (attend, {name: _normal(3, 2, 4, 40, 32) for name in ("q", "k", "v")}),
    (packs, {"x": _normal(4, 130, 260), "y": _normal(5, 130, 260)}),
    (reductions, {"x": _normal(6, 130, 260)}),
    (scatter, {"table": _normal(7, 64, 128), "index": np.arange(200) * 7 % 64, "weights": _normal(8, 200, 128)}),
)
"""The one that takes longest comes first."""
