"""`st.loader` in a region of plain Python: what its thread fetches comes to the device by pinned memory, beside the work there."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import DeviceCounts, Emulator
from staged import GPU, with_backend
from staged.errors import DTypeError, ProgramError, ProgramMemoryError
from staged.runtime import cuda
from staged.runtime.cuda.arriving import capacity_for

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(3)
X = RNG.normal(size=(12, 5, 7)).astype(np.float32)
Y = RNG.normal(size=(12, 7)).astype(np.float32)
w = st.Variable(np.zeros((5, 7), np.float32), name="w")

NOT_READY = 600  # cudaErrorNotReady


@pytest.fixture
def nothing_left(device: Emulator) -> Iterator[None]:
    """Nothing that a loader has made lives after the test."""

    def live() -> tuple[int, ...]:
        for function in (step, add, total):
            function.clear()  # and what a program keeps on the device
        gc.collect()
        seen = device.counts()
        return seen.live_bytes, seen.live_pinned, seen.live_streams, seen.live_events, seen.live_allocations

    with with_backend(GPU):
        add(X[0])  # `w` is there from now on
    before = live()
    yield
    end = time.monotonic() + 60
    while live() != before and time.monotonic() < end:  # the thread gives back what it has when it ends
        time.sleep(0.01)
    assert live() == before, device.live_objects()


@pytest.fixture
def endless() -> Iterator[Callable[[Any], Iterator[Any]]]:
    """Gives one batch and no end, which would wait for what is on its way; the test's end lets it come."""
    gate = threading.Event()

    def one(batch: Any) -> Iterator[Any]:
        yield batch
        gate.wait(60)

    yield one
    gate.set()


@st.function
def step(x: Any, y: Any) -> Any:
    loss, d_w = st.value_and_grad(lambda: st.mean((w * x - y) ** 2), wrt=w)()
    w.value = w.value - 0.1 * d_w
    return loss


@st.function
def add(x: Any) -> None:
    """Waits for nothing that the host wants of it."""
    w.value = w.value + x


@st.function
def total(x: Any) -> Any:
    return st.sum(x * 2, axis=0)


def trained(batches: Any) -> tuple[list[Any], Any]:
    w.value = np.zeros((5, 7), np.float32)
    losses = [step(x, y) for x, y in batches]
    return losses, w.numpy().copy()


def is_there(x: st.DeviceArray) -> bool:
    """Whether the copy of an array is over, without waiting for it."""
    query = cuda.emulator().function("cudaEventQuery", "int (*)(void *)")
    return bool(query(x.remote.arrival.event) != NOT_READY)  # type: ignore[union-attr]


@pytest.mark.parametrize("words", ["", "lazy shuffled seed=1", "lazy seed=2", "lazy seed=3", "lazy seed=4"])
def test_a_loop_gives_what_it_gives_on_the_host(device: Emulator, words: str, nothing_left: None) -> None:
    expected = trained(zip(X, Y, strict=True))
    device.configure(words)
    with with_backend(GPU):
        losses, left = trained(st.loader(list(zip(X, Y, strict=True))))
        for x in st.loader(list(X)):
            add(x)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
    np.testing.assert_allclose(left, expected[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(w.numpy() - left, X.sum(axis=0), rtol=1e-4, atol=1e-5)


def test_each_of_a_thousand_arrays_is_copied_once_and_places_are_used_again(device: Emulator) -> None:
    def counted(batches: int) -> DeviceCounts:
        before = device.counts()
        for x, y in st.loader((X[i % 12], Y[i % 12]) for i in range(batches)):
            float(step(x, y))
        return device.counts() - before

    with with_backend(GPU):
        trained(st.loader([(X[0], Y[0])]))
        programs = len(step.programs)
        for batches in (10, 1000):
            w.value = np.zeros((5, 7), np.float32)
            seen = counted(batches)
            assert seen.copies_to_device == 2 * batches + 1  # and w
            assert seen.bytes_to_device == batches * (X[0].nbytes + Y[0].nbytes) + X[0].nbytes
            assert seen.copies_to_host == batches  # the loss
            assert seen.allocations <= 2 * 5  # two wait, one is in hand of either thread, one in the place of the one before
            # One for the loss of each step, two for w, one for the loop's end; none for a batch.
            assert seen.synchronisations <= batches + 3
    assert len(step.programs) == programs
    assert step.programs[0].calls >= 1010


def test_the_host_waits_for_no_copy(device: Emulator, endless: Callable[[Any], Iterator[Any]]) -> None:
    """With lazy streams a copy is made when something waits for it: nothing has, until the program does."""
    with with_backend(GPU):
        total(next(iter(st.loader([X[0]]))))
        for seed in range(4):
            device.configure(f"lazy seed={seed}")
            x = next(iter(st.loader(endless(X[0]), ahead=1)))
            before = device.counts()
            found = total(x)
            assert (device.counts() - before).synchronisations == 0
            assert np.asarray(found).shape == (7,)
            assert (device.counts() - before).synchronisations == 1  # for the result
            assert is_there(x)
            np.testing.assert_allclose(found, 2 * X[0].sum(axis=0), rtol=1e-5)
        device.configure("lazy")
        assert not is_there(next(iter(st.loader(endless(X[0])))))


def test_an_iterable_may_fill_the_same_array_again(device: Emulator) -> None:
    def refilled() -> Iterator[Any]:
        buffer = np.empty_like(X[0])
        for batch in X:
            buffer[...] = batch
            yield buffer

    device.configure("lazy seed=5")
    with with_backend(GPU):
        for x, batch in zip(st.loader(refilled()), X, strict=True):
            np.testing.assert_allclose(total(x), 2 * batch.sum(axis=0), rtol=1e-5)
            np.testing.assert_array_equal(np.asarray(x), batch)
            assert not x.numpy().flags.writeable


Pair = namedtuple("Pair", "x y")


def test_other_leaves_of_a_tree_stay_as_they_are() -> None:
    named, key = X[0].copy(), object()
    item = {
        "pair": Pair(X[1], [None, "text", 3, 2.5]),
        "scalar": np.float32(2.0),
        "zero axes": np.array(4.0),
        "wide": np.zeros(3, np.longdouble),
        "words": np.array(["a", "b"]),
        "masked": np.ma.array([1.0, 2.0], mask=[True, False]),
        "key": key,
        "named": named,
        "empty": np.zeros((0, 3), np.float32),
        "large first": X[2][::2, ::-1],
        "swapped": X[3].astype(">f4"),
        "f64": X[4].astype(np.float64).T,
        "ints": np.arange(6).reshape(2, 3)[:, 1:],
        "flags": np.array([True, False]),
    }
    with with_backend(GPU, named) as on_device:
        (got,) = list(st.loader([item]))
        assert type(got["pair"]) is Pair and got["pair"].y == [None, "text", 3, 2.5]
        assert got["named"] is on_device
        for kept in ("scalar", "zero axes", "wide", "words", "masked", "key"):
            assert got[kept] is item[kept], kept
        for moved in ("empty", "large first", "swapped", "f64", "ints", "flags"):
            assert isinstance(got[moved], st.DeviceArray), moved
            assert got[moved].dtype == item[moved].dtype.newbyteorder("=") and got[moved].dtype.isnative
            np.testing.assert_array_equal(np.asarray(got[moved]), item[moved])
            np.testing.assert_array_equal(got[moved] + 1, item[moved] + np.int8(1))

        @st.function
        def use(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
            return a * 2.0, b * 2.0, c * 2.0, d * 2, st.sum(e)

        given = [got[name] for name in ("large first", "swapped", "f64", "ints", "empty")]
        found = use(*given)
        for name, result in zip(("large first", "swapped", "f64", "ints"), found, strict=False):
            np.testing.assert_allclose(result, item[name] * 2, rtol=1e-6)
        assert found[4] == 0
        with pytest.raises(DTypeError, match="float128|longdouble"):
            total(got["wide"])


def test_shapes_may_change_from_batch_to_batch(nothing_left: None, device: Emulator) -> None:
    device.configure("lazy seed=1")
    sizes = [3, 500, 1, 40, 500, 7, 0, 500]
    batches = [RNG.normal(size=(size, 3)).astype(np.float32) for size in sizes]
    with with_backend(GPU):
        found = [np.asarray(x).sum() for x in st.loader(batches)]
        for x, batch in zip(st.loader(batches[:3]), batches, strict=False):
            np.testing.assert_allclose(total(x), 2 * batch.sum(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, [batch.sum() for batch in batches], rtol=1e-5)


def test_errors_come_in_their_place_and_leave_nothing(nothing_left: None) -> None:
    def broken() -> Iterator[Any]:
        yield X[0], Y[0]
        yield X[1], Y[1]
        raise ValueError("no more")

    seen = []
    with with_backend(GPU):
        try:
            for x, y in st.loader(broken()):
                seen.append(float(step(x, y)))
        except ValueError as error:
            assert str(error) == "no more"
        else:
            raise AssertionError("the loop ended")
    assert len(seen) == 2


def test_leaving_a_loop_early_leaves_nothing(nothing_left: None, device: Emulator) -> None:
    def use(leave: Callable[[], None]) -> None:
        for x, y in st.loader(zip(X, Y, strict=True), ahead=1):
            step(x, y)
            leave()

    def stop() -> None:
        raise KeyError("left")

    for words in ("", "lazy seed=4"):
        device.configure(words)
        with with_backend(GPU):
            for x, y in st.loader(list(zip(X, Y, strict=True)) * 5):
                step(x, y)
                break
            del x, y
            with pytest.raises(KeyError):
                use(stop)
            unused = iter(st.loader(list(X)))
            del unused


def test_an_array_outlives_its_loop(nothing_left: None, device: Emulator) -> None:
    device.configure("lazy seed=6")
    with with_backend(GPU):
        held = list(st.loader(list(X[:5]), ahead=1))
    for x, batch in zip(held, X, strict=False):
        np.testing.assert_array_equal(x.numpy(), batch)
    with with_backend(GPU):
        np.testing.assert_allclose(total(held[4]), 2 * X[4].sum(axis=0), rtol=1e-5)


def test_a_program_that_stops_in_the_loop_leaves_nothing(nothing_left: None, device: Emulator) -> None:
    @st.function
    def checked(x: Any) -> Any:
        assert st.sum(x) > 1e9, "too little"
        return x * 2.0

    device.configure("lazy seed=2")
    with with_backend(GPU):
        try:
            for x in st.loader(list(X)):
                checked(x)
        except ProgramError as error:
            assert "too little" in str(error)
        del x
    checked.clear()


def test_a_device_without_room_is_told_where_the_batch_would_have_come(device: Emulator) -> None:
    live = device.counts().live_bytes
    device.configure(f"memory={live + (1 << 20)}")
    large = np.ones(live // 4 + (1 << 19), np.float32)  # without room even if all that lives is freed meanwhile
    call = f"cudaMalloc of {capacity_for(large.nbytes):,} bytes"
    with with_backend(GPU):
        batches = iter(st.loader([np.ones(10, np.float32), large]))
        next(batches)
        with pytest.raises(ProgramMemoryError, match=f"no room for a batch of `st.loader` on the GPU: {call}"):
            next(batches)


def test_outside_of_a_region_and_in_eager_mode_arrays_are_the_host_s(device: Emulator) -> None:
    before = device.counts()
    (x,) = st.loader([X[0]])
    assert x is not None and type(x) is np.ndarray
    with with_backend(st.CPU):
        (x,) = st.loader([X[0]])
        assert type(x) is np.ndarray
    with with_backend(GPU):
        (x,) = st.loader([X[0]], device=st.CPU)
        assert type(x) is np.ndarray
    for region in (with_backend(GPU), with_backend(st.CPU)):
        with st.eager(), region:
            (x,) = st.loader([X[0]], device=GPU)
            assert type(x) is np.ndarray
    seen = device.counts() - before
    assert (seen.copies_to_device, seen.allocations) == (0, 0)


def test_a_loop_outside_of_a_region_says_where_its_arrays_go(device: Emulator) -> None:
    @st.function
    def inside(x: Any) -> Any:
        with with_backend(GPU, x):
            return st.sum(x * 2.0, axis=0)

    inside(st.to(X[0], GPU))
    device.configure("lazy seed=8")
    before = device.counts()
    batches = st.loader(list(X), device=GPU)
    assert repr(batches).endswith("ahead=2, device=gpu)")
    for x, batch in zip(batches, X, strict=True):
        np.testing.assert_allclose(inside(x), 2 * batch.sum(axis=0), rtol=1e-5)
        np.testing.assert_allclose(total(x), 2 * batch.sum(axis=0), rtol=1e-5)  # nothing says where it computes
    seen = device.counts() - before
    assert seen.copies_to_device == 12
    with pytest.raises(st.StagingError, match="loader takes a device, got str"):
        st.loader([], device="gpu")  # type: ignore[arg-type]


def test_an_array_that_was_loaded_is_used_as_any_of_the_device(device: Emulator) -> None:
    with with_backend(GPU):
        (x,) = st.loader(st.loader([X[0]]))  # the inner one has placed it
        found = np.asarray(total(x))
        before = device.counts()
        with with_backend(GPU, x) as named:
            assert named is x
            np.testing.assert_array_equal(total(named), found)
        assert len(x) == 5
        seen = device.counts() - before
        assert (seen.bytes_to_device, seen.bytes_to_host) == (0, 7 * 4)  # the result
        np.testing.assert_allclose(2 * st.function(lambda: st.sum(x, axis=0))(), found, rtol=1e-6)  # closed over
    with with_backend(st.CPU):
        np.testing.assert_allclose(total(x), found, rtol=1e-5)
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert isinstance(other, st.DeviceArray) and other.device == x.device
        np.testing.assert_array_equal(other.numpy(), X[0])
    with pytest.raises(AttributeError, match=r"a DeviceArray has no `mean`; `x\.numpy\(\)` gives NumPy's array"):
        x.mean()
    with pytest.raises(AttributeError, match=r"a DeviceArray has no `men`$"):
        x.men()


def test_a_program_may_read_nothing_on_the_device(device: Emulator) -> None:
    """It has no work there, so that it is one of the host's."""
    empty = np.zeros((0, 3), np.float32)
    both = st.function(lambda x, y: y * 2.0)
    double = st.function(lambda x: x * 2.0)
    with with_backend(GPU, empty) as on_device:
        (loaded,) = st.loader([empty.copy()])
        before = device.counts()
        for x in (empty, on_device, loaded):
            for _ in range(2):
                assert double(x).shape == (0, 3)
                assert both(st.to(X[0], GPU), 3.0) == 6.0
        assert (device.counts() - before).copies_to_device == 0


def test_the_iterable_may_use_another_device(device: Emulator) -> None:
    def batches() -> Iterator[Any]:
        for batch in X:
            with with_backend(GPU(1)):
                yield total(batch)

    device.configure("devices=2 lazy seed=9")
    with with_backend(GPU):
        for x, batch in zip(st.loader(batches()), X, strict=True):
            assert str(x.device) == "gpu"
            np.testing.assert_allclose(total(np.stack([batch, batch])), 2 * np.stack([batch, batch]).sum(axis=0), rtol=1e-5)
            np.testing.assert_allclose(x.numpy(), 2 * batch.sum(axis=0), rtol=1e-5)


def test_pieces_of_a_mapped_file_that_stay_on_the_host_are_read(tmp_path: Any) -> None:
    for name, dtype in (("a", np.float32), ("b", np.longdouble)):
        np.save(tmp_path / f"{name}.npy", np.arange(12, dtype=dtype).reshape(4, 3))
    a, b = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "ab")
    with with_backend(GPU):
        ((x, y),) = st.loader([(a[:2], b[:2])])
    assert isinstance(x, st.DeviceArray) and type(y) is np.ndarray
    np.testing.assert_array_equal(x, a[:2])
    np.testing.assert_array_equal(y, b[:2])


def test_a_process_may_end_within_a_loop() -> None:
    """With the thread in the middle of its work, and arrays that nothing gives back."""
    program = """
import atexit, threading
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # the last of the handlers
import numpy as np, staged as st
def batches():
    while True:
        yield np.ones((5, 7), np.float32)
with st.with_backend(st.GPU):
    held = []
    for x in st.loader(batches()):
        held.append(x)
        if len(held) == 3:
            break
    other = iter(st.loader(batches()))
    print(next(other).numpy().sum())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "35.0\n['MainThread']\n", "")


def test_each_of_two_devices_has_what_comes_to_it(
    device: Emulator, endless: Callable[[Any], Iterator[Any]]
) -> None:
    @st.function
    def both(x: Any, y: Any) -> Any:
        with with_backend(GPU):
            x = x * 2.0
        with with_backend(GPU(1)):
            y = y + 1.0
        return x, y

    for seed in range(8):
        device.configure(f"devices=2 lazy seed={seed}")
        x = next(iter(st.loader(endless(X[0]), device=GPU)))
        y = next(iter(st.loader(endless(X[1]), device=GPU(1))))
        assert (str(x.device), str(y.device)) == ("gpu", "gpu(1)")
        doubled, more = both(x, y)
        np.testing.assert_allclose(doubled, 2 * X[0], rtol=1e-6)
        np.testing.assert_allclose(more, X[1] + 1, rtol=1e-6)
    with with_backend(GPU(1)):
        np.testing.assert_allclose(total(y), 2 * X[1].sum(axis=0), rtol=1e-5)


def test_the_header_says_what_a_program_waits_for() -> None:
    with with_backend(GPU):
        (x,) = st.loader([X[0]])

        @st.function
        def taken(arrivals: Any) -> Any:
            return arrivals * 2.0

        program = taken.stage(x)
        assert "void *const *arrivals_;" in program.header
        assert "args->arrivals_; event != NULL" in program.source
        np.testing.assert_allclose(program(x), X[0] * 2)
        np.testing.assert_allclose(program(X[0]), X[0] * 2)  # a copy for this call

    @st.function
    def with_a_region(x: Any) -> Any:
        with with_backend(GPU):
            return x * 2.0

    assert "cudaStreamWaitEvent" not in with_a_region.stage(X[0]).source
