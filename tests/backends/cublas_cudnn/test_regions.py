"""The copies of a region, counted by the device: one per distinct input, per result used after it, per printed value, per decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, with_backend
from tests.backends.cublas_cudnn.harness import printed_and_copied_as_in_eager

pytestmark = pytest.mark.usefixtures("device")
X = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)
ROW = X[0] + 1.0


def captured(x: Any) -> Any:
    with with_backend(GPU):  # nothing is named: x and ROW are found
        y = x * ROW
    return y + 1.0


def named_twice(x: Any) -> Any:
    with with_backend(GPU, x, x):
        y = x + 1.0
    with with_backend(GPU, [x]):
        z = x * y
    return z, z


def tree(inputs: Any) -> Any:
    with with_backend(GPU, inputs) as given:
        y = given["x"] * given["rows"][0] + given["rate"]
    return {"y": y}


def function_form(x: Any, row: Any) -> Any:
    return with_backend(GPU, x, row)(lambda x, row: (x * row, x - row))


def nested(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
        with with_backend(CPU, y):
            h = st.sum(y, axis=0)
            with with_backend(GPU):
                z = h * y
        w = z + h
    return w


def unused(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
        st.exp(y)  # used by nobody
    return y


def used_by_the_host_twice(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
    return y + 1.0, st.sum(y)


def made_on_the_device(n: Any) -> Any:
    with with_backend(GPU):
        w, b = st.ones((4, 6)), st.zeros((6,))
        for i in st.range(n):
            w = w * 0.5 + b + i
    return w


def loop(x: Any, row: Any, n: Any) -> Any:
    with with_backend(GPU):
        for i in st.range(n):
            for _ in st.range(2):
                x = x * row + 0.25 * i
    return x


def prints(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        for i in st.range(n):
            x = x * 0.5
            print(f"step {i}: {st.max(x):.3f}")
    return x


def prints_what_does_not_change(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        top = st.max(x)
        for i in st.range(n):
            print(f"step {i}: {top:.3f}")
            x = x + 1.0
    return x


def decisions(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        for _ in st.range(n):
            if st.sum(x) > 0.0:
                x = x * -0.5
            else:
                x = x + 1.0
    return x


def asserts(x: Any, top: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        for i in st.range(n):
            x = x * 2.0
            assert st.max(x) < top, f"step {i}: {st.max(x):.2f} of {top}"
    return x


def early(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        for _ in st.range(n):
            x = x * 2.0
            if st.max(x) > 10.0:
                return x
    return x - 1.0


def leaves_by_break(x: Any, n: Any) -> Any:
    for i in st.range(n):
        with with_backend(GPU, x):
            x = x * 2.0
            if i == 1:
                break
    return x - 1.0


def leaves_turns_early(x: Any, n: Any) -> Any:
    total = st.zeros_like(x)
    for i in st.range(n):
        with with_backend(GPU, x):
            x = x * 0.5
            if i % 2 == 1:
                continue
            total = total + x
    return total - 1.0


def leaves_an_inner_region(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        for i in st.range(n):
            with with_backend(CPU):
                if i == 1:
                    break
            x = x * 2.0
        x = x + 1.0  # on the device again
    return x


def as_long_as_the_device_says(x: Any) -> Any:
    with with_backend(GPU, x):
        while st.sum(x * x) > 1.0:
            x = x * 0.5
    return x


def index_that_the_device_finds(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        for _ in st.range(n):
            row = x[st.argmax(st.sum(x, axis=1))]
            x = x * 0.5 - row
    return x


def printed_twice(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
    print(y[0, 1])
    print(f"{y[0, 1]:.2f} and {st.sum(y):.2f}")
    return y


def pieces_of_a_result(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
    return y, y[0], y.reshape(-1), y[1:3, 2] + 1.0


def pieces_in_turns(x: Any, n: Any) -> Any:
    """The iterations look at one element each: that the host takes all in the end is no reason to copy all in every iteration."""
    with with_backend(GPU, x):
        y = x * 2.0
    for i in st.range(n):
        with with_backend(GPU, y):
            y = y * 0.5
        print(f"{y[i, 1]:.3f}")
    return y


def regions_in_a_row(x: Any, n: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
    for i in st.range(n):
        with with_backend(GPU, y):
            z = y + i
        with with_backend(GPU, z):
            y = st.tanh(z)
    with with_backend(GPU, x, y):
        return x + y


def a_rate_of_the_host(x: Any, rate: Any, n: Any) -> Any:
    for i in st.range(n):
        step = rate / (1.0 + i)
        with with_backend(GPU, x, step):
            x = x - step * x
        rate = rate * 0.5
    return x


def caught(x: Any) -> Any:
    try:
        with with_backend(GPU, x):
            y = x * 2.0
            raise KeyError
    except KeyError:
        pass
    return y - 1.0


def gradient_inside(x: Any, row: Any) -> Any:
    with with_backend(GPU, x, row):
        loss, d_row = st.value_and_grad(lambda row: st.mean((x * row) ** 2))(row)
    return loss, d_row


def gradient_around(x: Any) -> Any:
    def loss(x: Any) -> Any:
        with with_backend(GPU, x):
            y = st.sum(st.tanh(x * 2.0))
        return y

    return st.value_and_grad(loss)(x)


def gradient_through(x: Any) -> Any:
    def loss(x: Any) -> Any:
        a = st.exp(x)
        with with_backend(GPU, a):
            y = st.tanh(a * 2.0)
        return st.sum(y * a)

    return st.grad(loss)(x)


def gradient_of_a_loop_around(x: Any, n: Any) -> Any:
    def loss(x: Any) -> Any:
        for _ in st.range(3):
            with with_backend(GPU, x):
                x = st.sin(x) * 1.5
        return st.sum(x)

    return st.grad(loss)(x) * n


def gradient_of_a_branch_around(x: Any, k: Any) -> Any:
    def loss(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * x
            if k > 1:
                y = st.sin(y)
        return st.sum(y) * 2.0

    return st.value_and_grad(loss)(x)


def second_derivative_inside(x: Any, row: Any) -> Any:
    with with_backend(GPU, x, row):
        return st.grad(lambda row: st.sum(st.grad(lambda row: st.sum(st.tanh(x * row)))(row) ** 2))(row)


def tangent_through(x: Any, v: Any) -> Any:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = st.exp(x * 0.5)
        return st.sum(y * x, axis=1)

    return st.jvp(f, (x,), (v,))


def row_that_the_device_finds(x: Any, k: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
        y[k] = x[0]
        y[1, 2] += 1.0
        best = st.argmax(x[:, 0])
        y[best] = x[best] * 3.0
    return y


def random_numbers(n: Any) -> Any:
    with with_backend(GPU):
        w = st.random.normal((4, 5))
        for _ in st.range(n):
            w = w + st.random.uniform((4, 5))
    return w


def moved(x: Any) -> Any:
    there = st.to(x, GPU)
    with with_backend(GPU):
        y = there * 2.0
    here = st.to(y, CPU)
    return here + x, here


TABLE: list[tuple[Any, tuple[Any, ...], int, int]] = [
    # the function, its arguments, copies to the device, copies to the host
    (captured, (X,), 2, 1),
    (named_twice, (X,), 1, 1),
    (tree, ({"x": X, "rows": [ROW], "rate": 0.5},), 2, 1),
    (function_form, (X, ROW), 2, 2),
    (nested, (X,), 2, 2),  # x and h; y and w
    (unused, (X,), 1, 1),
    (used_by_the_host_twice, (X,), 1, 1),
    (made_on_the_device, (3,), 0, 1),
    (loop, (X, ROW, 4), 2, 1),
    (prints, (X, 3), 1, 3 + 1),
    (prints_what_does_not_change, (X, 3), 1, 1 + 1),
    (decisions, (X, 5), 1, 5 + 1),
    (asserts, (X, 1e6, 3), 1, 3 + 1),  # the message is copied by a program that stops alone
    (early, (np.abs(X), 50), 1, int(np.ceil(np.log2(10.0 / np.abs(X).max()))) + 1),
    (leaves_by_break, (X, 50), 1, 1),
    (leaves_turns_early, (X, 4), 1, 1),
    (leaves_an_inner_region, (X, 4), 1, 1),
    (as_long_as_the_device_says, (X,), 1, int(np.ceil(np.log(np.sum(X * X)) / np.log(4.0))) + 1 + 1),
    (index_that_the_device_finds, (X, 3), 1, 3 + 1),
    (printed_twice, (X,), 1, 2),  # an element; y, of which the host takes the sum and which is the result
    (pieces_of_a_result, (X,), 1, 1),
    (pieces_in_turns, (X, 3), 1, 3 + 1),
    (regions_in_a_row, (X, 3), 1, 1),
    (a_rate_of_the_host, (X, 0.5, 3), 1, 1),
    (caught, (X,), 1, 1),
    (gradient_inside, (X, ROW), 2, 2),
    (gradient_around, (X,), 1, 2),
    (gradient_through, (X,), 1, 1),  # a; the sum of its two cotangents
    (gradient_of_a_loop_around, (X, 2.0), 1, 1),
    (gradient_of_a_branch_around, (X, 2), 1, 2),
    (second_derivative_inside, (X, ROW), 2, 1),
    (tangent_through, (X, ROW + X), 2, 2),  # exp(x / 2) and its tangent
    (row_that_the_device_finds, (X, 3), 1, 2),  # which row, a decision; y
    (random_numbers, (3,), 0, 1),
    (moved, (X,), 1, 1),
]


@pytest.mark.parametrize(
    ("function", "arguments", "to_device", "to_host"), TABLE, ids=[row[0].__name__ for row in TABLE]
)
def test_copies_are_exactly_those_of_the_edges(
    function: Any,
    arguments: tuple[Any, ...],
    to_device: int,
    to_host: int,
    device: Emulator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    staged, copies, modes = st.function(function), (to_device, to_host, 0), ("forward", "shuffled seed=1")
    printed_and_copied_as_in_eager(staged, arguments, copies, modes, device, capsys, 2e-5)


def test_what_a_message_shows_is_copied_when_the_program_stops(device: Emulator) -> None:
    staged = st.function(asserts)
    said = []
    before = device.counts()
    with pytest.raises(AssertionError) as caught:
        staged(X, 5.0, 9)
    said.append(str(caught.value))
    steps = int(np.floor(np.log2(5.0 / X.max()))) + 1
    assert (device.counts() - before).copies_to_host == steps + 1
    with st.eager(), pytest.raises(AssertionError) as caught:
        staged(X, 5.0, 9)
    said.append(str(caught.value))
    assert said[0] == said[1] and "of 5.0" in said[0]
    assert [t.why for t in staged.stage(X, 5.0, 9).transfers()] == ["input", "decision", "message", "result"]


def test_every_copy_is_reported_with_its_reason_and_line() -> None:
    listed = st.function(nested).stage(X).transfers()
    assert [(t.what, str(t.source), str(t.target), t.why) for t in listed] == [
        ("x", "cpu", "gpu", "input"), ("y", "gpu", "cpu", "value"), ("h", "cpu", "gpu", "value"), ("w", "gpu", "cpu", "result"),
    ]  # fmt: skip
    assert all(t.where is not None and t.where.file == __file__ for t in listed)
    assert [t.why for t in st.function(decisions).stage(X, 5).transfers()] == ["input", "decision", "result"]
    found = [t.why for t in st.function(moved).stage(X).transfers()]
    assert found == ["input", "to"]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (decisions, (X, 5)),
        (asserts, (X, 1e6, 3)),
        (as_long_as_the_device_says, (X,)),
        (index_that_the_device_finds, (X, 3)),
    ],
)
def test_a_decision_copies_one_number(function: Any, arguments: tuple[Any, ...]) -> None:
    listed = st.function(function).stage(*arguments).transfers()
    sizes = [t.nbytes for t in listed if t.why == "decision"]
    assert len(sizes) == 1 and sizes[0] <= 8


def test_the_reverse_of_a_region_runs_where_the_region_does() -> None:
    text = st.function(gradient_of_a_loop_around).stage(X, 2.0).source
    kernels, host = text.split("the host's part")
    assert "sinf(" in kernels and "cosf(" in kernels
    assert "sinf(" not in host and "cosf(" not in host


def test_what_the_host_computes_anew_in_each_turn_is_copied_before_that(device: Emulator) -> None:
    @st.function(target="portable")
    def f(x: Any) -> Any:
        total = st.zeros(x.shape)
        for step in st.range(4):
            h = st.sin(x * step)  # in one place of the host's memory in every iteration
            with with_backend(GPU, h):
                total = total + h * h
        return total

    x = np.linspace(0, 1, 300, dtype=np.float32)
    with st.eager():
        expected = f(x)
    for seed in range(4):
        device.configure(f"lazy seed={seed}")  # copies of memory that is not pinned are late by lot
        np.testing.assert_allclose(f(x), expected, rtol=1e-6)
    device.configure("eager forward")
