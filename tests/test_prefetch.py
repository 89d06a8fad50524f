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
    end = time.monotonic() + 60
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


def test_pieces_of_a_mapped_file_are_read_in_the_thread_and_no_more_of_it(tmp_path: Any) -> None:
    """The file is larger than what may be read of it: a copy of all of it would fail."""
    rows, width = 1 << 22, 1 << 10
    data = np.lib.format.open_memmap(
        tmp_path / "x.npy", "w+", np.float32, (rows, width)
    )  # 16 GiB, almost all of it a hole
    data[:4] = np.arange(4, dtype=np.float32)[:, None]
    seen = [(item["x"], item["y"]) for item in st.loader({"x": data[i : i + 2], "y": i} for i in range(0, 4, 2))]
    for i, (x, y) in enumerate(seen):
        assert type(x) is np.ndarray
        assert x.base is None  # in memory
        assert (x[:, 5].tolist(), y) == ([2 * i, 2 * i + 1], 2 * i)
    item = object()
    assert next(iter(st.loader([item]))) is item


def test_a_traceback_shows_where_the_iterable_failed() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone") as raised:
        list(st.loader(broken()))
    assert "broken" in [entry.name for entry in raised.traceback]
    for failure in (KeyboardInterrupt(), SystemExit(3), GeneratorExit()):

        class Fails:
            def __init__(self, failure: BaseException) -> None:
                self.failure = failure

            def __iter__(self) -> Iterator[int]:
                raise self.failure

        with pytest.raises(type(failure)):
            next(iter(st.loader(Fails(failure))))


def test_a_generator_ends_when_the_loop_does() -> None:
    ended = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    for _ in st.loader(endless()):
        break
    gc.collect()
    assert ended.wait(60)
    ended.clear()
    with pytest.raises(ZeroDivisionError):
        for number in st.loader(endless()):
            number / 0
    gc.collect()
    assert ended.wait(60)


def test_loaders_nest_and_go_side_by_side() -> None:
    numbers = list(range(50))
    assert list(st.loader(st.loader(st.loader(numbers, ahead=1), ahead=3))) == numbers
    loader = st.loader(numbers)
    assert list(zip(loader, loader, strict=True)) == list(zip(numbers, numbers, strict=True))
    assert [(a, b) for a in st.loader([1, 2]) for b in st.loader("xy")] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_the_iterable_sees_the_blocks_around_the_loop() -> None:
    run: list[str] = []

    @st.function
    def f(x: Any) -> Any:
        run.append(type(x).__name__)
        return x + 1.0

    def batches() -> Iterator[Any]:
        for _ in range(3):
            yield f(np.zeros(2))

    with st.eager():
        assert [batch.tolist() for batch in st.loader(batches())] == [[1.0, 1.0]] * 3
    assert run == ["EagerArray"] * 3


def test_a_loop_over_a_loader_can_stand_in_a_staged_function() -> None:
    @st.function
    def total(x: Any) -> Any:
        for number in st.loader(n * 1.0 for n in range(3)):
            x = x + number
        return x

    assert total(np.ones(2)).tolist() == [4.0, 4.0]
    assert total(np.ones(2)).tolist() == [4.0, 4.0]


@pytest.mark.slow
def test_a_data_loader_with_workers(library: Any) -> None:
    torch = library("torch")
    data = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
    batches = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)
    total = st.function(lambda x, y: st.sum(x) + st.sum(y))
    for _ in range(2):
        assert [float(total(x, y)) for x, y in st.loader(batches)] == [12.0, 44.0]
    assert len(st.loader(batches)) == 2


@pytest.mark.parametrize(("iterable", "ahead"), [(3, 1), ([1], 0), ([1], True), ([1], 1.5)])
def test_what_cannot_be_gone_through_is_refused(iterable: Any, ahead: Any) -> None:
    with pytest.raises(st.ArgumentError, match="loader takes") as refused:
        st.loader(iterable, ahead=ahead)
    assert "test_prefetch.py" in str(refused.value)


def test_the_threads_random_numbers_are_new_in_every_epoch_and_the_same_in_every_run() -> None:
    def numbers() -> Iterator[float]:
        for _ in range(3):
            yield float(st.random.uniform(()))

    class Epochs:
        def __iter__(self) -> Iterator[float]:
            return numbers()

    def run() -> list[float]:
        st.seed(3)
        loader = st.loader(Epochs())
        return [*loader, *loader, *numbers()]

    found = run()
    assert found == run() and len(set(found)) == 9
