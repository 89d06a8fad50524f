"""Sizes that the program finds: none, one, some and all of the bound, in every kind of kernel and under gradients."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

F = np.float32
RANDOM = np.random.default_rng(5)
X, W = RANDOM.integers(-4, 5, (6, 5)).astype(F), RANDOM.integers(-4, 5, (5, 4)).astype(F)


@st.function
def of_rows(x, w, k, first):
    n = st.dim("N", k, max=6)
    rows = st.dynamic_slice(x, first, n)
    product = rows @ w
    out, squares, looked_up, rectified = st.zeros((6, 5)), st.full((6,), 7.0), st.zeros((6, 4)), st.zeros((6, 4))
    places = st.astype(rows[:, 0], st.i64) % 5
    out[:n] = rows * 2.0
    squares[:n] = st.sum(rows * rows, axis=1)
    looked_up[:n] = st.take(w, places, axis=0)
    rectified[:n] = st.relu(product) + 1.0
    total = st.zeros((5,))
    for i in st.range(n):
        total = total + rows[i] * 2.0
    sums = st.sum(rows, axis=0)
    return (
        sums,
        st.argmax(sums),
        st.sum(rows),
        st.prod(rows, axis=0),
        st.any(rows > 0, axis=0),
        st.all(rows > 0),
        st.sum(st.astype(rows > 0, st.i64)),
        out,
        squares,
        looked_up,
        rectified,
        total,
        st.scatter_add(st.zeros((5, 5)), places, rows),
        st.sum(product),
        n,
    )


def right_of_rows(x, w, k, first):
    rows = x[first : first + k]
    out, squares, looked_up, rectified = np.zeros((6, 5), F), np.full(6, 7, F), np.zeros((6, 4), F), np.zeros((6, 4), F)
    places, scattered = rows[:, 0].astype(np.int64) % 5, np.zeros((5, 5), F)
    out[:k], squares[:k], looked_up[:k], rectified[:k] = (
        rows * 2,
        (rows * rows).sum(1),
        w[places],
        np.maximum(rows @ w, 0) + 1,
    )
    np.add.at(scattered, places, rows)
    return (
        rows.sum(0), rows.sum(0).argmax(), rows.sum(), rows.prod(0), (rows > 0).any(0), (rows > 0).all(), (rows > 0).sum(), out,
        squares, looked_up, rectified, rows.sum(0) * 2, scattered, (rows @ w).sum(), k,
    )  # fmt: skip


@st.function
def slopes(x, w, k, turns):
    def loss(x, w):
        total = 0.0
        for i in st.range(turns):
            n = st.dim("N", k + i, max=6)
            rows = st.dynamic_slice(x, 0, n)
            product = rows @ w
            total = total + st.sum(product * product) * 0.5 + st.sum(rows)
        return total

    return st.grad(loss, argnums=(0, 1))(x, w)


def right_slopes(x, w, k, turns):
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    for i in range(turns):
        rows = x[: k + i]
        d_x[: k + i] += rows @ w @ w.T + 1
        d_w += rows.T @ (rows @ w)
    return d_x, d_w


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_of_no_rows_of_one_and_of_all(way):
    cases = [(of_rows, right_of_rows, case) for case in ((0, 0), (0, 6), (1, 5), (3, 2), (6, 0))]
    cases += [(slopes, right_slopes, case) for case in ((0, 0), (0, 1), (0, 3), (4, 2))]
    for program, oracle, case in cases:
        if way == "eager":
            with st.eager():
                found = program(X, W, *case)
        else:
            found = program(X, W, *case)
        for number, (got, right) in enumerate(zip(found, oracle(X, W, *case), strict=True)):
            np.testing.assert_array_equal(np.asarray(got), right, err_msg=f"{case}, {number}")


def source_of(function):
    return st.function(target="portable", dims={"x": ("N <= 40", "M <= 40")})(function).stage(X).source


def test_the_pieces_of_a_padded_row_are_vectors():
    source = source_of(lambda x: st.pad(x, ((0, 0), (2, 3)), value=1.0))
    for piece in ("j = 0; j < 2; ++j", "j = 2; j < M + 2; j += 4", "j = M + 2; j < M + 5; j += 4"):
        assert f"for (int64_t {piece})" in source
    x = np.arange(27, dtype=F).reshape(3, 9)
    padded = st.function(lambda x: st.pad(x, ((0, 0), (2, 3)), value=1.0), dims={"x": ("N <= 40", "M <= 40")})
    np.testing.assert_array_equal(padded(x), np.pad(x, ((0, 0), (2, 3)), constant_values=1))


def test_sums_of_padded_rows_take_all_pieces():
    def sums(x):
        return st.sum(st.pad(x, ((0, 0), (2, 3)), value=1.0) * 2.0, axis=1), st.max(st.pad(x, ((0, 0), (1, 20))), axis=1)

    x = -np.arange(3 * 21, dtype=F).reshape(3, 21)
    right = 10 + 2 * x.sum(axis=1), np.zeros(3)
    for target in ("native", "portable"):
        found = st.function(sums, target=target, dims={"x": ("N <= 40", "M <= 40")})(x)
        for one, other in zip(found, right, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_end_of_a_loop_is_computed_once():
    def joined(x):
        y = x[:, : max(x.shape[1] - 2, 0)]
        return st.concat([y, y[::-1]], axis=1)

    source = source_of(joined)
    assert source.count("0 > M - 2 ? 0 : M - 2") == source.count("j_end = 0 > M - 2 ? 0 : M - 2;") > 0
