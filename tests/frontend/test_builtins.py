"""`len`, `min`, `max`, `abs`, `sum`, `any`, `all`, `sorted` on staged values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from tests.frontend.harness import Case, check_refusal, checks_of

X = np.array([1.5, -2.0, 3.25])


def extremes(x: Any, n: Any) -> Any:
    return min(x), max(x), max(x[0], x[1]), min(x[2], 1.0), max(n, 2), min(n, 3, -1), max([x[0], x[2]]), min((n, 7))


def extremes_by_key(x: Any, n: Any) -> Any:
    return (
        max(x[0], x[1], key=abs),
        min([x[1], x[0], x[2]], key=lambda v: (v - 1.0) ** 2),
        max(x, key=lambda v: -v),
        max(2, 5, 3, key=lambda v: v % 3),
        max([], default=n),
        min((i for i in (3, 1, 2)), default=n),
        max([n, n + 1], key=lambda v: v * 0),
    )


def totals(x: Any, n: Any) -> Any:
    return (
        sum(x),
        sum([x[0], n, 1]),
        sum(x[i] * i for i in range(3)),
        sum([x, x], x),
        sum([]),
        sum([1, 2], n),
        len(x),
        abs(-x),
    )


def truths(x: Any, n: Any) -> Any:
    return (
        any(x > 2), all(x > 0), any([n > 3, x[0] > 9]), all([n > 3, x[0] > 0]), any(v > 3 for v in x),
        all(v > -5 for v in x), any([]), all([]),
    )  # fmt: skip


def of_a_matrix(m: Any) -> Any:
    return len(m), abs(m), sum(m), sum(row.sum() for row in m), max(row[0] for row in m), len([*m])


def clipped(x: Any, n: Any) -> Any:
    total = 0.0
    for v in x:
        total += max(min(v, 2.0), -1.0) * abs(v)
    return total


def sorted_statics(x: Any, n: Any) -> Any:
    table = {"b": x[0], "a": x[1]}
    return [table[key] for key in sorted(table)], sorted([3, 1, 2], reverse=True), sorted(table.items())[0][1]


CASES = [
    Case(extremes, [(X, 4), (-X, 2)], (0,)),
    Case(extremes_by_key, [(X, 4), (-X, 2)], (0,)),
    Case(totals, [(X, 4)], (0,)),
    Case(truths, [(X, 4), (-X, 2)]),
    Case(of_a_matrix, [(np.arange(6.0).reshape(3, 2) - 2.5,)], (0,)),
    Case(clipped, [(X, 0)], (0,)),
    Case(sorted_statics, [(X, 4)], (0,)),
]

test_programs, test_gradients = checks_of(CASES)


@pytest.mark.parametrize(
    ("program", "args", "message", "hint"),
    [
        (lambda x: sorted(x), (X,), "`sorted` of staged values cannot be staged", "min(a, b), max(a, b)"),
        (lambda x: sorted([1, 2], key=lambda i: x[i]), (X,), "`sorted` of staged values", "min(a, b), max(a, b)"),
        (lambda x: max(x), (np.ones((2, 2)),), "`max` takes several numbers or an array of one dimension", "st.max(x)"),
        (lambda x: min(x), (2.0,), "`min` takes several numbers or an array of one dimension", "st.min(x)"),
        (lambda x: len(x), (2.0,), "first dimension", ""),
    ],
)
def test_refusals(program: Any, args: Any, message: str, hint: str) -> None:
    check_refusal(program, args, st.StagedError, message, hint)


@pytest.mark.parametrize(
    "look", [lambda: globals(), lambda: locals(), lambda: dir(), lambda: vars(), lambda: eval("TABLE")]
)
def test_builtins_that_look_at_the_frame_of_their_caller_are_refused_in_eager_mode_too(look: Any) -> None:
    staged = st.function(lambda x: x * len(look()))
    with pytest.raises(st.StagingError, match="would look at other code|cannot be staged"):
        staged.stage(X)
    with st.eager(), pytest.raises(st.StagingError, match="would look at other code"):
        staged(X)


class Order:
    sign = -1.0

    def key(self, value: Any) -> Any:
        return value * self.sign


def test_a_method_orders_what_is_sorted() -> None:
    order = Order()

    def f(x):
        high, low = sorted([1.0, 2.0], key=order.key)
        (first, *_) = map(order.key, [high])
        return x * high - low, x * first, x * max([1.0, 2.0], key=order.key)

    with st.eager():
        in_python = st.function(f)(X)
    for results in (in_python, st.function(f)(X)):
        for given, right in zip(results, [X * 2.0 - 1.0, X * -2.0, X * 1.0], strict=True):
            np.testing.assert_array_equal(given, right)


TABLE = np.zeros(3)


def test_asarray_of_an_array_of_numpy_is_that_array() -> None:
    """The result of `np.asarray` is filled with the array, and read anew when the program runs again, as in plain Python."""

    def f(x):
        table = np.zeros(3)
        np.asarray(table).fill(7.0)
        np.array(table).fill(5.0)
        return x + table, x + np.asarray(TABLE), np.asarray([x[0], 1.0], dtype=np.float64)

    program = st.function(f).stage(X)
    TABLE[:] = 1.0
    with st.eager():
        in_python = st.function(f)(X)
    for results in (in_python, program(X)):
        for given, right in zip(results, [X + 7.0, X + 1.0, [X[0], 1.0]], strict=True):
            np.testing.assert_array_equal(given, right)
