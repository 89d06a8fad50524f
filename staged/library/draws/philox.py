"""The meanings of random ops in NumPy: the generator Philox4x32-10, and what is computed from its bits.

    block b of an op:  philox(counter words = [b, stream, counter low, counter high], key = [seed low, seed high])
    word k of an op:   word k % 4 of block k // 4

    random_bits   element e: word e
    uniform f32   element e: (word e >> 8) * 2^-24                                            in [0, 1)
    uniform f64   element e: (h >> 5) * 2^-27 + (l >> 6) * 2^-53, h, l = words 2e, 2e + 1     in [0, 1)
    normal        elements 2p, 2p + 1: r * cos(a), r * sin(a) with r = sqrt(-2 log(u)), a = 2 pi v (Box and Muller);
                  f32: u = ((word 2p >> 8) + 1) * 2^-24, v = (word 2p + 1 >> 8) * 2^-24
                  f64: u, v from words 4p..4p + 3 as uniform f64 does, u with + 2^-53      so u is in (0, 1]
    bernoulli     element e: uniform f32 of element e < p, in f32
    permutation   Fisher-Yates from i = n - 1 down to 1: swap i with (word i * (i + 1)) >> 32

`b` and `stream` count modulo 2^32. Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3,
2011.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staged.ir.types import DType, f32

Data = np.ndarray[Any, Any]
LOW_WORD = 0xFFFFFFFF


def philox(counter: Data, key: tuple[int, int]) -> Data:
    """Ten rounds over counters of shape (4, n), u32: random bits of the same shape."""
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            second & np.uint64(LOW_WORD),
            (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            first & np.uint64(LOW_WORD),
        )
        k0, k1 = (k0 + 0x9E3779B9) & LOW_WORD, (k1 + 0xBB67AE85) & LOW_WORD
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def words(seed: Any, stream: Any, counter: Any, count: int) -> Data:
    """The first `count` u32 of a random op."""
    blocks = (count + 3) // 4
    seed_, stream_, counter_ = (int(value) & 0xFFFFFFFFFFFFFFFF for value in (seed, stream, counter))
    states = np.zeros((4, blocks), np.uint32)
    states[0] = np.arange(blocks, dtype=np.uint64) & np.uint64(LOW_WORD)
    states[1], states[2], states[3] = stream_ & LOW_WORD, counter_ & LOW_WORD, counter_ >> 32
    return philox(states, (seed_ & LOW_WORD, seed_ >> 32)).T.reshape(-1)[:count]


def unit_f32(bits: Data) -> Data:
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def unit_f64(high: Data, low: Data) -> Data:
    """A number in [0, 1) of 53 bits of two u32."""
    return (high >> np.uint32(5)) * 2.0**-27 + (low >> np.uint32(6)) * 2.0**-53


def bits(seed: Data, stream: Data, counter: Data, shape: Any) -> Data:
    return words(seed, stream, counter, math.prod(shape)).reshape(shape)


def uniform(seed: Data, stream: Data, counter: Data, shape: Any, dtype: DType) -> Data:
    count = math.prod(shape)
    if dtype is f32:
        return unit_f32(words(seed, stream, counter, count)).reshape(shape)
    bits = words(seed, stream, counter, 2 * count)
    return unit_f64(bits[::2], bits[1::2]).reshape(shape)


def normal(seed: Data, stream: Data, counter: Data, shape: Any, dtype: DType) -> Data:
    count = math.prod(shape)
    pairs = (count + 1) // 2
    u: Data
    v: Data
    if dtype is f32:
        bits = words(seed, stream, counter, 2 * pairs)
        u, v = unit_f32(bits[::2]) + np.float32(2.0**-24), unit_f32(bits[1::2])
    else:
        bits = words(seed, stream, counter, 4 * pairs)
        u, v = unit_f64(bits[::4], bits[1::4]) + 2.0**-53, unit_f64(bits[2::4], bits[3::4])
    kind: Any = dtype.numpy.type
    radius = np.sqrt(kind(-2.0) * np.log(u))
    angle = kind(2.0 * math.pi) * v
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return both.reshape(-1)[:count].reshape(shape).astype(dtype.numpy)


def bernoulli(seed: Data, stream: Data, counter: Data, p: Data, shape: Any) -> Data:
    return np.asarray(uniform(seed, stream, counter, shape, f32) < p)


def permutation(seed: Data, stream: Data, counter: Data, n: int) -> Data:
    bits: Data = words(seed, stream, counter, n).astype(np.uint64)
    limits: Data = np.arange(1, n + 1, dtype=np.uint64)
    partners = ((bits * limits) >> np.uint64(32)).tolist()
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        j = partners[i]
        order[i], order[j] = order[j], order[i]
    return np.array(order, np.int64)
