"""The host's work in a program with a region: the kernels of the CPU's programs, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import CPU, GPU, with_backend
from staged.frontend.values import trees

pytestmark = pytest.mark.usefixtures("emulated_device")

RNG = np.random.default_rng(11)
A, B = RNG.normal(size=(33, 65)), RNG.normal(size=(65, 40))
X, K = RNG.normal(size=(2, 3, 13, 10)), RNG.normal(size=(4, 3, 3, 2))


def products(a: Any, b: Any, device: Any) -> Any:
    hidden = st.relu(a @ b + 1.0)
    with with_backend(device):
        scaled = hidden * 2.0
    return hidden, scaled @ b.T, a[0] @ b, a.T @ hidden, st.reshape(a, (3, 11, 65)) @ b


def products_with_epilogues(a: Any, b: Any, device: Any) -> Any:
    def loss(b: Any) -> Any:
        with with_backend(device):
            offset = st.exp(a[:, :40] * 0.1)
        return st.mean(st.tanh(a @ b * 0.5 - offset) ** 2)

    return st.value_and_grad(loss)(b)


def products_of_integers(a: Any, b: Any, device: Any) -> Any:
    counts = st.astype(a * 4.0, st.i32) @ st.astype(b * 4.0, st.i32)
    with with_backend(device):
        most = st.max(counts, axis=0)
    return counts, most


def convolutions(x: Any, k: Any, device: Any) -> Any:
    def loss(x: Any, k: Any) -> Any:
        with with_backend(device):
            bent = st.sin(x)
        y = st.conv2d(x * 0.5 + bent, k, stride=(2, 1), padding=(1, 0))
        return st.mean(st.relu(y + 0.25) ** 2)

    return st.value_and_grad(loss, argnums=(0, 1))(x, k)


def products_in_a_loop(a: Any, b: Any, device: Any) -> Any:
    total = st.zeros((65,), dtype=a.dtype)
    for i in st.range(3):
        with with_backend(device):
            rows = a * (1.0 + i)
        total = total + st.sum(rows @ b @ b.T, axis=0)
    return total


def rows_and_totals(a: Any, b: Any, device: Any) -> Any:
    """Loops over vectors, with workspace of their own."""
    with with_backend(device):
        there = a + 1.0
    shares = st.softmax(there, axis=1)
    return st.sum(shares * a), st.layer_norm(there, (65,)), st.logsumexp(b, axis=0), st.argmax(b, axis=1)


TABLE: list[tuple[Any, Any, Any]] = [
    (products, A, B),
    (products_with_epilogues, A, B),
    (products_of_integers, A, B),
    (convolutions, X, K),
    (products_in_a_loop, A, B),
    (rows_and_totals, A, B),
]


@pytest.mark.parametrize(("function", "a", "b"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_the_host_of_a_program_with_a_region_computes_as_the_cpu_does(function: Any, a: Any, b: Any) -> None:
    staged = st.function(function, static=("device",))
    tolerance = 2e-6  # what the device rounds in another way
    a, b = a.astype(np.float32), b.astype(np.float32)
    found, wanted = (trees.flatten(staged(a, b, device=device))[0] for device in (GPU, CPU))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_results_of_the_host_alone_are_equal_to_the_last_bit() -> None:
    def host_first(a: Any, b: Any, x: Any, k: Any, device: Any) -> Any:
        hidden = st.relu(a @ b + 1.0)
        pooled = st.sum(st.conv2d(x, k, padding=(1, 1)), axis=(0, 2, 3))
        shares = st.softmax(hidden, axis=1)
        with with_backend(device):
            doubled = shares * 2.0
        return hidden, pooled, shares, doubled, a[:, 0] @ a

    staged = st.function(host_first, static=("device",))
    arrays = [array.astype(np.float32) for array in (A, B, X, K)]
    for one, other in zip(*(staged(*arrays, device=device) for device in (GPU, CPU)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_product_of_the_host_reads_what_the_device_has_made(emulated_device: Any) -> None:
    emulated_device.configure("lazy shuffled seed=3")
    staged = st.function(products, static=("device",))
    found, wanted = (staged(A, B, device=device) for device in (GPU, CPU))
    emulated_device.configure()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14)
