"""Rows of `st.random`. The readings compute Philox4x32-10 word by word, as docs/guide.md and Salmon et al. (2011) define it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import HALVES, Draw, NotACell, Shape
from tests.fuzz.plain import chance
from tests.fuzz.plain.chance import words
from tests.fuzz.plain.core import HALVES as HALF_DTYPES
from tests.fuzz.plain.core import Plain, Precision, dtype_of, plain, widest_of
from tests.rows.draws import dtype_keyword, generator, seeded
from tests.rows.table import Call, row


def _shaped(d: Draw) -> tuple[str, Shape]:
    """A new array and its shape, which is drawn alike."""
    seeded(d)
    shape = d.shape(ranks=(0, 1, 2))
    return d.new(shape, values="small"), shape


def _size(shape: Any) -> tuple[tuple[int, ...], int]:
    wanted = tuple(int(n) for n in shape) if isinstance(shape, tuple | list) else (int(shape),)
    return wanted, math.prod(wanted)


def _bound(value: Any, dtype: Any) -> Any:
    return plain(value).a.astype(dtype_of(dtype)).astype(np.float64)


def is_short(dtype: Any) -> bool:
    """Whether numbers of this dtype are made of 24 bits: those of f32, whatever stands for it."""
    return bool(np.dtype(dtype) in (np.float32, *HALF_DTYPES) or Precision.is_wide)


def _unit(count: int, dtype: Any) -> Any:
    """Numbers in [0, 1): 24 bits of a word for f32, 53 of two for f64."""
    if is_short(dtype):
        return (words(count) >> np.uint64(8)).astype(np.float64) / 2.0**24
    pairs = words(2 * count).reshape(-1, 2)
    whole = (pairs[:, 0] >> np.uint64(5)) * np.uint64(2**26) + (pairs[:, 1] >> np.uint64(6))
    return whole.astype(np.float64) / 2.0**53


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"low", "high"}
    bounds = d.pick(
        "",
        ", low=-1.5, high=2.0",
        ", low=1000, high=1001",  # some round to 1001
        f", low={d.new((), values='small')}, high=7.0" if d.is_float else "",
    )
    return f"st.random.uniform({shape!r}{bounds}, {dtype_keyword(d)}{generator(d)}) * {x}"


@row("random.uniform", draw)
def uniform(shape: Any = (), *, low: Any = 0.0, high: Any = 1.0, dtype: Any = np.float32) -> Plain:
    wanted, count = _size(shape)
    first, last = _bound(low, dtype), _bound(high, dtype)
    return _kept_below(first + _unit(count, dtype).reshape(wanted) * (last - first), low, high, dtype)


def _kept_below(x: Any, low: Any, high: Any, dtype: Any) -> Plain:
    """Numbers of a dtype, of which the bound `high` is none unless it is `low`."""
    rounded, first, last = (np.asarray(each).astype(dtype_of(dtype)) for each in (x, plain(low).a, plain(high).a))
    before = np.nextafter(last, first.dtype.type(-math.inf))
    return Plain(np.where(rounded < last, rounded, np.where(first < last, before, first)))


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"mean", "std"}
    rest = d.pick("", ", mean=1.0, std=0.5", ", std=0.0") if not d.is_float or d.likely(50) else ""
    if not rest and d.is_float and d.likely(60):
        rest = f", mean={d.new((), values='small')}, std={d.new((), values='positive')}"
    return f"st.random.normal({shape!r}{rest}, {dtype_keyword(d)}{generator(d)}) + {x}"


@row("random.normal", draw)
def normal(shape: Any = (), *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = np.float32) -> Plain:
    wanted, count = _size(shape)
    smallest = 2.0**-24 if is_short(dtype) else 2.0**-53
    pairs = _unit(count + count % 2, dtype).reshape(-1, 2)
    radius, angle = np.sqrt(-2.0 * np.log(pairs[:, 0] + smallest)), 2.0 * math.pi * pairs[:, 1]
    draws = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:count].reshape(wanted)
    return Plain((draws * _bound(std, dtype) + _bound(mean, dtype)).astype(dtype_of(dtype)))


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    drawn = f"st.random.bits({shape!r}{generator(d)})"
    if d.is_float:
        return f"st.astype({drawn} >> {24 if d.dtype in HALVES else d.pick(12, 20)}, st.{d.dtype}) * {x}"
    return f"({drawn}, {x})" if d.likely(50) or d.dtype == "bool" else f"({drawn} ^ st.astype({x}, st.u32))"


@row("random.bits", draw)
def bits(shape: Any = ()) -> Plain:
    wanted, count = _size(shape)
    return Plain(words(count).astype(np.uint32).reshape(wanted))


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    if shape and not d.smooth and d.likely(30):
        p, given = d.pick((d.new(shape, "f32", "prob"), ""), (d.new(shape[-1:], "f32", "prob"), f", {shape!r}"))
        return f"st.where(st.random.bernoulli({p}{given}{generator(d)}), {x}, {d.new(shape, values='small')})"
    p = d.pick("0.5", "0.0", "1.0", "0.25") if d.likely(70) else d.new((), "f32", "prob")
    return f"st.where(st.random.bernoulli({p}, {shape!r}{generator(d)}), {x}, {d.new(shape, values='small')})"


@row("random.bernoulli", draw)
def bernoulli(p: Any = 0.5, shape: Any = None) -> Plain:
    wanted, count = _size(plain(p).shape if shape is None else shape)
    return Plain(_unit(count, np.float32).reshape(wanted) < _bound(p, np.float32))


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"low", "high", "dtype"}
    if shape and shape[0] and d.likely(40):
        return f"st.take({x}, st.random.integers({shape[0]}, shape=(5,)), axis=0)"
    low = d.pick(0, 2) if d.dtype[0] == "u" else d.pick(0, -3, -100)
    high = d.new((), "i64", "below 9") + " + 3" if d.likely(30) else d.pick(3, 100)
    if d.dtype in ("i64", "u64", "f64") and not d.smooth and d.likely(30):
        high = d.pick(2**40, 2**62, d.new((), "i64", "below 9") + " * 2**58 + 3")
    dtype = "" if d.is_float or d.dtype == "bool" else f", {dtype_keyword(d)}"
    drawn = f"st.random.integers({low}, {high}, {shape!r}{dtype}{generator(d)})"
    return f"({drawn}, {x})" if d.dtype == "bool" else f"{drawn} * {x}"


@row("random.integers", draw)
def integers(low: Any, high: Any = None, shape: Any = (), dtype: Any = np.int64) -> Plain:
    first, last = (0, int(plain(low).a)) if high is None else (int(plain(low).a), int(plain(high).a))
    wanted, count = _size(shape)
    if last - first > 2**31:
        digits = [[int(word) for word in three] for three in words(3 * count).reshape(-1, 3)]
        found = [first + ((a + (b << 32) + (c << 64)) * (last - first) >> 96) for a, b, c in digits]
    else:
        found = [first + (int(word) * (last - first) >> 32) for word in words(count)]
    return Plain(np.array(found, np.int64).reshape(wanted).astype(dtype_of(dtype)))


def draw(d: Draw) -> str:
    seeded(d)
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    if d.likely(30):
        return f"st.random.permutation({d.new(shape)}{generator(d)})"
    return f"st.take({d.new(shape)}, st.random.permutation({shape[axis]}{generator(d)}), axis={axis})"


@row("random.permutation", draw)
def permutation(n: Any) -> Plain:
    if isinstance(n, Plain) and n.shape:
        return Plain(n.a[permutation(n.shape[0]).a])
    order = list(range(int(n)))
    drawn = words(len(order))
    for place in reversed(range(1, len(order))):
        other = int(drawn[place]) * (place + 1) >> 32
        order[place], order[other] = order[other], order[place]
    return Plain(np.array(order, np.int64))


# ---- by the inverse of the distribution's function ------------------------------------------------


def _scaled(*parameters: str) -> Call:
    def text(d: Draw) -> str:
        x, shape = _shaped(d)
        d.keywords |= {*parameters, "dtype"}
        rest = d.pick("", ", scale=0.5", *((", loc=1.0, scale=2.0",) if "loc" in parameters else ()))
        if d.is_float and d.likely(40):
            rest = f", scale={d.new((), values='positive')}"
        return f"st.{d.name}({shape!r}{rest}, {dtype_keyword(d)}{generator(d)}) * {x}"

    return text


def _open_unit(shape: Any, dtype: Any) -> Any:
    wanted, count = _size(shape)
    found = _unit(count, dtype).reshape(wanted)
    return found + 2.0**-25 if is_short(dtype) else np.maximum(found, 2.0**-54)


def _inverse(of: Callable[[Any], Any]) -> Callable[..., Plain]:
    def draw(shape: Any = (), *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = np.float32) -> Plain:
        draws = of(_open_unit(shape, dtype)).astype(dtype_of(dtype)).astype(np.float64)
        return Plain((draws * _bound(scale, dtype) + _bound(loc, dtype)).astype(dtype_of(dtype)))

    return draw


exponential = _inverse(lambda u: -np.log1p(-u))
laplace = _inverse(lambda u: np.where(u < 0.5, np.log(2.0 * u), -np.log(2.0 - 2.0 * u)))
logistic = _inverse(lambda u: np.log(u) - np.log1p(-u))
gumbel = _inverse(lambda u: -np.log(-np.log(u)))
cauchy = _inverse(lambda u: np.tan((u - 0.5) * math.pi))
row("random.exponential", _scaled("scale"), exponential)
row("random.laplace", _scaled("loc", "scale"), laplace)
row("random.logistic", _scaled("loc", "scale"), logistic)
row("random.gumbel", _scaled("loc", "scale"), gumbel)
row("random.cauchy", _scaled("loc", "scale"), cauchy)


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    if not shape or not d.is_float:
        raise NotACell
    rest = d.keyword("tau", 0.5, 2.0) + (d.keyword("hard", True) if not d.smooth else "")
    return f"st.gumbel_softmax({x}{rest}{d.keyword('generator', None, percent=40)}{d.axis(len(shape), several=False, none=False)})"


@row("gumbel_softmax", draw)
def gumbel_softmax(
    logits: Any, tau: Any = 1.0, hard: bool = False, *, axis: int = -1, generator: Any = None
) -> Plain:
    array = plain(logits)
    scores = (widest_of(array.a) + widest_of(gumbel(array.shape, dtype=array.dtype).a)) / widest_of(plain(tau).a)
    shares = np.exp(scores - scores.max(axis=axis, keepdims=True, initial=-np.inf))
    shares = shares / shares.sum(axis=axis, keepdims=True)
    if hard:
        is_largest = shares == shares.max(axis=axis, keepdims=True, initial=0.0)
        shares = is_largest & (np.cumsum(is_largest, axis=axis) == 1)
    return Plain(shares.astype(array.dtype))


def _below(x: Any) -> Any:
    return 0.5 * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2.0)) if np.size(x) else x


def _log_below(x: Any) -> Any:
    """The logarithm of `_below` far below 0, where it is no number of f64: a continued fraction."""
    fraction = -x
    for k in range(30, 0, -1):
        fraction = -x + k / fraction
    return -0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - np.log(fraction)


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"low", "high", "mean", "std"}
    tail = f", low={d.new((), values='small')} - 60.0, high=-40.0" if d.is_float and d.dtype not in HALVES else ""
    rest = d.pick("", ", low=-1.0", ", low=3.0, high=5.0", ", mean=1.0, std=0.5", ", low=39.0, high=41.0", tail)
    return f"st.random.truncated_normal({shape!r}{rest}, {dtype_keyword(d)}{generator(d)}) * {x}"


@row("random.truncated_normal", draw)
def truncated_normal(
    shape: Any = (), *, low: Any = -2.0, high: Any = 2.0, mean: Any = 0.0, std: Any = 1.0, dtype: Any = np.float32
) -> Plain:
    """By bisection."""
    u = _open_unit(shape, dtype)
    middle, width = _bound(mean, dtype), _bound(std, dtype)
    a, b = ((_bound(end, dtype) - middle) / width for end in (low, high))
    is_mirrored = bool(a > 0)
    a, b = (-b, -a) if is_mirrored else (a, b)
    first, last = np.full(u.shape, a), np.full(u.shape, b)
    below = _below
    wanted = _below(a) + u * (_below(b) - _below(a))
    if b < -30:
        below = _log_below
        wanted = _log_below(b) + np.log(u + (1.0 - u) * np.exp(_log_below(a) - _log_below(b)))
    for _ in range(100):
        half = 0.5 * (first + last)
        is_below = below(half) < wanted
        first, last = np.where(is_below, half, first), np.where(is_below, last, half)
    z = 0.5 * (first + last)
    return _kept_below(middle + width * (-z if is_mirrored else z), low, high, dtype)


def _of_53_bits(shape: tuple[int, ...]) -> Any:
    """Such numbers of f64 for keys of choices, whatever dtype stands for f32."""
    pairs = words(2 * math.prod(shape)).reshape(-1, 2)
    whole = (pairs[:, 0] >> np.uint64(5)) * np.uint64(2**26) + (pairs[:, 1] >> np.uint64(6))
    return np.maximum(whole.astype(np.float64) / 2.0**53, 2.0**-54).reshape(shape)


def draw(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"logits"}
    logits = d.pick("np.zeros(4)", "np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 1.0]])")
    return f"(st.random.categorical({logits}, {shape!r}{generator(d)}), {x})"


@row("random.categorical", draw)
def categorical(logits: Any, shape: Any = ()) -> Plain:
    keys = plain(logits).a
    draws = -np.log(-np.log(_of_53_bits((*_size(shape)[0], *keys.shape))))
    return Plain(np.argmax(keys.astype(np.float64) + draws, axis=-1))


def draw(d: Draw) -> str:
    seeded(d)
    d.keywords |= {"a", "replace", "p"}
    shape = d.shape(ranks=(1, 2))
    x = d.new(shape, values="small")
    if not shape[0]:
        raise NotACell
    how = d.pick("", f", p=np.arange(1.0, {shape[0] + 1})", ", replace=False")
    return f"st.random.choice({x}, ({1 if 'replace' in how else 3},){how}{generator(d)})"


@row("random.choice", draw)
def choice(a: Any, shape: Any = (), *, replace: bool = True, p: Any = None) -> Plain:
    rows = None if isinstance(a, int) else plain(a).a
    count = a if rows is None else len(rows)
    wanted, size = _size(shape)
    if p is None:
        index = integers(count, shape=wanted).a if replace else permutation(count).a[:size]
    else:
        with np.errstate(divide="ignore"):
            logits = np.log(plain(p).a.astype(np.float64))
        if replace:
            index = categorical(logits, wanted).a
        else:
            keys = logits - np.log(-np.log(_of_53_bits((count,))))
            index = np.argsort(-keys, kind="stable")[:size]
    index = index.reshape(wanted)
    return Plain(index if rows is None else rows[index])


# ---- by rejection, a number at a time: attempts of an element have streams of their own -----------


def _rejected(*parameters: str, given: Callable[[Draw, tuple[int, ...]], str], dtype: bool = True) -> Call:
    """A draw of parameters that are numbers, or an array of the shape of the draws."""

    def text(d: Draw) -> str:
        x, shape = _shaped(d)
        d.keywords |= {*parameters}
        kind = f", {dtype_keyword(d)}" if dtype and d.likely(70) else ""
        rest = f"{given(d, shape)}{kind}{generator(d)})"
        return f"st.{d.name}({rest} * {x}" if d.is_float and dtype else f"(st.{d.name}({rest}, {x})"

    return text


def _attempts(element: int, draw: int, key: int) -> Iterator[tuple[float, float, float, float]]:
    """Four numbers of 53 bits in [0, 1) for each attempt at an element."""
    stream = 0
    while True:
        words = [word for number in (stream, stream + 1) for word in chance.block(element, draw, key, number)]
        pairs = zip(words[::2], words[1::2], strict=True)
        first, second, third, fourth = (((a >> 5) * 2**26 + (b >> 6)) / 2.0**53 for a, b in pairs)
        yield first, second, third, fourth
        stream += 2


def _of_each(of: Callable[..., Any], shape: Any, *parameters: Any) -> Any:
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


def _parameter(x: Any, dtype: Any) -> Any:
    return plain(x).a.astype(dtype_of(dtype)).astype(np.float64)


@row(
    "random.gamma",
    _rejected(
        "a",
        "scale",
        given=lambda d, shape: f"{d.pick('0.5', '1.0', '7.5')}, {shape!r}{d.keyword('scale', 2.0)}",
    ),
)
def gamma(a: Any, shape: Any = (), *, scale: Any = 1.0, dtype: Any = np.float32) -> Plain:
    draws = np.exp(_of_each(_log_gamma, shape, _parameter(a, dtype))).astype(dtype_of(dtype))
    return Plain((draws * _parameter(scale, dtype)).astype(dtype_of(dtype)))


@row("random.beta", _rejected("a", "b", given=lambda d, shape: f"{d.pick('0.5', '3.0')}, 2.5, {shape!r}"))
def beta(a: Any, b: Any, shape: Any = (), *, dtype: Any = np.float32) -> Plain:
    wanted = np.broadcast_shapes(np.shape(plain(a).a), np.shape(plain(b).a)) if shape == () else tuple(shape)
    first = _of_each(_log_gamma, wanted, np.broadcast_to(_parameter(a, dtype), wanted))
    second = _of_each(_log_gamma, wanted, np.broadcast_to(_parameter(b, dtype), wanted))
    return Plain((1.0 / (1.0 + np.exp(second - first))).astype(dtype_of(dtype)))


@row(
    "random.dirichlet",
    _rejected(
        "alpha",
        given=lambda d, shape: f"np.linspace(0.5, 3.0, {shape[-1] if shape else 1}), {shape[:-1]!r}",
    ),
)
def dirichlet(alpha: Any, shape: Any = (), *, dtype: Any = np.float32) -> Plain:
    given = _parameter(alpha, dtype)
    draws = _of_each(_log_gamma, (*shape, *given.shape), given)
    shares = np.exp(draws - draws.max(-1, keepdims=True))
    return Plain((shares / shares.sum(-1, keepdims=True)).astype(dtype_of(dtype)))


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


@row(
    "random.poisson",
    _rejected("rate", given=lambda d, shape: f"{d.pick('0.0', '2.5', '40.0')}, {shape!r}", dtype=False),
)
def poisson(rate: Any = 1.0, shape: Any = ()) -> Plain:
    return Plain(_of_each(_poisson, shape, plain(rate).a.astype(np.float64)).astype(np.int64))


def _log_choose(n: float, k: float) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


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


@row(
    "random.binomial",
    _rejected(
        "n",
        "p",
        given=lambda d, shape: f"{d.pick(0, 9, 200)}, {d.pick('0.25', '0.75', '1.0')}, {shape!r}",
        dtype=False,
    ),
)
def binomial(n: Any, p: Any, shape: Any = ()) -> Plain:
    given = plain(n).a.astype(np.float64), plain(p).a.astype(np.float64)
    return Plain(_of_each(_binomial, shape, *given).astype(np.int64))


@row(
    "random.multivariate_normal",
    _rejected(
        "mean",
        "cov",
        given=lambda d, shape: f"np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]]), {shape!r}",
    ),
)
def multivariate_normal(mean: Any, cov: Any, shape: Any = (), *, dtype: Any = np.float32) -> Plain:
    middle, factor = _parameter(mean, dtype), np.linalg.cholesky(_parameter(cov, dtype))
    z = normal((*shape, *middle.shape), dtype=dtype).a.astype(np.float64)
    return Plain((middle + z @ factor.T).astype(dtype_of(dtype)))
