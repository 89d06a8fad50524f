"""Readings of `st.linalg`, by NumPy's, which is LAPACK, and of `st.special`, by series and sums of Python's `math`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, Plain, bare, part_of, plain, squared, together, widest_of
from tests.fuzz.plain.elementwise import _smooth


def _read(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of matrices, computed in f64 and rounded to the operands' float."""

    def reading(*operands: Any, **keywords: Any) -> Any:
        arrays, _ = together(*operands, floats=True)
        dtype = arrays[0].dtype
        found = function(*(widest_of(array) for array in arrays), **{k: bare(v) for k, v in keywords.items()})
        if isinstance(found, tuple):
            return tuple(_rounded(part, dtype) for part in found)
        return _rounded(found, dtype)

    return reading


def _rounded(x: Any, dtype: Any) -> Plain:
    array = np.asarray(x)
    wanted = {"f": part_of(dtype), "c": dtype}
    return Plain(array.astype(wanted.get(array.dtype.kind, array.dtype)))


def _solve(a: Any, b: Any) -> Any:
    b = np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))
    return np.linalg.solve(np.broadcast_to(a, (*b.shape[:-2], *a.shape[-2:])), b)


def _solve_triangular(a: Any, b: Any, upper: bool, left: bool = True) -> Any:
    half = np.triu(a) if upper else np.tril(a)
    return _solve(half, b) if left else np.swapaxes(_solve(np.swapaxes(half, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)


def _by_rows(x: Any) -> tuple[Any, Any, Any]:
    """Gauss elimination with the largest pivot of each column: permutation, lower and upper factor of one matrix."""
    u, n = x.copy(), x.shape[-1]
    p, low = np.eye(n), np.zeros((n, n), x.dtype)
    for k in range(n):
        best = k + int(np.argmax(np.abs(u[k:, k])))
        for array in (u, p, low):
            array[[k, best]] = array[[best, k]]
        factors = u[k + 1 :, k] / u[k, k]
        low[k + 1 :, k] = factors
        u[k + 1 :] -= np.outer(factors, u[k])
    return p.T, low + np.eye(n), np.triu(u)


def _lu(x: Any) -> tuple[Any, ...]:
    if not x.size:
        return x, x, x
    parts = zip(*(_by_rows(matrix) for matrix in x.reshape(-1, *x.shape[-2:])), strict=True)
    return tuple(np.reshape(np.stack(part), x.shape) for part in parts)


def _expm(x: Any) -> Any:
    """By the series of a matrix that is halved ten times, squared as often."""
    small, total = x / 1024.0, np.zeros_like(x) + np.eye(x.shape[-1])
    term = total
    for k in range(1, 20):
        term = term @ small / k
        total = total + term
    for _ in range(10):
        total = total @ total
    return total


def _matrix_norm(x: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    if ord == 1:
        found = np.max(np.sum(np.abs(x), -2), -1) if x.size else np.zeros(x.shape[:-2])
    elif ord == "fro" or ord is None:
        found = np.sqrt(np.sum(squared(x), (-2, -1)))
    else:
        sizes = np.linalg.svd(x, compute_uv=False)
        found = np.sum(sizes, -1) if ord == "nuc" else np.max(sizes, -1, initial=0.0)
    return found[..., None, None] if keepdims else found


def _vector_norm(x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sum(np.abs(x) ** ord, axis=None if axis is None else axis, keepdims=keepdims) ** (1.0 / ord)


def _least(a: Any, b: Any) -> tuple[Any, ...]:
    return (np.linalg.lstsq(a, b, rcond=None)[0],)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a, upper=False: np.conj(np.swapaxes(np.linalg.cholesky(a), -1, -2)) if upper else np.linalg.cholesky(a),
    "cond": lambda x: (s := np.linalg.svd(x, compute_uv=False))[..., 0] / s[..., -1],
    "det": np.linalg.det,
    "eigh": lambda a, UPLO="L": tuple(np.linalg.eigh(a, UPLO)),
    "eigvalsh": np.linalg.eigvalsh,
    "expm": _expm,
    "matrix_exp": _expm,
    "inv": np.linalg.inv,
    "lstsq": _least,
    "lu": _lu,
    "lu_factor": lambda a: (np.tril(_lu(a)[1], -1) + _lu(a)[2], np.zeros(a.shape[:-1])),
    "matrix_norm": _matrix_norm,
    "norm": _matrix_norm,
    "matrix_rank": np.linalg.matrix_rank,
    "pinv": np.linalg.pinv,
    "qr": lambda a, mode="reduced": np.linalg.qr(a, mode),
    "slogdet": lambda a: tuple(np.linalg.slogdet(a)),
    "solve": _solve,
    "solve_triangular": _solve_triangular,
    "svd": lambda a, full_matrices=True, compute_uv=True: np.linalg.svd(a, full_matrices, compute_uv),
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    "vector_norm": _vector_norm,
}
LINALG = SimpleNamespace(
    **{name: _read(function) for name, function in _FUNCTIONS.items()},
    matrix_power=lambda a, n: _read(lambda x: np.linalg.matrix_power(x, n))(a),
    outer=lambda x, y: FUNCTIONS["outer"](x, y),  # these three of integers too, in their own dtype
    diagonal=lambda x, offset=0: Plain(np.diagonal(plain(x).a, offset, -2, -1)),
    trace=lambda x, offset=0: Plain(np.trace(plain(x).a, offset, -2, -1)),
    multi_dot=lambda arrays: functools.reduce(FUNCTIONS["matmul"], arrays),
)

# ---- special functions ----------------------------------------------------------------------------


def _bessel(order: int) -> Callable[[float], float]:
    """The modified Bessel function, by its series."""

    def value(x: float) -> float:
        term = total = (0.5 * x) ** order
        for k in range(1, 400):
            term *= (0.5 * x) ** 2 / (k * (k + order))
            total += term
        return total

    return value


def _ndtr(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _ndtri(p: float) -> float:
    """By bisection."""
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _ndtr(middle) < p else (low, middle)
    return 0.5 * (low + high)


def _each(function: Callable[..., float]) -> Callable[..., Any]:
    return lambda *x: np.vectorize(function, otypes=[float])(*x) if x[0].size else x[0]


_SPECIAL = {
    "betaln": lambda a, b: math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b),
    "entr": lambda x: 0.0 if x == 0 else -x * math.log(x) if x > 0 else -math.inf,
    "erfcx": lambda x: math.exp(x * x) * math.erfc(x),
    "i0e": lambda x: _bessel(0)(x) * math.exp(-abs(x)),
    "i1": _bessel(1),
    "i1e": lambda x: _bessel(1)(x) * math.exp(-abs(x)),
    "log_ndtr": lambda x: math.log(_ndtr(x)),
    "ndtr": _ndtr,
    "ndtri": lambda p: _ndtri(p) if 0.0 < p < 1.0 else math.copysign(math.inf, p - 0.5) if p in (0.0, 1.0) else math.nan,
    "xlog1py": lambda x, y: x * math.log1p(y),
}
for _name, _function in _SPECIAL.items():
    _smooth(f"special.{_name}", _each(_function))
SPECIAL = SimpleNamespace(**{name: FUNCTIONS.pop(f"special.{name}") for name in _SPECIAL})
