"""Kernels written for one thread, and functions that launch them: each against NumPy, eager, and the emulated device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import staged as st
from staged import GPU, cuda, with_backend

TILE = 8
RNG = np.random.default_rng(5)
X = RNG.normal(size=100).astype(np.float32)
Y = RNG.normal(size=100).astype(np.float32)
MATRIX = RNG.normal(size=(13, 21)).astype(np.float32)
COUNTS = RNG.integers(0, 16, size=300)


@st.gpu_func
def saxpy(a, x, y, out):
    i = cuda.global_index.x
    if i < len(x):
        out[i] = a * x[i] + y[i]


def by_value(x: Any, y: Any) -> Any:
    with with_backend(GPU, x, y):
        z = saxpy[4, 32](2.0, x, y, out=st.zeros_like(x))
    return z


@st.gpu_func
def transpose_tiles(x, out):
    tile = cuda.shared((TILE, TILE + 1), x.dtype)
    tx, ty = cuda.thread_index.x, cuda.thread_index.y
    row = cuda.block_index.y * TILE + ty
    column = cuda.block_index.x * TILE + tx
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty, tx] = x[row, column]
    cuda.syncthreads()
    row = cuda.block_index.x * TILE + ty
    column = cuda.block_index.y * TILE + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[tx, ty]


def turned(x: Any) -> Any:
    rows, columns = x.shape
    with with_backend(GPU, x):
        out = transpose_tiles[(-(-columns // TILE), -(-rows // TILE)), (TILE, TILE)](x, st.zeros((columns, rows)))
    return out


@st.gpu_func
def block_sums(x, sums):
    """Each block brings its elements together, in a tree."""
    parts = cuda.shared(cuda.block_size.x, st.f32)
    t = cuda.thread_index.x
    total = 0.0
    for i in range(cuda.global_index.x, len(x), cuda.global_size.x):
        total += x[i]
    parts[t] = total
    cuda.syncthreads()
    half = cuda.block_size.x // 2
    while half > 0:
        if t < half:
            parts[t] += parts[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        sums[cuda.block_index.x] = parts[0]


def sums_of_blocks(x: Any) -> Any:
    with with_backend(GPU, x):
        total = st.sum(block_sums[3, 16](x, st.zeros((3,))))
    return total


@st.gpu_func
def warp_sums(x, sums):
    i = cuda.global_index.x
    value = x[i] if i < x.size else 0.0
    for step in range(5):
        value += cuda.shuffle_down(value, 16 >> step)
    if cuda.lane_index() == 0:
        sums[i // cuda.WARP_SIZE] = value


def sums_of_warps(x: Any) -> Any:
    with with_backend(GPU, x):
        sums = warp_sums[2, 64](x, st.zeros((4,)))
    return sums


@st.gpu_func
def histogram(x, counts):
    """Counts in shared memory first, so that blocks rarely meet."""
    mine = cuda.shared(16, st.i32)
    t = cuda.thread_index.x
    if t < 16:
        mine[t] = 0
    cuda.syncthreads()
    i = cuda.global_index.x
    while i < len(x):
        cuda.atomic_add(mine, x[i], 1)
        i += cuda.global_size.x
    cuda.syncthreads()
    if t < 16:
        cuda.atomic_add(counts, t, mine[t])


def counted(x: Any) -> Any:
    with with_backend(GPU, x):
        counts = histogram[4, 32](x, st.zeros((16,), st.i32))
    return counts


@st.gpu_func
def extremes(x, low, high, order):
    i = cuda.global_index.x
    if i >= len(x):
        return
    cuda.atomic_min(low, 0, x[i])
    before = cuda.atomic_max(high, 0, x[i])
    if before < x[i]:
        cuda.atomic_add(order, 0, 1)


def both_extremes(x: Any) -> Any:
    with with_backend(GPU, x):
        low, high, _ = extremes[10, 32](
            x, low=st.full((1,), 99, st.i64), high=st.full((1,), -99, st.i64), order=st.zeros((1,), st.i64)
        )
    return low, high


@st.gpu_func
def collatz(n, most, steps):
    """The steps to 1, a loop that each thread leaves when it wants to."""
    i = cuda.global_index.x
    if i >= len(n):
        return
    value = n[i]
    count = 0
    while True:
        if value == 1:
            break
        if count >= most:
            count = -1
            break
        if value % 2 == 0:
            value //= 2
            count += 1
            continue
        value = 3 * value + 1
        count += 1
    steps[i] = count


def collatz_steps(n: Any, most: Any) -> Any:
    with with_backend(GPU, n):
        steps = collatz[2, 32](n, most, st.zeros_like(n))
    return steps


def collatz_by_hand(n: Any, most: int) -> Any:
    found = []
    for value in n.tolist():
        count = 0
        while value != 1 and count < most:
            value, count = value // 2 if value % 2 == 0 else 3 * value + 1, count + 1
        found.append(count if value == 1 else -1)
    return np.array(found)


@st.gpu_func
def smooth(x, out):
    """Neighbours by arithmetic that no range shows to be in range: indices are checked."""
    i = cuda.global_index.x
    if i < len(out):
        left = max(i - 1, 0)
        right = min(i + 1, len(x) - 1)
        out[i] = (x[left] + x[i] + x[right]) / 3


def smoothed(x: Any, steps: Any) -> Any:
    with with_backend(GPU, x):
        for _ in st.range(steps):
            x = smooth[4, 32](x, st.zeros_like(x))
    return x


def smooth_by_hand(x: Any, steps: int) -> Any:
    for _ in range(steps):
        padded = np.pad(x, 1, mode="edge")
        x = (padded[:-2] + padded[1:-1] + padded[2:]) / np.float32(3)
    return x


@st.gpu_func
def add_one(x):
    """Changes what it takes; the caller sees a new value."""
    for i in range(cuda.global_index.x, x.size, cuda.global_size.x):
        x[i] += 1


def in_place(x: Any, steps: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 1.0
        for _ in st.range(steps):
            y = add_one[1, 32](y)
        z = add_one[1, 32](y)
    return x, y, z


def as_it_was(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
        z = add_one[1, 32](y)
        w = z * y
    return w


@st.gpu_func
def fill3(out, base):
    x, y, z = cuda.global_index.x, cuda.global_index.y, cuda.global_index.z
    inside = x < out.shape[2] and y < out.shape[1] and z < out.shape[0]
    if inside:
        out[z, y, x] = base + 100 * z + 10 * y + x


def in_three_axes(base: Any) -> Any:
    with with_backend(GPU):
        out = fill3[(2, 2, 2), (3, 2, 2)](st.zeros((3, 4, 5), st.i32), base)
    return out


@st.gpu_func
def arithmetic(x, n, out):
    """The functions and operators of numbers: dtypes adopt and promote as in arrays."""
    i = cuda.global_index.x
    if not i < len(x):
        return
    k = n[i]
    a = st.exp(-(x[i] * x[i])) + math.sqrt(abs(x[i])) + np.tanh(x[i])
    b = float(k // 3) - k % 3 + (k & 5) + (k << 1) + (k >> 1) + k**2
    c = st.where(0 <= k < 4, 1.5, st.maximum(x[i], 0.25))
    d = int(x[i] * 10) + st.astype(k, st.f64) if x[i] > 0 or k == 2 else -1
    powers = cuda.local((4,), st.f32)
    for p in range(4):
        powers[p] = x[i] ** p
    e = 0.0
    for p in range(3, -1, -1):
        e = e * 0.5 + powers[p]
    out[i] = a + b + c + d + e


def all_arithmetic(x: Any, n: Any) -> Any:
    with with_backend(GPU, x, n):
        out = arithmetic[4, 32](x, n, st.zeros(x.shape, st.f64))
    return out


@st.gpu_func
def scale(x, factor, out):
    i = cuda.global_index.x
    if i < x.size:
        out[i] = x[i] * factor


def with_numbers_of_the_device(x: Any) -> Any:
    """A number that the device computed stays there: the kernel reads it."""
    with with_backend(GPU, x):
        largest = st.max(st.abs(x))
        y = scale[4, 32](x, 1.0 / largest, st.zeros_like(x))
        z = scale[4, 32](y, 2.0, st.zeros_like(x))
    return y, z


def of_two_shapes(x: Any, y: Any) -> Any:
    with with_backend(GPU, x, y):
        a = saxpy[4, 32](2.0, x, x, st.zeros_like(x))
        b = saxpy[2, 32](3.0, y, y, st.zeros_like(y))
    return a, b


def nothing_to_do(x: Any) -> Any:
    with with_backend(GPU, x):
        y = add_one[0, 32](x)
    return y


@st.gpu_func
def swap_pairs(x):
    """Every thread has two elements: what it takes aside has the name of neither."""
    i = 2 * cuda.global_index.x
    if i + 1 < len(x):
        first, second = x[i], x[i + 1]
        first, second = second, first
        x[i] = first
        x[i + 1] = second


def swapped(x: Any) -> Any:
    with with_backend(GPU, x):
        y = swap_pairs[2, 32](x)
    return y


@st.gpu_func
def backwards(x, out):
    i = cuda.global_index.x
    if i < len(x):
        out[i] = x[len(x) - 1 - i]


def of_one_array_twice(x: Any) -> Any:
    """The array is read as it was, although the same one is written."""
    with with_backend(GPU, x):
        y = x * 1.0
        y = backwards[4, 32](y, y)
    return y


def of_no_elements(x: Any) -> Any:
    with with_backend(GPU, x):
        y = backwards[1, 32](x, st.zeros_like(x))
    return y


@st.gpu_func
def exchange(x, out):
    """All kinds of shuffles, of all types that they have."""
    t = cuda.lane_index()
    value = x[t]
    out[0, t] = cuda.shuffle(value, 3)
    out[1, t] = cuda.shuffle_up(value, 2)
    out[2, t] = cuda.shuffle_down(value, 2)
    out[3, t] = cuda.shuffle_xor(value, 1)


def exchanged(x: Any) -> Any:
    with with_backend(GPU, x):
        floats = exchange[1, 32](x, st.zeros((4, 32)))
        doubles = exchange[1, 32](st.astype(x, st.f64), st.zeros((4, 32), st.f64))
        longs = exchange[1, 32](st.astype(x, st.i64), st.zeros((4, 32), st.i64))
    return floats, doubles, longs


def exchanged_by_hand(x: Any) -> Any:
    up, down = np.concatenate([x[:2], x[:-2]]), np.concatenate([x[2:], x[-2:]])
    return np.stack([np.full(32, x[3]), up, down, x.reshape(-1, 2)[:, ::-1].reshape(-1)])


@st.gpu_func
def sieve(flags, bytes_, words):
    """Small types: what does not fit wraps around."""
    i = cuda.global_index.x
    if i < len(flags):
        flags[i] = i > 1 and not flags[i]
        bytes_[i] = bytes_[i] * 3 + 200
        before = cuda.atomic_add(words, i // 2, bytes_[i])
        if before > 4_000_000_000:
            words[i // 2] = 1


def small_types(flags: Any, numbers: Any) -> Any:
    with with_backend(GPU, flags, numbers):
        made = sieve[1, 32](flags, numbers, st.full((4,), 7, st.u32))
    return made


def beside_graphs(x: Any, steps: Any) -> Any:
    """A launch between runs that become graphs, with a number that changes from iteration to iteration."""
    with with_backend(GPU, x):
        for step in st.range(steps):
            for _ in range(4):
                x = x - 0.25 * st.mean(x)
            x = scale[4, 32](x, 1.0 / (1.0 + step), st.zeros_like(x))
    return x


def beside_graphs_by_hand(x: Any, steps: int) -> Any:
    x = x.astype(np.float64)
    for step in range(steps):
        for _ in range(4):
            x = x - 0.25 * np.mean(x)
        x = x / (1.0 + step)
    return x


FLAGS = np.arange(8) % 3 == 0
BYTES = np.arange(8, dtype=np.uint8) * 20

# (staged function, its arguments, what it gives)
PROGRAMS: list[tuple[Any, tuple[Any, ...], Any]] = [
    (by_value, (X, Y), np.float32(2) * X + Y),
    (turned, (MATRIX,), MATRIX.T),
    (sums_of_blocks, (X,), X.astype(np.float64).sum()),
    (sums_of_warps, (X,), np.pad(X, (0, 28)).reshape(4, 32).sum(axis=1)),
    (counted, (COUNTS,), np.bincount(COUNTS, minlength=16).astype(np.int32)),
    (both_extremes, (COUNTS,), ([COUNTS.min()], [COUNTS.max()])),
    (collatz_steps, (np.arange(1, 41), 60), collatz_by_hand(np.arange(1, 41), 60)),
    (smoothed, (X, 5), smooth_by_hand(X, 5)),
    (in_place, (X, 3), (X, X + 3, X + 4)),
    (as_it_was, (X,), (2 * X + 1) * 2 * X),
    (in_three_axes, (7,), 7 + np.add.outer(np.add.outer(100 * np.arange(3), 10 * np.arange(4)), np.arange(5))),
    (all_arithmetic, (X, np.arange(100) % 7 - 1), None),
    (with_numbers_of_the_device, (X,), (X / np.abs(X).max(), 2 * (X / np.abs(X).max()))),
    (of_two_shapes, (X, X[:50]), (3 * X, 4 * X[:50])),
    (nothing_to_do, (X,), X),
    (of_one_array_twice, (X,), X[::-1]),
    (of_no_elements, (X[:0],), X[:0]),
    (exchanged, (np.arange(32, dtype=np.float32),), (exchanged_by_hand(np.arange(32)),) * 3),
    (
        small_types,
        (FLAGS, BYTES),
        (
            (np.arange(8) > 1) & ~FLAGS,
            BYTES * np.uint8(3) + np.uint8(200),
            7 + (BYTES * np.uint8(3) + np.uint8(200)).astype(np.uint32).reshape(4, 2).sum(axis=1),
        ),
    ),
    (beside_graphs, (X[:20], 4), beside_graphs_by_hand(X[:20], 4)),
    (swapped, (X,), X.reshape(-1, 2)[:, ::-1].reshape(-1)),
]
