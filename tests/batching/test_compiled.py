"""Mapped programs as C: one of each shape, so that what the interpreter accepts is also what back ends can write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.testing import assert_backends_agree
from tests.batching.test_control_flow import PROGRAMS, N, X

RNG = np.random.default_rng(9)
IMAGES = RNG.normal(size=(2, 2, 3, 5, 5))
KERNELS = RNG.normal(size=(4, 3, 2, 2))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_control_flow(program: Any) -> None:
    def f(x, n):
        return st.vmap(program)(x, n), st.grad(lambda x: st.vmap(program)(x, n).sum())(x)

    assert_backends_agree(f, X, N, rtol=1e-10, levels=("3",))


@pytest.mark.parametrize("program", ["nested", "until", "counted_to_n", "left_early"])
def test_mapped_gradients(program: str) -> None:
    f = next(found for found in PROGRAMS if found.__name__ == program)
    assert_backends_agree(lambda x, n: st.vmap(st.grad(f))(x, n), X, N, rtol=1e-10, levels=("0",))


def test_convolutions() -> None:
    def f(x, w):
        same = st.vmap(lambda r: st.max_pool2d(st.conv2d(r, w), 2))(x)
        each = st.vmap(lambda r: st.grad(lambda w: st.sum(st.square(st.conv2d(r, w))))(w))(x)
        return same, each

    assert_backends_agree(f, IMAGES, KERNELS, rtol=1e-10, levels=("3",))


def test_indices_windows_and_writes() -> None:
    def put(r, i):
        r[i] = r[i] * 2.0
        return r

    def f(x, i):
        return (
            st.vmap(put)(x, i),
            st.vmap(lambda i: x[i])(i),
            st.vmap(lambda r, i: st.dynamic_slice(r, i % 2, 2))(x, i),
            st.vmap(lambda r, i: st.scatter_add(r, st.stack([i, i]), r[:2]))(x, i),
            st.grad(lambda x: st.vmap(lambda r, i: r[i] * r[0])(x, i).sum())(x),
        )

    assert_backends_agree(f, X, N % 3, rtol=1e-10, levels=("3",))


def test_lines_do_not_grow_with_the_axis() -> None:
    f = st.function(lambda x, n: st.vmap(PROGRAMS[3])(x, n))
    lines = {
        size: len(f.stage(np.ones((size, 3)), np.ones(size, np.int64)).source.splitlines()) for size in (100, 1000)
    }
    assert lines[100] == lines[1000]
