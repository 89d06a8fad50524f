"""Calls in a region of plain Python: their results stay on the device, and nothing waits for the work until Python reads a value."""

from __future__ import annotations

import contextlib
import gc
import operator
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, with_backend
from staged.errors import ProgramAssertionError, ProgramIndexError, ProgramNanError, StagedError, StagingError
from staged.runtime.cuda import departures
from tests.threads import run_at_once

RNG = np.random.default_rng(11)
H = RNG.normal(size=(8, 8)).astype(np.float32) / 4
W = RNG.normal(size=(8, 8)).astype(np.float32) / 4
ORDERS = ("eager", "lazy shuffled seed=1", "lazy seed=2", "lazy reverse seed=3")


@pytest.fixture(autouse=True)
def device(emulated_device: Emulator) -> Emulator:
    """Every test here runs on it, without programs of earlier tests, whose end waits for the device."""
    gc.collect()
    return emulated_device


@pytest.fixture(params=ORDERS)
def any_order(request: pytest.FixtureRequest, device: Emulator) -> Emulator:
    """The device, with its work in one of several orders."""
    device.configure(request.param)
    return device


@st.function
def layer(h: Any, w: Any) -> Any:
    return st.tanh(h @ w)


@st.function
def look_up(table: Any, rows: Any) -> Any:
    return table[rows] * 2.0


@st.function
def double(x: Any) -> Any:
    return x * 2.0


def layers(h: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    for _ in range(count):
        h = np.tanh(h @ W)
    return h


# ---- copies and waits -----------------------------------------------------------------------------


def test_a_loop_copies_its_arrays_once_and_waits_once(any_order: Emulator) -> None:
    h, w = H.copy(), W.copy()
    before = any_order.counts()
    with with_backend(GPU, h, w):
        for _ in range(10):
            h = layer(h, w)
    seen = any_order.counts() - before
    np.testing.assert_allclose(h, layers(H, 10), rtol=1e-4)
    after = any_order.counts() - before
    for counts in (seen, after):  # the end of the region has copied what is read after it
        assert (counts.copies_to_device, counts.copies_to_host) == (2, 1)
        assert (counts.launches, counts.synchronisations) == (10, 1)


def test_a_result_needs_no_other_trace_than_the_array_that_the_region_names(device: Emulator) -> None:
    own = st.function(lambda h, w: st.tanh(h @ w))
    with with_backend(GPU, H, W) as (h, w):
        for _ in range(4):
            h = own(h, w)
    assert [(program.traces, program.calls) for program in own.programs] == [(1, 4)]


def test_a_training_loop_copies_each_batch_once_and_waits_once_for_each_loss(any_order: Emulator) -> None:
    w = st.Variable(np.zeros(4, np.float32), name="w")

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, d_w = st.value_and_grad(lambda: st.mean((st.sum(x * w, axis=1) - y) ** 2), wrt=w)()
        w.value = w.value - 0.1 * d_w
        return loss

    def train(batches: Any) -> list[float]:
        printed = []
        x, y = np.empty((8, 4), np.float32), np.empty(8, np.float32)
        for number, (next_x, next_y) in enumerate(batches):
            x[...], y[...] = next_x, next_y  # one buffer for all batches
            loss = step(x, y)
            if number % 10 == 9:
                printed.append(float(loss))
        return printed

    batches = [(RNG.normal(size=(8, 4)).astype(np.float32), RNG.normal(size=8).astype(np.float32)) for _ in range(100)]
    before = any_order.counts()
    with with_backend(GPU):
        printed = train(batches)
    seen = any_order.counts() - before
    assert seen.copies_to_device == 2 * 100 + 1  # and w
    assert seen.copies_to_host == 10
    # One for each printed loss; the end of the region has nothing to wait for.
    assert seen.synchronisations == 10
    found = w.numpy()
    w.value = np.zeros(4, np.float32)
    with st.eager():
        expected = train(batches)
    np.testing.assert_allclose(printed, expected, rtol=1e-4)
    np.testing.assert_allclose(found, w.numpy(), rtol=1e-4, atol=1e-6)


def test_a_value_is_copied_once_however_often_it_is_read(device: Emulator) -> None:
    with with_backend(GPU):
        y = double(H)
        before = device.counts()
        np.testing.assert_array_equal(y.numpy(), H * 2)
        np.testing.assert_array_equal(y + 1, H * 2 + 1)
        assert y[1, 2] == H[1, 2] * 2 and (y == H * 2).all() and str(y) == str(H * 2)
        seen = device.counts() - before
        assert (seen.copies_to_host, seen.synchronisations) == (1, 1)
        np.testing.assert_array_equal(double(y), H * 4)
        assert (device.counts() - before).copies_to_device == 0


READS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("asarray", np.asarray), ("item", lambda x: x.item()), ("float", float), ("int", int),
    ("bool", bool), ("complex", complex), ("str", str), ("format", lambda x: f"{x:.3f}"), ("plain format", lambda x: f"{x}"),
    ("less", lambda x: x < 1.0), ("equal", lambda x: x == 3.0), ("index", lambda x: x[()]), ("ufunc", np.exp),
    ("tolist", lambda x: x.tolist()), ("numpy's function", lambda x: np.sum(x)),
)  # fmt: skip


@pytest.mark.parametrize(("read"), [read for _, read in READS], ids=[name for name, _ in READS])
def test_a_number_is_read_by_what_reads_an_array_of_numpy(read: Callable[[Any], Any], any_order: Emulator) -> None:
    total = st.function(lambda x: st.sum(x))
    x = np.arange(3, dtype=np.float32)
    with with_backend(GPU):
        found = total(x)
        assert isinstance(found, st.DeviceArray) and found.shape == () and found.ndim == 0
        before = any_order.counts()
        assert read(found) == read(np.float32(3.0))
        assert (any_order.counts() - before).synchronisations == 1


def test_a_number_on_the_device_is_an_argument_of_the_next_call(any_order: Emulator) -> None:
    add = st.function(lambda total, x: total + st.sum(x))
    scaled = st.function(lambda x, total: x / total)
    count = st.function(lambda x: st.sum(x > 0))
    pick = st.function(lambda x, i: x[i])
    with with_backend(GPU):
        total = add(np.float32(0.0), H)
        before = any_order.counts()
        for _ in range(3):
            total = add(total, W)
        shares = scaled(W, total)
        assert (any_order.counts() - before).synchronisations == 0
        np.testing.assert_allclose(shares, W / (H.sum() + 3 * W.sum()), rtol=1e-4)
        number = count(np.array([1, -1, 2, 0], np.float32))
        np.testing.assert_array_equal(pick(H, number), H[2])
        assert operator.index(number) == 2


def test_results_in_trees_and_results_of_the_host(any_order: Emulator) -> None:
    @st.function
    def several(x: Any, y: Any, n: Any) -> Any:
        return {"double": x * 2.0, "given": (x, y), "piece": x[1], "number": n + 1, "static": "word", "none": None}

    with with_backend(GPU, H) as x:
        found = several(x, W, 3)
        assert isinstance(found["double"], st.DeviceArray) and isinstance(found["piece"], st.DeviceArray)
        assert isinstance(found["given"][0], st.DeviceArray)
        assert type(found["given"][1]) is np.ndarray  # no device computes with it
        assert found["number"] == 4 and type(found["number"]) is int
        assert (found["static"], found["none"]) == ("word", None)
    np.testing.assert_array_equal(found["double"], H * 2)
    np.testing.assert_array_equal(found["given"][0], H)
    np.testing.assert_array_equal(found["given"][1], W)
    np.testing.assert_array_equal(found["piece"], H[1])


def test_a_result_stays_on_the_device_after_its_region(any_order: Emulator) -> None:
    with with_backend(GPU):
        y = double(H)
    before = any_order.counts()
    with with_backend(GPU):
        z = double(y)
    assert (any_order.counts() - before).copies_to_device == 0
    np.testing.assert_array_equal(z, H * 4)
    with with_backend(CPU):
        np.testing.assert_array_equal(double(z), H * 8)
    np.testing.assert_array_equal(double(z), H * 8)
    again = pickle.loads(pickle.dumps(z))
    np.testing.assert_array_equal(again, H * 4)
    with pytest.raises(StagingError, match="does not change"):
        z += 1.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        z[0] = 1.0


def test_eager_functions_and_variables_accept_results(device: Emulator) -> None:
    v = st.Variable(np.zeros((8, 8), np.float32))
    with with_backend(GPU):
        y = double(H)
        v.value = y
        np.testing.assert_allclose(np.asarray(st.sum(y)), (H * 2).sum(), rtol=1e-4)
    np.testing.assert_array_equal(v.numpy(), H * 2)
    with st.eager():
        np.testing.assert_array_equal(np.asarray(double(y)), H * 4)


def test_programs_of_an_inner_region_of_the_host_see_results(any_order: Emulator) -> None:
    with with_backend(GPU):
        y = double(H)
        with with_backend(CPU):
            z = double(y)
        assert type(z) is np.ndarray
        np.testing.assert_array_equal(z, H * 4)
        np.testing.assert_array_equal(double(z), H * 8)


# ---- order ----------------------------------------------------------------------------------------


def test_programs_with_streams_of_their_own_see_each_other_s_results_and_variables(any_order: Emulator) -> None:
    v = st.Variable(np.ones((8, 8), np.float32), name="v")

    @st.function
    def write(x: Any) -> None:
        v.value = v.value * 0.5 + x

    @st.function
    def read(x: Any) -> Any:
        return v.value + x

    expected = np.ones((8, 8), np.float32)
    with with_backend(GPU):
        h: Any = H
        wanted = H
        for number in range(6):
            write(h)
            expected = expected * 0.5 + wanted
            h, wanted = read(h), expected + wanted
            if number == 3:
                v.value = np.full((8, 8), 2.0, np.float32)  # while calls that use it may be under way
                expected = np.full((8, 8), 2.0, np.float32)
            h, wanted = double(h), wanted * 2
    np.testing.assert_allclose(h, wanted, rtol=1e-4)
    np.testing.assert_allclose(v.numpy(), expected, rtol=1e-4)


def test_memory_of_results_is_used_again_after_the_work_that_reads_it(any_order: Emulator) -> None:
    """Results that nobody holds give their memory to other programs, whose streams are others."""
    programs = [st.function(function) for function in (lambda x: x + 1.0, lambda x: x * 1.5, lambda x: x - 2.0)]
    with with_backend(GPU):
        before = any_order.counts()
        kept, expected = [], []
        h: Any = H
        wanted = H
        for number in range(12):
            for program, by_hand in zip(programs, (lambda x: x + 1.0, lambda x: x * 1.5, lambda x: x - 2.0), strict=True):
                h, wanted = program(h), by_hand(wanted)
            if number % 5 == 0:
                kept.append(h)
                expected.append(wanted)
        # The programs' own memory; two results in turn, and those that are kept.
        assert (any_order.counts() - before).allocations <= 3 + 3 + len(kept)
        for each, by_hand_ in zip(kept, expected, strict=True):
            np.testing.assert_allclose(each, by_hand_, rtol=1e-4)


def test_memory_that_a_call_still_reads_is_not_overwritten_by_another_program(any_order: Emulator) -> None:
    """The programs have nothing else in common, so that only the memory orders their streams."""
    other = st.function(lambda x: x + 5.0)
    with with_backend(GPU, W):
        double(H), layer(H, W), other(H)
        for number in range(8):
            found = layer(double(H + number), W)  # the argument is no longer referenced
            others = [other(W) for _ in range(3)]
            np.testing.assert_allclose(found, np.tanh(2 * (H + number) @ W), rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(others, [W + 5.0] * 3, rtol=1e-5)


def test_arrays_of_the_host_may_change_when_the_call_has_returned(any_order: Emulator) -> None:
    x = np.empty((8, 8), np.float32)
    with with_backend(GPU):
        found = []
        for number in range(20):
            x[...] = number
            found.append(double(x))
        x[...] = -1
        for number, each in enumerate(found):
            assert (np.asarray(each) == 2 * number).all()


def descend(x: Any, w: Any, steps: Any) -> Any:
    for _ in st.range(steps):
        h = st.tanh(x @ w)
        w = w - 0.1 * (x.T @ (h @ w - x))
    return w


def test_loops_whose_result_stays_on_the_device(any_order: Emulator) -> None:
    own = st.function(descend)
    with st.eager():
        expected = np.asarray(own(H, W, 12))
    with with_backend(GPU, H):
        w: Any = W
        for _ in range(3):
            w = own(H, w, 4)
    np.testing.assert_allclose(w, expected, rtol=1e-3, atol=1e-5)


def test_the_graph_of_a_loop_serves_calls_with_results_at_other_addresses(device: Emulator) -> None:
    own = st.function(descend)
    with with_backend(GPU, H, W):
        found = [own(H, W, 4) for _ in range(3)]
        before = device.counts()
        found.append(own(H, W, 6))
        assert (device.counts() - before).graph_launches == 6
    for each in found[1:3]:
        np.testing.assert_array_equal(each, found[0])


def test_batches_of_a_loader_are_not_overwritten_while_calls_read_them(any_order: Emulator) -> None:
    batches = [RNG.normal(size=(8, 8)).astype(np.float32) for _ in range(12)]
    with with_backend(GPU):
        found = [layer(x, W) for x in st.loader(batches, ahead=1)]
        for each, x in zip(found, batches, strict=True):
            np.testing.assert_allclose(each, np.tanh(x @ W), rtol=1e-4, atol=1e-6)


def test_a_print_shows_its_own_values_in_order(any_order: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    @st.function
    def shown(x: Any) -> Any:
        print(f"sum {st.sum(x):.1f}")
        return x + 1.0

    with with_backend(GPU):
        x: Any = np.zeros(4, np.float32)
        for _ in range(3):
            x = shown(x)
            print("and")
    assert capsys.readouterr().out == "sum 0.0\nand\nsum 4.0\nand\nsum 8.0\nand\n"


def test_random_numbers_continue_from_call_to_call(any_order: Emulator) -> None:
    noisy = st.function(lambda x: x + st.random.uniform((8, 8)))
    st.seed(5)
    with with_backend(GPU):
        found = [noisy(H) for _ in range(3)]
    st.seed(5)
    with st.eager():
        for each in found:
            np.testing.assert_allclose(each, np.asarray(noisy(H)), rtol=1e-6)


def test_two_devices(device: Emulator) -> None:
    device.configure("devices=2 lazy seed=4")

    @st.function
    def on_both(x: Any) -> Any:
        with with_backend(GPU(1)):
            y = x * 3.0
        return y + 1.0

    with with_backend(GPU):
        x = double(H)
        with with_backend(GPU(1)):
            y = layer(x, W)
        assert (str(x.device), str(y.device)) == ("gpu", "gpu(1)")
        z = on_both(y)
        w = double(z)
    np.testing.assert_allclose(y, np.tanh(H * 2 @ W), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(z, 3 * np.tanh(H * 2 @ W) + 1, rtol=1e-4)
    np.testing.assert_allclose(w, 6 * np.tanh(H * 2 @ W) + 2, rtol=1e-4)


def test_an_argument_on_another_device_is_a_result(device: Emulator) -> None:
    device.configure("devices=2 lazy seed=6")
    both = st.function(lambda x, y: (x, y * 2.0, x[1:]))
    with with_backend(GPU(1)):
        x = double(H)
        with with_backend(GPU):
            given, doubled, piece = both(x, W)
    assert (str(given.device), str(doubled.device)) == ("gpu(1)", "gpu")
    np.testing.assert_array_equal(given, H * 2)
    np.testing.assert_array_equal(doubled, W * 2)
    np.testing.assert_array_equal(piece, H[1:] * 2)


def test_threads_with_regions_of_their_own(any_order: Emulator) -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        with with_backend(GPU):
            h: Any = H + number
            for _ in range(5):
                h = layer(h, W)
            found[number] = h

    run_at_once(partial(work, number) for number in range(4))
    for number, h in found.items():
        np.testing.assert_allclose(h, layers(H + np.float32(number), 5), rtol=1e-3, atol=1e-5)


def test_a_thread_uses_what_another_one_computes(any_order: Emulator) -> None:
    found: list[Any] = []
    with with_backend(GPU):
        y = layer(H, W)

        def work() -> None:
            with with_backend(GPU):
                found.append(double(y))

        run_at_once([work])
    np.testing.assert_allclose(found[0], 2 * np.tanh(H @ W), rtol=1e-4)


def test_nothing_is_left_on_the_device(any_order: Emulator) -> None:
    def live() -> tuple[int, ...]:
        gc.collect()
        seen = any_order.counts()
        return seen.live_bytes, seen.live_pinned, seen.live_streams, seen.live_events, seen.live_allocations

    def run() -> None:
        fresh = st.function(lambda x, w: (st.tanh(x @ w), w[x[0, :2] > 5.0]))
        with contextlib.suppress(StagedError), with_backend(GPU):
            fresh(H, W)
        own = st.function(lambda x, rows: x[rows])
        with with_backend(GPU):
            h = own(H, np.array([0, 1]))
            for _ in range(5):
                h = own(h, np.array([1, 0]))

    before = live()
    run()
    assert live() == before, any_order.live_objects()


def test_the_number_of_unfinished_calls_is_bounded(device: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "MOST_CALLS", 10)
    device.configure("lazy seed=3")
    with with_backend(GPU):
        h: Any = H
        before = device.counts()
        for _ in range(35):
            h = double(h) if _ % 2 else layer(h, W)
        assert 1 <= (device.counts() - before).synchronisations <= 7
    assert np.isfinite(np.asarray(h)).all()


def test_large_arrays_are_not_copied_to_pinned_memory(device: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "MOST_STAGED", 100)
    before = device.counts()
    with with_backend(GPU, H) as x:
        found = double(x)
        assert (device.counts() - before).live_pinned == 0
    np.testing.assert_array_equal(found, H * 2)


# ---- errors ---------------------------------------------------------------------------------------

BAD = np.array([1, 9, 0])
GOOD = np.array([1, 2, 0])


def test_an_error_is_raised_when_a_value_is_read_and_cites_the_call(any_order: Emulator) -> None:
    with with_backend(GPU):
        first = look_up(H, GOOD)
        second = look_up(H, BAD)  # the call that fails
        third = double(second)
        unrelated = double(W)
        np.testing.assert_array_equal(first, H[GOOD] * 2)
        with pytest.raises(ProgramIndexError) as caught:
            third.numpy()
        assert caught.value.where is not None and caught.value.where.text.strip() == "return table[rows] * 2.0"
        assert "second = look_up(H, BAD)  # the call that fails" in str(caught.value)
        assert "index 9 is out of range" in str(caught.value)
        for void in (second, third, unrelated):
            with pytest.raises(ProgramIndexError, match="index 9"):
                np.asarray(void)
            with pytest.raises(ProgramIndexError, match="index 9"):
                double(void)
        np.testing.assert_array_equal(double(first), H[GOOD] * 4)  # what is made from now on holds
    np.testing.assert_array_equal(first, H[GOOD] * 2)
    with pytest.raises(ProgramIndexError, match="index 9"):
        float(third[0, 0])


def test_an_error_that_nobody_has_seen_is_raised_at_the_end_of_the_region(any_order: Emulator) -> None:
    with pytest.raises(ProgramIndexError, match="index 9") as caught, with_backend(GPU):
        look_up(H, BAD)  # its result goes at once
    assert "look_up(H, BAD)  # its result goes at once" in str(caught.value)
    with pytest.raises(ProgramIndexError, match="index 9") as caught, with_backend(GPU):
        look_up(H, BAD)
        raise KeyError("another")
    assert isinstance(caught.value.__context__, KeyError)
    with pytest.raises(KeyboardInterrupt) as interrupted, with_backend(GPU):
        look_up(H, BAD)
        raise KeyboardInterrupt
    assert "index 9" in interrupted.value.__notes__[0]
    with with_backend(GPU):
        assert look_up(H, GOOD).numpy().shape == (3, 8)


def test_an_error_is_told_once(any_order: Emulator) -> None:
    with with_backend(GPU):
        found = look_up(H, BAD)
        with pytest.raises(ProgramIndexError):
            found.numpy()
    with pytest.raises(ProgramIndexError):
        found.numpy()


def test_only_the_first_of_several_errors_is_raised(device: Emulator) -> None:
    device.configure("lazy seed=5")
    with with_backend(GPU):
        look_up(H, np.array([8]))  # first
        found = look_up(H, BAD)
        with pytest.raises(ProgramIndexError, match=r"index 8(.|\n)*# first"):
            found.numpy()


def test_a_variable_tells_of_an_error(any_order: Emulator) -> None:
    v = st.Variable(np.zeros((3, 8), np.float32), name="v")

    @st.function
    def set_rows(table: Any, rows: Any) -> None:
        v.value = table[rows]

    with with_backend(GPU):
        set_rows(H, GOOD)
        with pytest.raises(ProgramIndexError, match="index 9"):
            set_rows(H, BAD)
            v.numpy()
        assert v.numpy().shape == (3, 8)
        set_rows(H, GOOD)
        np.testing.assert_array_equal(v.numpy(), H[GOOD])


def test_a_print_does_not_overtake_an_error(any_order: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    @st.function
    def shown(x: Any) -> None:
        print(f"sum {st.sum(x):.1f}")

    with with_backend(GPU):
        y = look_up(H, BAD)
        with pytest.raises(ProgramIndexError, match="index 9"):
            shown(y)
    assert capsys.readouterr().out == ""


def test_a_call_that_has_waited_has_no_report_of_an_earlier_failure(any_order: Emulator) -> None:
    waits = st.function(lambda table, rows: st.to(table[rows], CPU))
    with with_backend(GPU):
        with pytest.raises(ProgramIndexError, match="index 9"):
            look_up(H, BAD).numpy()
        found = waits(H, GOOD)
        assert type(found) is np.ndarray
        look_up(H, GOOD).numpy()
    np.testing.assert_array_equal(found, H[GOOD])


def test_asserts_and_errors_of_the_host_stop_the_call(any_order: Emulator) -> None:
    @st.function
    def checked(x: Any) -> Any:
        assert st.sum(x) > 0, "no positive sum"
        return x * 2.0

    pick = st.function(lambda x, i: x[i] * 2.0)
    with with_backend(GPU):
        h = double(H)
        with pytest.raises(ProgramAssertionError, match="no positive sum"):
            checked(-np.ones(3, np.float32))
        with pytest.raises(ProgramIndexError, match="index 8"):
            pick(h, 8)
        np.testing.assert_array_equal(pick(h, 2), H[2] * 4)
    np.testing.assert_array_equal(h, H * 2)


def test_check_nan_names_the_value_and_the_call(any_order: Emulator) -> None:
    root = st.function(lambda x: st.sqrt(x) + 1.0, check_nan=True)
    with with_backend(GPU):
        assert float(root(np.ones(3, np.float32))[0]) == 2.0
        with pytest.raises(ProgramNanError, match=r"has NaN at position 1(.|\n)*found = root"):
            found = root(np.array([1, -1], np.float32))
            found.numpy()


# ---- programs -------------------------------------------------------------------------------------


def test_a_program_that_was_staged_in_a_region_waits_outside_of_one(any_order: Emulator) -> None:
    with with_backend(GPU):
        program = look_up.stage(H, GOOD)
        assert [transfer.why for transfer in program.transfers()] == ["input", "input", "failure"]
    found = program(H, GOOD)
    assert isinstance(found, st.DeviceArray)
    np.testing.assert_array_equal(found, H[GOOD] * 2)
    with pytest.raises(ProgramIndexError, match="index 9"):
        program(H, BAD)


def test_an_exported_program_gives_its_results_to_the_host(tmp_path: Any) -> None:
    with with_backend(GPU):
        files = double.stage(H).export(tmp_path)
    text = "".join(path.read_text() for path in files if path.suffix in (".cu", ".h") and path.parent == tmp_path)
    assert "cudaMemcpyDeviceToHost" in text and "->departure" not in text


def test_an_argument_may_have_the_name_of_a_field() -> None:
    @st.function
    def named(departure: Any, report: Any) -> Any:
        return departure * report

    with with_backend(GPU):
        assert "void *departure_;" in named.stage(H, W).header
        np.testing.assert_array_equal(named(H, W), H * W)
