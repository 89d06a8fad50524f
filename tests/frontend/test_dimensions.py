"""`st.dim`: arrays whose first axis has a size that is known when the program runs, at most a bound."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramIndexError, ProgramValueError
from staged.ir.sizes import Dim
from staged.system import machine as this_machine
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


def bounds(x, n):
    """Vectors of any machine: bounds of whole ones, of three, of less than one."""
    totals = []
    for most in (1, 2, 3, 7, 10, 13, 26, 32):
        k = st.dim("K", st.minimum(n, most), max=most)
        totals.append(st.sum(x[:k]) + st.sum(st.max(x[:k], axis=1)))
    return st.stack(totals)


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
    m = st.dim("M", n, max=MOST)  # as many as there are rows: the window may still start anywhere
    out[start : start + m] = x[start : start + m] * out[start : start + m]
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
    for _i in st.range(3):
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


def randoms(x, n):
    n = st.dim("N", n, max=MOST)
    a = st.random.uniform((n, 5)) + st.random.normal((n, 5))
    kept = st.where(st.random.bernoulli(0.5, (n, 5)), x[:n] * a, 0.0)
    return st.sum(a, axis=0), st.sum(kept), st.sum(st.random.integers(0, 9, (n,)))


def printed(x, n):
    n = st.dim("N", n, max=4)
    a = x[:n, :2]
    print(f"{n} rows", a.shape[0], len(a), a)
    return st.sum(a)


SIZES = np.array([3, 0, 5, 12, 1])
CASES = [
    Case(elementwise, runs(X), wrt=(0,)),
    Case(bounds, [(X, n) for n in (0, 1, 3, 7, 9, 12, 32)]),
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
    Case(randoms, runs(X), rtol=1e-4),
    Case(printed, [(X, n) for n in (0, 1, 4)]),
]


# ---- a tree network, level by level ---------------------------------------------------------------


def levelled(left, right):
    """The nodes of binary trees in order of their height, and where each height starts. A leaf has children -1."""
    height = np.zeros(len(left), np.int64)
    for node in range(len(left)):  # children come before their parents
        if left[node] >= 0:
            height[node] = 1 + max(height[left[node]], height[right[node]])
    order = np.argsort(height, kind="stable")
    return order, np.searchsorted(height[order], np.arange(height.max() + 2))


def random_trees(rng, trees):
    left, right = [], []
    for _ in range(trees):
        roots = list(range(len(left), len(left) + int(rng.integers(1, 7))))
        left += [-1] * len(roots)
        right += [-1] * len(roots)
        while len(roots) > 1:
            place = int(rng.integers(0, len(roots) - 1))
            left.append(roots[place])
            right.append(roots[place + 1])
            roots[place : place + 2] = [len(left) - 1]
    return np.array(left), np.array(right)


NODES, WIDTH = 64, 4
LEFT, RIGHT = random_trees(np.random.default_rng(4), 9)
ORDER, STARTS = levelled(LEFT, RIGHT)
SCORES = np.random.default_rng(5).integers(0, 3, len(LEFT))
WORDS = np.random.default_rng(6).standard_normal((len(LEFT), WIDTH))
U = np.random.default_rng(7).standard_normal((2, WIDTH, 2 * WIDTH)) * 0.5
C = np.random.default_rng(8).standard_normal((WIDTH, 3)) * 0.5


def by_level(order, starts, left, right, words, scores, u, c):
    h = st.zeros((NODES, WIDTH), dtype=u.dtype)
    total = st.zeros((), dtype=u.dtype)
    for level in st.range(len(starts) - 1):
        start = starts[level]
        n = st.dim("N", starts[level + 1] - start, max=NODES)
        ids = order[start : start + n]
        has_children = (left[ids] >= 0)[:, None]
        # The last row is nobody's: what leaves read for the children that they have not.
        below = h[left[ids]] @ u[0] + h[right[ids]] @ u[1]
        gate, value = st.split(below, 2, axis=1)
        inner = st.sigmoid(gate) * st.tanh(value)
        new = st.where(has_children, inner, words[ids])
        h[ids] = new
        total += st.sum(st.cross_entropy(new @ c, scores[ids], reduction="none"))
    return total, h


def node_by_node(order, starts, left, right, words, scores, u, c):
    h = np.zeros((NODES, WIDTH))
    total = 0.0
    for node in range(len(left)):
        if left[node] < 0:
            h[node] = words[node]
        else:
            below = h[left[node]] @ u[0] + h[right[node]] @ u[1]
            h[node] = 1 / (1 + np.exp(-below[:WIDTH])) * np.tanh(below[WIDTH:])
        logits = h[node] @ c
        total += np.log(np.sum(np.exp(logits))) - logits[scores[node]]
    return total, h


TREES = Case(by_level, [(ORDER, STARTS, LEFT, RIGHT, WORDS, SCORES, U, C)], (4, 6, 7), node_by_node)


def test_trees_by_level_are_trees_node_by_node() -> None:
    check_program(TREES)
    check_gradient(Case(by_level, TREES.runs, (6, 7), node_by_node))


# ---- derivatives of derivatives ---------------------------------------------------------------------


def squares_in_a_loop(x, w, sizes):
    start = 0
    total = st.zeros((), dtype=x.dtype)
    for i in st.range(len(sizes)):
        k = st.dim("K", sizes[i], max=12)
        a = st.tanh(x[start : start + k] @ w)
        total = total + st.sum(a * a) / (k + 1) * (1 + total * 0.1)
        start += k
    return total


def second_derivatives(x, w, sizes):
    """A Hessian-vector product, forward over reverse and reverse over reverse, and a jvp; through a checkpoint too."""
    gradient = st.grad(lambda w: squares_in_a_loop(x, w, sizes))
    forward = st.jvp(gradient, (w,), (w * 0.5,))[1]
    backward = st.grad(lambda w: st.sum(gradient(w) * w))(w)
    slope = st.jvp(lambda w: squares_in_a_loop(x, w, sizes), (w,), (w * 0.5,))[1]
    again = st.grad(lambda w: st.checkpoint(lambda w: squares_in_a_loop(x, w, sizes))(w))(w)
    return forward, backward, slope, again - gradient(w)


def test_second_derivatives() -> None:
    args = X.astype(np.float64), W.astype(np.float64), SIZES
    check_program(Case(second_derivatives, [args], meaning=eagerly(second_derivatives), rtol=1e-9))
    with st.eager():
        forward, backward, slope, none = st.function(second_derivatives)(*args)
        gradient = np.asarray(st.grad(lambda w: squares_in_a_loop(args[0], w, SIZES))(args[1]))
        ends = [
            np.asarray(st.grad(lambda w: squares_in_a_loop(args[0], w, SIZES))(args[1] * (1 + h))) for h in (1e-5, -1e-5)
        ]
    np.testing.assert_allclose(forward, (ends[0] - ends[1]) / 4e-5, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(backward, 2 * np.asarray(forward) + gradient, rtol=1e-9)
    np.testing.assert_allclose(slope, np.sum(gradient * args[1] * 0.5), rtol=1e-9)
    np.testing.assert_allclose(none, 0, atol=1e-12)


def eagerly(function):
    """The meaning of a program: itself in eager mode, an independent implementation of every op."""

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


# ---- what the text promises -------------------------------------------------------------------------


def test_text_does_not_depend_on_sizes() -> None:
    def f(x, w, n, most):
        n = st.dim("N", n, max=most)
        return st.sum(st.tanh(x[:n] @ w), axis=0)

    staged = st.function(f, static=("most",))
    x = np.zeros((5000, 5), np.float32)
    few, many = (staged.stage(x, W, 3, most).source for most in (3000, 5000))
    assert abs(len(few.splitlines()) - len(many.splitlines())) <= 6
    assert staged.stage(x, W, 4, 3000).source == few


def test_one_program_serves_every_size() -> None:
    staged = st.function(elementwise)
    texts = {staged.stage(X, n).source for n in COUNTS}
    assert len(texts) == 1


def test_a_size_is_checked_once() -> None:
    """The reverse of a loop makes the dimension again, and need not check it again."""
    source = st.function(lambda *args: st.grad(lambda w: by_level(*args[:6], w, args[7])[0])(args[6])).stage(
        *TREES.runs[0]
    )
    assert source.source.count("it may be 0 to 64") == 1
    assert source.source.count("const int64_t n") >= 2


def test_memory_is_that_of_the_bound() -> None:
    def f(x, n, most):
        n = st.dim("N", n, max=most)
        a = st.exp(x[:n])
        return st.sum(a) * st.max(st.sum(a, axis=1))

    staged = st.function(f, static=("most",))
    x = np.zeros((4000, 8), np.float32)
    small, large = (staged.stage(x, 4, most)._artifact.arena_bytes for most in (100, 4000))
    assert small < large < small + 4000 * 8 * 4 + 4096


def test_threads_share_what_there_is() -> None:
    def f(x, w, ids, n):
        n = st.dim("N", n, max=4000)
        a = st.tanh(x[:n] @ w) + st.exp(x[ids[:n], :1])
        out = st.zeros((4000, 96), dtype=x.dtype)
        out[:n] = st.softmax(a)
        return out, a.T @ x[:n]

    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((4000, 64)) * 0.1, rng.standard_normal((64, 96)) * 0.1
    ids = rng.integers(0, 4000, 4000)
    staged = st.function(f)
    if this_machine().cores > 1:
        assert re.search(r"ST_SHARE\(host->team, n( \* \d+)?,", staged.stage(x, w, ids, 3).source)
    for n in (0, 1, 37, 1000, 4000):
        out, product = staged(x, w, ids, n)
        a = np.tanh(x[:n] @ w) + np.exp(x[ids[:n], :1])
        e = np.exp(a - a.max(axis=1, keepdims=True))
        np.testing.assert_allclose(out[:n], e / e.sum(axis=1, keepdims=True), rtol=1e-5)
        assert not np.any(out[n:])
        np.testing.assert_allclose(product, a.T @ x[:n], rtol=1e-8, atol=1e-8)


def test_rows_are_written_in_place() -> None:
    """Neither the loop nor its reverse copies all of `h` to change some of its rows."""
    args = TREES.runs[0]
    gradient = st.function(lambda *args: st.grad(lambda u: by_level(*args[:6], u, args[7])[0])(args[6])).stage(*args)
    whole = [b for b in gradient._built.emitted.plan.buffers if b.type.shape == (NODES, WIDTH)]
    assert len(whole) == 2, [b.name for b in whole]  # h and d_h


def test_two_dimensions_of_one_name_are_told_apart() -> None:
    text = st.function(two_dimensions).stage(X, W, 3, 4).ir
    assert "f32 (N, 7)" in text and "f32 (N_2, 7)" in text


def test_an_older_meaning_is_kept() -> None:
    assert st.dim("N", max=512) == Dim("N", 512) and st.dim("N").max is None


def test_eager_mode_gives_the_number() -> None:
    with st.eager():
        assert st.dim("N", np.int64(3), max=4) == 3
        with pytest.raises(ProgramValueError, match="dimension `N` is 5, it may be 0 to 4"):
            st.dim("N", 5, max=4)


def test_a_size_is_an_integer_as_in_python() -> None:
    @st.function
    def f(x):
        n = len(x[: st.dim("N", len(x) - 1, max=8)])
        assert isinstance(n, int) and not isinstance(n, st.Array | float) and not hasattr(n, "dtype")
        return x * n

    assert f(np.ones(3)).tolist() == [2.0] * 3


# ---- what stops, and what is refused --------------------------------------------------------------


@st.function
def recursive(a, n):
    if n <= 0:
        return st.sum(a)
    return recursive(a * 2.0, n - 1)


def test_a_recursive_function_receives_the_dimension() -> None:
    def f(x, n):
        total = 0.0
        for i in st.range(2):
            k = st.dim("K", n + i, max=4)
            total = total + recursive(x[:k], n)
        return total

    for n in (0, 3):
        np.testing.assert_allclose(st.function(f)(X, n), (np.sum(X[:n]) + np.sum(X[: n + 1])) * 2.0**n, rtol=1e-5)


@pytest.mark.parametrize("n", [-1, 5])
def test_a_size_out_of_bounds_stops_with_the_line(n) -> None:
    def f(x, n):
        n = st.dim("N", n, max=4)
        return st.sum(x[:n])

    with pytest.raises(ProgramValueError, match=f"dimension `N` is {n}, it may be 0 to 4") as caught:
        st.function(f)(X, n)
    assert 'n = st.dim("N", n, max=4)' in str(caught.value)


@pytest.mark.parametrize(("start", "n"), [(-1, 3), (38, 3), (MOST + 1, 0)])
def test_a_window_out_of_range_stops_with_the_line(start, n) -> None:
    def f(x, start, n):
        n = st.dim("N", n, max=4)
        return st.sum(x[start : start + n])

    with pytest.raises(ProgramIndexError, match="out of range for an axis of 40") as caught:
        st.function(f)(X, start, n)
    assert "x[start : start + n]" in str(caught.value)


@pytest.mark.parametrize("extreme", [st.max, st.min, st.argmax, st.argmin])
def test_an_extreme_of_no_elements_stops_with_the_line(extreme) -> None:
    def f(x, n):
        n = st.dim("N", n, max=4)
        return st.sum(extreme(x[:n], axis=0))

    assert np.isfinite(st.function(f)(X, 1))
    said = f"{extreme.__name__.strip('_')} of no elements has no value"
    with pytest.raises(ProgramValueError, match=said) as caught:
        st.function(f)(X, 0)
    assert "extreme(x[:n], axis=0)" in str(caught.value)
    with st.eager(), pytest.raises(ValueError, match=said):
        st.function(f)(X, 0)


def test_an_extreme_of_no_elements_that_a_handler_waits_for_is_refused() -> None:
    def f(x, n):
        n = st.dim("N", n, max=4)
        try:
            return st.max(x[:n])
        except ValueError:
            return 0.0

    with pytest.raises(st.StagingError, match="ValueError"):
        st.function(f)(X, 0)


def test_an_index_is_checked_against_the_size() -> None:
    def f(x, i, n):
        n = st.dim("N", n, max=8)
        a = x[:n] * 2.0
        return st.sum(a[i]), st.sum(a[st.arange(n) + i])

    with pytest.raises(ProgramIndexError, match="index 5 is out of range for an axis of 5"):
        st.function(f)(X, 5, 5)
    with pytest.raises(ProgramIndexError, match="index 5 is out of range for an axis of 5"):
        st.function(f)(X, 1, 5)


def returned(x, n):
    n = st.dim("N", n, max=4)
    return st.sum(x), x[:n]


def grew_in_the_loop(x, n):
    a = x
    for i in st.range(n):
        k = st.dim("K", i, max=4)
        a = x[:k]
    return st.sum(a)


def read_after_the_loop(x, n):
    for i in st.range(n):
        k = st.dim("K", i, max=4)
        a = x[:k]
    return st.sum(a)


def left_the_branch(x, n):
    if n > 2:
        k = st.dim("K", n, max=4)
        a = x[:k]
    else:
        raise ValueError("few")
    return st.sum(a)


def different_sizes(x, n):
    n, m = st.dim("N", n, max=4), st.dim("M", n, max=4)
    return st.sum(x[:n] + x[:m])


def unbounded(x, n):
    n = st.dim("N", n)
    return st.sum(x[:n])


def staged_bound(x, n):
    n = st.dim("N", n, max=n)
    return st.sum(x[:n])


def no_integer(x, n):
    n = st.dim("N", x[0, 0], max=4)
    return st.sum(x[:n])


def unnamed(x, n):
    return st.sum(st.zeros((n, 3)) + x[0, :3])


def in_a_variable(x, n):
    n = st.dim("N", n, max=4)
    v = st.Variable(x[:n])
    return st.sum(v)


REFUSED = [
    (returned, "`result.1` is f32 \\(N, 5\\): the size of a result must be known", "out[:n] = x"),
    (grew_in_the_loop, "f32 \\(40, 5\\) before the loop and f32 \\(K, 5\\) after an iteration", "another name"),
    (read_after_the_loop, "bound only inside the loop", "before the loop"),
    (left_the_branch, "known only inside the branch", "before the branch or loop"),
    (different_sizes, "do not broadcast: axis -2 has extents N and M", ""),
    (unbounded, "dimension `N` needs a bound", "max=64"),
    (staged_bound, "must be an int that is known while staging", "static"),
    (no_integer, "the size of dimension `N` is an integer scalar, got f32", "st.i64"),
    (unnamed, "needs sizes that are known while staging", "st.dim"),
    (in_a_variable, "a Variable has a size that is known while staging", "v[:n] = x"),
]


@pytest.mark.parametrize(("function", "words", "hint"), REFUSED, ids=[case[0].__name__ for case in REFUSED])
def test_refused_with_the_line_and_the_way_out(function, words, hint) -> None:
    with pytest.raises(st.StagedError, match=words) as caught:
        st.function(function).stage(X, 3).source  # noqa: B018  (some are refused when the text is asked for)
    assert "test_dimensions.py, line" in str(caught.value)
    assert hint in str(caught.value)
