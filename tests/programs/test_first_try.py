"""Programs as a user writes them from the documentation, with loops and `min` and `max` as in textbooks, against closed forms."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import staged as st

# ---- hidden Markov models: gradients are expectations, and the alignment of two words ------------


def log_likelihood(start: Any, moves: Any, shows: Any, seen: Any) -> Any:
    alpha = start + shows[:, seen[0]]
    for t in st.range(1, len(seen)):
        alpha = st.logsumexp(alpha[:, None] + moves, axis=0) + shows[:, seen[t]]
    return st.logsumexp(alpha)


@st.function
def decoded(start: Any, moves: Any, shows: Any, seen: Any) -> Any:
    """The likelihood, the expected moves (its gradient), and the likeliest path with its score."""
    length = len(seen)
    total, expected = st.value_and_grad(log_likelihood, argnums=1)(start, moves, shows, seen)
    delta = start + shows[:, seen[0]]
    back = st.zeros((length, len(start)), dtype=st.i64)
    for t in st.range(1, length):
        scores = delta[:, None] + moves
        back[t] = st.argmax(scores, axis=0)
        delta = st.max(scores, axis=0) + shows[:, seen[t]]
    path = st.zeros(length, dtype=st.i64)
    path[length - 1] = st.argmax(delta)
    for t in st.range(length - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return total, expected, path, delta.max()


@st.function
def edit_distance(a: Any, b: Any) -> Any:
    d = st.zeros((len(a) + 1, len(b) + 1), dtype=st.i64)
    d[:, 0] = st.arange(len(a) + 1)
    d[0, :] = st.arange(len(b) + 1)
    for i in st.range(1, len(a) + 1):
        for j in st.range(1, len(b) + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[len(a), len(b)]


def test_a_hidden_markov_model_agrees_with_the_sum_over_all_paths() -> None:
    rng = np.random.default_rng(0)
    start, moves, shows = (np.log(a / a.sum(-1, keepdims=True)) for a in (rng.random(3), rng.random((3, 3)), rng.random((3, 4))))
    seen = rng.integers(0, 4, 5)
    scores = {
        path: start[path[0]] + shows[path, seen].sum() + sum(moves[i, j] for i, j in itertools.pairwise(path))
        for path in itertools.product(range(3), repeat=5)
    }
    total, expected, path, best = decoded(start, moves, shows, seen)
    np.testing.assert_allclose(total, np.logaddexp.reduce(list(scores.values())), rtol=1e-12)
    counts = np.zeros((3, 3))
    for each, score in scores.items():
        for pair in itertools.pairwise(each):
            counts[pair] += np.exp(score - total)
    np.testing.assert_allclose(expected, counts, rtol=1e-10)
    likeliest = max(scores, key=scores.__getitem__)
    assert tuple(path) == likeliest and np.isclose(best, scores[likeliest], rtol=1e-12)
    words = [np.frombuffer(word, np.uint8) for word in (b"kitten sitting", b"sitting kittens")]
    assert edit_distance(*words) == 6 and edit_distance(words[0], words[0]) == 0


# ---- an adaptive solver of differential equations, and its gradient -------------------------------

STAGES: list[list[float]] = [[], [1 / 2], [0.0, 3 / 4], [2 / 9, 1 / 3, 4 / 9]]
BETTER, WORSE = [2 / 9, 1 / 3, 4 / 9, 0.0], [7 / 24, 1 / 4, 1 / 3, 1 / 8]


def solved(y: Any, k: Any, end: Any) -> Any:
    """Bogacki and Shampine's pair of methods with steps that are rejected: y'' = -k y."""
    t, h, rejected = 0.0, 0.5, 0
    while t < end:
        h = min(h, end - t)
        slopes: list[Any] = []
        for row in STAGES:
            inner = y + h * sum((c * s for c, s in zip(row, slopes, strict=True)), 0.0)
            slopes.append(st.stack([inner[1], -k * inner[0]]))
        better = y + h * sum(b * s for b, s in zip(BETTER, slopes, strict=True))
        error = h * sum((b - w) * s for b, w, s in zip(BETTER, WORSE, slopes, strict=True))
        size = st.sqrt(st.mean((error / 1e-7) ** 2))
        if size <= 1.0:
            t += h
            y = better
        else:
            rejected += 1
        h = h * min(4.0, max(0.2, 0.9 * (size + 1e-16) ** (-1 / 3)))
    return y, rejected


@st.function
def oscillated(y: Any, k: Any, end: Any) -> Any:
    ends, rejected = solved(y, k, end)
    return ends, rejected, st.grad(lambda k: solved(y, k, end)[0][0])(k)


def test_the_gradient_goes_through_steps_that_are_chosen_and_rejected() -> None:
    ends, rejected, slope = oscillated(np.array([1.0, 0.0]), 4.0, 2.0)
    assert rejected > 0
    np.testing.assert_allclose(ends, [np.cos(4.0), -2.0 * np.sin(4.0)], atol=2e-6)
    np.testing.assert_allclose(slope, -np.sin(4.0) / 2.0, rtol=1e-4)  # of cos(sqrt(k) t) by k, at t = 2


# ---- a Gaussian process on a Cholesky decomposition by hand ---------------------------------------


def cholesky(a: Any) -> Any:
    lower = st.zeros_like(a)
    for j in st.range(len(a)):
        lower[j, j] = st.sqrt(a[j, j] - st.sum(lower[j] ** 2))
        for i in st.range(j + 1, len(a)):
            lower[i, j] = (a[i, j] - st.sum(lower[i] * lower[j])) / lower[j, j]
    return lower


def surprise(p: Any, x: Any, y: Any) -> Any:
    kernel = st.exp(p[0] - 0.5 * (x[:, None] - x) ** 2 / st.exp(p[1])) + st.exp(p[2]) * st.eye(len(x))
    lower = cholesky(kernel)
    z = st.zeros_like(y)
    for i in st.range(len(y)):
        z[i] = (y[i] - lower[i] @ z) / lower[i, i]
    each = st.arange(len(x))
    return 0.5 * z @ z + st.sum(st.log(lower[each, each])) + 0.5 * len(x) * np.log(2 * np.pi)


def test_a_gaussian_process_has_the_gradient_of_the_closed_form() -> None:
    rng = np.random.default_rng(1)
    x, p = np.sort(rng.uniform(0, 5, 12)), np.array([0.2, -0.3, -2.0])
    y = np.sin(x) + 0.1 * rng.normal(size=12)
    value, slope = st.function(st.value_and_grad(surprise))(p, x, y)
    square = (x[:, None] - x) ** 2
    smooth = np.exp(p[0] - 0.5 * square / np.exp(p[1]))
    kernel = smooth + np.exp(p[2]) * np.eye(12)
    inverse = np.linalg.inv(kernel)
    log_det = np.linalg.slogdet(kernel)[1]
    np.testing.assert_allclose(value, 0.5 * y @ inverse @ y + 0.5 * log_det + 6 * np.log(2 * np.pi), rtol=1e-10)
    parts = [smooth, smooth * 0.5 * square / np.exp(p[1]), np.exp(p[2]) * np.eye(12)]
    w = inverse @ y
    np.testing.assert_allclose(slope, [0.5 * (np.trace(inverse @ d) - w @ d @ w) for d in parts], rtol=1e-8)


# ---- images and sorting: windows and runs that end at a border ------------------------------------


@st.function
def blurred(x: Any, radius: Any, sigma: Any) -> Any:
    h, w = x.shape
    out = st.zeros_like(x)
    for i in st.range(h):
        for j in st.range(w):
            total, norm = 0.0, 0.0
            for di in st.range(-radius, radius + 1):
                for dj in st.range(-radius, radius + 1):
                    weight = st.exp(-(di * di + dj * dj) / (2 * sigma**2))
                    total += weight * x[min(max(i + di, 0), h - 1), min(max(j + dj, 0), w - 1)]
                    norm += weight
            out[i, j] = total / norm
    return out


@st.function
def median3(image: Any) -> Any:
    h, w = image.shape
    out = image
    for i in st.range(1, h - 1):
        for j in st.range(1, w - 1):
            window = image[i - 1 : i + 2, j - 1 : j + 2].flatten()
            for a in st.range(1, 9):
                v, k = window[a], a - 1
                while k >= 0 and window[k] > v:
                    window[k + 1] = window[k]
                    k -= 1
                window[k + 1] = v
            out[i, j] = window[4]
    return out


@st.function
def merge_sorted(a: Any) -> Any:
    n, b, width = len(a), a, 1
    while width < n:
        for low in st.range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for k in st.range(low, high):
                if i < middle and (j >= high or a[i] <= a[j]):
                    b[k] = a[i]
                    i += 1
                else:
                    b[k] = a[j]
                    j += 1
        a = b
        width *= 2
    return a


def test_windows_are_clamped_at_borders_and_runs_end_where_the_array_does() -> None:
    rng = np.random.default_rng(2)
    image = rng.integers(0, 256, (9, 13)).astype(np.uint8)
    weights = np.exp(-np.add.outer(np.arange(-2, 3) ** 2, np.arange(-2, 3) ** 2) / (2 * 0.8**2))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image.astype(float), 2, mode="edge"), (5, 5))
    np.testing.assert_allclose(
        blurred(image.astype(float), 2, 0.8), (windows * weights).sum((2, 3)) / weights.sum(), rtol=1e-12
    )
    inner = np.median(np.lib.stride_tricks.sliding_window_view(image, (3, 3)), axis=(2, 3))
    np.testing.assert_array_equal(median3(image)[1:-1, 1:-1], inner)
    for values in (rng.integers(0, 50, 37), rng.integers(0, 50, 37)[::-1]):
        np.testing.assert_array_equal(merge_sorted(values), np.sort(values))


# ---- a search that goes back, in recursion and on a stack -----------------------------------------


@st.function
def placements(row: Any, n: Any, columns: Any, rising: Any, falling: Any) -> Any:
    if row == n:
        return 1
    count = 0
    for c in st.range(n):
        if not columns[c] and not rising[row + c] and not falling[row - c + 8]:
            columns[c] = rising[row + c] = falling[row - c + 8] = True
            count += placements(row + 1, n, columns, rising, falling)
            columns[c] = rising[row + c] = falling[row - c + 8] = False
    return count


@st.function
def queens(n: Any) -> Any:
    return placements(0, n, st.zeros(8, dtype=bool), st.zeros(16, dtype=bool), st.zeros(17, dtype=bool))


@st.function
def filled(board: Any) -> Any:
    cells = st.Stack((0, 0), max=16)
    for i in st.range(4):
        for j in st.range(4):
            if board[i, j] == 0:
                cells.append((i, j))
    k = 0
    while 0 <= k < len(cells):
        i, j = cells[k]
        v, found = board[i, j] + 1, False
        board[i, j] = 0
        while v <= 4 and not found:
            box = board[i // 2 * 2 : i // 2 * 2 + 2, j // 2 * 2 : j // 2 * 2 + 2]
            if not (board[i] == v).any() and not (board[:, j] == v).any() and not (box == v).any():
                board[i, j] = v
                found = True
            v += 1
        k += 1 if found else -1
    return board, k


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_a_search_goes_back_over_what_it_wrote(mode: str) -> None:
    board = np.array([[1, 0, 0, 0], [0, 0, 3, 0], [0, 0, 0, 2], [0, 4, 0, 0]])
    if mode == "eager":
        with st.eager():
            count, (full, k) = queens(4), filled(board)
    else:
        assert [queens(n) for n in (5, 6, 8)] == [10, 4, 92]
        count, (full, k) = queens(4), filled(board)
    assert count == 2 and k == 12
    np.testing.assert_array_equal(full[board > 0], board[board > 0])
    for part in (*full, *full.T, *(full[i : i + 2, j : j + 2] for i in (0, 2) for j in (0, 2))):
        assert sorted(part.ravel().tolist()) == [1, 2, 3, 4]
