"""Staged functions with GPU regions, for the tests of the back end and of the runtime."""

from __future__ import annotations

from typing import Any

import staged as st
from staged import GPU, with_backend


@st.function
def double(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0 + 1.0
    return y


@st.function
def maths(x: Any) -> Any:
    with with_backend(GPU, x):
        y = st.exp(x) + st.tanh(x) * st.sqrt(st.abs(x)) + st.erf(x) + st.sin(x) - st.log1p(st.abs(x)) + st.cos(x) ** 2
        z = (
            st.where(x > 0.0, x, -x)
            + st.floor(x)
            + st.sign(x)
            + st.round(x)
            + st.maximum(x, 0.25)
            + st.remainder(x, 0.7)
        )
    return y, z


@st.function
def casts(x: Any) -> Any:
    with with_backend(GPU, x):
        whole, wide, positive = st.astype(x * 3.0, st.i32), st.astype(x, st.f64), st.astype(x, bool)
    return whole, wide, positive


@st.function
def integers(k: Any) -> Any:
    with with_backend(GPU, k):
        y = k * 3 + 1 - (k & 7) ^ (k << 2)
        z = st.maximum(k, 5) - st.abs(k)
    return y, z


@st.function
def bias(x: Any, b: Any) -> Any:
    with with_backend(GPU, x, b):
        y = st.maximum(x + b, 0.0) * 2.0
    return y


@st.function
def softmax(x: Any) -> Any:
    with with_backend(GPU, x):
        y = st.softmax(x, axis=1)
    return y


@st.function
def sums(x: Any) -> Any:
    with with_backend(GPU, x):
        columns, rows, all_of_it = st.sum(x, axis=0), st.sum(x, axis=1), st.sum(x)
    return columns, rows, all_of_it


@st.function
def layer_norm(x: Any) -> Any:
    with with_backend(GPU, x):
        centred = x - st.mean(x, axis=1, keepdims=True)
        y = centred / st.sqrt(st.var(x, axis=1, keepdims=True) + 1e-5)
    return y


@st.function
def positions(x: Any) -> Any:
    with with_backend(GPU, x):
        rows, first = st.argmax(x, axis=1), st.argmin(x[0])
    return rows, first


@st.function
def moves(x: Any) -> Any:
    with with_backend(GPU, x):
        turned = x.T * 2.0
        wide = st.concat([x, x * 2.0], axis=1)
        framed = st.pad(x, ((1, 1), (0, 2)))
        piece = x[1:3] + 1.0
    return turned, wide, framed, piece


@st.function
def through_the_host(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
        with with_backend(st.CPU):
            h = y + st.sum(y, axis=1, keepdims=True)
        z = h * y
    return z + 1.0


@st.function
def halve(x: Any) -> Any:
    with with_backend(GPU, x):
        while st.sum(x) > 1.0:
            x = x * 0.5
    return x


@st.function
def swap(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        a, b = x + 1.0, x * 2.0
        for _ in st.range(n):
            a, b = b, a
    return a, b


@st.function
def accumulate(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        total = st.Variable(st.zeros((37, 19)))
        for _ in st.range(n):
            total.value = total.value + x
    return total.value


@st.function
def gradient(x: Any, b: Any) -> Any:
    with with_backend(GPU, x, b):
        d_b = st.grad(lambda b: st.sum(st.tanh(x * b) ** 2))(b)
    return d_b


@st.function
def train(x: Any, rate: Any, n: Any) -> Any:
    w = st.zeros((19,))
    with with_backend(GPU, x):
        for step in st.range(n):
            loss, d_w = st.value_and_grad(lambda w: st.mean((x * w - 1.0) ** 2))(w)
            w = w - rate * d_w
            print(f"step {step}: loss {loss:.4f}")
    return w


@st.function
def until(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        for step in st.range(n):
            x = x * 1.5
            if st.max(x) > 10.0:
                break
            if step > 5:
                return x + 1.0
    return x


@st.function
def gradient_without_a_bound(x: Any) -> Any:
    def loss(x: Any) -> Any:
        while st.sum(x * x) > 1.0:
            x = st.sin(x) * 0.9
        return st.sum(x)

    with with_backend(GPU, x):
        value, d_x = st.value_and_grad(loss)(x)
    return value, d_x


@st.function
def gradient_of_nested_loops(x: Any, n: Any) -> Any:
    def loss(x: Any) -> Any:
        total, i, factor = 0.0, 0, 1.0
        while i < n:
            y = x
            while st.sum(y * y) > 1.0:
                y = st.sin(y) * 0.9 * x
            if i % 2 == 0:
                x = st.cos(x * factor)
            factor = factor * 1.25
            total = total + st.sum(y * x) * 0.5
            i += 1
        return st.sum(x) + total

    with with_backend(GPU, x):
        d_x = st.grad(loss)(x)
    return d_x


@st.function
def gradient_of_a_loop(x: Any) -> Any:
    def loss(x: Any) -> Any:
        total = 0.0
        for _ in st.range(4):
            x = st.tanh(x * 1.25)
            total += st.sum(x)
        return total

    with with_backend(GPU, x):
        value, d_x = st.value_and_grad(loss)(x)
    return value, d_x


@st.function
def network(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    def loss(w: Any, b: Any, v: Any, c: Any) -> Any:
        h = st.relu(st.conv2d(x, w, b, padding=1))
        y = st.reshape(h, (x.shape[0], v.shape[0])) @ v + c
        return st.mean(y * y) + y[0] @ c

    with with_backend(GPU, x, w, b, v, c):
        value, grads = st.value_and_grad(loss, argnums=(0, 1, 2, 3))(w, b, v, c)
    return value, grads


@st.function
def attention(x: Any) -> Any:
    """Causal attention of an array with itself, and its gradients."""
    with with_backend(GPU, x):
        y = st.scaled_dot_product_attention(x, x, x, is_causal=True)
        d_x = st.grad(
            lambda *parts: st.sum(st.cos(st.scaled_dot_product_attention(*parts, is_causal=True))), argnums=(0, 1, 2)
        )(x, x, x)
    return y + d_x[0] + d_x[1] + d_x[2]
