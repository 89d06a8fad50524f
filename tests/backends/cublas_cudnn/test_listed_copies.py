"""`program.transfers()` lists every copy between host and device, also those that the back end adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, with_backend
from tests.backends.cublas_cudnn.harness import printed_and_copied_as_in_eager
from tests.listed_copies import check_copies, listed_copies

pytestmark = pytest.mark.usefixtures("device")
X = np.random.default_rng(8).normal(size=(5, 7)).astype(np.float32)
ROWS = np.array([3, 0, 4])


def rows(x: Any, rows: Any) -> Any:
    with with_backend(GPU, x, rows):
        y = x[rows]
        total = st.sum(y)
        print(f"{total:.2f}")
        for i in st.range(3):
            y = y * 0.5
            print(i, f"{y[0, 0]:.2f}")
    return y


def prints_and_decisions(x: Any) -> Any:
    with with_backend(GPU, x):
        total = st.sum(x * x)
        print(f"{total:.3f}", x[0, 0])
        if total > 1.0:
            x = x * 0.5
        print(f"{total:.2f}")
    return x


def parts(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
        print(y)
        print(y[0], y[1, 2])
        z = st.sum(y)
    return z


def back_to_the_host(x: Any) -> Any:
    with with_backend(GPU, x):
        y = st.exp(x)
        with with_backend(CPU):
            z = y + 1.0
        y = y * z
    return y, z


PROGRAMS: list[tuple[Any, tuple[Any, ...], int, int]] = [
    (rows, (X, ROWS), 2, 2 * (1 + 3 + 1)),  # the record of failed checks with each wait
    (prints_and_decisions, (X,), 1, 2),
    (parts, (X,), 1, 2),
    (back_to_the_host, (X,), 2, 2),
]


@pytest.mark.parametrize(
    ("function", "arguments", "to_device", "to_host"), PROGRAMS, ids=[row[0].__name__ for row in PROGRAMS]
)
def test_the_device_counts_what_is_listed(
    function: Any,
    arguments: tuple[Any, ...],
    to_device: int,
    to_host: int,
    device: Emulator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    staged = st.function(function)
    modes = ("forward", "shuffled seed=1", "lazy reverse seed=2")
    printed_and_copied_as_in_eager(staged, arguments, (to_device, to_host, 0), modes, device, capsys, 2e-5)
    listed = listed_copies(staged.stage(*arguments))
    if function is not prints_and_decisions:
        assert listed is not None and (listed["copies_to_device"], listed["copies_to_host"]) == (to_device, to_host)


def test_the_failure_record_is_listed_with_its_reason_and_line() -> None:
    listed = st.function(rows).stage(X, ROWS).transfers()
    found = [(t.what, t.nbytes, t.in_loop, t.where.text) for t in listed if t.why == "failure"]  # type: ignore[union-attr]
    assert found == [
        ("failure record", 24, False, 'print(f"{total:.2f}")'),
        ("failure record", 24, True, 'print(i, f"{y[0, 0]:.2f}")'),
        ("failure record", 24, False, "return y"),
    ]
    assert "failure record: gpu -> cpu, 24 bytes, failure, in a loop" in "\n".join(map(str, listed))
    assert "failure record: gpu -> cpu" in st.function(rows).stage(X, ROWS).explain()


def test_a_wait_for_two_devices_reads_both_records(device: Emulator) -> None:
    device.configure("devices=2")

    @st.function
    def f(x: Any, rows: Any) -> Any:
        with with_backend(GPU, x, rows):
            y = x[rows]
        with with_backend(GPU(1), y):
            z = y * 2.0
        return z

    f(X, ROWS)
    before = device.counts()
    f(X, ROWS)
    assert check_copies(f.stage(X, ROWS), device.counts() - before)
    found = [str(t.source) for t in f.stage(X, ROWS).transfers() if t.why == "failure"]
    assert sorted(set(found)) == ["gpu", "gpu(1)"]


def test_values_that_the_first_call_copies_are_listed(device: Emulator) -> None:
    """cuDNN requires a weight and a bias for a batch norm: arrays of ones and zeros, begun with one element."""

    @st.function
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y, _, _ = st.batch_norm_training(x)
        return y

    x = np.random.default_rng(1).normal(size=(4, 3, 5, 5)).astype(np.float32)
    program = f.stage(x).compile()
    before = device.counts()
    program(x)
    first = device.counts() - before
    listed = program.transfers()
    assert first.copies_to_device == sum(t.target == GPU for t in listed)
    assert sum((t.why, t.where) == ("constant", None) for t in listed) == 2
    before = device.counts()
    program(x)
    assert check_copies(program, device.counts() - before)


def test_copies_that_are_not_listed_are_noticed(device: Emulator) -> None:
    """The check of this file can fail."""
    f = st.function(rows)
    f(X, ROWS)
    before = device.counts()
    f(X, ROWS)
    f(X, ROWS)
    seen = device.counts() - before
    assert seen.__slots__, "on a GPU, which counts nothing, the test ends here"
    with pytest.raises(AssertionError, match="listed"):
        check_copies(f.stage(X, ROWS), seen)


def test_a_size_that_varies_is_listed_with_its_largest_bytes(device: Emulator) -> None:
    @st.function
    def f(x: Any) -> Any:
        n = st.dim("N", st.sum(st.astype(x[:, 0] > 0.0, st.i64)), max=5)
        rows = x[:n] * 2.0
        with with_backend(GPU, rows):
            y = st.exp(rows)
        return st.sum(y)

    f(X)
    before = device.counts()
    f(X)
    seen = device.counts() - before
    program = f.stage(X)
    assert check_copies(program, seen)
    assert seen.bytes_to_device < sum(t.nbytes for t in program.transfers() if t.target == GPU)


def test_an_empty_array_is_not_copied(device: Emulator) -> None:
    @st.function
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
        return y

    empty = X[:0]
    f(empty)
    before = device.counts()
    f(empty)
    assert f.stage(empty).transfers() == ()
    assert check_copies(f.stage(empty), device.counts() - before)
