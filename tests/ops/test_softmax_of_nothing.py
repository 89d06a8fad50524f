"""A softmax of no elements has none, and the logarithm of no sum is -inf: sizes that the program finds, and sizes of 0."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend

X = np.arange(8, dtype=np.float32)


def of_the_first(x, n):
    k = st.dim("N", n, max=8)
    table = st.reshape(x, (8, 1))[:k] * st.ones((1, 3))
    first, down, logs = st.zeros((8,)), st.zeros((8, 3)), st.zeros((8, 3))
    first[:k] = st.softmax(x[:k])
    down[:k] = st.softmax(table, axis=0)
    logs[:k] = st.log_softmax(table, axis=0)
    return first, down, logs, st.logsumexp(x[:k]), st.grad(lambda x: st.sum(st.softmax(x[:k]) * x[:k]))(x)


@pytest.mark.parametrize("way", ["compiled", "region", "eager"])
def test_of_a_size_that_the_program_finds(way, emulated_device):
    @st.function
    def run(x, n):
        if way != "region":
            return of_the_first(x, n)
        with with_backend(GPU, x):
            return of_the_first(x, n)

    for n in (0, 1, 5):
        if way == "eager":
            with st.eager():
                first, down, logs, total, slope = map(np.asarray, run(X, n))
        else:
            first, down, logs, total, slope = run(X, n)
        p = np.exp(X[:n]) / np.exp(X[:n]).sum()
        right = np.concatenate([p, np.zeros(8 - n)])
        np.testing.assert_allclose(first, right, rtol=1e-5)
        np.testing.assert_allclose(down, np.stack([right] * 3, 1), rtol=1e-5)
        np.testing.assert_allclose(logs[:n], np.stack([np.log(p)] * 3, 1), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(total, np.log(np.exp(X[:n]).sum()) if n else -np.inf, rtol=1e-5)
        mean = (p * X[:n]).sum()
        np.testing.assert_allclose(slope, np.concatenate([p * (X[:n] - mean) + p, np.zeros(8 - n)]), rtol=1e-4, atol=1e-5)


def test_of_no_elements():
    empty = np.zeros((0, 3), np.float32)

    def run(x):
        return st.softmax(x, axis=0), st.softmax(x), st.log_softmax(x, axis=0), st.logsumexp(x, axis=0)

    for found in (st.function(run)(empty), eagerly(run, empty)):
        assert [np.asarray(y).shape for y in found] == [(0, 3), (0, 3), (0, 3), (3,)]
        np.testing.assert_array_equal(np.asarray(found[3]), np.full(3, -np.inf, np.float32))


def eagerly(run, *args):
    with st.eager():
        return st.function(run)(*args)
