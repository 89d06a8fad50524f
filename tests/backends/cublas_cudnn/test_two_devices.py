"""Two GPUs in one program: values cross by peer copies, in the order of both streams, and each device gives back what is its own."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, with_backend
from staged.errors import ProgramError, ProgramIndexError
from tests.backends.cublas_cudnn.harness import printed_and_copied_as_in_eager

X = np.random.default_rng(5).normal(size=(6, 5))
W = np.random.default_rng(6).normal(size=(5, 3))
FIRST, SECOND = GPU(0), GPU(1)
TURNS = int(np.ceil(np.log(np.sum(X * X)) / np.log(4.0)))
"""Of `decisions`: 0.25 ** TURNS * sum(x * x) < 1."""
LAZY = "lazy shuffled seed=4 devices=2"


def one_after_the_other(x: Any, w: Any) -> Any:
    with with_backend(FIRST, x, w):
        h = st.tanh(x @ w)
    with with_backend(SECOND, h):
        y = st.exp(h * 0.5) + h  # `h` crosses once
    return y, h


def nested(x: Any, w: Any) -> Any:
    with with_backend(FIRST, x):
        a = x * 2.0
        with with_backend(SECOND, w):
            b = w * 3.0
            with with_backend(CPU):
                c = st.sum(w)
            b = b + c
        return a @ b


def a_number_of_the_first(x: Any, n: Any) -> Any:
    total = st.zeros(5, dtype=st.f64)
    for _ in st.range(n):
        with with_backend(SECOND, x):
            scaled = x * st.cos(total[0])  # the loop's end decides that `total` is on the first one
            with with_backend(FIRST):
                total += st.sin(st.sum(scaled, axis=0) + 1.0)
    return total


def back_and_forth(x: Any, n: Any) -> Any:
    with with_backend(FIRST, x):
        for i in st.range(n):
            x = x * 0.5 + i
            with with_backend(SECOND):
                x = st.sin(x)  # carried on the first one
    return x


def what_does_not_change(x: Any, w: Any, n: Any) -> Any:
    with with_backend(FIRST, x, w):
        scaled = x @ w
    with with_backend(SECOND):
        total = st.zeros((6, 3), dtype=x.dtype)
        for i in st.range(n):
            total = total + scaled * i  # `scaled` crosses once, before the loop
    return total


def both_write_while_the_other_reads(x: Any, n: Any) -> Any:
    """Buffers are used again in every iteration on either side: what is copied must not be overwritten before."""
    with with_backend(FIRST, x):
        y = x + 0.0
        with with_backend(SECOND):
            total = st.zeros_like(x)
        for i in st.range(n):
            y = y * -0.75 + i
            with with_backend(SECOND):
                total = total * 0.5 + y
    return total, y


def pieces_and_numbers(x: Any, k: Any) -> Any:
    with with_backend(FIRST, x):
        doubled = x * 2.0
        top = st.max(doubled)
    with with_backend(SECOND):
        row = doubled[k] * top  # one row and one number cross
        return row - st.sum(doubled[1:3], axis=0)


def decisions(x: Any, n: Any) -> Any:
    with with_backend(FIRST, x):
        for _ in st.range(n):
            x = x * 0.5
            with with_backend(SECOND):
                size = st.sum(x * x)
            if size < 1.0:
                break
        return x


def prints(x: Any, n: Any) -> Any:
    with with_backend(FIRST, x):
        a = x + 1.0
        with with_backend(SECOND, x):
            b = x - 1.0
        for i in st.range(n):
            print(f"{i}: {st.sum(a):.4f} and {st.sum(b):.4f}")
            a = a * 0.5
            with with_backend(SECOND):
                b = b * 0.25
    return a


def gradient_across(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        with with_backend(FIRST, x):
            h = st.tanh(x @ w)
        with with_backend(SECOND):
            y = st.exp(h * 0.1) * h
        with with_backend(FIRST):
            return st.sum(y * h)

    return st.value_and_grad(loss)(w)


def gradient_of_a_loop_across(x: Any, w: Any, n: Any) -> Any:
    def loss(w: Any) -> Any:
        with with_backend(FIRST, x):
            h = x
            for _ in st.range(n):
                h = st.tanh(h + 0.25)
                with with_backend(SECOND):
                    y = st.sin(h @ w)
                h = h * 0.5 + y @ w.T
            return st.mean(h * h)

    return st.value_and_grad(loss)(w)


def ends_its_turns_on_either(x: Any, n: Any) -> Any:
    """The carried value comes from one device where an iteration ends early, from the other where it does not."""
    with with_backend(FIRST, x):
        y = x * 2.0
        for i in st.range(n):
            if i % 2 == 0:
                y = st.sin(y)
                continue
            with with_backend(SECOND):
                y = y * 0.5
    return y


def second_derivative_of_a_loop_across(x: Any, w: Any, n: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x
        for _ in st.range(n):
            with with_backend(FIRST, h):
                h = st.tanh(h @ w)
            with with_backend(SECOND, h):
                h = h + st.sin(h @ w) * 0.5
        return st.sum(h * h)

    return st.grad(lambda w: st.sum(st.grad(loss)(w) ** 2))(w)


def moved(x: Any) -> Any:
    first = st.to(x, FIRST)
    with with_backend(FIRST):
        y = first * 2.0
    second = st.to(y, SECOND)
    with with_backend(SECOND):
        z = second + 1.0
    return st.to(z, CPU) + x


def random_numbers(n: Any) -> Any:
    with with_backend(FIRST):
        a = st.random.normal((3, 4))
        with with_backend(SECOND):
            b = st.random.uniform((3, 4))
            for _ in st.range(n):
                b = b + st.random.uniform((3, 4))
        return a + b


TABLE: list[tuple[Any, tuple[Any, ...], tuple[int, int, int]]] = [
    # the function, its arguments, copies to the devices, to the host, between the devices
    (one_after_the_other, (X, W), (2, 2, 1)),
    (nested, (X, W), (2, 1, 1)),
    (back_and_forth, (X, 3), (1, 1, 2 * 3)),
    (a_number_of_the_first, (X, 3), (1, 1, 2 * 3)),
    (what_does_not_change, (X, W, 4), (2, 1, 1)),
    (both_write_while_the_other_reads, (X, 5), (1, 2, 5)),
    (pieces_and_numbers, (X, 4), (1, 1, 3)),
    (decisions, (X, 9), (1, TURNS + 1, TURNS)),
    (prints, (X, 3), (2, 2 * 3 + 1, 3)),  # the first one's region adds up `b`
    (gradient_across, (X, W), (2, 2, 3)),  # h and y; of the cotangents that of h: that of y is h
    (ends_its_turns_on_either, (X, 4), (1, 1, 2 * 2)),
    (moved, (X,), (1, 1, 1)),
    (random_numbers, (2,), (0, 1, 1)),
]


@pytest.mark.parametrize(("function", "arguments", "copies"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_values_cross_by_peer_copies_alone(
    function: Any,
    arguments: tuple[Any, ...],
    copies: tuple[int, int, int],
    two: Emulator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed_and_copied_as_in_eager(st.function(function), arguments, copies, ("devices=2", LAZY), two, capsys, 2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_a_loop_on_both_devices(seed: int, two: Emulator) -> None:
    staged = st.function(gradient_of_a_loop_across)
    with st.eager():
        wanted = staged(X, W, 3)
    two.configure(f"lazy shuffled seed={seed} devices=2")
    for one, other in zip(staged(X, W, 3), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("words", ["devices=2", LAZY])
def test_second_derivatives_of_a_loop_on_both_devices(words: str, two: Emulator) -> None:
    staged = st.function(second_derivative_of_a_loop_across)
    with st.eager():
        wanted = staged(X, W @ W.T, 3)
    two.configure(words)
    np.testing.assert_allclose(staged(X, W @ W.T, 3), wanted, rtol=1e-9, atol=1e-9)


def test_streams_wait_for_each_other_and_the_host_for_results_alone(two: Emulator) -> None:
    staged = st.function(both_write_while_the_other_reads)
    staged(X, 5)
    text = staged.stage(X, 5).source
    assert text.count("cudaStreamWaitEvent") == 2 and text.count("if (copy_from_peer(") == 1
    synchronisations = []
    for n in (5, 50):
        before = two.counts()
        staged(X, n)
        synchronisations.append((two.counts() - before).synchronisations)
    assert synchronisations[0] == synchronisations[1] <= 4  # for the results, and both devices at the end


def test_every_copy_is_reported() -> None:
    listed = st.function(one_after_the_other).stage(X, W).transfers()
    assert [(t.what, str(t.source), str(t.target), t.nbytes, t.why) for t in listed] == [
        ("x", "cpu", "gpu", 240, "input"), ("w", "cpu", "gpu", 120, "input"), ("h", "gpu", "gpu(1)", 144, "value"),
        ("y", "gpu(1)", "cpu", 144, "result"), ("h", "gpu", "cpu", 144, "result"),
    ]  # fmt: skip


def test_arguments_and_variables_stay_where_they_are(two: Emulator) -> None:
    first, second = st.Variable(np.zeros((6, 3)), name="first"), st.Variable(np.ones(3), name="second")

    @st.function
    def step(x: Any, w: Any) -> Any:
        with with_backend(FIRST):
            first.value = first.value + x @ w
        with with_backend(SECOND):
            second.value = second.value * 2.0 + st.sum(first.value, axis=0)

    on_x, on_w = st.to(X, FIRST), st.to(W, SECOND)
    for turn in range(3):
        before = two.counts()
        step(on_x, on_w)
        seen = two.counts() - before
        between = (seen.copies_between_devices, seen.copies_to_host)
        assert between == (2, 0)  # w to the first, `first` to the second
        assert seen.copies_to_device == (4 if turn == 0 else 0)
    totals = [(turn + 1) * (X @ W) for turn in range(3)]
    np.testing.assert_allclose(first.numpy(), totals[-1], rtol=1e-12)
    wanted = np.ones(3)
    for total in totals:
        wanted = wanted * 2.0 + total.sum(axis=0)
    np.testing.assert_allclose(second.numpy(), wanted, rtol=1e-12)


def test_a_failure_on_one_device_stops_what_the_other_would_print(
    two: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    @st.function
    def f(x: Any, rows: Any) -> Any:
        with with_backend(FIRST, x, rows):
            picked = x[rows]
        with with_backend(SECOND):
            total = st.sum(picked)
        print(f"total {total:.3f}")
        return total

    rows = np.array([0, 3, 1])
    assert abs(f(X, rows) - X[rows].sum()) < 1e-12
    assert capsys.readouterr().out == f"total {X[rows].sum():.3f}\n"
    with pytest.raises(ProgramIndexError, match="index 7 is out of range for an axis of 6 elements") as caught:
        f(X, np.array([0, 7, 1]))
    assert "picked = x[rows]" in str(caught.value)
    assert capsys.readouterr().out == ""
    assert abs(f(X, rows) - X[rows].sum()) < 1e-12


def test_what_both_devices_have_is_given_back(two: Emulator) -> None:
    gc.collect()
    before = two.live_objects()
    staged = st.function(gradient_of_a_loop_across)
    program = staged.stage(X, W, 3)
    first = two.counts()
    program(X, W, 3)
    allocated = two.counts() - first
    assert allocated.live_streams == 2 and allocated.live_handles == 2 and allocated.live_events == 2
    second = two.counts()
    program(X, W, 3)
    assert (two.counts() - second).allocations == 0
    del program, staged
    gc.collect()
    assert two.live_objects() == before


def test_a_device_that_is_not_there_is_named(emulated_device: Emulator) -> None:
    emulated_device.last_violation()  # on a GPU it is said before the program is compiled, in other words
    staged = st.function(one_after_the_other)
    with pytest.raises(ProgramError, match=r"cudaSetDevice\(1\)"):
        staged(X, W)
    emulated_device.configure("devices=2")
    assert len(staged(X, W)) == 2
    emulated_device.configure()
