"""Second derivatives through loops in regions: histories of histories, whose elements are the device's."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend

pytestmark = pytest.mark.usefixtures("device")
X = np.linspace(-1.0, 1.0, 12).reshape(3, 4) + 0.3
W = np.linspace(0.0, 1.0, 16).reshape(4, 4)


def squared_gradient(loss: Any, x: Any) -> Any:
    """The gradient of the sum of a gradient's squares."""
    return st.grad(lambda x: st.sum(st.grad(loss)(x) ** 2))(x)


def while_loop(x: Any, w: Any, n: Any) -> Any:
    def loss(x: Any) -> Any:
        while st.sum(x * x) > 1.0:
            x = st.sin(x)
        return st.sum(x)

    with with_backend(GPU, x):
        return squared_gradient(loss, x)


def loop_with_products(x: Any, w: Any, n: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x
        for i in st.range(n):
            h = st.tanh(h @ w + i * 0.1)
        return st.sum(h * h)

    with with_backend(GPU, x):
        return squared_gradient(loss, w)


def loop_in_a_loop(x: Any, w: Any, n: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x
        for i in st.range(n):
            for _ in st.range(i + 1):
                h = st.tanh(h @ w)
            h = h * st.sum(h)
        return st.sum(h * h)

    with with_backend(GPU, x):
        return squared_gradient(loss, w)


def loop_with_a_bound_and_branches(x: Any, w: Any, n: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x
        for _ in st.range(4):
            h = st.tanh(h @ w)
            if st.sum(h) > 0.0:
                h = h * h
        return st.sum(h * h)

    with with_backend(GPU, x):
        return squared_gradient(loss, w)


def loop_over_a_number(x: Any, w: Any, n: Any) -> Any:
    """The device keeps numbers as arrays of one element, in histories too."""

    def loss(s: Any) -> Any:
        for _ in st.range(n):
            s = st.sin(s) * s + st.sum(x)
        return s

    with with_backend(GPU, x):
        return st.grad(lambda s: st.grad(loss)(s) ** 2)(st.sum(x * x))


def region_inside_the_loop(x: Any, w: Any, n: Any) -> Any:
    """Histories of the host beside those of the device."""

    def loss(w: Any) -> Any:
        h = x
        for _ in st.range(n):
            g = st.cos(h)
            with with_backend(GPU, g):
                g = st.tanh(g @ w)
            h = st.sin(g) + h
        return st.sum(h * h)

    return squared_gradient(loss, w)


CASES = [
    while_loop,
    loop_with_products,
    loop_in_a_loop,
    loop_with_a_bound_and_branches,
    loop_over_a_number,
    region_inside_the_loop,
]


@pytest.mark.parametrize("function", CASES)
def test_histories_of_histories_are_kept_on_the_device(function: Any, device: Emulator) -> None:
    gc.collect()
    before = device.live_objects()
    staged = st.function(function)
    with st.eager():
        wanted = staged(X, W, 3)
    program = staged.stage(X, W, 3)
    assert "st_device_sequence_" in program.source
    for words, most in (("", None), ("lazy shuffled seed=2", 0)):
        device.configure(words)
        count = device.counts()
        np.testing.assert_allclose(program(X, W, 3), wanted, rtol=1e-11, atol=1e-12)
        allocations = (device.counts() - count).allocations
        assert most is None or allocations == most  # the stores have their chunks by now
    device.configure()
    del program, staged
    gc.collect()
    assert device.live_objects() == before


def test_what_was_decided_is_not_asked_for_again(device: Emulator) -> None:
    @st.function
    def first(w: Any, n: Any) -> Any:
        def loss(w: Any) -> Any:
            h = w
            for _ in st.range(n):
                h = st.tanh(h * 1.5)
                if st.sum(h) > 0.0:
                    h = h * h
                h = h + h[st.argmax(h[:, 0])]
                h = h * st.where(st.sum(h) > 1.0, 0.5, 2.0)  # no decision: it stays there
            return st.sum(h * h)

        with with_backend(GPU, w):
            return st.grad(loss)(w)

    with st.eager():
        wanted = first(W, 3)
    before = device.counts()
    np.testing.assert_allclose(first(W, 3), wanted, rtol=1e-11)
    assert (device.counts() - before).copies_to_host == 2 * 3 + 1  # which branch, which row; the result
