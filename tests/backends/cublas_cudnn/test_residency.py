"""Arrays that stay on the device between calls: Variables that programs compute with there, counted copy by copy."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.errors import ProgramError, ProgramMemoryError
from staged.runtime.guard import ffi

pytestmark = pytest.mark.usefixtures("device")
X = np.random.default_rng(5).normal(size=(5, 7)).astype(np.float32)
BYTES = X.nbytes


@pytest.fixture
def copies(device: Emulator) -> Callable[..., tuple[int, int]]:
    """(to the device, to the host): the copies that a call of something makes."""

    def count(run: Callable[..., Any], *args: Any) -> tuple[int, int]:
        before = device.counts()
        run(*args)
        seen = device.counts() - before
        return seen.copies_to_device, seen.copies_to_host

    return count


w = st.Variable(np.zeros((5, 7), np.float32), name="w")
momentum = st.Variable(np.zeros((5, 7), np.float32), name="momentum")
steps = st.Variable(0, name="steps")
best = st.Variable(1e9, name="best")


@st.function
def step(x: Any) -> Any:
    with with_backend(GPU, x):
        loss, d_w = st.value_and_grad(lambda: st.mean((w * x - 1.0) ** 2), wrt=w)()
        steps.value += 1
        momentum.value = momentum.value * 0.5 + d_w
        w.value = w.value - 0.1 * momentum / steps
        best.value = st.minimum(best.value, loss)
    return loss


@st.function
def evaluate(x: Any) -> Any:
    with with_backend(GPU, x):
        return st.mean((w * x - 1.0) ** 2)


@st.function
def on_the_host(x: Any) -> Any:
    w.value = w.value * 0.5
    return st.sum(w * x)


@pytest.fixture
def fresh() -> None:
    for variable, value in ((w, 0.0), (momentum, 0.0), (steps, 0), (best, 1e9)):
        variable.value = np.full(variable.shape, value, variable.dtype.numpy)


def test_a_training_step_moves_no_parameter_between_calls(fresh: None, copies: Callable[..., tuple[int, int]]) -> None:
    assert copies(step, X) == (1 + 3, 1)  # x, and w, momentum and best; the loss
    for _ in range(3):
        assert copies(step, X) == (1, 1)
    assert copies(evaluate, X) == (1, 1)  # another program finds them there, too
    assert copies(step, X) == (1, 1)
    values = []
    assert copies(lambda: values.append(w.numpy())) == (0, 1)
    assert copies(lambda: values.append(w.numpy())) == (0, 0)
    assert copies(step, X) == (1, 1)  # looking at it does not make it the host's


def test_losses_and_variables_are_those_of_eager_mode(fresh: None) -> None:
    found = [float(step(X)) for _ in range(4)]
    held = [np.array(variable) for variable in (w, momentum, steps, best)]
    for variable, value in ((w, 0.0), (momentum, 0.0), (steps, 0), (best, 1e9)):
        variable.value = np.full(variable.shape, value, variable.dtype.numpy)
    with st.eager():
        wanted = [float(step(X)) for _ in range(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for variable, value in zip((w, momentum, steps, best), held, strict=True):
        np.testing.assert_allclose(value, np.array(variable), rtol=1e-5, atol=1e-7)


def test_the_host_and_the_device_see_each_other_s_writes(fresh: None, copies: Callable[..., tuple[int, int]]) -> None:
    step(X)
    before = w.numpy()
    assert copies(on_the_host, X) == (0, 0)  # looked at above: the host has it
    assert copies(step, X) == (2, 1)  # x, and w, which the host has written
    assert not np.array_equal(w.numpy(), before * 0.5)
    step(X)
    assert copies(on_the_host, X) == (0, 1)
    w.value = np.ones((5, 7), np.float32)
    np.testing.assert_allclose(evaluate(X), np.mean((X - 1.0) ** 2), rtol=1e-5)
    assert copies(evaluate, X) == (1, 1)
    with st.eager():
        np.testing.assert_allclose(on_the_host(X), 0.5 * X.sum(), rtol=1e-4)
    np.testing.assert_allclose(evaluate(X), np.mean((0.5 * X - 1.0) ** 2), rtol=1e-5)


def test_what_the_host_holds_of_earlier_calls_stays_as_it_was(fresh: None) -> None:
    first = w.buffer()
    step(X)
    seen = w.value
    before = np.array(seen)
    step(X)
    np.testing.assert_array_equal(first, 0.0)
    np.testing.assert_array_equal(np.array(seen), before)
    assert not np.array_equal(np.array(w), before)


def test_transfers_list_what_is_resident() -> None:
    found = [(t.what, t.nbytes) for t in step.stage(X).transfers() if t.why == "resident"]
    assert found == [("w", BYTES), ("momentum", BYTES), ("best", 4)]
    listed = step.stage(X).transfers()
    assert [t.what for t in listed if t.why not in ("resident",)] == ["x", "loss"]
    assert listed[0].where is not None and "value_and_grad" in listed[0].where.text
    assert "w: cpu -> gpu, 140 bytes, resident" in str(listed[0])
    assert "on gpu" in step.stage(X).header


def test_a_copy_of_a_variable_has_a_place_of_its_own(fresh: None) -> None:
    step(X)
    other = copy.deepcopy(w)
    before = w.numpy()
    step(X)
    np.testing.assert_array_equal(other.numpy(), before)
    assert not np.array_equal(w.numpy(), before)


def test_device_memory_goes_with_the_variable(device: Emulator) -> None:
    def use() -> None:
        v = st.Variable(X)

        @st.function
        def twice() -> None:
            with with_backend(GPU):
                v.value = v.value * 2.0

        for _ in range(20):
            twice()
        seen = device.counts() - before
        assert seen.live_bytes == BYTES  # the program needs none beside it
        assert seen.allocations == 1
        np.testing.assert_allclose(np.array(v), X * 2.0**20)

    gc.collect()
    before = device.counts()
    use()
    gc.collect()
    left = device.counts() - before
    assert (left.live_bytes, left.live_allocations, left.live_streams) == (0, 0, 0)


def test_a_program_that_stops_half_way_leaves_what_it_has_written() -> None:
    v = st.Variable(np.ones(3, np.float32))

    @st.function
    def f(limit: Any) -> None:
        with with_backend(GPU):
            v.value = v.value * 2.0
            assert st.sum(v.value) < limit, "too much"

    f(100.0)
    with pytest.raises(ProgramError, match="too much"):
        f(10.0)
    np.testing.assert_array_equal(np.array(v), np.full(3, 4.0))
    f(100.0)
    np.testing.assert_array_equal(np.array(v), np.full(3, 8.0))


def test_a_device_without_room_names_what_it_has_none_for(device: Emulator) -> None:
    table = st.Variable(np.zeros((600, 600), np.float32), name="table")

    @st.function
    def use(rows: Any) -> Any:
        with with_backend(GPU, rows):
            return st.sum(table[:2] * rows)

    @st.function
    def double(x: Any) -> Any:
        with with_backend(GPU, x):
            return x * 2.0

    rows = np.ones((2, 600), np.float32)
    large = st.to(np.ones((1000, 600), np.float32), GPU)
    device.configure("memory=1M")
    try:
        with pytest.raises(
            ProgramMemoryError, match=r"the Variable `table` \(600, 600\) on the GPU: cudaMalloc of 1,440"
        ) as raised:
            use(rows)
        assert raised.value.where is not None and raised.value.where.text.startswith("def use(rows")
        with pytest.raises(
            ProgramMemoryError, match=r"`x` \(1000, 600\) on the GPU: cudaMalloc of 2,400,000 bytes: out of memory"
        ):
            double(large)
    finally:
        device.configure("")
    assert use(rows) == 0.0


def test_a_program_that_stops_leaves_the_caller_s_arrays_alone(device: Emulator) -> None:
    total = st.Variable(np.zeros(500, np.float32))

    @st.function
    def add(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            total.value = total.value + x
        assert n < 5, "enough"
        return total.value * 2.0

    try:
        for seed in range(6):
            device.configure(f"lazy shuffled seed={seed}")
            x = np.ones(500, np.float32)
            with pytest.raises(ProgramError, match="enough"):
                add(x, 9)
            x[:] = 100.0  # as whoever gets its memory next might do
            np.testing.assert_array_equal(np.array(total), np.float32(seed + 1))
    finally:
        device.configure("")


def test_threads_share_a_variable_s_place(device: Emulator) -> None:
    v = st.Variable(np.zeros((64, 64), np.float32))

    @st.function
    def add(x: Any) -> None:
        with with_backend(GPU):
            v.value = v.value + x

    one = np.ones((64, 64), np.float32)
    add.stage(one).compile()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, [one] * 40))
    np.testing.assert_array_equal(np.array(v), 40.0)


def test_a_program_runs_on_the_gpu_that_it_names(device: Emulator) -> None:
    v = st.Variable(X, name="v")

    def doubled(gpu: Any) -> Any:
        @st.function
        def f(x: Any) -> Any:
            with with_backend(gpu, x):
                v.value = v.value + x
                return v.value * 2.0

        return f

    first, second = doubled(GPU), doubled(GPU(1))
    try:
        with pytest.raises(ProgramError, match=r"cudaSetDevice\(1\)"):
            second(X)
        device.configure("devices=2")
        np.testing.assert_allclose(second(X), X * 4.0, rtol=1e-5)
        np.testing.assert_allclose(first(X), X * 6.0, rtol=1e-5)
        np.testing.assert_allclose(second(X), X * 8.0, rtol=1e-5)
        assert [str(t.target) for t in second.stage(X).transfers()] == ["gpu(1)", "gpu(1)", "cpu"]
        there = st.to(X, GPU(1))
        assert "on gpu(1)" in second.stage(there).header
        np.testing.assert_allclose(second(there), X * 10.0, rtol=1e-5)
        before = device.counts()
        np.testing.assert_allclose(first(there), X * 12.0, rtol=1e-5)
        seen = device.counts() - before
        assert (seen.copies_between_devices, seen.copies_to_host) == (1 + 1, 1)  # x and v; the result
        assert "cudaMemcpyPeerAsync(d->x, 0, args->x, 1, " in first.stage(there).source
        np.testing.assert_allclose(np.array(v), X * 6.0, rtol=1e-5)
    finally:
        device.configure()


# ---- regions in plain Python ----------------------------------------------------------------------


@st.function
def plain_step(x: Any, y: Any) -> Any:
    loss, d_w = st.value_and_grad(lambda: st.mean((w * x - y) ** 2), wrt=w)()
    w.value = w.value - 0.1 * d_w
    return loss


def test_a_region_around_a_python_loop_copies_its_arrays_once(
    fresh: None, copies: Callable[..., tuple[int, int]]
) -> None:
    x, y = X.copy(), X + 1.0
    with with_backend(GPU, x, y) as (on_x, on_y):
        assert copies(plain_step, x, y) == (3, 0)
        for _ in range(3):
            assert copies(plain_step, x, y) == (0, 0)
            assert copies(plain_step, on_x, on_y) == (0, 0)
            assert copies(plain_step, x, X) == (1, 0)  # not of the region: for this call
        found = w.numpy()
    losses = [np.array(value) for value in (plain_step(x, y), w)]
    w.value = np.zeros((5, 7), np.float32)
    for other in [y, *[y, y, X] * 3]:
        plain_step(x, other)
    np.testing.assert_allclose(found, w.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(losses[0], plain_step(x, y), rtol=1e-5)


def test_an_array_that_is_moved_stays_until_nobody_holds_it(
    copies: Callable[..., tuple[int, int]], device: Emulator
) -> None:
    @st.function
    def double(x: Any) -> Any:
        with with_backend(GPU):
            return x * 2.0

    program = double.stage(st.to(X, GPU))
    program(X)
    gc.collect()
    before = device.counts()
    there = st.to(X, GPU)
    assert copies(double, there) == (1, 1)
    assert copies(double, there) == (0, 1)
    np.testing.assert_array_equal(program(there), X * 2.0)
    np.testing.assert_array_equal(program(X), X * 2.0)  # a copy for this call
    assert (device.counts() - before).live_bytes == BYTES
    del there
    gc.collect()
    assert (device.counts() - before).live_bytes == 0


# ---- other threads -----------------------------------------------------------------------------------


def captured_by_another_thread(device: Emulator, work: Callable[[], None]) -> None:
    """Does some work while another thread captures a stream of the device: `work` must not spoil that."""
    place, graph = ffi.new("void **"), ffi.new("void **")
    assert device.function("cudaStreamCreateWithFlags", "int (*)(void **, unsigned)")(place, 1) == 0  # not blocking
    with ThreadPoolExecutor(1) as other:
        begin = device.function("cudaStreamBeginCapture", "int (*)(void *, int)")
        assert other.submit(begin, place[0], 1).result() == 0  # of that thread
        try:
            work()
        finally:
            ended = other.submit(device.function("cudaStreamEndCapture", "int (*)(void *, void **)"), place[0], graph)
    assert ended.result() == 0
    assert device.function("cudaGraphDestroy", "int (*)(void *)")(graph[0]) == 0
    assert device.function("cudaStreamDestroy", "int (*)(void *)")(place[0]) == 0


def test_arrays_come_and_go_while_another_thread_captures_a_graph(device: Emulator) -> None:
    def there_and_back() -> None:
        there = st.to(X, GPU)
        np.testing.assert_array_equal(np.asarray(there), X)

    captured_by_another_thread(device, there_and_back)


@pytest.mark.usefixtures("misuse")
def test_a_device_cannot_be_waited_for_while_another_thread_captures_one_of_its_streams(device: Emulator) -> None:
    wait = device.function("cudaDeviceSynchronize", "int (*)(void)")
    with pytest.raises(AssertionError):
        captured_by_another_thread(device, lambda: None if wait() else None)
    assert "cudaDeviceSynchronize: not while a stream is captured" in device.last_violation()


def test_what_a_program_that_stopped_left_to_do_is_waited_for(device: Emulator) -> None:
    """With lazy streams nobody else sees to it before the array is read."""

    def kept_after(words: str) -> Any:
        kept = st.Variable(np.zeros((5, 7), np.float32), name="kept")

        @st.function
        def stops(x: Any, limit: Any) -> None:
            with with_backend(GPU, x):
                kept.value = kept.value + x
                if limit > 2:
                    raise ValueError("no")

        stops(X, 1)
        device.configure(words)
        with pytest.raises(ProgramError, match="no"):
            stops(X, 3)
        return kept.numpy().copy()

    expected = kept_after("")
    for seed in range(4):
        np.testing.assert_array_equal(kept_after(f"lazy seed={seed}"), expected)
