"""Totals that threads bring together and then all of them read: by columns, rows and blocks, in sizes that end raggedly."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.backends.cublas_cudnn.harness import on_gpu

COLUMNS = [(600, 64), (33, 1), (257, 33), (40, 31)]
ROWS = [(64, 600), (1, 33), (33, 257), (3, 5000)]


def softmax(x, axis):
    wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return wide / wide.sum(axis, keepdims=True)


@pytest.mark.parametrize(("axis", "shapes"), [(0, COLUMNS), (1, ROWS)])
def test_every_thread_of_a_team_reads_the_same_total(axis, shapes, emulated_device):
    arrays = [np.random.default_rng(n).normal(size=shape).astype(np.float32) for n, shape in enumerate(shapes)]

    def run(arrays):
        results = []
        for x in arrays:
            best = st.expand_dims(st.argmax(x, axis=axis), axis)
            results.append((
                st.softmax(x, axis=axis),
                x - st.max(x, axis=axis, keepdims=True),
                x * st.any(x > 2.5, axis=axis, keepdims=True),
                st.take_along_axis(x, best, axis=axis) - x,
            ))  # fmt: skip
        return results

    for x, results in zip(arrays, on_gpu(run)(arrays), strict=True):
        top = x.max(axis, keepdims=True)
        right = (softmax(x, axis), x - top, x * (x > 2.5).any(axis, keepdims=True), top - x)
        for got, wanted in zip(results, right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_integer_totals_of_teams_are_exact(emulated_device):
    x = (np.arange(600 * 64) * 7919 % 251).reshape(600, 64)

    def run(a, b, c):
        return [
            (
                y - st.sum(y, axis=axis, keepdims=True, dtype=y.dtype),
                st.max(y, axis=axis, keepdims=True) - y,
                st.min(y, axis=axis, keepdims=True) + y,
                st.argmin(y, axis=axis),
            )
            for y in (a, b, c)
            for axis in (0, 1)
        ]

    arrays = [x.astype(dtype) for dtype in (np.uint8, np.int32, np.uint32)]
    found = on_gpu(run)(*arrays)
    pairs = [(y, axis) for y in arrays for axis in (0, 1)]
    for (y, axis), results in zip(pairs, found, strict=True):
        right = (
            y - y.sum(axis, keepdims=True, dtype=y.dtype),
            y.max(axis, keepdims=True) - y,
            y.min(axis, keepdims=True) + y,
            y.argmin(axis),
        )
        for got, wanted in zip(results, right, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted)
