"""Mapped programs as C: one of each shape, so that what the interpreter accepts is also what back ends can write."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.testing import assert_backends_agree
from tests.batching.test_control_flow import PROGRAMS, N, X
from tests.frontend.harness import Case, check_program

RNG = np.random.default_rng(9)
IMAGES = RNG.normal(size=(2, 2, 3, 5, 5))
KERNELS = RNG.normal(size=(4, 3, 2, 2))


GROUPS = {f"{group[0].__name__} and others": group for group in (PROGRAMS[i::4] for i in range(4))}


@pytest.mark.parametrize("name", GROUPS)
def test_control_flow(name: str) -> None:
    """Several programs in one, at -O3, and at -O0 under sanitizers."""

    def mapped(x, n):
        return {
            program.__name__: (
                st.vmap(program)(x, n),
                st.grad(lambda x, program=program: st.vmap(program)(x, n).sum())(x),
                st.vmap(st.grad(program))(x, n),
            )
            for program in GROUPS[name]
        }

    check_program(Case(mapped, [(X, N), (X[::-1].copy(), N + 1)], rtol=1e-9))


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
        size: len(f.stage(np.ones((size, 3)), np.ones(size, np.int64)).source.splitlines()) for size in (104, 1000)
    }
    assert lines[104] == lines[1000]


def test_an_axis_whose_extent_the_program_knows() -> None:
    w = RNG.normal(size=(3, 3))

    def element(r):
        t = 0.0
        while t < r[0] * r[0] + 1.0:
            t = t + 0.5
        if r[1] > 0.0:
            return st.log(r[1]) * t + st.sum(w @ r)
        return r[2] * t + r[st.argmax(r)]

    def f(x, n):
        rows = x[: st.dim("N", n, max=6)]
        return st.vmap(element)(rows).sum(), st.vmap(st.grad(element))(rows).sum(0)

    program = st.function(f)
    for n in (0, 1, 5, 6):
        assert_backends_agree(program, X, n, rtol=1e-10, levels=("3",))
