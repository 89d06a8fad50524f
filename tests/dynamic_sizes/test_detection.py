"""Detected sizes: notes, one program from the third size on, and the reasons for which programs stay static."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ArgumentError


def _compare(function: Any, *shapes: tuple[int, ...]) -> tuple[Any, list[str]]:
    """Call with arrays of these shapes, and compare with static programs; the function and its notes."""
    detecting = st.function(function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for shape in shapes:
            x = np.arange(1.0, 1.0 + math.prod(shape)).reshape(shape) / 7
            outcomes = []
            for each in (detecting, st.function(dims="static")(function)):
                try:
                    outcomes.append(each(x))
                except Exception as error:
                    outcomes.append(error)
            found, right = outcomes
            assert type(found) is type(right), shape
            if not isinstance(right, Exception):
                assert np.shape(found) == np.shape(right)
                np.testing.assert_allclose(found, right, rtol=1e-10)
    return detecting, [str(each.message) for each in caught]


def test_the_third_size_gives_one_program_for_all_further_sizes() -> None:
    def centred(x):
        return (x - st.mean(x, axis=0)) @ st.ones((3, 2), dtype=st.f64) * x.shape[0]

    function, notes = _compare(centred, (5, 3), (8, 3), (33, 3), (34, 3), (7, 3), (1, 3), (40, 3))
    assert [use.arguments for use in function.programs] == ["x: f64 (N <= 40, 3)", "x: f64 (8, 3)", "x: f64 (5, 3)"]
    (note,) = notes
    assert "`centred` was traced for a second size of axis 0 of `x` (5 and 8)" in note
    assert function.why_traced() == "`x` has shape (N <= 40, 3); the last trace had (8, 3)"


def test_a_larger_bound_replaces_a_smaller_one() -> None:
    function, _ = _compare(lambda x: x * 2.0, (2,), (3,), (4,), (50,), (30,))
    assert [use.arguments for use in function.programs] == ["x: f64 (N <= 56,)", "x: f64 (3,)", "x: f64 (2,)"]
    assert "(N <= 56,); the last trace had (N <= 4,)" in function.why_traced()


def test_axes_of_equal_sizes_have_one_dimension_until_a_call_differs() -> None:
    function = st.function(lambda x, y: (st.sum(x) + st.sum(y), x @ x.T))
    for n in (2, 3, 5, 4):
        function(np.ones((n, 2)), np.ones(n))
    assert function.programs[0].arguments == "x: f64 (N <= 5, 2), y: f64 (N <= 5,)"
    assert function(np.ones((3, 2)), np.ones(4))[0] == 10.0
    assert function(np.ones((5, 2)), np.ones(2))[0] == 12.0
    assert function.programs[0].arguments == "x: f64 (N <= 5, 2), y: f64 (M <= 5,)"


def test_static_turns_detection_off_and_other_arguments_are_another_family() -> None:
    static, by_flag = st.function(dims="static")(lambda x: x + 1.0), st.function(lambda x, flag: x + 1.0)
    for n in (2, 3, 4, 5):
        static(np.ones(n))
        by_flag(np.ones(n), str(n))
    assert len(static.programs) == len(by_flag.programs) == 4
    with pytest.raises(ArgumentError, match='must be a dict or "static"'):
        st.function(dims="dynamic")(lambda x: x)


CALLS: list[int] = []


def reads_numpy(x):
    CALLS.append(1)
    y = x + np.zeros(x.shape)
    CALLS.pop()
    return y * (1 + len(CALLS))


def a_static_loop(x):
    return sum([x[i] * i for i in range(x.shape[0])])


def a_text(x):
    return x * len(",".join(map(str, x.shape)))


def a_large_integer(x):
    return x * ((x.shape[0] * 2**62) % 97)


def a_growing_integer(x):
    k = 1
    for _ in range(x.shape[0]):
        k = k * 31
    return x * (k % 97)


def a_root(x):
    return x * (st.sum(x) + abs((x.shape[0] - 9) ** 0.5))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (reads_numpy, "its value exists only when the program runs"),
        (a_static_loop, "a number of iterations that is known while staging"),
        (a_text, "Python converts a value to text"),
        (a_large_integer, "an integer computed from a size may need more than 64 bits"),
        (a_growing_integer, "an integer"),
        (a_root, "a number computed from a size may be zero or negative"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_function_that_needs_the_size_stays_static_and_a_note_cites_the_line(function: Any, reason: str) -> None:
    found, notes = _compare(function, (2,), (3,), (13,), (14,))
    assert len(found.programs) == 4
    assert len(notes) == 2 and reason in notes[1] and f"{__file__.rsplit('/', 1)[-1]}:" in notes[1]
    assert "one program for each size of axis 0 of `x` (2, 3 and 13)" in notes[1] and notes[1][-40:] in found.why_traced()
    assert not CALLS


@pytest.mark.parametrize(
    ("function", "sizes", "programs"),
    [
        (lambda x: st.concat(st.split(x, 2)), (2, 4, 8, 3, 6, 5), 3),
        (lambda x: st.squeeze(x[:, None]), (2, 3, 4, 1, 3), 4),
        (lambda x: x * (1 / (x.shape[0] - 1)), (2, 3, 4, 1, 5), 4),
        (lambda x: x[: x.shape[0] - 3], (4, 5, 6, 2, 7), 5),
        (lambda x: x * 2 if x.shape[0] > 3 else x * 3, (2, 3, 4, 5, 0), 4),
    ],
    ids=["split", "squeeze", "division", "slice", "branch"],
)
def test_a_relation_of_sizes_is_checked_before_the_program_runs(function: Any, sizes: Any, programs: int) -> None:
    """Calls for which the relation does not hold have programs, or errors, of their own."""
    found, notes = _compare(function, *((size,) for size in sizes))
    assert len(notes) == 1 and len(found.programs) <= programs


def _trained(dims: Any) -> Any:
    weight = st.Variable(np.linspace(-1.0, 1.0, 6).reshape(3, 2))

    @st.function(dims=dims)
    def step(x, y):
        loss, gradient = st.value_and_grad(lambda: st.mean((st.tanh(x @ weight) - y) ** 2), wrt=weight)()
        weight.value = weight - 0.1 * gradient
        return loss

    random = np.random.default_rng(0)
    losses = [step(random.random((n, 3)), random.random((n, 2))) for n in (2, 3, 4, 5, 7, 1, 6)]
    return step, [*losses, *weight.numpy().ravel()]


def test_gradients_and_variables_of_a_training_step() -> None:
    (found, one), (_, other) = _trained(None), _trained("static")
    np.testing.assert_allclose(one, other, rtol=1e-10)
    assert len(found.programs) == 3
