"""Detected sizes: notes, one program from the third size on, and the reasons for which programs stay static."""

from __future__ import annotations

import contextlib
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
                assert type(found) is type(right) and np.shape(found) == np.shape(right)
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


def slices_from_the_end(x):
    total = 0.0
    for stop in range(x.shape[0]):
        total += st.sum(x[stop - 3 : stop]) * stop
    return total


def a_caught_index(x):
    try:
        last = x[5]
    except IndexError:
        last = 0.0
    return last * x


def a_tested_attribute(x):
    return x * (x.shape[0] if hasattr(x.shape[0], "bit_length") else 0)


def a_suppressed_index(x):
    last = 0.0
    with contextlib.suppress(IndexError):
        last = x[5]
    return last * x


def a_caught_type(x):
    try:
        return x * np.zeros(x.shape[0])
    except TypeError:
        return x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (reads_numpy, "its value exists only when the program runs"),
        (a_static_loop, "a number of iterations that is known while staging"),
        (a_text, "Python converts a value to text"),
        (a_large_integer, "an integer computed from a size may need more than 64 bits"),
        (a_growing_integer, "an integer"),
        (a_root, "a number computed from a size may be zero or negative"),
        (slices_from_the_end, "Python may cut a slice at the end of the axis"),
        (a_caught_index, "this may stop the program with an IndexError, which the `try` around it cannot catch"),
        (a_tested_attribute, "Python asks whether a number has the attribute `bit_length`"),
        (a_suppressed_index, "this may stop the program with an IndexError"),
        (a_caught_type, "`numpy.zeros` cannot take staged values"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_function_that_needs_the_size_stays_static_and_a_note_cites_the_line(function: Any, reason: str) -> None:
    found, notes = _compare(function, (2,), (3,), (13,), (14,))
    assert len(found.programs) == 4
    assert len(notes) == 2 and reason in notes[1] and f"{__file__.rsplit('/', 1)[-1]}:" in notes[1]
    assert "one program for each size of axis 0 of `x` (2, 3 and 13)" in notes[1] and notes[1][-40:] in found.why_traced()
    assert not CALLS


def windows_in_range(x):
    total = 0.0
    for start in range(x.shape[0] - 3):
        total += st.sum(x[start : start + 4]) * start
    for block in range(x.shape[0] // 4):
        total += st.max(x[4 * block : 4 * block + 4]) * block
    for start in range(x.shape[0] - 1, 2, -1):
        total += st.sum(x[start - 3 : start + 1]) * start
    return total


def a_piece_of_one_size(x):
    total = np.zeros(4)
    for start in range(0, x.shape[0], 4):
        total = total + x[start : start + 4]
    return total


def a_suppressed_shape(x):
    with contextlib.suppress(ValueError):
        x = x[:6] + np.ones(6)
    return x


def cut_slices(x):
    total = 0.0
    for start in range(0, x.shape[0], 4):
        total += st.sum(x[start : start + 4]) * start
    return total


def loops_of_numbers(x):
    total = 0
    for index in range(x.shape[0]):
        total += index
    for last in range(x.shape[0] - 1, -1, -1):
        total += last
    return x * total + ~x.shape[0] + index - last


def a_caught_shape(x):
    try:
        return x[:6] + np.ones(6)
    except ValueError:
        return x


def last_but_three(x):
    last = 0.0
    for i in range(x.shape[0] - 3):
        last = x[i]
    return last


@pytest.mark.parametrize(
    ("function", "sizes", "programs"),
    [
        (lambda x: st.concat(st.split(x, 2)), (2, 4, 8, 3, 6, 5), 3),
        (lambda x: st.squeeze(x[:, None]), (2, 3, 4, 1, 3), 4),
        (lambda x: x * (1 / (x.shape[0] - 1)), (2, 3, 4, 1, 5), 4),
        (lambda x: x[: x.shape[0] - 3], (4, 5, 6, 2, 7), 5),
        (lambda x: x * 2 if x.shape[0] > 3 else x * 3, (2, 3, 4, 5, 0), 4),
        (lambda x: x.reshape(2, -1) if x.shape[0] % 2 == 0 else x, (2, 3, 4, 5, 8, 7, 1), 4),
        (windows_in_range, (4, 8, 13, 7, 5), 3),
        (cut_slices, (4, 8, 12, 13, 20, 3, 24, 16), 5),
        (loops_of_numbers, (2, 3, 5, 4, 1), 3),
        (a_caught_shape, (2, 7, 9, 1, 6, 12, 5), 6),
        (a_suppressed_shape, (2, 7, 9, 1, 6, 12, 5), 6),
        (a_piece_of_one_size, (4, 8, 12, 20, 13), 4),
        (last_but_three, (5, 6, 7, 2, 3, 4, 9), 4),
    ],
    ids="split squeeze division slice branch remainder windows cuts numbers except suppress piece number".split(),
)
def test_a_relation_of_sizes_is_checked_before_the_program_runs(function: Any, sizes: Any, programs: int) -> None:
    """Calls for which the relation does not hold have programs, or errors, of their own."""
    found, notes = _compare(function, *((size,) for size in sizes))
    assert len(notes) == 1 and len(found.programs) <= programs


def test_the_bound_is_one_that_the_function_allows() -> None:
    table = np.arange(400.0).reshape(200, 2)
    found, _ = _compare(lambda x: x + table[: x.shape[0]] + x[:1], *((n, 2) for n in (3, 5, 8, 130, 200, 1, 199, 201)))
    assert [use.arguments for use in found.programs][:3] == [
        "x: f64 (N <= 200, 2)", "x: f64 (5, 2)", "x: f64 (3, 2)"
    ]  # fmt: skip


def test_arrays_of_one_element_broadcast() -> None:
    function = st.function(lambda x, y: x + y)
    for n, m in ((8, 8), (1, 1), (4, 4), (1, 5), (5, 1), (9, 9), (1, 2), (7, 1)):
        np.testing.assert_array_equal(function(np.ones(n), np.ones(m)), np.full(max(n, m), 2.0))
    assert len(function.programs) == 6


def test_sizes_of_two_axes_may_have_a_relation() -> None:
    function = st.function(lambda x, y: x[: y.shape[0]] * y)
    for n, m in ((3, 2), (5, 4), (8, 7), (9, 9), (20, 11), (11, 1)):
        np.testing.assert_array_equal(function(np.arange(n), np.ones(m)), np.arange(m))
    assert len(function.programs) == 3


def columns_of_numpy(x):
    return x * np.ones(x.shape[1]) + x.shape[0]


def test_an_axis_that_needs_its_size_does_not_make_other_axes_static() -> None:
    shapes = [(2, 3), (3, 4), (4, 5), (7, 5), (5, 3), (1, 3), (6, 4), (2, 5)]
    found, notes = _compare(columns_of_numpy, *shapes)
    assert {use.arguments for use in found.programs} == {
        *(f"x: f64 (N <= {most}, {columns})" for most, columns in ((7, 5), (7, 3), (7, 4))),
        "x: f64 (3, 4)", "x: f64 (2, 3)",
    }  # fmt: skip
    assert len(notes) == 2 and "one program for each size of axis 1 of `x` (3, 4 and 5)" in found.why_traced()


@pytest.mark.parametrize(
    ("declared", "function", "length"),
    [
        ("N <= 40", lambda x, y: st.concat([x, y]) * y.shape[0], lambda n: n),
        ("N <= 40", lambda x, y: x + y, lambda n: n),
        ("2 * N", lambda x, y: x[::2] * y, lambda n: 2 * n),
    ],
)
def test_sizes_are_found_beside_declared_ones(declared: str, function: Any, length: Any) -> None:
    found = st.function(dims={"x": declared})(function)
    for n in (2, 3, 5, 4, 1):
        x, y = np.arange(1.0, 1 + length(n)), np.arange(1.0, 1 + n)
        np.testing.assert_array_equal(found(x, y), st.function(dims="static")(function)(x, y))
    assert len(found.programs) == 3


class Holder:
    data: Any = None


def test_an_attribute_that_has_a_size_is_set_by_each_call() -> None:
    held = Holder()

    @st.function
    def setting(x):
        held.data = x.shape[0], "rows"
        return x * 2.0

    with pytest.warns(UserWarning, match="the attribute `data` of an object from outside has a number"):
        for n in (2, 3, 5, 4):
            setting(np.ones(n))
            assert held.data == (n, "rows")


def nested_iterables(x):
    total = 0.0
    for place, (one, other) in enumerate(zip(x, reversed(x), strict=True)):
        total += one * other * place
    for place, index in enumerate(range(x.shape[0])):
        total += x[index] * place
    return total


def test_nested_iterables_are_no_reason_to_trace_at_every_call() -> None:
    found, _ = _compare(nested_iterables, (2,), (3,), (5,), (4,), (1,))
    assert len(found.programs) == 3 and not found.why_traced().startswith("every call")


def test_the_reason_for_a_trace_names_a_captured_array_of_another_size() -> None:
    held, variable = Holder(), st.Variable(np.ones(2))
    by_attribute, by_name = st.function(lambda x: st.sum(held.data) * x), st.function(lambda x: st.sum(variable) * x)
    for n in (2, 3):
        held.data, variable = np.ones(n), st.Variable(np.ones(n))
        assert by_attribute(1.0) == by_name(1.0) == n
    for function in (by_attribute, by_name):
        assert "has shape (3,); the last trace had (2,). Sizes of captured arrays" in function.why_traced()


def halves(x):
    if x.shape[0] <= 1:
        return st.sum(x)
    h = x.shape[0] // 2
    return halves(x[:h]) + halves(x[h:])


def test_endless_expressions_of_sizes_end() -> None:
    _compare(lambda x: halves(x) + 1.0, (3,), (5,), (8,), (13,))


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
