"""Functions of programs with a region: recursion on the device and beside it, its gradients, and what calls and frames have there."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, with_backend
from staged.errors import ProgramError
from staged.frontend.values import trees
from tests.frontend.harness import gradient_of
from tests.gradients.harness import PROGRAMS
from tests.gradients.programs import recursion

pytestmark = pytest.mark.usefixtures("device")
X = np.linspace(0.1, 1.0, 40)
LEFT, RIGHT, LEAVES, W = recursion.LEFT, recursion.RIGHT, recursion.LEAVES, recursion.W

ON_THE_HOST = {"recursive_power", "mutual_recursion", "calls_from_a_loop"}
"""Programs of numbers alone: they stay on the host, whatever their region asks for."""
CASES = sorted(name for name, entry in PROGRAMS.items() if entry.function.__module__ == recursion.__name__)


def check(function: Any, *arguments: Any, words: str = "", device: Emulator | None = None) -> Any:
    """The program gives what eager mode gives; returns the program."""
    if device is not None:
        device.configure(words)
    program = function.stage(*arguments)
    found = trees.flatten(program(*arguments))[0]
    with st.eager():
        wanted = trees.flatten(function(*arguments))[0]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    return program


@pytest.mark.parametrize("words", ["eager forward", "lazy shuffled seed=7"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_recursive_programs(name: str, words: str, device: Emulator) -> None:
    entry = PROGRAMS[name]
    gradient = gradient_of(entry.function, entry.wrt)

    @st.function
    def on_gpu(*arguments: Any) -> Any:
        with with_backend(GPU):
            return entry.function(*arguments), gradient(*arguments)

    device.configure(words)
    for point in entry.points:
        program = check(on_gpu, *point)
        assert ("__global__" in program.source) == (name not in ON_THE_HOST)


# ---- where values are ---------------------------------------------------------------------------


@st.function
def encode(node: Any, left: Any, right: Any, leaves: Any, w: Any) -> Any:
    if left[node] < 0:
        return st.tanh(leaves[node]), 0.0
    a, loss_a = encode(left[node], left, right, leaves, w)
    b, loss_b = encode(right[node], left, right, leaves, w)
    h = st.tanh((a + 0.5 * b) @ w + leaves[node])
    return h, loss_a + loss_b + st.sum(h * h)


TREE = (np.array([1, 3, -1, -1, -1]), np.array([2, 4, -1, -1, -1]))


@st.function
def train(left: Any, right: Any, leaves: Any, w: Any, steps: Any) -> Any:
    with with_backend(GPU, leaves, w):
        loss = 0.0
        for _ in st.range(steps):
            loss, d_w = st.value_and_grad(lambda w: encode(0, left, right, leaves, w)[1])(w)
            w = w - 0.1 * d_w
    return loss, w


def test_arrays_cross_once_and_those_that_only_decide_do_not() -> None:
    program = check(train, *TREE, LEAVES, W, 3)
    copies = sorted((t.what, str(t.source), str(t.target)) for t in program.transfers())
    assert copies == [("leaves", "cpu", "gpu"), ("loss", "gpu", "cpu"), ("w", "cpu", "gpu"), ("w", "gpu", "cpu")]


def test_steps_copy_nothing_and_allocate_nothing(device: Emulator) -> None:
    program = train.stage(*TREE, LEAVES, W, 3)
    program(*TREE, LEAVES, W, 3)
    before = device.counts()
    program(*TREE, LEAVES, W, 30)
    seen = device.counts() - before
    assert (seen.copies_to_device, seen.copies_to_host, seen.allocations) == (2, 2, 0)
    assert seen.bytes_to_device == LEAVES.nbytes + W.nbytes


def test_what_has_grown_is_given_back(device: Emulator) -> None:
    gc.collect()
    before = device.counts()

    @st.function
    def f(n: Any, x: Any) -> Any:
        with with_backend(GPU, x):
            return st.grad(lambda x: st.sum(walk(n, x)))(x)

    f(5, X)
    few = device.counts() - before
    f(2000, X)
    many = device.counts() - before
    f(2000, X)
    again = device.counts() - before
    # The arena, and the stores of open calls and of frames, which have grown.
    assert few.live_allocations == 3 < many.live_allocations
    assert again.allocations == many.allocations
    assert many.live_bytes >= 2000 * 2 * X.nbytes
    del f
    gc.collect()
    left = device.counts() - before
    assert (left.live_allocations, left.live_bytes, left.live_streams) == (0, 0, 0)


@st.function
def walk(n: Any, x: Any) -> Any:
    return x if n < 1 else st.sin(walk(n - 1, x * 0.5)) + x


def test_a_device_without_room_for_the_calls_says_so_with_the_line(device: Emulator) -> None:
    @st.function
    def f(n: Any, x: Any) -> Any:
        with with_backend(GPU, x):
            y = walk(n, x)
        return y

    x = np.ones(1 << 14)
    live = device.counts().live_bytes >> 20  # of programs of other tests
    device.configure(f"memory={live + 20}M")
    try:
        with pytest.raises(ProgramError, match=r"bytes for open calls, which have \d+ bytes on the device") as caught:
            f(1000, x)
    finally:
        device.configure("")
    assert isinstance(caught.value, MemoryError) and "def walk" in str(caught.value)
    np.testing.assert_allclose(f(1, x), np.sin(x * 0.5) + x)


def test_too_deep_a_recursion_is_an_error_and_the_next_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_STACK", "18MiB")

    @st.function
    def f(n: Any, x: Any) -> Any:
        with with_backend(GPU, x):
            return walk(n, x)

    with pytest.raises(RecursionError, match="`walk` recurses deeper"):
        f(100_000, X[:2])
    np.testing.assert_allclose(f(1, X), np.sin(X * 0.5) + X)


@st.function
def from_the_host(n: Any, x: Any) -> Any:
    """Each call computes an array on the host, which its region then reads."""
    with with_backend(CPU):
        h = st.sin(st.astype(st.arange(8), st.f64) + n)
    return x if n < 1 else from_the_host(n - 1, x * 0.5 + h) + h


@st.function
def from_the_host_to_the_device(n: Any, x: Any) -> Any:
    with with_backend(GPU, x):
        return from_the_host(n, x)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_call_has_on_the_hosts_stack_is_copied_before_the_call_ends(seed: int, device: Emulator) -> None:
    device.configure(f"lazy seed={seed}")
    check(from_the_host_to_the_device, 4, X[:8])


# ---- what calls do besides ----------------------------------------------------------------------


@st.function
def factorial(n: Any) -> Any:
    return 1.0 if n < 1 else n * factorial(n - 1)


@st.function
def beside(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
    return y * factorial(st.astype(x[0], st.i64))


def test_a_recursion_on_the_host_beside_a_region() -> None:
    assert "factorial_on_device" not in check(beside, X + 4.0).source


@st.function
def halve(x: Any, limit: Any) -> Any:
    """Decides on what the device computes, and prints it."""
    print(f"sum {st.sum(x):.3f}")
    return x if st.sum(x) < limit else halve(x * 0.5, limit)


@st.function
def halved(x: Any, limit: Any) -> Any:
    with with_backend(GPU, x):
        return halve(x, limit)


def test_decisions_and_prints_inside_of_calls(capsys: pytest.CaptureFixture[str]) -> None:
    program = halved.stage(X, 3.0)
    np.testing.assert_allclose(program(X, 3.0), X / 8)
    assert capsys.readouterr().out == "sum 22.000\nsum 11.000\nsum 5.500\nsum 2.750\n"
    assert [t.why for t in program.transfers()].count("decision") <= 1


total = st.Variable(np.zeros(40), name="total")
calls = st.Variable(0.0, name="calls")


@st.function
def add_up(n: Any, x: Any) -> Any:
    total.value = total.value + x
    calls.value = calls.value + 1.0
    return x if n < 1 else add_up(n - 1, x * 0.5) + x


@st.function
def adding(n: Any, x: Any) -> Any:
    with with_backend(GPU, x):
        return add_up(n, x)


def test_calls_read_and_write_variables(device: Emulator) -> None:
    total.value, calls.value = np.zeros(40), 0.0
    np.testing.assert_allclose(adding(2, X), X * 1.75 + X * 0.0)
    np.testing.assert_allclose(total.numpy(), X * 1.75)
    assert float(calls.value) == 3.0


@st.function
def twice(n: Any, x: Any) -> Any:
    """One function for calls from the host and from a region."""
    y = walk(n, x)
    with with_backend(GPU, y):
        z = walk(n, y) * 2.0
    return z + walk(n, x)


def test_calls_of_one_function_from_both_sides() -> None:
    check(twice, 3, X)


def test_a_call_with_an_index_out_of_range_names_the_line() -> None:
    @st.function
    def pick(n: Any, x: Any, rows: Any) -> Any:
        return x[rows[n]] if n < 1 else pick(n - 1, x, rows) + x[rows[n]]  # the line

    @st.function
    def f(n: Any, x: Any, rows: Any) -> Any:
        with with_backend(GPU, x, rows):
            return pick(n, x, rows)

    x = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(f(1, x, np.array([1, 2])), x[1] + x[2])
    with pytest.raises(IndexError, match="index 9 is out of range") as caught:
        f(1, x, np.array([1, 9]))
    assert "# the line" in str(caught.value)
