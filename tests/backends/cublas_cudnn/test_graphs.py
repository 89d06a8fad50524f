"""Iterations of loops as CUDA graphs: the numbers of the same program without them, few calls from the host, errors as ever."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, optim, with_backend
from staged.errors import ProgramIndexError

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 6)).astype(np.float32)
Y = RNG.normal(size=(40, 5)).astype(np.float32)
W = RNG.normal(size=(6, 5)).astype(np.float32)
SQUARE = (RNG.normal(size=(6, 6)) * 0.3).astype(np.float32)
ON_GPU, ON_CPU = partial(with_backend, GPU), partial(with_backend, CPU)
MODES = ["", "lazy shuffled seed=7", "lazy reverse seed=8"]


# ---- programs: each is made anew on a back end, so that Variables begin alike ----------------------


def slices_and_adam(backend: Any) -> Callable[..., Any]:
    """A batch whose place depends on the counter, factors that the host computes, a print now and then."""
    w, b = st.Variable(W, name="w"), st.Variable(np.zeros(5, np.float32), name="b")
    opt = optim.Adam([w, b], lr=0.01)

    @st.function
    def train(xs: Any, ys: Any, n: Any) -> Any:
        loss = 0.0
        with backend(xs, ys):
            for i in st.range(n):
                k = i % 5
                x, y = xs[k * 8 : (k + 1) * 8], ys[k * 8 : (k + 1) * 8]
                loss, grads = st.value_and_grad(lambda x=x, y=y: st.mean((st.tanh(x @ w + b) - y) ** 2), wrt=(w, b))()
                opt.step(grads)
                if i % 4 == 0:
                    print(f"{i}: {loss:.3f}")
        return loss, w + 0.0

    return train


def gradient_through_a_loop(grows: bool, backend: Any) -> Callable[..., Any]:
    """The reverse loop reads what each iteration kept, at an address that depends on it (and on how far its storage has grown)."""

    @st.function
    def gradient(x: Any, w: Any, n: Any) -> Any:
        def loss(w: Any) -> Any:
            h = x
            for i in st.range(n if grows else 9):
                h = st.tanh(h @ w) * (1.0 + 0.1 * i) + st.softmax(h, axis=1)
                h = st.sin(h @ w)
            return st.sum(h * h)

        with backend(x, w):
            total, d_w = st.value_and_grad(loss)(w)
        return total, d_w

    return lambda n: gradient(X, SQUARE, n)


def nested(backend: Any) -> Callable[..., Any]:
    """The inner loop's iterations are graphs; the outer loop changes what they read."""

    @st.function
    def power(x: Any, w: Any, n: Any) -> Any:
        with backend(x, w):
            for i in st.range(3):
                scale = 1.0 / (i + 1.0)
                for _ in st.range(n):
                    x = st.tanh((x @ w) * scale)
                    x = st.softmax(x @ w, axis=1) - x
                print(i, st.sum(x) > 1e9)
        return x

    return lambda n: power(X, SQUARE, n)


def dropout(backend: Any) -> Callable[..., Any]:
    """Each iteration draws numbers of its own."""

    @st.function
    def drop(x: Any, w: Any, n: Any) -> Any:
        with backend(x, w):
            for _ in st.range(n):
                x = st.dropout(st.tanh(x @ w), 0.25)
                x = st.dropout(x @ w, 0.5)
        return x

    return lambda n: drop(X, SQUARE, n)


def while_with_exits(backend: Any) -> Callable[..., Any]:
    """A decision on the device's numbers between the runs of an iteration."""

    @st.function
    def descend(x: Any, w: Any, n: Any) -> Any:
        k = 0
        with backend(x, w):
            while k < n:
                k += 1
                x = st.tanh(x @ w) @ w
                x = st.tanh(x @ w) @ w + 0.01
                if st.sum(x * x) < 1e-3:
                    break
                if k % 2 == 0:
                    continue
                x = st.tanh(x @ w + k) @ w
                x = st.sin(x @ w + k) @ w
        return x, k

    return lambda n: descend(X, SQUARE, n)


def swapped(backend: Any) -> Callable[..., Any]:
    """Carried arrays that change places are copied where the iteration ends."""

    @st.function
    def swap(x: Any, w: Any, n: Any) -> Any:
        with backend(x, w):
            a, b = x + 1.0, x - 1.0
            for _ in st.range(n):
                c = st.tanh(a @ w) @ w
                d = st.sin(b @ w) @ w
                a, b = b + d * 0.1, a + c * 0.1
        return a - 2.0 * b

    return lambda n: swap(X, SQUARE, n)


def sgd(backend: Any) -> Callable[..., Any]:
    """A product in the place of the weights, with a factor that the host computes: cuBLAS reads it on the device."""

    @st.function
    def train(x: Any, y: Any, w: Any, lr: Any, n: Any) -> Any:
        with backend(x, y, w):
            for i in st.range(n):
                rate = lr / (1.0 + 0.1 * i)
                w = w - rate * (x.T @ (x @ w - y))
                w = w - rate * 0.5 * (x.T @ st.tanh(x @ w))
        return w

    return lambda n: train(X, Y, W, 0.01 if n > 3 else 0.02, n)


PROGRAMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "slices and adam": lambda backend: (lambda train: lambda n: train(X, Y, n))(slices_and_adam(backend)),
    "gradient through a loop": partial(gradient_through_a_loop, False),
    "gradient through a loop of any length": partial(gradient_through_a_loop, True),
    "sgd": sgd,
    "nested": nested,
    "dropout": dropout,
    "while with exits": while_with_exits,
    "swapped": swapped,
}
each_program = pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)


def leaves(result: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in (result if isinstance(result, tuple) else (result,))]


@each_program
def test_the_numbers_are_those_without_graphs_and_the_hosts(
    make: Any, device: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    made, plain, on_cpu = make(ON_GPU), make(partial(with_backend, GPU, graphs=False)), make(ON_CPU)
    for program in (made, plain, on_cpu):
        program(1)
    for words, n in zip(MODES, (9, 1, 6), strict=True):
        device.configure(words)
        capsys.readouterr()
        before = device.counts()
        st.seed(n)
        found = leaves(made(n))
        between = device.counts()
        said = capsys.readouterr().out
        st.seed(n)
        for given, expected in zip(found, leaves(plain(n)), strict=True):
            np.testing.assert_array_equal(given, expected)
        assert (device.counts() - between).graph_launches == 0
        assert capsys.readouterr().out == said
        st.seed(n)
        for given, expected in zip(found, leaves(on_cpu(n)), strict=True):
            np.testing.assert_allclose(given, expected, rtol=2e-4, atol=1e-5)
        assert capsys.readouterr().out == said
        assert n < 3 or (between - before).graph_launches >= n - 2


def test_a_turn_is_two_calls_of_the_host(device: Emulator) -> None:
    train = PROGRAMS["slices and adam"](ON_GPU)
    train(41)

    def calls(n: int) -> int:
        before = device.counts()
        train(n)
        return (device.counts() - before).enqueued

    # 40 iterations more: what has changed and the graph, and 10 losses that are printed.
    assert calls(81) - calls(41) == 40 * 2 + 10


def test_a_thousand_turns_take_no_memory(device: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    gc.collect()
    empty = device.counts()
    train = PROGRAMS["dropout"](ON_GPU)
    train(3)
    before = device.counts()
    train(1000)
    seen = device.counts() - before
    assert (seen.allocations, seen.live_graphs, seen.live_streams) == (0, 0, 0)
    assert seen.graph_launches == 1000
    del train
    gc.collect()
    assert (device.counts() - empty).live_graphs == 0


def test_an_index_out_of_range_in_a_graph_names_its_line(device: Emulator) -> None:
    @st.function
    def look_up(table: Any, rows: Any, w: Any, n: Any) -> Any:
        with with_backend(GPU, table, rows, w):
            h = table[:8]
            for i in st.range(n):
                h = st.tanh(h @ w) @ w + table[rows + i]
                h = st.tanh(h @ w) @ w
        return h

    rows = np.arange(8)
    for words in MODES:
        device.configure(words)
        look_up(X, rows, SQUARE, 5)
        with pytest.raises(ProgramIndexError, match="index 40 is out of range for an axis of 40") as raised:
            look_up(X, rows + 20, SQUARE, 20)
        assert "table[rows + i]" in str(raised.value)
        look_up(X, rows, SQUARE, 5)


def test_arrays_that_the_caller_has_elsewhere_by_now(device: Emulator) -> None:
    @st.function
    def power(x: Any, w: Any, n: Any) -> Any:
        for _ in st.range(n):
            x = st.tanh(x @ w) @ w
            x = st.sin(x @ w) @ w
        return x

    expected = [power(X, w, 5) for w in (SQUARE, SQUARE.T.copy())]
    with with_backend(GPU, X, SQUARE, SQUARE.T.copy()) as (x, first, second):
        for _ in range(3):
            for w, wanted in zip((first, second), expected, strict=True):
                np.testing.assert_allclose(np.asarray(power(x, w, 5)), wanted, rtol=1e-4, atol=1e-6)


def test_a_check_of_the_host_stops_a_turn_where_it_stands(device: Emulator) -> None:
    """A Variable that was written before the check has its new value, as without graphs."""

    def make(backend: Any) -> tuple[Any, st.Variable]:
        w = st.Variable(SQUARE, name="w")

        @st.function
        def train(xs: Any, n: Any) -> Any:
            with backend(xs):
                for i in st.range(n):
                    h = st.tanh(xs[0:6] @ w) @ w
                    w.value = w - 0.1 * (st.sin(h @ w) @ w)
                    x = xs[i * 6 : i * 6 + 6]
                    h = st.tanh(x @ w) @ w
                    w.value = w - 0.1 * (st.sin(h @ w) @ w)
            return st.sum(w)

        return train, w

    results = []
    for backend in (ON_GPU, ON_CPU):
        train, w = make(backend)
        with pytest.raises(ProgramIndexError, match=r"xs\[i \* 6"):
            train(X, 9)
        results.append(w.numpy().copy())
    np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("distinct", [False, True])
def test_a_value_that_many_calls_read_is_one_of_those_that_a_launch_takes(
    distinct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staged.backends.cublas_cudnn.steps.MOST_VALUES", 8)

    @st.function
    def run(x: Any, w: Any, n: Any) -> Any:
        with with_backend(GPU, x, w):
            h = x
            for i in st.range(n):
                rate = 1.0 + 0.1 * i
                for layer in range(5):
                    h = st.sin((st.tanh(h) @ w) * (rate + layer if distinct else rate))
        return h

    text = run.stage(X, SQUARE, 4).source
    assert re.findall(r"(\d+) calls, one graph", text) == (["9"] if distinct else ["11"])
    h = X.astype(np.float64)
    for i in range(4):
        for layer in range(5):
            h = np.sin((np.tanh(h) @ SQUARE) * (1 + 0.1 * i + (layer if distinct else 0)))
    np.testing.assert_allclose(run(X, SQUARE, 4), h, rtol=1e-3, atol=1e-4)
