"""Staged scalars as indices and in slices of static size, read and written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from tests.frontend.harness import Case, checks_of

X = np.array([1.0, -2.0, 3.0, 0.5, 4.0, -1.5, 2.5, 6.0])
CUBE = np.arange(24.0).reshape(2, 3, 4)


def window(x: Any, i: Any) -> Any:
    return x[i : i + 3] * 2.0


def window_of_a_linear_form(x: Any, i: Any) -> Any:
    return x[2 * i - 1 : 2 * (i + 1)] + x[i * 2 : 2 + i + i].sum()


def windows_of_repeated_expressions(x: Any, i: Any) -> Any:
    """Neither is linear in `i`; each start is computed twice."""
    low = x[i // 2 * 2 : i // 2 * 2 + 2]
    high = x[min(i, 3) % 3 + 1 : 2 + min(i, 3) % 3]
    return low * high + x[3 * max(i - 2, 0) // 2 - i % 2 + 1 : (3 * max(i - 2, 0)) // 2 + 3 - i % 2]


def window_of_one_element(x: Any, i: Any) -> Any:
    return x[i : i + 1]


def window_from_a_negative_start(x: Any, i: Any) -> Any:
    return x[-i : -i + 2]


def window_with_a_static_bound_first(x: Any, n: Any) -> Any:
    total = 0.0
    for i in range(0, n, 2):
        total += (x[i : i + 2] * np.array([1.0, -1.0])).sum() * (i + 1)
    return total


def window_written(x: Any, i: Any) -> Any:
    x[i : i + 2] = x[i + 1 : i + 3] * 3.0
    x[i + 2 : i + 4] += 10.0
    return x


def window_written_meaning(x: Any, i: Any) -> Any:
    x[i : i + 2] = (x[i + 1 : i + 3] * 3.0).copy()
    x[i + 2 : i + 4] += 10.0
    return x


def windows_of_several_axes(x: Any, i: Any, j: Any) -> Any:
    y = x[i, j : j + 2, ..., 1:3] * 1.0
    x[:, j : j + 2, 2] -= y.sum()
    return x, y


def scalars_between_slices(x: Any, i: Any) -> Any:
    return x[i, :, i + 1], x[-i], x[..., i], x[None, i], x[i, ..., None], x[:, i - 2]


def elements_written_in_a_loop(x: Any, n: Any) -> Any:
    for i in range(1, n):
        x[i] = x[i - 1] * 0.5 + x[-i]
        x[-1] += x[i]
    return x


def moving_average(x: Any, n: Any) -> Any:
    out = x * 0.0
    for i in st.range(n):
        out[i] = x[i : i + 3].mean() * (i + 1)
    return out


def _checked(f: Any, width: int, first: Any = lambda i: i) -> Any:
    """Python's slices stop short where ours stop the program."""

    def meaning(x: Any, i: Any) -> Any:
        if len(x[first(i) : first(i) + width]) != width:
            raise IndexError("a slice out of range")
        return f(x, i)

    return meaning


CASES = [
    Case(window, [(X, 0), (X, 5), (X, 6), (X, -4), (X, -3), (X, -8), (X, -9)], (0,), meaning=_checked(window, 3)),
    Case(window_of_a_linear_form, [(X, 1), (X, 3)], (0,)),
    Case(windows_of_repeated_expressions, [(X, i) for i in range(6)], (0,)),
    Case(window_of_one_element, [(X, 7), (X, -2), (X, -1), (X, 8)], (0,), meaning=_checked(window_of_one_element, 1)),
    Case(window_from_a_negative_start, [(X, 3), (X, 8)], (0,)),
    Case(window_with_a_static_bound_first, [(X, 8), (X, 0)], (0,)),
    Case(window_written, [(X, 1), (X, 4)], (0,), meaning=window_written_meaning),
    Case(windows_of_several_axes, [(CUBE, 1, 1), (CUBE, 0, 0)], (0,)),
    Case(scalars_between_slices, [(CUBE, 1)], (0,)),
    Case(elements_written_in_a_loop, [(X, 5), (X, 0), (X, 9)], (0,)),
    Case(moving_average, [(X, 6), (X, 0)], (0,)),
]

test_programs, test_gradients = checks_of(CASES)


def test_a_window_in_a_loop_of_known_length_is_not_checked() -> None:
    @st.function
    def f(x: Any) -> Any:
        total = 0.0
        for i in st.range(5):
            total += x[i : i + 4].sum()
        return total

    assert "st_check" not in f.stage(X).source


def test_an_empty_window_is_an_empty_array() -> None:
    @st.function
    def f(x: Any, i: Any) -> Any:
        return x[i : i - 1], x[i:i].sum()

    empty, total = f(X, 3)
    assert empty.shape == (0,)
    assert total == 0.0


@pytest.mark.parametrize(
    "slice_",
    [
        lambda x, i, j: x[i:j],
        lambda x, i, j: x[i:],
        lambda x, i, j: x[:i],
        lambda x, i, j: x[i : i + 4 : 2],
        lambda x, i, j: x[i : 2 * i],
        lambda x, i, j: x[i : i * i + 3],
        lambda x, i, j: x[i // 2 : i // 3 + 2],
        lambda x, i, j: x[i // 2 : j // 2 + 2],
        lambda x, i, j: x[i % 3 : i // 3 + 2],
        lambda x, i, j: x[min(i, j) : max(i, j)],
    ],
)
def test_a_slice_of_unknown_size_is_refused(slice_: Any) -> None:
    with pytest.raises(st.ShapeError, match="its size is not known while staging") as caught:
        st.function(slice_).stage(X, 2, 3)
    assert "x[i:i + 4]" in (caught.value.hint or "")


def test_a_window_wider_than_the_axis_is_refused() -> None:
    with pytest.raises(st.ShapeError, match="a slice of 9 elements does not fit"):
        st.function(lambda x, i: x[i : i + 9]).stage(X, 2)


def test_float_bounds_are_refused() -> None:
    with pytest.raises(st.ShapeError, match="slice bounds are integers"):
        st.function(lambda x, i: x[i : i + 1]).stage(X, 2.0)
