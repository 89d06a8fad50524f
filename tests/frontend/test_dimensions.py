"""`st.dim`: arrays whose first axis has a size that is known when the program runs, at most a bound."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import LeakError, ProgramIndexError, ProgramValueError, UnsupportedError
from staged.ir.types import Dim
from tests.frontend.harness import Case, check_gradient, check_program, differentiated, each

MOST = 40
RNG = np.random.default_rng(0)
X = RNG.standard_normal((MOST, 5)).astype(np.float32)
W = RNG.standard_normal((5, 7)).astype(np.float32)
V = RNG.standard_normal(5).astype(np.float32)
TABLE = RNG.standard_normal((9, 5)).astype(np.float32)
IDS = RNG.integers(-9, 9, MOST)
PLACES = RNG.permutation(MOST)
LABELS = RNG.integers(0, 5, MOST)
COUNTS = (0, 1, 2, 7, 15, 16, 17, 33, MOST)
"""Around the rows of a tile (16 and fewer) and the lanes of a vector; none, one and all."""


def runs(*arguments):
    return [(*arguments, n) for n in COUNTS]


# ---- programs: the same in plain Python, where `st.dim` gives the number --------------------------


def elementwise(x, n):
    n = st.dim("N", n, max=MOST)
    a = x[:n]
    b = st.where(a > 0, st.tanh(a) * 2.0 + 1.0, -a)
    return st.sum(b * a), st.sum(b, axis=0), st.sum(st.sum(b, axis=1))


def broadcasts(x, v, n):
    n = st.dim("N", n, max=MOST)
    a = x[:n] * v + v[0]
    rows = st.sum(x[:n], axis=1)
    scaled = a - rows[:, None]
    return st.sum(st.square(scaled), axis=0), st.sum(scaled * scaled) / (n + 1)


def integers(ids, n):
    n = st.dim("N", n, max=MOST)
    a = ids[:n]
    return st.sum(a), st.sum(a * a), st.sum(a == 3), st.any(a > 7), st.all(a > -9), st.prod(st.where(a == 0, 1, a) // 5)


def extremes(x, n):
    n = st.dim("N", n + 1, max=MOST + 1)
    a = st.concat([x, x[:1]])[:n]
    return st.max(a), st.min(a, axis=0), st.argmax(a, axis=0), st.argmin(a, axis=1)[n - 1]


def products(x, w, n):
    n = st.dim("N", n, max=MOST)
    a = x[:n]
    h = st.tanh(a @ w + 0.5)
    back = h @ w.T
    return st.sum(h * h), a.T @ h, st.sum(back * a, axis=0), st.sum(a @ w[:, 0])


def inner_products(x, w, n):
    n = st.dim("N", n, max=MOST)
    a = x[:n]
    return a.T @ a, st.sum(a, axis=1) @ a, (a @ w).T @ st.ones((n, 3))


def batched_products(x, n):
    n = st.dim("N", n, max=8)
    a = st.reshape(x[: 8 * 5], (8, 5, 5))[:n]
    b = st.matmul(a, a)
    return st.sum(b, axis=0), st.sum(b * a)


def integer_products(ids, n):
    n = st.dim("N", n, max=MOST)
    a = st.reshape(ids[:n], (n, 1)) + st.arange(3)
    return a.T @ a, st.sum(a @ st.ones((3, 2), dtype=st.i64), axis=0)


def gathers(table, ids, n):
    n = st.dim("N", n, max=MOST)
    rows = table[ids[:n]]
    picked = st.take_along_axis(rows, (st.arange(n) % 5)[:, None], axis=1)
    return st.sum(rows * rows, axis=0), st.sum(picked), st.sum(st.take(table, ids[:n], axis=0) * 2.0)


def gathers_from_counted(x, n):
    n = st.dim("N", n + 1, max=MOST)
    m = st.dim("M", n - 1, max=MOST)
    rows = x[:n] * 2.0
    return st.sum(rows[st.arange(m) + 1] * rows[st.arange(m)]), st.sum(rows[n - 1]), st.sum(rows[-1])


def scatters(x, places, n):
    n = st.dim("N", n, max=MOST)
    h = st.zeros((MOST, 5)) + x
    h[places[:n]] = x[:n] * 2.0
    h[places[:n], 1] = 3.0
    g = st.scatter_add(h, places[:n] // 2, x[:n])
    g[places[:n]] += x[:n]
    return h * h, g


def windows(x, start, n):
    n = st.dim("N", n, max=20)
    a = x[start : start + n]
    out = st.zeros((MOST, 5), dtype=x.dtype)
    out[start : start + n] = a * 2.0
    out[:n] += a
    out[3 : 3 + n] = out[start : start + n]
    return out, st.sum(st.dynamic_slice(x, start, n) * a)


def joined(x, n):
    n = st.dim("N", n, max=MOST)
    a = x[:n]
    b = st.concat([a, a * 2.0, st.ones((n, 2))], axis=1)
    c = st.stack([a, -a], axis=1)
    left, right = st.split(b, [4], axis=1)
    return st.sum(b, axis=0), st.sum(c, axis=0), st.sum(left[:, 1:3] * right[:, :2]), st.sum(st.flip(b, axis=1)[:, 0])


def classified(x, labels, n):
    n = st.dim("N", n, max=MOST)
    losses = st.cross_entropy(x[:n], labels[:n], reduction="none")
    p = st.softmax(x[:n])
    hits = st.argmax(p, axis=1) == labels[:n]
    return st.sum(losses), st.sum(p * st.one_hot(labels[:n], 5)), st.sum(hits), st.sum(st.log_softmax(x[:n])[:, 2])


def averages(x, labels, n):
    n = st.dim("N", n + 1, max=MOST + 1)
    a = st.concat([x, x[:1]])[:n]
    labels = st.concat([labels, labels[:1]])[:n]
    loss = st.cross_entropy(a, labels)
    return st.mean(a), st.var(a, axis=0), st.layer_norm(a, (5,))[n - 1], loss, len(a), st.mean(a, axis=1)[0]


def two_dimensions(x, w, n, m):
    n = st.dim("N", n, max=MOST)
    m = st.dim("N", m, max=30)
    a, b = st.tanh(x[:n] @ w), st.exp(x[:m] @ w * 0.1)
    return st.sum(a, axis=0) - st.sum(b, axis=0), a.T @ a + b.T @ b, st.sum(a) / (n + 1) * m


def in_a_loop(x, w, sizes, n):
    start = 0
    total = st.zeros((7,), dtype=x.dtype)
    for i in st.range(len(sizes)):
        k = st.dim("K", st.minimum(sizes[i], n), max=12)
        a = x[start : start + k]
        total = total + st.sum(st.tanh(a @ w), axis=0)
        start += k
    return total, start


def in_a_while_loop(x, w, n):
    left = n
    total = st.zeros((7,), dtype=x.dtype)
    while left > 0:
        k = st.dim("K", st.minimum(left, 6), max=6)
        start = n - left
        total = st.tanh(total + st.sum(x[start : start + k] @ w, axis=0))
        left = left - k
    return total


def in_branches(x, n):
    total = st.sum(x[0])
    for i in st.range(4):
        if i % 2 == 0:
            k = st.dim("K", st.minimum(n, i + 1), max=4)
            a = st.tanh(x[:k] * total)
            total = total + st.sum(a * a)
        else:
            total = total * 0.5
    return total


def carried(x, n):
    n = st.dim("N", n, max=MOST)
    a = x[:n]
    b = a * 0.5
    for i in st.range(3):
        a, b = b, st.tanh(a + b)
        if st.sum(b) > 0.5:
            a = a + 1.0
    return st.sum(a, axis=0), st.sum(b * a)


def left_early(x, sizes):
    total = 0.0
    for i in st.range(len(sizes)):
        k = st.dim("K", sizes[i], max=MOST)
        part = st.sum(st.exp(x[:k] * 0.5))
        if part > 30.0:
            break
        if part < 2.0:
            continue
        total += part
    return total


def helper(a, v):
    return st.sum(st.tanh(a * v), axis=0)


def calls(x, v, n):
    n = st.dim("N", n, max=MOST)
    return helper(x[:n], v) + helper(x[:n] * 2.0, v) + helper(x, v)


def printed(x, n):
    n = st.dim("N", n, max=4)
    a = x[:n, :2]
    print(f"{n} rows", a.shape[0], len(a), a)
    return st.sum(a)


SIZES = np.array([3, 0, 5, 12, 1])
CASES = [
    Case(elementwise, runs(X), wrt=(0,)),
    Case(broadcasts, runs(X, V), wrt=(0, 1)),
    Case(integers, runs(IDS)),
    Case(extremes, runs(X), wrt=(0,)),
    Case(products, runs(X, W), wrt=(0, 1), rtol=1e-4),
    Case(inner_products, runs(X, W), wrt=(0, 1), rtol=1e-4),
    Case(batched_products, [(X, n) for n in (0, 1, 3, 8)], wrt=(0,)),
    Case(integer_products, runs(IDS)),
    Case(gathers, runs(TABLE, IDS), wrt=(0,)),
    Case(gathers_from_counted, [(X, n) for n in (0, 1, 15, 16, MOST - 1)], wrt=(0,)),
    Case(scatters, runs(X, PLACES), wrt=(0,)),
    Case(windows, [(X, 4, n) for n in (0, 1, 5, 20)] + [(X, 20, 20), (X, 21, 20), (X, -1, 3)], wrt=(0,)),
    Case(joined, runs(X), wrt=(0,)),
    Case(classified, runs(X, LABELS), wrt=(0,)),
    Case(averages, runs(X, LABELS), wrt=(0,)),
    Case(two_dimensions, [(X, W, n, m) for n, m in ((0, 5), (5, 0), (16, 30), (MOST, 1))], wrt=(0, 1), rtol=1e-4),
    Case(in_a_loop, [(X, W, SIZES, n) for n in (0, 2, 12)], wrt=(0, 1)),
    Case(in_a_while_loop, [(X, W, n) for n in (0, 1, 6, 7, MOST)], wrt=(0, 1)),
    Case(in_branches, [(X, n) for n in (0, 1, 2, 4)], wrt=(0,)),
    Case(carried, runs(X), wrt=(0,)),
    Case(left_early, [(X, SIZES), (X, np.array([1, 40, 2])), (X, SIZES[:0])], wrt=(0,)),
    Case(calls, runs(X, V), wrt=(0, 1)),
    Case(printed, [(X, n) for n in (0, 1, 4)]),
]


def eagerly(function):
    """What a program means: itself in eager mode, an independent implementation of every op."""

    def run(*args):
        with st.eager():
            return st.function(function)(*args)

    return run


CASES = [Case(c.function, c.runs, c.wrt, eagerly(c.function), rtol=c.rtol) for c in CASES]


@each(CASES)
def test_programs(case) -> None:
    check_program(case)


@each(differentiated(CASES))
def test_gradients(case) -> None:
    check_gradient(Case(case.function, case.runs[1:4], case.wrt, case.meaning))
