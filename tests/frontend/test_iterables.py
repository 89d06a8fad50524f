# ruff: noqa: B007, B905
"""The iterables of loops: steps of either sign, staged bounds, rows, `enumerate`, `zip`, `reversed`."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramValueError, ShapeError, StagedValueError, StagingError
from tests.frontend.harness import Case, checks_of, ir, ops

X = np.array([0.5, 2.0, -1.0, 3.0], np.float32)
M = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(4, 3)


def steps(x, start, stop, step):
    total = x[0]
    visited = 0
    for i in st.range(start, stop, step):
        visited = visited * 10 + i
        total = total * 1.1 + x[i % 4]
    return total, visited


def steps_by_plain_range(x, start, stop, step):
    total = x[0]
    for i in range(start, stop, step):
        total = total * 0.9 + x[i % 4]
    return total


def negative_steps(x, n):
    out = 0
    total = 0.0
    for i in st.range(n, -1, -1):
        out = out * 3 + i
        total = total * 0.5 + x[i]
    for i in st.range(n, 0, -2):
        out = out * 5 + i
        total = total - x[i]
    return out, total


def reversed_ranges(x, n):
    out = 0
    total = 0.0
    for i in reversed(st.range(n)):
        out = out * 7 + i
        total = total * 0.5 + x[i]
    for i in reversed(st.range(1, n, 2)):
        out = out * 3 + i
    for i in reversed(range(n, -3, -2)):
        out = out * 2 + i
    for i in reversed(st.range(n, 0, -1)):
        out = out * 2 + i
    return out, total


def bounds_that_change_in_the_loop(x, n):
    limit = n
    count = 0
    for i in st.range(limit):
        limit = limit + 3
        n = 0
        count += 1
    return count, limit, x.sum() * limit


def inner_bounds_from_outer_indices(x, n):
    total = 0.0
    for i in st.range(n):
        for j in st.range(i, 2 * i + 1, 2):
            total = total + x[j % 4] * (i + 1)
        for j in st.range(n - i, 0, -1):
            total = total * 0.95 + x[j % 4]
    return total


def rows(m):
    total = m[0] * 0.0
    for row in m:
        total = total * 0.5 + row * row
    return total


def reversed_rows(m):
    total = m[0] * 0.0
    for row in reversed(m):
        total = total * 0.5 + row * row
    return total


def elements_of_rows(m):
    total = 0.0
    for row in m:
        for element in row:
            if element < 0.0:
                continue
            total = total * 0.9 + element
    return total


def enumerated(x, n):
    total = 0.0
    for i, value in enumerate(x):
        total = total + value * i
    for i, k in enumerate(st.range(n, 2 * n, 2), 5):
        total = total + x[k % 4] * i
    for i, value in enumerate(reversed(x), start=n):
        total = total * 0.5 + value * i
    return total


def enumerated_rows(m):
    total = m[0] * 0.0
    for number, (first, second, third) in enumerate(m):
        total = total + m[number] * first - second * third
    return total


def zipped(x, m, n):
    total = 0.0
    for value, row in zip(x, m):
        total = total + value * row.sum()
    for i, value, k in zip(st.range(n), x, range(10, 100)):
        total = total * 0.9 + i * value * k
    for value, i in zip(x, st.range(4), strict=True):
        total = total + value / (i + 1)
    return total


def zip_of_different_lengths(x, n):
    count = 0
    total = 0.0
    for value, i in zip(x, st.range(0, n, 2)):
        count += 1
        total = total + value * i
    for a, b in zip(x[:2], x):
        count += 1
        total = total + a * b
    return count, total


def enumerated_zip(x, m):
    total = m[0] * 0.0
    for i, (value, row) in enumerate(zip(x, m)):
        if i == 2:
            continue
        total = total + value * row * (i + 1)
    return total


def zip_of_reversed(x, m):
    total = 0.0
    for value, row in zip(reversed(x), m):
        total = total + value * row[0]
    return total


def unpacked_tuples_and_stars(m):
    total = 0.0
    for first, *rest in m:
        total = total + first * rest[0] - rest[1]
    return total


def static_sequences(x):
    total = 0.0
    for i, (name, scale) in enumerate({"a": 1.0, "b": 2.0}.items()):
        total = total + x[i] * scale
    for value, scale in zip([x[0], x[1]], (2.0, 3.0)):
        total = total + value * scale
    for k in reversed([1, 2, 3]):
        total = total * k + x[k]
    return total


def empty(x):
    total = x.sum()
    for row in x[:0]:
        total = total + row
    for i in st.range(3, 3):
        total = total + x[i]
    return total


def zero_step(x, n):
    total = x[0]
    for i in st.range(0, 4, n):
        total = total + x[i]
    return total


def zero_step_of_a_range_that_is_not_used(x, n):
    counted = range(0, 4, n)
    return x * 2.0, len(counted)


def zero_step_in_a_zip(x, n):
    total = x[0]
    for value, i in zip(x, st.range(0, 8, n)):
        total = total + value * i
    return total


RANGES = [(X, 0, 5, 1), (X, 2, 9, 3), (X, 9, 2, -3), (X, 5, 5, 1), (X, 5, 2, 1), (X, 3, -1, -1), (X, 0, 7, 2)]
CASES = [
    Case(steps, [*RANGES, (X, 1, 5, 0)], wrt=(0,)),
    Case(steps_by_plain_range, [*RANGES, (X, 1, 5, 0)], wrt=(0,)),
    Case(negative_steps, [(X, 3), (X, 0)], wrt=(0,)),
    Case(reversed_ranges, [(X, 0), (X, 1), (X, 4)], wrt=(0,)),
    Case(bounds_that_change_in_the_loop, [(X, 0), (X, 3)], wrt=(0,)),
    Case(inner_bounds_from_outer_indices, [(X, 0), (X, 1), (X, 4)], wrt=(0,)),
    Case(rows, [(M,)], wrt=(0,)),
    Case(reversed_rows, [(M,)], wrt=(0,)),
    Case(elements_of_rows, [(M,)], wrt=(0,)),
    Case(enumerated, [(X, 0), (X, 3)], wrt=(0,)),
    Case(enumerated_rows, [(M,)], wrt=(0,)),
    Case(zipped, [(X, M, 0), (X, M, 3), (X, M, 9)], wrt=(0, 1)),
    Case(zip_of_different_lengths, [(X, 0), (X, 3), (X, 20)], wrt=(0,)),
    Case(enumerated_zip, [(X, M)], wrt=(0, 1)),
    Case(zip_of_reversed, [(X, M)], wrt=(0, 1)),
    Case(unpacked_tuples_and_stars, [(M,)], wrt=(0,)),
    Case(static_sequences, [(X,)], wrt=(0,)),
    Case(empty, [(X,)], wrt=(0,)),
    Case(zero_step, [(X, 1), (X, 3), (X, 0), (X, -1)], wrt=(0,)),
    Case(zero_step_of_a_range_that_is_not_used, [(X, 1), (X, 0)], wrt=(0,)),
    Case(zero_step_in_a_zip, [(X, 2), (X, 0)], wrt=(0,)),
]

test_programs, test_gradients = checks_of(CASES)


def test_the_loops_of_the_text_count_as_python_does() -> None:
    text = st.function(negative_steps).stage(X, 3).source
    assert "i > -1; --i)" in text and "i > 0; i -= 2)" in text
    text = st.function(reversed_ranges).stage(X, 3).source
    assert "i > -1; --i)" in text


def test_step_of_zero_is_pythons_value_error() -> None:
    with pytest.raises(ProgramValueError, match=r"range\(\) arg 3 must not be zero") as caught:
        st.function(zero_step)(X, 0)
    assert caught.value.where.text == "for i in st.range(0, 4, n):"
    with pytest.raises(ValueError, match=r"range\(\) arg 3 must not be zero"):
        ir(lambda x: [x for i in st.range(0, 3, 0)], X)


def test_zip_of_different_lengths_with_strict() -> None:
    def static(x, m):
        for value, other in zip(x, m[:3], strict=True):
            x = x + value
        return x

    def staged(x, n):
        for value, i in zip(x, st.range(n), strict=True):
            x = x + value
        return x

    with pytest.raises(ShapeError, match=r"zip\(\) argument 2 is shorter or longer than argument 1: 3 elements, not 4"):
        ir(static, X, M)
    program = st.function(staged)
    np.testing.assert_array_equal(program(X, 4), st.function(staged)(X, 4))
    for n in (3, 5):
        with pytest.raises(ProgramValueError, match=r"zip\(\) argument 2"):
            program(X, n)
        with st.eager(), pytest.raises(ValueError, match=r"zip\(\) argument"):
            program(X, n)


@pytest.mark.parametrize("made", [enumerate, lambda x: zip(x, x)])
def test_reversed_of_what_goes_one_way_only_is_refused(made) -> None:
    def f(x):
        for pair in reversed(made(x)):
            x = x + pair[1]
        return x

    with pytest.raises(StagingError, match="`reversed` cannot take"):
        ir(f, X)


def test_zip_with_a_list_is_refused_with_the_way_out() -> None:
    def f(x):
        for value, scale in zip(x, [1.0, 2.0, 3.0, 4.0]):
            x = x + value * scale
        return x

    with pytest.raises(StagingError, match="`zip` mixes a staged iterable with a list") as caught:
        ir(f, X)
    assert "make it an array" in caught.value.hint


def test_bounds_that_are_no_integers_are_refused() -> None:
    def f(x, n):
        for i in st.range(n):
            x = x + i
        return x

    with pytest.raises(StagedValueError, match="a range needs integer scalars"):
        ir(f, X, 2.5)

    def scalar(x):
        for value in x.sum():
            x = x + value
        return x

    with pytest.raises(ShapeError, match="cannot iterate over a scalar"):
        ir(scalar, X)


def test_a_zip_is_one_loop() -> None:
    assert ops(ir(enumerated_zip, X, M)).count("for") == 1
