"""Functions that are a few others: values as NumPy's, derivatives, mapping and every back end, a program of all of them each."""

from __future__ import annotations

import math

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.ops.array import METHODS
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals
from tests.fuzz import plain
from tests.rows import ROWS

RNG = np.random.default_rng(11)
X = RNG.uniform(0.15, 0.45, (3, 4)) + RNG.integers(-2, 2, (3, 4))
Y = RNG.uniform(0.55, 0.95, (3, 4)) + RNG.integers(-2, 2, (3, 4))
P = RNG.uniform(0.1, 0.9, (3, 4))
M, V, W = RNG.standard_normal((4, 5)), RNG.standard_normal(3), RNG.standard_normal(4)
HOLES = np.where(RNG.random((3, 4)) < 0.3, np.nan, X)
HOLES[1] = X[1]
HOLES[:, 2] = X[:, 2]


def present(x):
    """`x` with the holes of `HOLES`, of an array that a derivative may be taken by."""
    return st.where(np.isnan(HOLES), math.nan, x)


def of_row(name, *operands):
    """A function that needs no options: its row has NumPy's reading."""
    return getattr(st, name), lambda *xs: plain.results(ROWS[name].reading, map(np.asarray, xs)), *operands


# name: (ours, NumPy's, the operands)
CASES = {
    **{name: of_row(name, X) for name in "exp2 reciprocal deg2rad rad2deg sinc asinh frac hardtanh mish selu softsign".split()},
    **{name: of_row(name, X) for name in "tanhshrink hardshrink softshrink fliplr flipud cov corrcoef".split()},
    **{name: of_row(name, X, Y) for name in "logaddexp2 hypot copysign nextafter heaviside inner".split()},
    "logit": of_row("logit", P),
    "atanh": of_row("atanh", P),
    "acosh": of_row("acosh", P + 1),
    "xlogy": of_row("xlogy", X, P),
    "fmod": of_row("fmod", 3 * X, Y),
    "lerp": of_row("lerp", X, Y, P),
    "addcdiv": of_row("addcdiv", X, Y, P),
    "kron": of_row("kron", X, V),
    "mv": of_row("mv", X, W),
    "logit_eps": (lambda x: st.logit(x, eps=0.3), lambda x: np.log(np.clip(x, 0.3, 0.7) / (1 - np.clip(x, 0.3, 0.7))), P),
    "fmax": (lambda x, y: st.fmax(present(x), y), lambda x, y: np.fmax(HOLES, y), X, Y),
    "fmin": (lambda x, y: st.fmin(x, present(y)), lambda x, y: np.fmin(x, np.where(np.isnan(HOLES), HOLES, y)), X, Y),
    "nan_to_num": (lambda x: st.nan_to_num(present(x), nan=2.0), lambda x: np.nan_to_num(HOLES, nan=2.0), X),
    "lerp_number": (lambda a, b: st.lerp(a, b, 0.75), lambda a, b: a + 0.75 * (b - a), X, Y),
    "addcmul": (lambda x, a, b: st.addcmul(x, a, b, value=2), lambda x, a, b: x + 2 * a * b, X, Y, P),
    "relu6": (lambda x: st.relu6(4 * x), lambda x: np.clip(4 * x, 0, 6), X),
    "hardsigmoid": (lambda x: st.hardsigmoid(3 * x), lambda x: np.clip(x / 2 + 0.5, 0, 1), X),
    "hardswish": (lambda x: st.hardswish(3 * x), lambda x: 3 * x * np.clip(x / 2 + 0.5, 0, 1), X),
    "celu": (lambda x: st.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)), X),
    **{
        f"{name}_{mode}_{len(v)}": (
            lambda a, v, name=name, mode=mode: getattr(st, name)(a[0], v, mode),
            lambda a, v, name=name, mode=mode: getattr(np, name)(a[0], v, mode),
            X,
            v,
        )
        for name in ("convolve", "correlate")
        for mode in ("full", "same", "valid")
        for v in (Y[0, :1], Y[0, :2], Y.ravel()[:6])
    },
    **{
        f"cdist_{p}": (
            lambda x, y, p=p: st.cdist(x, y[:2], p),
            lambda x, y, p=p: np.linalg.norm(x[:, None] - y[None, :2], p, axis=-1),
            X,
            Y,
        )
        for p in (1.0, 2.0, 3.0)
    },
    "threshold": (lambda x: st.threshold(x, 0.5, 20.0), lambda x: np.where(x > 0.5, x, 20.0), X),
    "glu": (lambda x: st.glu(x, axis=1), lambda x: x[:, :2] / (1 + np.exp(-x[:, 2:])), X),
    "softmin": (lambda x: st.softmin(x, axis=0), lambda x: np.exp(-x) / np.exp(-x).sum(0), X),
    **{f"rot90_{k}": (lambda x, k=k: st.rot90(x, k), lambda x, k=k: np.rot90(x, k), X) for k in (-1, 0, 1, 2)},
    "atleast": (
        lambda x: (st.atleast_1d(x[0, 0]), st.atleast_2d(x[0]), st.atleast_3d(x[0]), st.atleast_3d(x)),
        lambda x: (np.atleast_1d(x[0, 0]), np.atleast_2d(x[0]), np.atleast_3d(x[0]), np.atleast_3d(x)),
        X,
    ),
    **{
        f"{name}_{sort}": (
            lambda a, b, name=name: getattr(st, name)([a, b]),
            lambda a, b, name=name: getattr(np, name)([a, b]),
            *operands,
        )
        for name in ("hstack", "vstack", "dstack", "column_stack")
        for sort, operands in {"vectors": (X[0], Y[0]), "matrices": (X, Y)}.items()
    },
    **{f"diagonal_{k}": (lambda x, k=k: st.diagonal(x, k), lambda x, k=k: np.diagonal(x, k), M) for k in (-9, -2, 0, 1, 4, 5)},
    "diagonal_axes": (
        lambda x: st.diagonal(x[None] * V[:, None, None], 1, 2, 0),
        lambda x: np.diagonal(x[None] * V[:, None, None], 1, 2, 0),
        M,
    ),
    "diag": (lambda v: (st.diag(v), st.diag(v, 2), st.diag(v, -1)), lambda v: (np.diag(v), np.diag(v, 2), np.diag(v, -1)), V),
    "diag_of_a_matrix": (lambda x: st.diag(x, 1), lambda x: np.diag(x, 1), M),
    "diagflat": (lambda x: st.diagflat(x, 1), lambda x: np.diagflat(x, 1), X),
    "trace": (lambda x: st.trace(x, -1), lambda x: np.trace(x, -1), M),
    "block_diag": (
        lambda x, v: st.block_diag(x, v),
        lambda x, v: np.block([[x, np.zeros((3, 3))], [np.zeros((1, 4)), v[None]]]),
        X,
        V,
    ),
    "nansum": (lambda x: st.nansum(present(x), axis=0), lambda x: np.nansum(HOLES, 0), X),
    "nanprod": (lambda x: st.nanprod(present(x), axis=1), lambda x: np.nanprod(HOLES, 1), X),
    "nanmean": (lambda x: st.nanmean(present(x), axis=1, keepdims=True), lambda x: np.nanmean(HOLES, 1, keepdims=True), X),
    "nanvar": (lambda x: st.nanvar(present(x), axis=1), lambda x: np.nanvar(HOLES, 1), X),
    "nanstd": (lambda x: st.nanstd(present(x), correction=1), lambda x: np.nanstd(HOLES, ddof=1), X),
    "nanmax": (lambda x: st.nanmax(present(x), axis=1), lambda x: np.nanmax(HOLES, 1), X),
    "nanmin": (lambda x: st.nanmin(present(x)), lambda x: np.nanmin(HOLES), X),
    "ptp": (lambda x: st.ptp(x, axis=0), lambda x: np.ptp(x, 0), X),
    "aminmax": (lambda x: st.aminmax(x, axis=0), lambda x: (x.min(0), x.max(0)), X),
    "var_mean": (lambda x: st.var_mean(x, axis=0), lambda x: (x.var(0, ddof=1), x.mean(0)), X),
    "std_mean": (lambda x: st.std_mean(x, axis=0), lambda x: (x.std(0, ddof=1), x.mean(0)), X),
    "average": (lambda x, w: st.average(x, 1, w), lambda x, w: np.average(x, 1, w), X, W + 3),
    "average_of_all": (lambda x, w: st.average(x, weights=w), lambda x, w: np.average(x, weights=w), X, P),
    **{f"diff_{n}": (lambda x, n=n: st.diff(x, n, 0), lambda x, n=n: np.diff(x, n, 0), X) for n in (0, 1, 2, 3, 4)},
    "diff_beside": (
        lambda x: st.diff(x, prepend=0.5, append=x[:, :2]),
        lambda x: np.diff(x, prepend=0.5, append=x[:, :2]),
        X,
    ),
    "trapezoid": (lambda y: st.trapezoid(y, dx=0.5, axis=0), lambda y: np.trapezoid(y, dx=0.5, axis=0), X),
    "trapezoid_at": (lambda y, x: st.trapezoid(y, x), lambda y, x: np.trapezoid(y, x), X, W),
    "cov_of_columns": (lambda x: st.cov(x, rowvar=False, correction=0), lambda x: np.cov(x, rowvar=False, ddof=0), X),
    "cov_of_a_vector": (st.cov, np.cov, W),
    "inner_of_vectors": (st.inner, np.inner, W, X[0]),
    "kron_of_matrices": (st.kron, np.kron, X, M),
    "cross": (lambda a, v: st.cross(a, v[:, None], axis=0), lambda a, v: np.cross(a, v[:, None], axis=0), X, V),
    "addmm": (
        lambda v, a, b: st.addmm(v[:, None], a, b, beta=2, alpha=0.5),
        lambda v, a, b: 2 * v[:, None] + 0.5 * a @ b,
        V,
        X,
        M,
    ),
    "addr": (lambda x, a, b: st.addr(x, a, b, beta=0.5), lambda x, a, b: 0.5 * x + np.outer(a, b), X, V, W),
}
OPERANDS = {name: case[2:] for name, case in CASES.items()}


def ours(operands):
    return {name: CASES[name][0](*given) for name, given in operands.items()}


def in_f32():
    return {name: [np.asarray(x, np.float32) for x in given] for name, given in OPERANDS.items()}


@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys(name: str) -> None:
    function, reference, *operands = CASES[name]
    compare_trees(function(*map(wrap, operands)), reference(*operands), rtol=2e-14, atol=2e-14)


def test_a_program_and_its_map_give_the_same() -> None:
    with st.eager():
        expected = ours({name: [wrap(x) for x in given] for name, given in OPERANDS.items()})
    compare_trees(st.function(ours)(OPERANDS), expected, rtol=1e-12, atol=1e-12)
    twice = {name: [np.stack([x, x]) for x in given] for name, given in OPERANDS.items()}
    mapped = st.function(st.vmap(ours))(twice)
    for name, found in mapped.items():
        for part, one in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected[name])), strict=True):
            np.testing.assert_allclose(part[1], one, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("in_eager", [False, True])
def test_derivatives_agree_with_differences(in_eager: bool) -> None:
    smooth = {name: list(given) for name, given in OPERANDS.items() if name not in ("heaviside",)}
    st.check_grads(ours, (smooth,), rtol=1e-5, eps=1e-6, in_eager=in_eager)


def test_a_device_gives_the_same(emulated_device) -> None:
    @st.function
    def program(operands):
        with st.with_backend(st.GPU, operands):
            return ours(operands)

    compare_trees(program(in_f32()), st.function(ours)(in_f32()), rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_an_opencl_device_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device.require()
    monkeypatch.setenv("STAGED_BACKEND", "opencl")

    @st.function
    def program(operands):
        with st.with_backend(st.GPU, operands):
            return ours(operands)

    found = program(in_f32())
    monkeypatch.delenv("STAGED_BACKEND")
    compare_trees(found, st.function(ours)(in_f32()), rtol=2e-5, atol=2e-5)


INF, NAN = math.inf, math.nan
TOP = float(np.finfo(np.float32).max)
EDGES = [float(np.ldexp(np.float32(size), power)) for power in (-126, -125, -66) for size in (1.0, 1.5, 1.9999999)]
# name: (function, NumPy's, the operands); each as an array of f32 in one program
SPECIAL = {
    name: of_row(name, *operands)
    for name, operands in {
        "asinh": [[0.0, -0.0, INF, -INF, NAN, 1e30, -1e30]],
        "acosh": [[1.0, 0.5, -3.0, -INF, INF, NAN, 1e30]],
        "atanh": [[1.0, -1.0, 1.5, NAN, 0.0]],
        "hypot": [[0.0, 3e38, INF, NAN, 1e-40, NAN], [0.0, 3e37, NAN, INF, 0.0, 1.0]],
        "signbit": [[0.0, -0.0, INF, -INF, -1e-40]],
        "copysign": [[1.0, -1.0, 0.0, -0.0, INF], [-0.0, 0.0, -2.0, 1.0, -INF]],
        "nextafter": [
            [0.0, -0.0, 0.0, 1.0, 1.0, -2.0, INF, -INF, TOP, 1e-45, -1e-45, 1.2e-38, *EDGES, *EDGES, NAN, 1.0, 3.0],
            [1.0, 0.0, -1.0, 2.0, 0.0, -1.0, 0.0, 0.0, INF, 0.0, -1.0, 0.0, *(INF,) * 9, *(-INF,) * 9, 1.0, NAN, 3.0],
        ],
        "fmod": [[5.5, -5.5, 5.5, -0.0, 1.0, INF, 1.0], [2.0, 2.0, -2.0, 3.0, INF, 1.0, 0.0]],
        "heaviside": [[0.0, -1.0, 2.0, NAN], [0.5] * 4],
        "fmax": [[NAN, 1.0, NAN, 3.0], [1.0, NAN, NAN, 2.0]],
        "fmin": [[NAN, 1.0, NAN, 3.0], [1.0, NAN, NAN, 2.0]],
        "nan_to_num": [[NAN, INF, -INF, 2.0]],
        "sinc": [[0.0, 0.5]],
        "xlogy": [[0.0, 0.0, 2.0, 0.0], [0.0, NAN, 0.0, INF]],
        "logaddexp2": [[-INF, INF, 1000.0], [-INF, 0.0, 1000.0]],
        "isclose": [[1.0, INF, NAN, 1.0, INF], [1.0 + 1e-6, INF, NAN, 1.1, 1.0]],
        "allclose": [[1.0, 2.0], [1.0, 2.0]],
        "array_equal": [[1.0, 2.0], [1.0, 2.5]],
        "nanmax": [[NAN, NAN]],
        "nanmean": [[NAN, NAN]],
    }.items()
} | {
    "fmod_of_integers": (
        lambda a, b: st.fmod(a.astype(st.i64) - 2**62 - 2**62, b.astype(st.i64)),
        lambda a, b: np.fmod(a.astype(np.int64) - 2**62 - 2**62, b.astype(np.int64)),
        [0, 1, 2**62, 2**62 + 2**61],
        [3, -3, 7, -5],
    ),
    "nanvar": (lambda x: st.nanvar(x, correction=1), lambda x: NAN, [NAN, 1.0]),
}


def test_special_points_have_numpys_values() -> None:
    operands = {name: [np.array(x, np.float32) for x in case[2:]] for name, case in SPECIAL.items()}

    @st.function
    def program(operands):
        return {name: SPECIAL[name][0](*given) for name, given in operands.items()}

    with st.eager():
        eagerly = program(operands)
    with np.errstate(all="ignore"):
        expected = {name: np.asarray(SPECIAL[name][1](*given)) for name, given in operands.items()}
    for found in (program(operands), eagerly):
        for name, value in expected.items():
            np.testing.assert_allclose(np.asarray(found[name]), value, rtol=0 if name == "nextafter" else 1e-6, err_msg=name)
            if value.dtype.kind == "f":
                numbers = ~np.isnan(value)
                np.testing.assert_array_equal(np.signbit(found[name])[numbers], np.signbit(value)[numbers], err_msg=name)


# name: (function, operands, the gradient of its sum)
SLOPES = {
    "hypot_at_zero": (st.hypot, [[0.0], [0.0]], [[0.0], [0.0]]),
    "hypot_at_a_tie": (st.hypot, [[3.0], [3.0]], [[math.sqrt(0.5)], [math.sqrt(0.5)]]),
    "sinc_at_zero": (st.sinc, [[0.0]], [[0.0]]),
    "xlogy_at_zero": (st.xlogy, [[0.0, 0.0], [0.0, 2.0]], [[0.0, math.log(2.0)], [0.0, 0.0]]),
    "asinh_large": (st.asinh, [[1e200, 0.0]], [[1e-200, 1.0]]),
    "hardtanh_at_bounds": (st.hardtanh, [[-1.0, 1.0, 0.5]], [[0.0, 0.0, 1.0]]),
    "nanmean": (st.nanmean, [[NAN, 1.0, 2.0]], [[0.0, 0.5, 0.5]]),
    "nanstd_of_equals": (st.nanstd, [[NAN, 2.0, 2.0]], [[0.0, 0.0, 0.0]]),
}


def test_slopes_at_special_points() -> None:
    operands = {name: [np.array(x) for x in case[1]] for name, case in SLOPES.items()}

    def loss(operands):
        return sum(st.sum(SLOPES[name][0](*given)) for name, given in operands.items())

    with st.eager():
        eagerly = st.grad(loss)(operands)
    for found in (st.function(st.grad(loss))(operands), eagerly):
        for name, (_, _, expected) in SLOPES.items():
            np.testing.assert_allclose(np.asarray([np.asarray(x) for x in found[name]]), expected, rtol=1e-14, err_msg=name)


REFUSED = {
    "diagonal_of_one_axis": (lambda: st.diagonal(X, 0, 1, 1), "two axes"),
    "diag_of_a_cube": (lambda: st.diag(np.ones((2, 2, 2))), "a vector or a matrix"),
    "block_diag_of_nothing": (lambda: st.block_diag(), "at least one array"),
    "block_diag_of_a_cube": (lambda: st.block_diag(np.ones((2, 2, 2))), "takes matrices"),
    "cross_of_two": (lambda: st.cross(np.ones(2), np.ones(2)), "3 elements"),
    "glu_of_odd": (lambda: st.glu(np.ones((2, 3))), "halves axis"),
    "rot90_of_one_axis": (lambda: st.rot90(X, 1, (0, 0)), "turns two axes"),
    "diff_negative": (lambda: st.diff(X, -1), "at least 0 times"),
    "average_of_others": (lambda: st.average(X, 0, np.ones(5)), "do not fit"),
    "cov_of_a_cube": (lambda: st.cov(np.ones((2, 2, 2))), "matrix or a vector"),
}

test_refused_with_words = refusals(REFUSED, usual=st.ShapeError)


def test_torchs_words_and_numpys_functions() -> None:
    x = wrap(X)
    np.testing.assert_array_equal(np.asarray(st.diagonal(x[None], dim1=1, dim2=2)), np.diagonal(X[None], 0, 1, 2))
    np.testing.assert_array_equal(np.asarray(x.diff(dim=0)), np.diff(X, axis=0))
    np.testing.assert_allclose(np.asarray(np.arcsinh(x)), np.arcsinh(X), rtol=1e-14)
    np.testing.assert_allclose(np.asarray(np.cov(x, ddof=0)), np.cov(X, ddof=0), rtol=1e-13)
    assert METHODS["trace"] is st.trace


def test_convolutions_of_integers_complex_numbers_and_empty_vectors() -> None:
    whole, other = np.arange(5), np.array([3, -1, 2])
    for mode in ("full", "same", "valid"):
        found = st.convolve(whole, other, mode)
        np.testing.assert_array_equal(found, np.convolve(whole, other, mode))
        assert found.dtype == np.int64
        z, w = whole + 1j, other * 1j + 2.0
        np.testing.assert_allclose(st.correlate(z, w, mode), np.correlate(z, w, mode), rtol=1e-12)
        compiled = st.function(lambda z, w=w, mode=mode: np.convolve(z, w, mode))(z)
        np.testing.assert_allclose(compiled, np.convolve(z, w, mode), rtol=1e-12)
    with pytest.raises(st.ShapeError, match="vectors with elements"):
        st.convolve(np.zeros(0), np.ones(2))
    with pytest.raises(st.ShapeError, match="must be two vectors"):
        st.correlate(X, X)
    with pytest.raises(st.ArgumentError, match="mode"):
        st.convolve(X[0], X[0], "circular")
