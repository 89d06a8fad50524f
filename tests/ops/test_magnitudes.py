"""Norms and functions of matrices at any magnitude: f(s x) = s^k f(x), for s near both ends of the dtype's range.

The oracle is the program itself at s = 1, whose values other tests compare with NumPy's. Functions that exponentiate have
closed forms near the largest number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st

RNG = np.random.default_rng(0)
SQUARE = RNG.standard_normal((4, 4)) + 4.0 * np.eye(4)
TALL = RNG.standard_normal((5, 3))
VECTOR = RNG.standard_normal(6)
DEFINITE = SQUARE @ SQUARE.T

DEGREES: dict[str, tuple[Callable[[Any], Any], np.ndarray[Any, Any], float]] = {
    "norm": (st.norm, VECTOR, 1),
    "norm 1": (lambda x: st.linalg.norm(x, 1), VECTOR, 1),
    "norm inf": (lambda x: st.linalg.norm(x, np.inf), VECTOR, 1),
    "norms of rows": (lambda x: st.norm(x, axis=1), TALL, 1),
    "direction": (st.grad(lambda x: st.norm(x)), VECTOR, 0),
    "fro": (st.linalg.matrix_norm, TALL, 1),
    "nuc": (lambda x: st.linalg.matrix_norm(x, ord="nuc"), TALL, 1),
    "qr": (lambda x: st.linalg.qr(x)[0], TALL, 0),
    "r": (lambda x: st.linalg.qr(x, mode="r"), TALL, 1),
    "svdvals": (st.linalg.svdvals, TALL, 1),
    "svd": (lambda x: st.abs(st.linalg.svd(x)[0][:, :3]), TALL, 0),
    "svd slope": (st.grad(lambda x: st.abs(st.linalg.svd(x, full_matrices=False)[0])[0, 0]), TALL, -1),
    "eigvalsh": (st.linalg.eigvalsh, DEFINITE, 1),
    "eigh": (lambda x: st.abs(st.linalg.eigh(x)[1]), DEFINITE, 0),
    "eigh slope": (st.grad(lambda x: st.abs(st.linalg.eigh(x)[1])[0, 0]), DEFINITE, -1),
    "cholesky": (st.linalg.cholesky, DEFINITE, 0.5),
    "inv": (st.linalg.inv, SQUARE, -1),
    "pinv": (st.linalg.pinv, TALL, -1),
    "solve": (lambda x: st.linalg.solve(x, x), SQUARE, 0),
    "lstsq": (lambda x: st.linalg.lstsq(x, x[:, 0])[0], TALL, 0),
    "cond": (st.linalg.cond, TALL, 0),
    "cond 1": (lambda x: st.linalg.cond(x, 1), SQUARE, 0),
    "sign of the determinant": (lambda x: st.linalg.slogdet(x)[0], SQUARE, 0),
    "matrix_rank": (lambda x: st.linalg.matrix_rank(x) * 1.0, TALL, 0),
    "hypot": (lambda x: st.hypot(x[0], x[1]), VECTOR, 1),
    "abs": (lambda x: st.abs(st.complex(x[0], x[1])), VECTOR, 1),
    "quotient": (lambda x: st.real(st.complex(x[0], x[1]) / st.complex(x[2], x[3])), VECTOR, 0),
    "root": (lambda x: st.real(st.sqrt(st.complex(x[0], x[1]))), VECTOR, 0.5),
}
POWERS = {np.float64: (-996, -664, -532, 532, 664, 996), np.float32: (-116, -100, -70, 70, 100, 116)}


@pytest.mark.parametrize("dtype", POWERS)
@pytest.mark.parametrize("name", DEGREES)
def test_functions_have_their_degree_at_any_magnitude(name: str, dtype: type) -> None:
    f, x, degree = DEGREES[name]
    compiled = st.function(f)
    x, range_ = x.astype(dtype), np.finfo(dtype)
    for run in (f, compiled) if dtype is np.float64 else (compiled,):
        right = np.asarray(run(x)).astype(np.float64)
        for power in POWERS[dtype]:
            if range_.minexp + 10 < degree * power < range_.maxexp - 10:
                found = np.asarray(run(np.ldexp(x, power))).astype(np.float64) / 2.0 ** (degree * power)
                least = 40 * range_.eps * np.abs(right).max()
                np.testing.assert_allclose(found, right, rtol=40 * range_.eps, atol=least, err_msg=f"2^{power}")


LARGEST: dict[str, tuple[Callable[[Any], Any], list[float], list[float]]] = {
    "softmax": (st.softmax, [0.5, 0.5, 0.0], [-0.25, 0.25, 0.0]),
    "log_softmax": (st.log_softmax, [-np.log(2.0), -np.log(2.0), -np.inf], [-2.0, -1.0, 3.0]),
    "logsumexp": (lambda x: st.logsumexp(x, axis=0, keepdims=True) * [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]),
    "logaddexp": (lambda x: st.logaddexp(x, x[::-1]), [1.0, 1.0, 1.0], [4.0, 2.0, 0.0]),
    "logcumsumexp": (st.logcumsumexp, [1.0, 1.0, 1.0], [3.5, 2.5, 0.0]),
    "sigmoid": (st.sigmoid, [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]),
    "softplus": (st.softplus, [1.0, 1.0, 0.0], [1.0, 2.0, 0.0]),
    "tanh": (st.tanh, [1.0, 1.0, -1.0], [0.0, 0.0, 0.0]),
}
"""At s * [1, 1, -1], for s near the largest number: values, in units of s where that large, and slopes along [1, 2, 3]."""


@pytest.mark.parametrize("dtype", POWERS)
@pytest.mark.parametrize("name", LARGEST)
def test_functions_of_exponentials_are_right_near_the_largest_number(name: str, dtype: type) -> None:
    f, values, slopes = LARGEST[name]
    large = float(np.finfo(dtype).max) * 0.9
    x = np.array([large, large, -large], dtype)
    weights = np.array([1.0, 2.0, 3.0], dtype)
    slope = st.grad(lambda x: st.sum(st.where(weights > 0, f(x), 0.0) * weights))
    for run, derived in ((f, slope), (st.function(f), st.function(slope))):
        found = np.asarray(run(x)).astype(np.float64)
        np.testing.assert_allclose(np.where(np.abs(found) > 1e30, found / large, found), values, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(derived(x)), slopes, atol=1e-6)


OTHERS: dict[str, Callable[[Any], Any]] = {
    "prod": st.prod,
    "prod of a matrix": lambda x: st.prod(st.reshape(x, (2, -1))),
    "cumprod": lambda x: st.cumprod(x)[-1],
    "segment_prod": lambda x: st.segment_prod(x, np.zeros(len(x), int), 1)[0],
    "scatter_reduce": lambda x: st.scatter_reduce(st.ones(2, dtype=x.dtype), 0, np.zeros(len(x), int), x, "prod")[0],
}
FACTORS = {
    "a zero": [1e30, 0.0, 1e30, 1e-30],
    "two zeros": [0.0, 1e30, 0.0, 1e30],
    "large first": [1e30, 1e30, 1e-30, 1e-30, 2.0, 3.0],
    "small first": [1e-30, 1e-30, 1e30, 1e30, -2.0, 0.5],
    "many": [1e30] * 6 + [1e-30] * 6,
    "a zero of many": [1e30] * 6 + [0.0] + [1e-30] * 5,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factors", FACTORS)
def test_products_of_other_factors_do_not_overflow_on_the_way(factors: str, dtype: type) -> None:
    """A derivative of `cumprod` of f64 has products up to an element, and products of those after it."""
    power = 1 if dtype is np.float32 else 10
    x = np.array([np.sign(v) * abs(v) ** (power if abs(v) in (1e30, 1e-30) else 1) for v in FACTORS[factors]], dtype)
    exact = [np.prod(np.delete(x, i).astype(np.longdouble)) for i in range(len(x))]
    wanted = np.array(exact).astype(dtype)
    names = [name for name in OTHERS if name != "cumprod" or dtype is np.float32]
    slopes = st.function(lambda x: [st.grad(OTHERS[name])(x) for name in names])
    for found in (slopes(x), [st.grad(OTHERS[name])(x) for name in names]):
        for name, slope in zip(names, found, strict=True):
            np.testing.assert_allclose(slope, wanted, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(st.function(st.jacfwd(st.prod))(x), wanted, rtol=1e-5)
