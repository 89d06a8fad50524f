"""Programs with GPU regions run on the emulated device, give eager's values and copy at the edges only."""

from __future__ import annotations

import gc
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.errors import ProgramError
from tests.backends.cublas_cudnn import programs
from tests.backends.cublas_cudnn.harness import agrees_and_prints_as_in_eager, in_groups, together

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(37, 19)).astype(np.float32)
B = RANDOM.normal(size=(19,)).astype(np.float32)


CASES: list[tuple[Any, tuple[Any, ...]]] = [
    (programs.double, (X,)),
    (programs.double, (np.ones((0, 4), np.float32),)),
    (programs.double, (np.ones((1,), np.float32),)),
    (programs.double, (RANDOM.normal(size=(3, 257)),)),
    (programs.maths, (X,)),
    (programs.maths, (np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),)),
    (programs.casts, (X,)),
    (programs.integers, (np.arange(-20, 20),)),
    (programs.integers, (np.arange(-20, 20, dtype=np.int32),)),
    (programs.bias, (X, B)),
    (programs.softmax, (X,)),
    (programs.sums, (X,)),
    (programs.layer_norm, (X,)),
    (programs.positions, (X,)),
    (programs.moves, (X,)),
    (programs.through_the_host, (X,)),
    (programs.halve, (np.abs(X),)),
    (programs.swap, (X, 3)),
    (programs.swap, (X, 4)),
    (programs.accumulate, (X, 4)),
    (programs.gradient, (X, B)),
    (programs.train, (X, 0.1, 4)),
    (programs.until, (X, 3)),
    (programs.until, (X, 100)),
    (programs.until, (X * 1e-3, 100)),
    (programs.gradient_of_a_loop, (X,)),
    (programs.gradient_without_a_bound, (X,)),
    (programs.gradient_of_nested_loops, (np.clip(X, -1, 1), 3)),
]


@pytest.mark.parametrize("cases", in_groups(CASES, 2))
def test_agrees_with_eager(cases: Any, device: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    staged, arguments = together(cases)
    for words in ("eager forward", "lazy shuffled seed=3"):
        device.configure(words)
        agrees_and_prints_as_in_eager(staged, (arguments,), capsys, words)


def test_an_elementwise_chain_is_one_kernel_and_two_copies(device: Emulator) -> None:
    @st.function
    def chain(x: Any) -> Any:
        with with_backend(GPU, x):
            y = st.tanh(x * 2.0 + 1.0)
            z = st.exp(y) - y
        return z

    program = chain.stage(X)
    text = program.source
    assert text.count("__global__") == 1
    assert text.count("cudaMemcpyHostToDevice") == 1
    assert text.count("cudaMemcpyDeviceToHost") == 1
    assert "cudaMemcpyDeviceToDevice" not in text
    before = device.counts()
    for _ in range(3):
        program(X)
    seen = device.counts() - before
    assert (seen.copies_to_device, seen.copies_to_host, seen.launches) == (3, 3, 3)
    assert (seen.bytes_to_device, seen.bytes_to_host) == (3 * X.nbytes, 3 * X.nbytes)


def test_a_print_in_a_region_moves_just_that_value(device: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    @st.function
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0 + 1.0
            print("first", y[0, 0], "sum", st.sum(y))
        return y

    program = f.stage(X)
    before = device.counts()
    program(X)
    seen = device.counts() - before
    assert capsys.readouterr().out.startswith("first ")
    assert seen.bytes_to_host == X.nbytes + 8
    assert [(t.why, t.nbytes) for t in program.transfers() if t.target.kind == "cpu"] == [
        ("print", 4), ("print", 4), ("result", X.nbytes),
    ]  # fmt: skip


def test_device_memory_is_made_once_and_given_back(device: Emulator) -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for _ in st.range(n):
                x = st.sin(x)
        return x

    gc.collect()
    before = device.counts()
    f(X, 3)
    first = device.counts() - before
    f(X, 200)
    again = device.counts() - before
    assert first.allocations == again.allocations == 1
    assert again.live_streams == 1
    del f
    gc.collect()
    left = device.counts() - before
    assert (left.live_allocations, left.live_streams, left.live_bytes) == (0, 0, 0)


def test_what_a_loop_keeps_grows_on_the_device_and_stays(device: Emulator) -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        def loss(x: Any) -> Any:
            i = 0
            while i < n:
                x = st.sin(x)
                i += 1
            return st.sum(x)

        with with_backend(GPU, x):
            return st.grad(loss)(x)

    gc.collect()
    before = device.counts()
    f(X, 1)
    assert (device.counts() - before).allocations == 2  # the arena and the storage
    longest = f(X, 100)
    grown = device.counts() - before
    f(X, 100)
    f(X, 30)
    again = device.counts() - before
    assert grown.allocations == again.allocations > 2
    assert grown.live_bytes == again.live_bytes >= 100 * X.nbytes
    assert grown.live_allocations == 2
    wanted = np.ones_like(X)
    y = X
    for _ in range(100):
        wanted, y = wanted * np.cos(y), np.sin(y)
    np.testing.assert_allclose(longest, wanted, rtol=1e-4, atol=1e-6)
    del f
    gc.collect()
    left = device.counts() - before
    assert (left.live_allocations, left.live_bytes) == (0, 0)


def test_interrupted_and_failed_calls_leave_the_device_usable(device: Emulator) -> None:
    @st.function
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
            assert st.sum(y) > 0.0, "negative"
        return y

    with pytest.raises(AssertionError, match="negative"):
        f(-np.ones((4,), np.float32))
    np.testing.assert_array_equal(f(np.ones((4,), np.float32)), np.full((4,), 2, np.float32))


def test_a_device_without_room_names_the_largest_arrays_and_the_python_line() -> None:
    @st.function
    def huge(n: Any) -> Any:
        with with_backend(GPU):
            x = st.Variable(st.zeros((1 << 38,)))
            x.value = x.value + n
            y = st.sum(x.value)
        return y

    with pytest.raises(ProgramError) as caught:
        huge(1.0)
    assert isinstance(caught.value, MemoryError)
    assert re.search(r"cudaMalloc of 1,099,511,62\d,\d+ bytes: out of memory; most of it is for ", str(caught.value))
    assert "`variable` (274877906944,), 1,099,511,627,776 bytes; " in str(caught.value)
    assert "test_programs.py" in str(caught.value)


def test_kernels_of_one_name_in_two_programs_are_two_kernels() -> None:
    @st.function
    def first(x: Any, b: Any) -> Any:
        with with_backend(GPU):
            y = x * b
        return y

    @st.function
    def second(n: Any) -> Any:
        with with_backend(GPU):
            y = st.sin(st.zeros((5,)) + n)
        return y

    assert "y_kernel(const float *" in first.stage(X, X).source and "y_kernel(float " in second.stage(1.0).source
    np.testing.assert_allclose(first(X, X), X * X)
    np.testing.assert_allclose(second(1.0), np.full((5,), np.sin(1.0)), rtol=1e-6)


def test_threads_may_call_one_program_at_once(device: Emulator) -> None:
    inputs = [np.full((5, 7), number, np.float32) for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(programs.double, inputs * 5)):
            np.testing.assert_array_equal(found, inputs[number % 8] * 2 + 1)
