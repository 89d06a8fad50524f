"""Readings of random numbers: Philox4x32-10 word by word, as docs/guide.md and Salmon et al. (2011) say, a counter each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.plain.core import HALVES, Plain, Precision, plain
from tests.fuzz.plain.elementwise import dtype_of

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF


class Numbers:
    """The seed, and how many draws there were since it was set."""

    seed = 0
    count = 0


def seed(value: Any) -> None:
    Numbers.seed, Numbers.count = int(plain(value).a), 0


class Generator:
    """Numbers of one's own."""

    def __init__(self, seed: Any = 0) -> None:
        self.seed, self.count = int(plain(seed).a), 0


def from_generator(draw: Callable[..., Any]) -> Callable[..., Any]:
    """`draw` with a keyword `generator`: its numbers stand for the default ones while it draws."""

    def found(*args: Any, generator: Generator | None = None, **kwargs: Any) -> Any:
        if generator is None:
            return draw(*args, **kwargs)
        kept = Numbers.seed, Numbers.count
        Numbers.seed, Numbers.count = generator.seed, generator.count
        try:
            return draw(*args, **kwargs)
        finally:
            generator.count = Numbers.count
            Numbers.seed, Numbers.count = kept

    return found


def block(number: int, draw: int, key: int, stream: int = 0) -> list[int]:
    """The four words of one block of a draw."""
    a, b, c, d = number & MASK, stream, draw & MASK, draw >> 32
    low, high = key & MASK, key >> 32 & MASK
    for _ in range(ROUNDS):
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = second >> 32 ^ b ^ low, second & MASK, first >> 32 ^ d ^ high, first & MASK
        low, high = low + STEPS[0] & MASK, high + STEPS[1] & MASK
    return [a, b, c, d]


def words(count: int) -> Any:
    """The first words of the next draw."""
    draw = Numbers.count
    Numbers.count += 1
    found = [word for number in range(-(-count // 4)) for word in block(number, draw, Numbers.seed)]
    return np.array(found[:count], np.uint64)


def _size(shape: Any) -> tuple[tuple[int, ...], int]:
    wanted = tuple(int(n) for n in shape) if isinstance(shape, tuple | list) else (int(shape),)
    return wanted, math.prod(wanted)


def _unit(count: int, dtype: Any) -> Any:
    """Numbers in [0, 1): 24 bits of a word for f32, 53 of two for f64."""
    if is_short(dtype):
        return (words(count) >> np.uint64(8)).astype(np.float64) / 2.0**24
    pairs = words(2 * count).reshape(-1, 2)
    whole = (pairs[:, 0] >> np.uint64(5)) * np.uint64(2**26) + (pairs[:, 1] >> np.uint64(6))
    return whole.astype(np.float64) / 2.0**53


def is_short(dtype: Any) -> bool:
    """Whether numbers of this dtype are made of 24 bits: those of f32, whatever stands for it."""
    return bool(np.dtype(dtype) in (np.float32, *HALVES) or Precision.is_wide)


def _bound(value: Any, dtype: Any) -> Any:
    return plain(value).a.astype(dtype_of(dtype)).astype(np.float64)


def uniform(shape: Any = (), *, low: Any = 0.0, high: Any = 1.0, dtype: Any = np.float32) -> Plain:
    wanted, count = _size(shape)
    first, last = _bound(low, dtype), _bound(high, dtype)
    return Plain((first + _unit(count, dtype).reshape(wanted) * (last - first)).astype(dtype_of(dtype)))


def normal(shape: Any = (), *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = np.float32) -> Plain:
    wanted, count = _size(shape)
    smallest = 2.0**-24 if is_short(dtype) else 2.0**-53
    pairs = _unit(count + count % 2, dtype).reshape(-1, 2)
    radius, angle = np.sqrt(-2.0 * np.log(pairs[:, 0] + smallest)), 2.0 * math.pi * pairs[:, 1]
    draws = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:count].reshape(wanted)
    return Plain((draws * _bound(std, dtype) + _bound(mean, dtype)).astype(dtype_of(dtype)))


def bits(shape: Any = ()) -> Plain:
    wanted, count = _size(shape)
    return Plain(words(count).astype(np.uint32).reshape(wanted))


def bernoulli(p: Any = 0.5, shape: Any = None) -> Plain:
    wanted, count = _size(plain(p).shape if shape is None else shape)
    return Plain(_unit(count, np.float32).reshape(wanted) < _bound(p, np.float32))


def integers(low: Any, high: Any = None, shape: Any = (), dtype: Any = np.int64) -> Plain:
    first, last = (0, int(plain(low).a)) if high is None else (int(plain(low).a), int(plain(high).a))
    wanted, count = _size(shape)
    found = [first + (int(word) * (last - first) >> 32) for word in words(count)]
    return Plain(np.array(found, np.int64).reshape(wanted).astype(dtype_of(dtype)))


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


def _open_unit(shape: Any, dtype: Any) -> Any:
    wanted, count = _size(shape)
    found = _unit(count, dtype).reshape(wanted)
    return found + 2.0**-25 if is_short(dtype) else np.maximum(found, 2.0**-54)


def _of_53_bits(shape: tuple[int, ...]) -> Any:
    """Such numbers of f64 for keys of choices, whatever dtype stands for f32."""
    pairs = words(2 * math.prod(shape)).reshape(-1, 2)
    whole = (pairs[:, 0] >> np.uint64(5)) * np.uint64(2**26) + (pairs[:, 1] >> np.uint64(6))
    return np.maximum(whole.astype(np.float64) / 2.0**53, 2.0**-54).reshape(shape)


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


def _below(x: Any) -> Any:
    return 0.5 * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2.0)) if np.size(x) else x


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
    wanted = _below(a) + u * (_below(b) - _below(a))
    for _ in range(100):
        half = 0.5 * (first + last)
        is_below = _below(half) < wanted
        first, last = np.where(is_below, half, first), np.where(is_below, last, half)
    z = 0.5 * (first + last)
    return Plain((middle + width * (-z if is_mirrored else z)).astype(dtype_of(dtype)))


def categorical(logits: Any, shape: Any = ()) -> Plain:
    keys = plain(logits).a
    draws = -np.log(-np.log(_of_53_bits((*_size(shape)[0], *keys.shape))))
    return Plain(np.argmax(keys.astype(np.float64) + draws, axis=-1))


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
