"""Arrays that a region in plain Python keeps on a device: read-only until the last region that names them ends."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import CPU, GPU, with_backend
from staged.errors import StagingError
from staged.frontend.devices.resident import ambient_device
from tests.threads import run_at_once


def test_a_named_array_is_read_only_until_the_region_ends() -> None:
    x = np.zeros(3)
    with with_backend(GPU, x):
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1.0
        with with_backend(GPU, x):
            pass
        assert not x.flags.writeable
    x[0] = 1.0


def test_an_array_and_its_views_are_writable_again_in_any_order() -> None:
    x = np.zeros((4, 3))
    view = x[1:]
    for named in ((x, view), (view, x), (view[::2], view, x)):
        with with_backend(GPU, *named):
            assert not any(each.flags.writeable for each in named)
        assert all(each.flags.writeable for each in named)
    with with_backend(GPU, x):
        with with_backend(GPU, view):
            pass
        assert not view.flags.writeable, "what it is a view of is still named"
    assert x.flags.writeable and view.flags.writeable


def test_what_is_read_only_anyway_stays_so() -> None:
    x = np.zeros(3)
    x.flags.writeable = False
    rows = np.broadcast_to(x, (2, 3))
    with with_backend(GPU, x, rows, np.frombuffer(b"12345678", np.float64)):
        pass
    assert not x.flags.writeable and not rows.flags.writeable


def test_memory_that_numpy_knows_little_of_is_not_locked_for_ever() -> None:
    class Foreign:
        """An array of another library."""

        def __init__(self) -> None:
            self.memory = np.zeros(3)
            self.__array_interface__ = self.memory.__array_interface__

    x = np.asarray(Foreign())
    with with_backend(GPU, x):
        pass
    x[0] = 1.0


def test_threads_that_name_one_array_end_apart() -> None:
    x = np.zeros(3)
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with with_backend(GPU, x):
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with with_backend(GPU, x):
        thread.start()
        entered.wait(60)
    assert not x.flags.writeable, "the other thread's region goes on"
    leave.set()
    thread.join()
    assert x.flags.writeable


def test_generators_leave_their_regions_in_any_order() -> None:
    def batches(device: Any) -> Any:
        with with_backend(device):
            yield 1
            yield 2

    first, second = batches(GPU), batches(GPU(1))
    next(first), next(second)
    first.close()
    assert ambient_device() == GPU(1)
    second.close()
    assert ambient_device() == CPU


def test_the_function_form_in_several_threads_at_once() -> None:
    inside, outside = threading.Event(), threading.Event()
    seen: list[Any] = []

    def work(n: int) -> None:
        (inside if n == 0 else outside).set()
        (outside if n == 0 else inside).wait(60)
        seen.append(ambient_device())

    there = with_backend(GPU)(work)
    run_at_once(partial(there, n) for n in range(2))
    assert seen == [GPU, GPU]
    assert ambient_device() == CPU


def test_an_array_of_a_device_does_not_change() -> None:
    x = st.to(np.zeros((2, 3), np.float32), GPU)
    assert (x.size, x.nbytes, x.numpy().shape) == (6, 24, (2, 3))
    with pytest.raises(StagingError, match="does not change") as raised:
        x += 1
    assert "x = x + 1" in str(raised.value) and raised.value.where is not None


def test_transforms_in_plain_python_take_arrays_of_a_device() -> None:
    def f(x: Any) -> Any:
        return st.sum(st.tanh(x))

    host = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    x = st.to(host, GPU)
    for transform in (st.grad(f), st.vmap(f), st.jacrev(f), st.jacfwd(f)):
        np.testing.assert_array_equal(transform(x), transform(host))
    np.testing.assert_array_equal(st.jvp(f, (x,), (x,)), st.jvp(f, (host,), (host,)))
