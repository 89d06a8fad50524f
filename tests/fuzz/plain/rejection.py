"""Readings of draws by rejection, a number at a time: attempts of an element have streams of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.fuzz.plain import chance
from tests.fuzz.plain.core import Plain, plain
from tests.fuzz.plain.elementwise import dtype_of


def _attempts(element: int, draw: int, key: int) -> Iterator[tuple[float, float, float, float]]:
    """Four numbers of 53 bits in [0, 1) for each attempt at an element."""
    stream = 0
    while True:
        words = [word for number in (stream, stream + 1) for word in chance.block(element, draw, key, number)]
        pairs = zip(words[::2], words[1::2], strict=True)
        first, second, third, fourth = (((a >> 5) * 2**26 + (b >> 6)) / 2.0**53 for a, b in pairs)
        yield first, second, third, fourth
        stream += 2


def _each(of: Callable[..., Any], shape: Any, *parameters: Any) -> Any:
    """`of(attempts, *parameters)` for each element."""
    wanted = np.broadcast_shapes(*(np.shape(one) for one in parameters))
    wanted = wanted if shape in ((), wanted) else tuple(shape)
    draw = chance.Numbers.count
    chance.Numbers.count += 1
    rows = [np.broadcast_to(one, wanted).ravel().tolist() for one in parameters]
    found = [of(_attempts(e, draw, chance.Numbers.seed), *given) for e, given in enumerate(zip(*rows, strict=True))]
    return np.array(found).reshape(wanted)


def _log_gamma(attempts: Any, alpha: float) -> float:
    d, boost = (alpha + 1.0 if alpha < 1 else alpha) - 1.0 / 3.0, None
    for u, angle, v, power in attempts:
        boost = math.log(power + 2.0**-53) / alpha if boost is None and alpha < 1 else boost or 0.0
        z = math.sqrt(-2.0 * math.log(u + 2.0**-53)) * math.cos(2.0 * math.pi * angle)
        w = (1.0 + z / (3.0 * math.sqrt(d))) ** 3
        if w > 0 and math.log(v + 2.0**-53) < 0.5 * z * z + d * (1.0 - w + math.log(w)):
            return math.log(d * w) + boost
    raise AssertionError


def _by_inversion(u: float, chances: Iterator[float]) -> int:
    total, k = next(chances), 0
    while u > total and k < 199:
        total, k = total + next(chances), k + 1
    return k


def _falling(first: float, ratio: Callable[[int], float]) -> Iterator[float]:
    share, k = first, 0
    while True:
        yield share
        k += 1
        share *= ratio(k)


def _log_choose(n: float, k: float) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _poisson(attempts: Any, rate: float) -> int:
    if rate < 10:
        return _by_inversion(next(attempts)[0], _falling(math.exp(-rate), lambda k: rate / k))
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = 0.02483 * b - 0.059
    for first, second, _, _ in attempts:
        u, v = first - 0.5, second + 2.0**-53
        side = 0.5 - abs(u)
        k = math.floor((2 * a / side + b) * u + rate + 0.43)
        if k >= 0 and side >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
            return k
        if k < 0 or side < 0.013 and v > side:
            continue
        height = math.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / side**2 + b))
        if height <= k * math.log(rate) - rate - math.lgamma(k + 1):
            return k
    raise AssertionError


def _binomial(attempts: Any, n: float, p: float) -> int:
    q = min(p, 1 - p)
    odds = q / (1 - q)
    if n * q < 10:
        chances = _falling((1 - q) ** n, lambda k: max(n - k + 1, 0) / k * odds)
        k = min(_by_inversion(next(attempts)[0], chances), int(n))
        return int(n) - k if p > 0.5 else k
    spread = math.sqrt(n * q * (1 - q))
    b = 1.15 + 2.53 * spread
    a, m = 0.0248 * b + 0.01 * q - 0.0873, math.floor((n + 1) * q)
    for first, second, _, _ in attempts:
        u, v = first - 0.5, second + 2.0**-53
        side = 0.5 - abs(u)
        k = math.floor((2 * a / side + b) * u + n * q + 0.5)
        if not 0 <= k <= n:
            continue
        height = math.log(v * (2.83 + 5.1 / b) * spread / (a / side**2 + b))
        limit = _log_choose(n, k) - _log_choose(n, m) + (k - m) * math.log(odds)
        if side >= 0.07 and v <= 0.92 - 4.2 / b or height <= limit:
            return int(n) - k if p > 0.5 else k
    raise AssertionError


def _of(x: Any, dtype: Any) -> Any:
    return plain(x).a.astype(dtype_of(dtype)).astype(np.float64)


def gamma(a: Any, shape: Any = (), *, scale: Any = 1.0, dtype: Any = np.float32) -> Plain:
    draws = np.exp(_each(_log_gamma, shape, _of(a, dtype))).astype(dtype_of(dtype))
    return Plain((draws * _of(scale, dtype)).astype(dtype_of(dtype)))


def beta(a: Any, b: Any, shape: Any = (), *, dtype: Any = np.float32) -> Plain:
    wanted = np.broadcast_shapes(np.shape(plain(a).a), np.shape(plain(b).a)) if shape == () else tuple(shape)
    first = _each(_log_gamma, wanted, np.broadcast_to(_of(a, dtype), wanted))
    second = _each(_log_gamma, wanted, np.broadcast_to(_of(b, dtype), wanted))
    return Plain((1.0 / (1.0 + np.exp(second - first))).astype(dtype_of(dtype)))


def dirichlet(alpha: Any, shape: Any = (), *, dtype: Any = np.float32) -> Plain:
    given = _of(alpha, dtype)
    draws = _each(_log_gamma, (*shape, *given.shape), given)
    shares = np.exp(draws - draws.max(-1, keepdims=True))
    return Plain((shares / shares.sum(-1, keepdims=True)).astype(dtype_of(dtype)))


def poisson(rate: Any = 1.0, shape: Any = ()) -> Plain:
    return Plain(_each(_poisson, shape, plain(rate).a.astype(np.float64)).astype(np.int64))


def binomial(n: Any, p: Any, shape: Any = ()) -> Plain:
    given = plain(n).a.astype(np.float64), plain(p).a.astype(np.float64)
    return Plain(_each(_binomial, shape, *given).astype(np.int64))


def multivariate_normal(mean: Any, cov: Any, shape: Any = (), *, dtype: Any = np.float32) -> Plain:
    middle, factor = _of(mean, dtype), np.linalg.cholesky(_of(cov, dtype))
    z = chance.normal((*shape, *middle.shape), dtype=dtype).a.astype(np.float64)
    return Plain((middle + z @ factor.T).astype(dtype_of(dtype)))
