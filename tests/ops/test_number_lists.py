"""Lists of Python numbers are as weak as a number: beside f64 they are f64, to the last bit, compiled and in eager mode."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.errors.said import refusals

X = np.array([0.5, -0.25, 0.75])
L = [0.1, 0.2, 0.3]


A, EDGES = np.array(L), [-0.3, 0.1, 0.5, 0.75]
BESIDE = {
    "dot": (lambda x: st.dot(x, L) + st.dot(L, x), 2 * (X @ A)),
    "vdot": (lambda x: st.vdot(x, L) + st.vdot(L, x), 2 * (X @ A)),
    "vecdot": (lambda x: st.vecdot(x, L) + st.vecdot(L, x), 2 * (X @ A)),
    "outer": (lambda x: st.outer(x, L) + st.linalg.outer(x, L), 2 * np.outer(X, A)),
    "outer, reversed": (lambda x: st.outer(L, x) + st.linalg.outer(L, x), 2 * np.outer(A, X)),
    "addr": (lambda x: st.addr([[0.1] * 3] * 3, x, L) + st.addr(x, L, L), 0.1 + np.outer(X, A) + X + np.outer(A, A)),
    "lerp": (lambda x: st.lerp(x, L, [0.1, 0.2, 0.7]) + st.lerp(L, x, 0.3), X + (A - X) * [0.1, 0.2, 0.7] + A + (X - A) * 0.3),
    "lerp by an array": (lambda x: st.lerp(L, [0.6, 0.7, 0.9], x), A + (np.array([0.6, 0.7, 0.9]) - A) * X),
    "addcmul": (lambda x: st.addcmul(x, L, L) + st.addcmul(L, L, x), X + A * A + A + A * X),
    "addcdiv": (lambda x: st.addcdiv(x, L, [0.3, 0.7, 0.9]) + st.addcdiv(L, L, x), X + A / [0.3, 0.7, 0.9] + A + A / X),
    "array_equal": (lambda x: st.array_equal(x * 0 + A, L) & st.array_equal(L, x * 0 + A), np.bool_(True)),
    "histogram": (lambda x: st.histogram(st.concat([x, A]), [-0.25, 0.1, 0.3, 0.75])[0], np.array([1, 2, 3])),
    "histogram of a list": (lambda x: st.histogram(L, x * 0 + A)[0], np.array([1, 2])),
    "histogram with weights": (lambda x: st.histogram(x, EDGES, weights=L)[0], np.histogram(X, EDGES, weights=L)[0]),
    "trapezoid": (lambda x: st.trapezoid(x, L), np.diff(A) @ (X[1:] + X[:-1]) / 2),
    "trapezoid, reversed": (lambda x: st.trapezoid(L, x), np.diff(X) @ (A[1:] + A[:-1]) / 2),
    "cov": (lambda x: st.cov(x, aweights=L) + st.cov(L, aweights=x * x), np.cov(X, aweights=A) + np.cov(A, aweights=X * X)),
}
"""Functions of an array of f64 and a list, and NumPy's values."""


@st.function
def lists(x, single, i, n):
    a, b = x[0], x[1]
    written = x * 1.0
    written[1:] = [0.2, 0.3]
    marked = single * 1.0
    marked[:2] = [1, 2]
    return {
        "add": x + L,
        "matmul": x @ L,
        "maximum": st.maximum(x, L),
        "where": st.where(x > 0, x, L),
        "clip": st.clip(x, L, [0.7, 0.8, 0.6]),
        "written": written,
        "marked": marked,
        "elements": st.asarray([a, b]),
        "element and number": st.asarray([a, 0.2]),
        "nested": st.asarray([[a, 0.1], [0.2, 0.3]]),
        "rows": st.stack([L, x]),
        "with dtype": st.asarray([0.2, 16777217.0], dtype=st.f64),
        "staged number": st.asarray([n * 0.1, 0.2], dtype=st.f64),
        "staged number beside f64": x[:2] + [n * 0.1, 0.2],
        "loss": st.mse_loss(x, L),
        "weighted": st.layer_norm(x, None, L, L),
        "exponents": st.abs(x) ** [0.5, 0.3, 2],
        "beside f32": single + L,
        "integers": i + [1, 2, 3],
        "integers and floats": i + [0.5, 1, 2],
        "alone": st.asarray(L),
        "integers alone": st.asarray([1, 2]),
        "bools": st.asarray([True, False]),
        "nothing": st.asarray([]),
        "of both": st.exp([1, 2]),
        "indices": x[[0, 2]],
        "truth": st.logical_and([1, 0, 2], [True, True, False]),
        **{name: function(x) for name, (function, _) in BESIDE.items()},
    }


def expected() -> dict[str, np.ndarray]:
    centred = X - X.mean()
    f32 = np.float32
    return {
        "add": X + L,
        "matmul": X @ L,
        "maximum": np.maximum(X, L),
        "where": np.where(X > 0, X, L),
        "clip": np.clip(X, L, [0.7, 0.8, 0.6]),
        "written": np.array([0.5, 0.2, 0.3]),
        "marked": np.array([1, 2, 1], f32),
        "elements": X[:2],
        "element and number": np.array([0.5, 0.2]),
        "nested": np.array([[0.5, 0.1], [0.2, 0.3]]),
        "rows": np.stack([L, X]),
        "with dtype": np.array([0.2, 16777217.0]),
        "staged number": np.array([3 * 0.1, 0.2]),
        "staged number beside f64": X[:2] + [3 * 0.1, 0.2],
        "loss": np.mean((X - L) ** 2),
        "weighted": centred / np.sqrt((centred**2).mean() + 1e-5) * L + L,
        "exponents": np.abs(X) ** [0.5, 0.3, 2],
        "beside f32": np.ones(3, f32) + np.array(L, f32),
        "integers": np.array([2, 4, 6], np.int32),
        "integers and floats": np.array([1.5, 3.0, 5.0], f32),
        "alone": np.array(L, f32),
        "integers alone": np.array([1, 2]),
        "bools": np.array([True, False]),
        "nothing": np.zeros(0, f32),
        "of both": np.exp(np.array([1, 2], f32)),
        "indices": X[[0, 2]],
        "truth": np.array([True, False, False]),
        **{name: np.asarray(value) for name, (_, value) in BESIDE.items()},
    }


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_a_list_takes_the_dtype_of_what_it_meets(mode) -> None:
    arguments = (X, np.ones(3, np.float32), np.array([1, 2, 3], np.int32), 3)
    if mode == "eager":
        with st.eager():
            found = lists(*arguments)
    else:
        found = lists(*arguments)
    for name, want in expected().items():
        have = np.asarray(found[name])
        assert have.dtype == want.dtype, name
        np.testing.assert_allclose(have, want, rtol=1e-6 if want.dtype == np.float32 else 1e-15, err_msg=name)


def test_lists_of_numpy_arrays_keep_their_dtype() -> None:
    double, single = np.ones(2), np.ones(2, np.float32)
    assert st.asarray([double, double]).dtype is st.f64
    assert st.asarray([single, L[:2]]).dtype is st.f32
    assert st.asarray([np.float32(0.1), 0.2]).dtype is st.f32
    assert st.asarray([np.int32(3), 4]).dtype is st.i32


test_lists_that_do_not_fit_are_refused = refusals(
    (lambda: st.asarray([1, 300], dtype=st.u8), st.DTypeError, "300 does not fit u8"),
    (lambda: st.asarray(300, dtype=st.u8), st.DTypeError, "300 does not fit u8"),
    (lambda: st.add(np.ones(1, np.uint8), [-1]), st.DTypeError, "-1 does not fit u8"),
    (lambda: st.asarray([300.5], dtype=st.u8), st.DTypeError, "300.5 does not fit u8"),
    (lambda: st.asarray([1.0, float("nan")], dtype=st.i32), st.DTypeError, "nan does not fit i32"),
    (lambda: st.asarray([2**70]), st.DTypeError, "does not fit i64"),
    (lambda: st.asarray([[1, 2], [3]]), st.ShapeError, "rows differ in length"),
    (lambda: st.asarray([[1, 2], 3.0]), st.ShapeError, "rows differ in length"),
    (lambda: st.full((2,), [1.0, 2.0]), st.ShapeError, "full needs a scalar"),
)


def test_floats_become_integers_as_an_array_of_them_would() -> None:
    np.testing.assert_array_equal(np.asarray(st.asarray([1.75, -2.5], dtype=st.i32)), [1, -2])
    assert int(st.asarray(1.75, dtype=st.i32)) == 1
    np.testing.assert_array_equal(np.asarray(st.asarray([0.0, 0.25, 2], dtype=st.bool_)), [False, True, True])


def test_floats_are_not_written_into_integers() -> None:
    @st.function
    def write(i):
        i[:2] = [0.5, 1.0]
        return i

    with pytest.raises(st.DTypeError, match=r"cannot write floats into i64 \(3,\)"):
        write(np.arange(3))


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_integers_and_their_edges_are_compared_exactly(mode) -> None:
    """Integers above 2**24 have no f32 of their own."""
    near = np.array([2**24, 2**24 + 1, 2**24 + 1])
    cases = (
        (near, [2**24, 2**24 + 1, 2**24 + 2]),
        (near, np.array([2**24, 2**24 + 1, 2**24 + 2])),
        (near, [2**24 - 0.5, 2**24 + 0.5, 2**24 + 1.5]),
        (near, np.array([2**24 - 0.5, 2**24 + 0.5, 2**24 + 1.5])),
        (near, 2),
        (near.astype(np.int32), 2),
        (np.array([1, 200], np.uint8), [0, 150, 256]),
        (np.array([0.7], np.float32), np.array([0.0, 0.7, 1.0])),
    )
    for x, bins in cases:
        program = st.function(lambda x: st.histogram(x, bins)[0])  # noqa: B023
        found = program(x) if mode == "compiled" else st.histogram(x, bins)[0]
        np.testing.assert_array_equal(found, np.histogram(x, bins)[0])
