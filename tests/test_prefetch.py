"""`st.loader`: the items, in order, with errors and ends where they belong, fetched ahead in another thread."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staged as st


def threads() -> int:
    return sum(thread.name == "staged-loader" for thread in threading.enumerate())


def wait_for(condition: Any) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return bool(condition())


@pytest.mark.parametrize("ahead", [1, 2, 100])
def test_items_come_in_order_any_number_of_times(ahead: int) -> None:
    loader = st.loader([1, "two", None, (3, 4)], ahead=ahead)
    assert len(loader) == 4
    for _ in range(2):
        assert list(loader) == [1, "two", None, (3, 4)]
    assert list(st.loader([])) == []
    items = iter(st.loader([1]))
    assert next(items) == 1
    for _ in range(2):  # ended once, ended for good
        with pytest.raises(StopIteration):
            next(items)


def test_items_are_fetched_ahead() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    items = iter(st.loader(numbers(), ahead=3))
    assert next(items) == 0
    assert wait_for(lambda: len(made) == 5)  # three wait, one is in hand of the thread
    time.sleep(0.02)
    assert len(made) == 5
    assert list(items) == list(range(1, 10))


def test_errors_are_raised_where_the_item_would_have_come() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    items = iter(st.loader(broken()))
    assert next(items) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    with pytest.raises(StopIteration):
        next(items)


def test_leaving_the_loop_ends_the_thread() -> None:
    before = threads()

    def endless() -> Iterator[int]:
        while True:
            yield 1

    for _ in st.loader(endless()):
        assert threads() == before + 1
        break
    gc.collect()
    assert wait_for(lambda: threads() == before)


def test_training_over_a_memory_mapped_file(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(40.0).reshape(10, 4))
    data = np.load(tmp_path / "x.npy", mmap_mode="r")
    total = st.Variable(0.0, name="total")

    @st.function
    def add(x: Any) -> Any:
        total.value = total.value + st.astype(st.sum(x), st.f32)
        return total.value

    for batch in st.loader(data[i : i + 2] for i in range(0, 10, 2)):
        result = add(batch)
    assert result == data.sum()
    assert [use.calls for use in add.programs] == [5]


@pytest.mark.parametrize(("iterable", "ahead"), [(3, 1), ([1], 0), ([1], True), ([1], 1.5)])
def test_what_cannot_be_gone_through_is_refused(iterable: Any, ahead: Any) -> None:
    with pytest.raises(st.ArgumentError, match="loader takes") as refused:
        st.loader(iterable, ahead=ahead)
    assert "test_prefetch.py" in str(refused.value)
