"""Recursion in programs with two GPUs: what a call works on and what it keeps is on either device, in stores of each."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, with_backend
from staged.errors import ProgramError, ProgramIndexError
from staged.testing import compare_trees
from tests.gradients.programs import recursion

FIRST, SECOND = GPU(0), GPU(1)
WORDS = ("devices=2", "lazy shuffled seed=4 devices=2", "lazy reverse seed=9 devices=2")
X = np.linspace(0.1, 1.0, 40)
LEFT, RIGHT, LEAVES, W = recursion.LEFT, recursion.RIGHT, recursion.LEAVES, recursion.W


@st.function
def halvings(x: Any, n: Any) -> Any:
    return x if n < 1 else halvings(x * 0.5, n - 1) + x


def on_one_device(x: Any, n: Any) -> Any:
    """A function of one device's beside what the other does."""
    with with_backend(FIRST, x):
        y = halvings(x, n)
    with with_backend(SECOND):
        return y + 1.0


def from_both_devices(x: Any, n: Any) -> Any:
    """The first caller says where the function computes."""
    with with_backend(FIRST, x):
        y = halvings(x, n)
    with with_backend(SECOND):
        return halvings(y + 1.0, n)


@st.function
def across(x: Any, n: Any) -> Any:
    """Each call works on both devices."""
    if n < 1:
        return x * 1.5
    with with_backend(FIRST):
        a = st.sin(x) + n
    with with_backend(SECOND):
        b = across(a * 0.5, n - 1) + st.sum(a)
    with with_backend(FIRST):
        return a * b


def both_in_each_call(x: Any, n: Any) -> Any:
    with with_backend(FIRST, x):
        return across(x, n)


def gradient_of_both(x: Any, n: Any) -> Any:
    return st.value_and_grad(lambda x: st.sum(both_in_each_call(x, n) ** 2))(x)


@st.function
def encode(node: Any, left: Any, right: Any, leaves: Any, w: Any) -> Any:
    """Leaves on one device, what is above them on the other."""
    if left[node] < 0:
        with with_backend(SECOND):
            return st.tanh(leaves[node])
    with with_backend(FIRST):
        below = encode(left[node], left, right, leaves, w) + encode(right[node], left, right, leaves, w)
        return st.tanh(below @ w)


def tree(left: Any, right: Any, leaves: Any, w: Any) -> Any:
    def loss(leaves: Any, w: Any) -> Any:
        with with_backend(FIRST):
            return st.sum(encode(len(left) - 1, left, right, leaves, w) ** 2)

    return st.value_and_grad(loss, argnums=(0, 1))(leaves, w)


def steps(left: Any, right: Any, leaves: Any, w: Any, n: Any) -> Any:
    for _ in st.range(n):
        _, (_, d_w) = tree(left, right, leaves, w)
        with with_backend(SECOND):
            w = w - 0.1 * d_w
    return w


@st.function
def until(x: Any, limit: Any) -> Any:
    """Decisions and prints inside of calls."""
    with with_backend(FIRST):
        size = st.sum(x * x)
    if size < limit:
        return x
    with with_backend(SECOND):
        half = x * 0.5
        print(f"{st.max(half):.4f}")
    return until(half, limit)


def decided(x: Any, limit: Any) -> Any:
    with with_backend(FIRST, x):
        return until(x, limit)


def second_derivative(x: Any, n: Any) -> Any:
    gradient = st.grad(lambda x: st.sum(both_in_each_call(x, n)))
    return st.grad(lambda x: st.sum(gradient(x) ** 2))(x)


TABLE: list[tuple[Any, tuple[Any, ...]]] = [
    (on_one_device, (X, 3)),
    (from_both_devices, (X, 3)),
    (both_in_each_call, (X, 4)),
    (gradient_of_both, (X, 4)),
    (tree, (LEFT, RIGHT, LEAVES, W)),
    (steps, (LEFT, RIGHT, LEAVES, W, 3)),
    (decided, (X, 0.3)),
    (second_derivative, (X * 0.3, 2)),
]


@pytest.mark.parametrize(("function", "arguments"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_calls_on_two_devices_give_what_eager_mode_gives(
    function: Any, arguments: tuple[Any, ...], two: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    staged = st.function(function)
    with st.eager():
        wanted = staged(*arguments)
    printed = capsys.readouterr().out
    for words in WORDS:
        two.configure(words)
        for _ in range(2):  # what calls have is taken from the stores again
            compare_trees(staged(*arguments), wanted, rtol=1e-9, atol=1e-11)
            assert capsys.readouterr().out == printed


def test_calls_allocate_once_and_give_it_back(two: Emulator) -> None:
    gc.collect()
    before = two.live_objects()
    program = st.function(steps).stage(LEFT, RIGHT, LEAVES, W, 20)
    program(LEFT, RIGHT, LEAVES, W, 1)
    first = two.counts()
    program(LEFT, RIGHT, LEAVES, W, 20)
    assert (two.counts() - first).allocations == 0
    del program
    gc.collect()
    assert two.live_objects() == before


def test_a_device_that_only_a_call_works_on_is_one_of_the_programs(two: Emulator) -> None:
    @st.function
    def total(n: Any) -> Any:
        if n < 1:
            return 0.0
        with with_backend(SECOND):
            part = st.sum(st.full((40,), 0.5) * n)
        return total(n - 1) + part

    @st.function
    def f(x: Any, n: Any) -> Any:
        with with_backend(FIRST, x):
            y = x * 2.0
        return y, total(n)

    before = two.counts()
    doubled, found = f(X, 4)
    np.testing.assert_allclose(doubled, 2.0 * X)
    assert found == 20.0 * (4 + 3 + 2 + 1)
    assert (two.counts() - before).copies_between_devices == 0


def test_an_index_out_of_range_in_a_call_names_the_line(two: Emulator) -> None:
    @st.function
    def pick(n: Any, x: Any, rows: Any) -> Any:
        with with_backend(SECOND):
            picked = x[rows[n : n + 1]]  # the line
        return picked if n < 1 else pick(n - 1, x, rows) + picked

    @st.function
    def f(n: Any, x: Any, rows: Any) -> Any:
        with with_backend(FIRST, x, rows):
            x = x * 1.0
        return pick(n, x, rows)

    rows = np.array([3, 1, 2])
    np.testing.assert_allclose(f(2, X, rows), X[rows].sum(keepdims=True))
    with pytest.raises(ProgramIndexError, match="index 40 is out of range for an axis of 40") as caught:
        f(2, X, np.array([3, 40, 2]))
    assert "# the line" in str(caught.value)
    np.testing.assert_allclose(f(2, X, rows), X[rows].sum(keepdims=True))


def test_a_device_without_room_for_the_calls_says_so(emulated_device: Emulator) -> None:
    gc.collect()
    live = emulated_device.counts().live_bytes >> 20  # what other tests have left there
    emulated_device.configure(f"devices=2 memory={live + 64}M")
    staged = st.function(both_in_each_call)
    large = np.ones(100_000)
    with pytest.raises(ProgramError, match="for open calls") as caught:
        staged(large, 100)
    assert isinstance(caught.value, MemoryError)
    emulated_device.configure("devices=2")
    with with_backend(CPU):
        pass
    compare_trees(staged(large, 1), large * 0 + staged(np.ones(100_000), 1)[0], rtol=1e-12)
    emulated_device.configure()


def test_the_memory_report_has_what_calls_take_and_leave_on_each_device(two: Emulator) -> None:
    program = st.function(gradient_of_both).stage(X, 4)
    report = program.memory
    taken = re.findall(r'&gpu->calls, \d+, (\d+), "open calls"', program.source)
    kept = re.findall(r'&gpu->frames, \d+, (\d+), "what calls keep', program.source)
    assert sorted(map(int, taken)) == sorted(nbytes for _, _, nbytes in report.calls)
    assert sorted(map(int, kept)) == sorted(nbytes for _, _, nbytes in report.kept)
    assert {device for _, device, _ in report.calls} == {device for device, _ in report.devices} == {"gpu", "gpu(1)"}
    assert re.search(r"each call of `across_forward` takes [\d,]+ bytes on gpu\(1\)", str(report))
    assert re.search(r"each `across_frame` keeps [\d,]+ bytes on gpu for the gradient", str(report))
