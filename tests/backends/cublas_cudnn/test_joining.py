"""Kernels that share a launch: only what is independent of the others, whatever order the text has them in."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend

SHAPES = [(40, 8), (8, 40), (40, 40), (3,), (1,), (130,)]


def arrays(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.integers(-8, 9, shape).astype(np.float32) / 4 for shape in SHAPES]


def test_alike_updates_of_variables_that_read_one_another(emulated_device: Any) -> None:
    """Each new value needs the next one's old value, or the one before's new value."""
    old, given = arrays(0), arrays(1)
    pairs = [st.Variable(value) for value in (old[2], given[2], old[2].T.copy())]

    @st.function
    def run(g: Any, n: Any) -> Any:
        a, b, c = pairs
        kept = g
        with with_backend(GPU, g):
            for _ in st.range(n):
                before = a.value
                a.value = a.value * 0.5 + b.value
                b.value = b.value * 0.5 + c.value
                c.value = c.value * 0.5 + a.value
                a.value = a.value * 0.5 + before
                kept = before * 0.5 + g
        return kept

    a, b, c = old[2], given[2], old[2].T
    for _ in range(3):
        before = a
        a = a * 0.5 + b
        b = b * 0.5 + c
        c = c * 0.5 + a
        a = a * 0.5 + before
        kept = before * 0.5 + given[0][:1, :1]
    g = np.broadcast_to(given[0][:1, :1], (40, 40)).copy()
    np.testing.assert_allclose(run(g, 3), kept, rtol=1e-5)
    for variable, wanted in zip(pairs, (a, b, c), strict=True):
        np.testing.assert_allclose(np.asarray(variable.value), wanted, rtol=1e-5)


def test_alike_kernels_on_one_operand(emulated_device: Any) -> None:
    """None of them may be made in the place of what the others still read."""
    values = arrays(2)

    @st.function
    def run(values: Any, n: Any) -> Any:
        results = []
        with with_backend(GPU, values):
            for x in values:
                y = x + 1.0
                for _ in st.range(n):
                    z = y * 2.0
                    first = z * 0.5 + y
                    second = y * 0.5 + z
                    third = z * 0.5 + first
                    y = third * 0.25 + second * 0.25
                results.append(y)
        return results

    for x, found in zip(values, run(values, 2), strict=True):
        y = x + 1
        for _ in range(2):
            z = y * 2
            first, second = z * 0.5 + y, y * 0.5 + z
            y = (z * 0.5 + first) * 0.25 + second * 0.25
        np.testing.assert_allclose(found, y, rtol=1e-5)
