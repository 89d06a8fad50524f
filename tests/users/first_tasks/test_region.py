"""A training loop in a GPU region, on the emulated device: the loss is that of the CPU.

Follows README.md#on-a-gpu and docs/regions.md#regions-run-a-part-of-a-function-on-the-gpu.
"""

import numpy as np

import staged as st
from staged import GPU, with_backend


def loss_of(w, x, y):
    return st.mean((x @ w - y) ** 2)


@st.function
def fit(x, y, steps):
    w = st.zeros(x.shape[1])
    loss = 0.0
    with with_backend(GPU, x, y):
        for _ in st.range(steps):
            loss, slope = st.value_and_grad(loss_of)(w, x, y)
            w = w - 0.1 * slope
    return w, loss


def test_the_device_descends_as_numpy_does(emulated_device):
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    y = x @ np.array([1, -2, 3], np.float32)
    w, loss = fit(x, y, 11)
    assert {str(copy.target) for copy in fit.stage(x, y, 11).transfers()} == {"cpu", "gpu"}
    weights, value = np.zeros(3), 0.0
    for _ in range(11):
        error = x @ weights - y
        value = np.mean(error**2)
        weights = weights - 0.1 * 2 * x.T @ error / 20
    np.testing.assert_allclose(w, weights, rtol=1e-5)
    np.testing.assert_allclose(loss, value, rtol=1e-4)
    with st.eager():
        np.testing.assert_allclose(fit(x, y, 11)[1], loss, rtol=1e-5)
