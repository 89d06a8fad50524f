"""An error in a kernel stops the program with the CPU's error and line, at the next time the host waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import CPU, GPU, with_backend
from staged.errors import StagedError

pytestmark = pytest.mark.usefixtures("device")
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def rows(x: Any, k: Any) -> Any:
    return st.take(x, k, axis=0) * 2.0  # the line


def elements(x: Any, k: Any) -> Any:
    return st.take_along_axis(x, k, axis=1) + 1.0  # the line


def added(x: Any, k: Any) -> Any:
    return st.grad(lambda x: st.sum(st.take(x, k, axis=0) ** 2))(x)  # the line


def divided(x: Any, k: Any) -> Any:
    return st.astype(x, st.i32) // k  # the line


def remainder(x: Any, k: Any) -> Any:
    return st.astype(x, st.i64) % k  # the line


def power(x: Any, k: Any) -> Any:
    return st.astype(x, st.i32) ** k  # the line


def fitted(x: Any, k: Any) -> Any:
    return st.vmap(lambda n: st.astype(x, st.u8) + int(n))(k)  # the line


def made_there(x: Any, k: Any) -> Any:
    return st.astype(x, st.i16) * int(st.sum(k))  # the line


CASES: list[tuple[Callable[..., Any], np.ndarray, np.ndarray]] = [
    (rows, np.array([0, -1, 3, -4]), np.array([0, 4])),
    (rows, np.array([[1], [2]]), np.array([[-5], [0]])),
    (elements, np.array([[0], [2], [-3], [1]]), np.array([[0], [1], [2], [3]])),
    (added, np.array([1, 1, -1]), np.array([1, 7])),
    (divided, np.array([2, -3, 5], np.int32), np.array([2, 0, 5], np.int32)),
    (remainder, np.array([2, -3, 5]), np.array([2, 3, 0])),
    (fitted, np.array([0, 7, 255]), np.array([0, 256, 255])),
    (fitted, np.array([0, 7, 255]), np.array([0, -1, 255])),
    (made_there, np.array([32767, 1, -1]), np.array([32767, 1])),
    (power, np.array([0, 1, 3], np.int32), np.array([1, -1, 0], np.int32)),
]


def told(call: Callable[..., Any], *arguments: Any) -> StagedError:
    with pytest.raises(StagedError) as caught:
        call(*arguments)
    return caught.value


@pytest.mark.parametrize(("compute", "good", "bad"), CASES, ids=[case[0].__name__ for case in CASES])
def test_errors_are_those_of_the_cpu(compute: Any, good: Any, bad: Any, device: Any) -> None:
    def program(backend: Any) -> Any:
        def f(x: Any, k: Any) -> Any:
            with with_backend(backend, x, k):
                y = compute(x, k)
            return y

        return st.function(f)

    on_cpu, on_gpu = program(CPU), program(GPU)
    np.testing.assert_allclose(on_gpu(X, good), on_cpu(X, good), rtol=1e-6)
    device.set_thread_order("reverse")
    expected, found = told(on_cpu, X, bad), told(on_gpu, X, bad)
    assert type(found) is type(expected)
    assert str(found) == str(expected)
    assert "# the line" in str(found)
    # The next call is not told of it again.
    np.testing.assert_allclose(on_gpu(X, good), on_cpu(X, good), rtol=1e-6)


def test_a_failure_is_known_before_what_comes_after_it_is_printed(capsys: Any) -> None:
    @st.function
    def f(x: Any, k: Any) -> Any:
        with with_backend(GPU, x, k):
            print("before", st.sum(x))
            y = st.take(x, k, axis=0)
            print("after", st.sum(y))
        return y

    told(f, X, np.array([9]))
    printed = capsys.readouterr().out
    assert "before" in printed and "after" not in printed


def test_division_by_a_number_needs_no_record() -> None:
    @st.function
    def f(k: Any) -> Any:
        with with_backend(GPU, k):
            y = k // 3 + k % 7 + k**2
        return y

    assert "failed" not in f.stage(np.arange(5)).source
    np.testing.assert_array_equal(
        f(np.arange(-5, 5)), np.arange(-5, 5) // 3 + np.arange(-5, 5) % 7 + np.arange(-5, 5) ** 2
    )


@pytest.mark.parametrize(("bad", "what"), [(np.nan, "NaN"), (np.inf, "an infinity")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_number_that_is_not_finite_is_found(bad: float, what: str, dtype: Any, device: Any) -> None:
    @st.function(check_nan=True)
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
        return y

    x = np.ones((30, 20), dtype)
    np.testing.assert_array_equal(f(x), np.full((30, 20), 2, dtype))
    x[3, 7] = x[3, 8] = x[20, 1] = bad
    device.set_thread_order("reverse")
    error = told(f, x)
    assert f"`y` has {what} at position 67" in str(error)
    assert "y = x * 2.0" in str(error)


@pytest.mark.parametrize("words", ["devices=2", "lazy shuffled seed=2 devices=2"])
@pytest.mark.parametrize("second", [GPU, GPU(1)], ids=str)
def test_the_turn_that_is_the_first_to_find_a_nan_says_where(second: Any, words: str, device: Any) -> None:
    """From then on others are NaN as well, at lower positions; nobody looks until the loop has ended."""

    @st.function(check_nan=True)
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            y = x
            for i in st.range(n):
                y = st.sqrt(x - i)
                with with_backend(second):
                    x = x + 0.0 * st.sum(y)
        return x, y

    x = np.array([9.0, 8.0, 7.0, 2.5, 6.0], np.float32)
    device.configure(words)
    try:
        np.testing.assert_array_equal(f(x, 3)[0], x)
        for _ in range(2):
            error = told(f, x, 6)
            assert "`y` has NaN at position 3" in str(error) and "y = st.sqrt(x - i)" in str(error)
        np.testing.assert_array_equal(f(x, 3)[0], x)
    finally:
        device.configure("")
