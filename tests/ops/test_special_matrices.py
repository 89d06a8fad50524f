"""Factors of special matrices: their derivatives are right, or an error names the reason.

Each loss has a reading in NumPy without factors, or one that is smooth at the matrix. Central differences of the reading
are the oracle, which shares no code with the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st

RNG = np.random.default_rng(11)
W = RNG.standard_normal((4, 4))


def weighed(x: Any) -> Any:
    """A sum with weights, real for complex matrices too."""
    return st.sum(st.real(x) * W[: x.shape[-2], : x.shape[-1]])


def read(x: np.ndarray) -> float:
    return float(np.sum(x.real * W[: x.shape[-2], : x.shape[-1]]))


def polar(a: np.ndarray) -> np.ndarray:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return u @ vh


def by_eigh(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def loss(a: Any) -> Any:
        w, v = st.linalg.eigh((a + a.mT.conj()) * 0.5)
        return weighed((v * function(w)) @ v.mT.conj())

    return loss


def by_svd(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def loss(a: Any) -> Any:
        u, s, vh = st.linalg.svd(a, full_matrices=False)
        return weighed((u * function(s)) @ vh)

    return loss


def part(a: np.ndarray) -> np.ndarray:
    return (a + a.conj().T) / 2


def null_space(a: np.ndarray, count: int) -> np.ndarray:
    u = np.linalg.svd(a)[0][:, count:]
    return u @ u.conj().T


LOSSES: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], float]]] = {
    "square by eigh": (by_eigh(lambda w: w**2), lambda a: read(part(a) @ part(a))),
    "matrix by eigh": (by_eigh(lambda w: w), lambda a: read(part(a))),
    "shifted by eigh": (by_eigh(lambda w: w * w - w), lambda a: read(part(a) @ part(a) - part(a))),
    "matrix by svd": (by_svd(lambda s: s), read),
    "cube by svd": (by_svd(lambda s: s**3), lambda a: read(a @ a.conj().T @ a)),
    "polar factor": (lambda a: by_svd(lambda s: 1.0)(a), lambda a: read(polar(a))),
    "sum of cubes": (
        lambda a: st.sum(st.linalg.eigvalsh((a + a.mT.conj()) * 0.5) ** 3),
        lambda a: float(np.trace(part(a) @ part(a) @ part(a)).real),
    ),
    "sum of squares": (lambda a: st.sum(st.linalg.svdvals(a) ** 2), lambda a: float(np.sum(np.abs(a) ** 2))),
}
MATRICES = {
    "identity": np.eye(3),
    "zeros": np.zeros((3, 3)),
    "ones": np.ones((3, 3)),
    "rotation": np.array([[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]),
    "turned": (lambda q: q @ np.diag([2.0, 2.0, 1.0]) @ q.T)(np.linalg.qr(RNG.standard_normal((3, 3)))[0]),
    "almost equal": np.diag([1.0, 1.0 + 1e-15, 2.0]),
    "small": 1e-3 * np.diag([1.0, 2.0, 3.0]) + 1e-4,
    "tiny": 1e-60 * (np.diag([1.0, 2.0, 3.0]) + 0.1),
    "diagonal": np.diag([1.0, -2.0, 3.0]),
    "tall": np.ones((4, 2)),
    "tall identity": np.eye(4, 2),
    "tall zeros": np.zeros((4, 2)),
    "tall and full": np.arange(8.0).reshape(4, 2) + np.eye(4, 2),
    "wide": np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]]),
}


def differences(function: Callable[[np.ndarray], float], a: np.ndarray) -> np.ndarray:
    """Central differences by each number, of complex matrices by both parts of each."""
    step = 1e-5 * (np.abs(a).max() or 1.0)
    slopes = np.zeros(a.shape, a.dtype)
    for place in np.ndindex(a.shape):
        for unit in (1.0, 1j) if a.dtype.kind == "c" else (1.0,):
            moved = np.zeros(a.shape, a.dtype)
            moved[place] = unit * step
            slopes[place] += unit * (function(a + moved) - function(a - moved)) / (2 * step)
    return slopes


def has_equal(name: str, a: np.ndarray) -> bool:
    if "eigh" in name:
        values = np.linalg.eigvalsh(part(a))
        return bool(np.diff(values).min() <= 1e-13 * np.abs(values).max())
    values = np.sort(np.linalg.svd(a, compute_uv=False))
    zero = 1e-13 * values.max()
    is_lost = values.min() <= zero and (a.shape[0] != a.shape[1] or a.dtype.kind == "c" or values[1] <= zero)
    return bool(is_lost or np.diff(values).min() <= zero)


@pytest.mark.filterwarnings("ignore:the gradient of .* ran 20 times")
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_at_special_matrices_are_right_or_stop(name: str, dtype: str) -> None:
    loss, reading = LOSSES[name]
    stopped = 0
    for which, real in MATRICES.items():
        is_hermitian = "eigh" in name or name == "sum of cubes"
        if (is_hermitian and real.shape[0] != real.shape[1]) or (name == "polar factor" and "zeros" in which):
            continue
        a = real.astype(dtype) * (np.exp(0.5j) if dtype == "complex128" and not is_hermitian else 1.0)
        try:
            found = np.asarray(st.grad(loss)(a))
        except ValueError as error:
            assert "have no derivative" in str(error) and "test_special_matrices.py, line" in str(error)
            assert has_equal(name, a), which
            stopped += 1
        else:
            right, least = differences(reading, a), 1e-6 if a.any() else 1e3
            np.testing.assert_allclose(found, right, atol=least * np.abs(right).max() + 1e-300, err_msg=which)
    assert (stopped > 0) == (not name.startswith("sum"))


def test_programs_stop_and_are_right_as_eager_mode() -> None:
    """Also the second derivatives, whose first ones read values and vectors."""

    @st.function
    def slopes(a: Any, b: Any) -> Any:
        return st.grad(LOSSES["polar factor"][0])(a), st.grad(LOSSES["cube by svd"][0])(b)

    polar, cube = slopes(np.eye(3), MATRICES["diagonal"])
    np.testing.assert_allclose(np.asarray(polar), (W - W.T)[:3, :3] / 2, atol=1e-14)
    np.testing.assert_allclose(np.asarray(cube), differences(LOSSES["cube by svd"][1], MATRICES["diagonal"]), atol=1e-6)
    with pytest.raises(ValueError, match="of equal singular values, or of those that are 0, vectors have no derivative"):
        slopes(np.eye(3), np.eye(3))
    for loss in (LOSSES["sum of cubes"][0], LOSSES["sum of squares"][0]):
        again = st.grad(lambda a, loss=loss: st.sum(st.grad(loss)(a) * W[:3, :3]))
        assert np.isfinite(np.asarray(again(MATRICES["diagonal"]))).all()
        with pytest.raises(ValueError, match="vectors have no derivative"):
            again(np.eye(3))


def test_added_columns_have_derivatives() -> None:
    """Of `svd` and `qr`, tall and wide matrices, real and complex; in forward mode too."""
    x = RNG.standard_normal((5, 2))
    losses = {
        "svd": lambda a: st.linalg.svd(a)[0][..., 2:],
        "wide svd": lambda a: st.linalg.svd(a.mT)[2][2:].mT.conj(),
        "qr": lambda a: st.linalg.qr(a, mode="complete")[0][..., 2:],
    }
    real = RNG.standard_normal((5, 2))
    for name, columns in losses.items():
        for a in (real, real + 1j * RNG.standard_normal((5, 2))):
            def loss(a: Any, columns: Any = columns) -> Any:
                return st.sum(st.abs(columns(a).mT.conj() @ x) ** 2)

            given = a.conj() if name == "wide svd" else a
            right = differences(lambda a: float(np.sum(np.abs(null_space(a, 2) @ x) ** 2)), given)
            np.testing.assert_allclose(np.asarray(st.grad(loss)(given)), right, atol=1e-8, err_msg=name)
            along = RNG.standard_normal((5, 2)).astype(a.dtype)
            slope = float(st.jvp(loss, (given,), (along,))[1])
            np.testing.assert_allclose(slope, np.sum((right.conj() * along).real), atol=1e-8)
    a = real.astype(np.float32)
    found = st.function(st.grad(lambda a: st.sum((losses["svd"](a).mT @ x.astype(np.float32)) ** 2)))(a)
    right = differences(lambda a: float(np.sum((null_space(a, 2) @ x) ** 2)), real)
    np.testing.assert_allclose(np.asarray(found), right, atol=1e-4)
    last = st.grad(lambda a: st.linalg.qr(a, mode="complete")[0][1, 4])  # one column has its sign alone
    np.testing.assert_allclose(np.sum(np.asarray(last(RNG.standard_normal((5, 4)))) != 0), 20)
    for columns in losses.values():
        with pytest.raises(ValueError, match="the columns that complete a basis are arbitrary up to rotations"):
            st.grad(lambda a, columns=columns: st.sum(columns(a) * x[:, :1]))(real)


def test_singular_values_of_least_squares_have_a_derivative() -> None:
    a, b = RNG.standard_normal((4, 2)), RNG.standard_normal(4)
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    for run in (lambda f: f, st.function):
        found = run(st.grad(lambda a: st.sum(st.linalg.lstsq(a, b)[3])))(a)
        np.testing.assert_allclose(np.asarray(found), u @ vh, atol=1e-12)


SCALES = {
    np.float64: (1e-300, 1e-200, 1e-170, 1e170, 1e200, 1e300),
    np.float32: (1e-36, 1e-25, 1e-22, 1e20, 1e36),
    np.complex128: (1e-300, 1e-170, 1e200),
}


@pytest.mark.parametrize("dtype", SCALES)
def test_factors_of_any_magnitude(dtype: type) -> None:
    """The product of the factors is the matrix, and columns are orthonormal: also if columns differ by 1e200."""

    @st.function
    def factors(a: Any) -> Any:
        return st.linalg.qr(a), st.linalg.svd(a, full_matrices=False), st.linalg.norm(a)

    a = np.array([[4.0, 1.0], [1.0, 3.0], [-2.0, 0.5]]) * (1 + 0.25j if dtype is np.complex128 else 1.0)
    eps = np.finfo(dtype).eps
    for scale in SCALES[dtype]:
        given = (a * scale).astype(dtype)
        for run in (factors, factors.__wrapped__):
            (q, r), (u, s, vh), size = ([np.asarray(x) for x in xs] if isinstance(xs, tuple) else xs for xs in run(given))
            for x in (q @ (r / scale), (u * (s / scale)) @ vh):
                np.testing.assert_allclose(x, given / scale, atol=40 * eps, err_msg=str(scale))
            np.testing.assert_allclose(q.conj().T @ q, np.eye(2), atol=10 * eps)
            np.testing.assert_allclose(float(size) / scale, np.linalg.norm(a), rtol=10 * eps)
    if dtype is np.float64:
        graded = a * np.array([1e-200, 1e200])
        q, r = (np.asarray(x) for x in factors(graded)[0])
        np.testing.assert_allclose(q @ (r / [1e-200, 1e200]), a, atol=1e-14)


def test_factors_of_dependent_columns_have_no_derivative() -> None:
    a = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    slope = st.grad(lambda a: (lambda q, r: st.sum(q * W[:3, :2]) + st.sum(r))(*st.linalg.qr(a)))
    for run in (slope, st.function(slope)):
        with pytest.raises(ValueError, match="a column is a sum of those before it") as caught:
            run(a)
        assert "test_special_matrices.py, line" in str(caught.value)
        assert np.isfinite(np.asarray(run(a + np.eye(3, 2)))).all()
    assert np.isnan(np.asarray(st.jvp(lambda a: st.linalg.qr(a)[1], (a,), (W[:3, :2],))[1])).any()
    # Columns of any sizes are independent, and a cotangent of 0 needs nothing.
    assert np.isfinite(np.asarray(slope((a + np.eye(3, 2)) * [1e-30, 1.0]))).all()
    unused = st.grad(lambda a: st.sum(st.where(False, st.linalg.qr(a)[1], 0.0)))
    np.testing.assert_array_equal(np.asarray(unused(a)), 0.0)


UNBALANCED = {
    "rows and columns": (np.array([0.5, -1.0, 2.0, 1.0]), [1.0, 1e8, 1e-8, 1e4]),
    "far": (np.array([1.0, 0.2, -0.5, 0.1]), [1.0, 1e30, 1e-30, 1e15]),
    "usual": (np.array([1.0, 0.2, -0.5, 0.1]), [1.0, 1.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("name", UNBALANCED)
def test_exponentials_of_unbalanced_matrices(name: str) -> None:
    """exp(d v l v^-1 d^-1) = d v exp(l) v^-1 d^-1, element by element; the derivative too."""
    values, sizes = UNBALANCED[name]
    v = np.array([[2.0, 1.0, 0.0, 0.5], [0.0, 1.5, 1.0, 0.0], [1.0, 0.0, 2.0, 1.0], [0.5, 1.0, 0.0, 2.0]])
    d, inverse = np.array(sizes), np.linalg.inv(v)
    a = (v * values) @ inverse * d[:, None] / d
    right = (v * np.exp(values)) @ inverse * d[:, None] / d
    slope = lambda a: st.jvp(st.linalg.expm, (a,), (a,))[1]  # noqa: E731
    along = (v * (values * np.exp(values))) @ inverse * d[:, None] / d
    found, sloped = st.function(lambda a: (st.linalg.expm(a), slope(a)))(a)
    for have in (found, st.linalg.expm(a)):
        np.testing.assert_allclose(np.asarray(have) / right, 1.0, rtol=1e-12)
    for have in (sloped, slope(a)):
        np.testing.assert_allclose(np.asarray(have) / along, 1.0, rtol=1e-12)
    above = np.array([[1.0, 1e12], [0.0, -1.0]])  # no number below balances the one above
    right = np.array([[np.e, 1e12 * np.sinh(1.0)], [0.0, 1.0 / np.e]])
    np.testing.assert_allclose(np.asarray(st.linalg.expm(above)), right, rtol=1e-11)
