"""Guarded calls in a region: Variables and arrays of the device pass as addresses; the host waits for results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged import nn, optim

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def training() -> tuple[Any, Any]:
    st.seed(3)
    model = nn.Linear(4, 1)
    optimizer = optim.Adam(model.parameters(), lr=0.05)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.mean((model(x) - y) ** 2), wrt=model)()
        optimizer.step(grads)
        return loss

    return model, step


def test_a_call_waits_once_for_its_result_and_moves_nothing_else(emulated_device: Any) -> None:
    _, on_host = training()
    wanted = [float(on_host(X, Y)) for _ in range(6)]
    model, step = training()
    found = []
    with st.with_backend(st.GPU, X, Y):
        found.append(float(step(X, Y)))
        for _ in range(3):
            before = emulated_device.counts()
            found.append(float(step(X, Y)))
            seen = emulated_device.counts() - before
            moved = (seen.copies_to_device, seen.bytes_to_host, seen.allocations, seen.copies_on_device)
            assert moved == (0, 4, 0, 0)
            assert seen.synchronisations == 1
    with st.with_backend(st.GPU):  # a batch of its own for each call: it moves, and nothing waits for it
        found.append(float(step(X.copy(), Y.copy())))
        before = emulated_device.counts()
        found.append(float(step(X.copy(), Y.copy())))
        seen = emulated_device.counts() - before
        assert (seen.bytes_to_device, seen.bytes_to_host, seen.synchronisations) == (X.nbytes + Y.nbytes, 4, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert model.weight.numpy().shape == (1, 4)


def test_a_program_of_the_host_takes_what_the_device_has_written(emulated_device: Any) -> None:
    """The buffers of the call before are not those that hold the weights now."""
    _, on_host = training()
    wanted = [float(on_host(X, Y)) for _ in range(6)]
    _, step = training()
    found = [float(step(X, Y)) for _ in range(2)]
    with st.with_backend(st.GPU, X, Y):
        found += [float(step(X, Y)) for _ in range(2)]
    found += [float(step(X, Y)) for _ in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
