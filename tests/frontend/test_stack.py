"""`st.Stack`: values collected in staged loops, up to a bound."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import CarriedValueError, DTypeError, ShapeError
from tests.frontend.harness import Case, check_refusal, checks_of

X = np.array([1.0, 2.0, 3.0])


class List(list):  # type: ignore[type-arg]
    """The meaning of a Stack in plain Python."""

    def __init__(self, like: Any, max: int) -> None:
        super().__init__()
        self.like, self.max = like, max

    def append(self, value: Any) -> None:
        if len(self) == self.max:
            raise OverflowError("full")
        super().append(value)

    def array(self) -> Any:
        out = np.zeros((self.max, *np.shape(self.like)))
        for index, value in enumerate(self):
            out[index] = value
        return out


def _meaning(function: Any) -> Any:
    """`function` on lists."""

    def plain(*args: Any) -> Any:
        original = st.Stack
        st.Stack = List  # type: ignore[assignment,misc]
        try:
            return function(*args)
        finally:
            st.Stack = original  # type: ignore[misc]

    return plain


def append_in_a_loop(x: Any, n: Any) -> Any:
    rows = st.Stack(x, max=5)
    for i in range(n):
        x = x * 0.5
        rows.append(x + i)
    return rows.array(), len(rows)


def append_where_a_condition_holds(x: Any, n: Any) -> Any:
    found = st.Stack(x[0], max=4)
    for i in range(n):
        if x[i % 3] * i > 1.5:
            found.append(x[i % 3] * i)
            if len(found) == 3:
                break
    total = x[0] * 0.0
    for value in found:
        total += value * value
    return total, len(found), found.array()


def read_write_pop(x: Any, n: Any) -> Any:
    rows = st.Stack(x, max=8)
    rows.append(x)
    rows.append(x * 2.0)
    for i in range(n):
        rows.append(rows[-1] + rows[i])
        rows[i] = rows[0] * 0.5
    last = rows.pop()
    total = last * 0.0
    for k, row in enumerate(rows):
        total = total + row * (k + 1)
    return total, last, rows[len(rows) - 1], rows[0], rows.array()


def work_list(x: Any, n: Any) -> Any:
    """Halves of an interval, depth first: a recursion by hand."""
    todo = st.Stack((x[0], 0), max=16)
    todo.append((x[1], n))
    total, steps = x[2] * 0.0, 0
    while todo:
        value, depth = todo.pop()
        steps += 1
        if depth == 0:
            total += value * value
        else:
            todo.append((value * 0.5, depth - 1))
            todo.append((value + x[0], depth - 1))
    return total, steps, len(todo)


def nested_loops_and_two_stacks(x: Any, n: Any) -> Any:
    evens, odds = st.Stack(x[0], max=10), st.Stack(x[0], max=10)
    for i in range(n):
        for j in range(i):
            if (i + j) % 2 == 0:
                evens.append(x[j] * i)
            else:
                odds.append(x[j] + j)
        if len(odds) > len(evens):
            odds.pop()
    return evens.array(), odds.array(), len(evens), len(odds)


def passed_to_helpers(x: Any, n: Any) -> Any:
    def fill(rows: Any, count: Any) -> None:
        for i in range(count):
            rows.append(x[i] * 2.0)

    rows = st.Stack(x[0], max=6)
    same = rows
    fill(rows, n)
    fill(same, 2)
    return same.array(), len(rows), bool(rows)


def overflows(x: Any, n: Any) -> Any:
    rows = st.Stack(x, max=3)
    for i in range(n):
        rows.append(x * i)
    return rows.array()


def empty_pop(x: Any, n: Any) -> Any:
    rows = st.Stack(x, max=3)
    rows.append(x)
    for _ in range(n):
        x = x + rows.pop()
    return x


def out_of_range(x: Any, n: Any) -> Any:
    rows = st.Stack(x, max=5)
    for i in range(3):
        rows.append(x * i)
    return rows[n]


def numbers(x: Any, n: Any) -> Any:
    squares, flags = st.Stack(0, max=6), st.Stack(True, max=6)
    for i in range(n):
        squares.append(i * i)
        flags.append(i % 2 == 0)
    total = 0
    for square, flag in zip(squares, flags):  # noqa: B905
        if flag:
            total += square
    return total, squares[-1], len(flags)


CASES = [
    Case(append_in_a_loop, [(X, 3), (X, 5), (X, 0)], (0,)),
    Case(append_where_a_condition_holds, [(X, 9), (X, 2)], (0,)),
    Case(read_write_pop, [(X, 4)], (0,)),
    Case(work_list, [(X, 3), (X, 0)], (0,)),
    Case(nested_loops_and_two_stacks, [(X, 4)], (0,)),
    Case(passed_to_helpers, [(X, 3), (X, 0)], (0,)),
    Case(overflows, [(X, 3), (X, 4)], (0,)),
    Case(empty_pop, [(X, 1), (X, 2)], (0,)),
    Case(out_of_range, [(X, 2), (X, -3), (X, 3), (X, -4)], (0,)),
    Case(numbers, [(X, 5)]),
]
CASES = [dataclasses.replace(case, meaning=_meaning(case.function)) for case in CASES]

test_programs, test_gradients = checks_of(CASES)


def test_a_full_stack_names_the_line() -> None:
    with pytest.raises(OverflowError, match=r"the stack is full: it holds at most 3 elements \(`max=3`\)") as caught:
        st.function(overflows)(X, 4)
    assert "rows.append(x * i)" in str(caught.value)
    with pytest.raises(IndexError, match="index 7 is out of range for a stack of 3 elements"):
        st.function(out_of_range)(X, 7)
    with pytest.raises(IndexError, match="pop from an empty stack"):
        st.function(empty_pop)(X, 5)


def test_a_stack_goes_in_and_out() -> None:
    @st.function
    def grow(stack: Any, x: Any) -> Any:
        for i in st.range(2):
            stack.append(x * i)
        return stack

    stack = grow(st.Stack(X, max=6), X)
    stack = grow(stack, X + 1.0)
    assert isinstance(stack, st.Stack)
    assert (len(stack), stack.max) == (4, 6)
    np.testing.assert_array_equal(stack.array()[:4], [X * 0, X, (X + 1) * 0, X + 1])
    assert repr(stack) == "Stack(4 of at most 6: f64 (3,))"
    assert [float(np.asarray(row)[0]) for row in stack] == [0.0, 1.0, 0.0, 2.0]


def test_elements_that_are_trees() -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        log = st.Stack({"loss": x[0], "at": x}, max=4)
        for i in st.range(n):
            log.append({"loss": x[0] * i, "at": x + i})
        return log.array(), log[n - 1]["at"]

    rows, last = f(X, 3)
    np.testing.assert_array_equal(rows["loss"], [0.0, 1.0, 2.0, 0.0])
    np.testing.assert_array_equal(last, X + 2)


def test_appends_in_a_loop_copy_nothing() -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        rows = st.Stack(x, max=1000)
        for i in st.range(n):
            rows.append(x * i)
        return rows.array()

    source = f.stage(X, 3).source
    assert "memcpy" not in source.split("entry points")[1]


@pytest.mark.parametrize(
    ("program", "error", "message", "hint"),
    [
        (lambda x, n: st.Stack(x), st.StagingError, "a Stack without a bound", "st.Stack(like, max=1000)"),
        (lambda x, n: st.Stack(x, max=n), st.StagedValueError, "known while staging", "static"),
        (lambda x, n: st.Stack(x, max=0), st.StagingError, "at least 1", ""),
        (lambda x, n: st.Stack(x, max=2).append(x[:2]), ShapeError, "is f64 (3,), got f64 (2,)", "st.Stack(x, max=2)"),
        (lambda x, n: st.Stack(n, max=2).append(x[0]), DTypeError, "an element of this Stack is i64 (), got f64 ()", "cast it"),
        (lambda x, n: st.Stack(x, max=2).append((x, x)), CarriedValueError, "has the structure of", "the same keys"),
        (lambda x, n: st.Stack(x, max=2)[0:1], st.StagingError, "indexed by one integer", "stack.array()"),
        (lambda x, n: list(_filled(x, n)), st.StagedValueError, "known while staging", "write a `for` statement"),
    ],
)
def test_refusals(program: Any, error: Any, message: str, hint: str) -> None:
    check_refusal(program, (X, 3), error, message, hint)


def _filled(x: Any, n: Any) -> Any:
    rows = st.Stack(x, max=5)
    for _ in st.range(n):
        rows.append(x)
    return rows
