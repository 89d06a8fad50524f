"""Programs with sizes that they find: values and gradients of the programs whose sizes are known, from one trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramValueError
from staged.frontend.values import trees
from tests.dynamic_sizes import layer_cases  # noqa: F401  # which adds to the table
from tests.dynamic_sizes.cases import CASES, Case, gradient_of
from tests.sanitized import run_sanitized


def _compare(function: Any, made: Case, axes: Any, target: str | None = None) -> None:
    dynamic = st.function(dims=axes, target=target)(function)
    for number, sizes in enumerate(made.sizes):
        given = made.arguments(sizes, number)
        st.seed(number)
        found = dynamic(*given)
        st.seed(number)
        right = st.function(function)(*given)
        for one, other in zip(trees.flatten(found)[0], trees.flatten(right)[0], strict=True):
            assert np.shape(one) == np.shape(other), sizes
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10, err_msg=str(sizes))
    assert len(dynamic.programs) == 1, [use.arguments for use in dynamic.programs]


@pytest.mark.parametrize("made", CASES, ids=lambda made: made.name)
def test_values_are_those_of_static_programs(made: Case) -> None:
    _compare(made.function, made, made.axes)


@pytest.mark.parametrize("made", [made for made in CASES if made.gradient], ids=lambda made: made.name)
def test_gradients_are_those_of_static_programs(made: Case) -> None:
    _compare(gradient_of(made), made, {f"args.{place}": axes for place, axes in enumerate(made.axes.values())})


@pytest.mark.parametrize("name", ["loop_over_half", "scanned"])
def test_gradients_through_loops_in_portable_c(name: str) -> None:
    (made,) = (made for made in CASES if made.name == name)
    _compare(gradient_of(made), made, {f"args.{place}": axes for place, axes in enumerate(made.axes.values())}, "c99")


def topk_of_few(x):
    return st.topk(x, 3)[0]


def unequal_halves(x):
    return st.split(x, 2)


def quantile_of_nothing(x):
    return st.quantile(x[3:], 0.5)


def fewer_zeros(x):
    return st.zeros(x.shape[0] - 3)


def no_element_to_repeat(x):
    return st.pad(x[3:], 1, mode="edge")


def up_to_a_product(x):
    return st.sum(x[: x.shape[0] * x.shape[0] - 7])


def pooled_padding(x):
    return st.max_pool1d(x[None, None, 3:], 2, padding=1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (topk_of_few, "topk: there are no 3 elements along axis 0 of f64 (N,); N is 1"),
        (unequal_halves, "split: N elements do not make 2 equal parts; N is 1"),
        (quantile_of_nothing, "quantile of no elements has no value"),
        (fewer_zeros, "zeros: an extent is not negative, got (N - 3,); N is 1"),
        (no_element_to_repeat, "has no element to repeat"),
        (up_to_a_product, "a bound of a slice, N * N - 7, is negative; N is 1"),
        (pooled_padding, "max_pool2d: images must have elements, got f64 (1, 1, 1, max(0, N - 3))"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_size_that_does_not_fit_stops_the_program_with_the_line(function: Any, message: str) -> None:
    program = st.function(dims={"x": "N <= 40"})(function)
    program(np.arange(6.0))
    with pytest.raises(ProgramValueError) as caught:
        program(np.arange(1.0))
    assert message in str(caught.value) and f"in {function.__name__}" in str(caught.value)


def beyond_a_size(x, y):
    return st.normalize(x * 2.0, axis=0)[y.shape[0] :]


def test_a_result_holds_no_value_that_may_be_larger() -> None:
    """The bound of `max(N - M, 0)` is that of N: only the size of the result itself says what fits into it."""
    program = st.function(dims={"x": ("N <= 40", 3), "y": "M <= 40"})(beyond_a_size).stage(np.ones((9, 3)), np.ones(4))
    (outcome,) = run_sanitized(program._artifact, [((np.ones((9, 3)), np.ones(9), 9, 9), ())])
    assert outcome.error is None and outcome.results[0].shape == (0, 3)


def pooled(x):
    return st.max_pool2d(x, 3, stride=2)


def test_loops_over_sizes_are_never_inlined() -> None:
    """Among the variables of the caller the indices of the loops would not stay in registers."""
    x = np.ones((2, 3, 9, 9))
    dynamic = st.function(dims={"x": (2, 3, "N <= 20", "M <= 20")})(pooled).stage(x)
    assert "static __attribute__((noinline)) void max_pool2d(" in dynamic.source
    assert "static void max_pool2d(" in st.function(pooled).stage(x).source


def without_single_axes(x):
    return st.squeeze(x), st.cov(x)


def test_axes_of_one_element_are_removed() -> None:
    program, static = (st.function(dims=dims)(without_single_axes) for dims in ({"x": ("N <= 40", 3)}, "static"))
    for rows in (4, 1, 6):
        x = np.arange(3.0 * rows).reshape(rows, 3)
        for found, right in zip(program(x), static(x), strict=True):
            np.testing.assert_array_equal(found, right)
    assert len(program.programs) == 2
