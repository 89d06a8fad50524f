"""`and`, `or`, `not`, chained comparisons, `in`, and the builtins that answer with a truth value."""

from __future__ import annotations

import collections
import operator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import StagedValueError, UnboundNameError
from tests.frontend.harness import agree, ir, ops

X = np.arange(1, 4, dtype=np.float32)


def test_values_of_and_or() -> None:
    def f(a, b):
        return (a > 1 and b > 1), (a > 1 or b > 1), not a > b, (a and b), (a or b)

    for a in (0, 1, 3):
        for b in (0, 2):
            agree(f, a, b)


def test_static_side_decides_while_staging() -> None:
    def f(a, flag):
        if flag and a > 1:
            return a
        if flag or a > 5:
            return a + 1
        return a + 2

    agree(f, 3, True)
    agree(f, 3, False)
    agree(f, 9, False)


def test_right_side_that_prints_is_a_branch() -> None:
    def loud(a):
        print("asked")
        return a > 2

    def f(a):
        return a > 1 and loud(a)

    names = ops(ir(f, 3))
    assert names.index("if") < names.index("print")


def test_chained_comparison() -> None:
    def f(a, b):
        return 0 < a < b <= 9, a == b != 3

    for a, b in ((1, 2), (2, 1), (3, 12), (4, 4)):
        agree(f, a, b)


def test_membership() -> None:
    def f(a):
        return a in (1, 3, 5), a not in [2, 4], "x" in {"x": 1}

    agree(f, 3)
    agree(f, 4)


def test_truth_builtins() -> None:
    def f(x, a):
        return any([a > 3, a < 0]), all([a > 3, a > 1]), bool(a), any(x > 2.5), isinstance(a, int)

    agree(f, X, 2)
    agree(f, X, 5)


def test_array_and_array_is_refused() -> None:
    def f(x):
        return x > 1 and x < 3

    with pytest.raises(StagedValueError, match="a condition needs one truth value"):
        ir(f, X)


def test_bool_outside_the_front_ends_reach_is_refused() -> None:
    def f(x):
        return [v for v in (1, 2) if x.sum() > v]

    with pytest.raises(StagedValueError, match=r"cannot take bool\(\) of"):
        ir(f, X)


def test_a_name_bound_behind_and_is_bound_where_python_binds_it() -> None:
    def bound_before(n):
        y, k = 7, 0
        if n > 0 and (y := n) > 1:
            k = y * 10
        return y, k, n > 0 and (y := n + 1) > 1, n > 3 or (y := y + 1) > 1, y

    def bound_in_the_body(n):
        if n > 0 and n < 9 and (y := n) > 1:
            return y * 10
        return n

    def with_an_else(n):
        y = 1
        if n > 0 and (y := n * n) > 1:
            n = n + y
        else:
            n = n - y
        return n, y

    def in_a_loop(n):
        y = 0
        while n > 0 and (y := n * 2) > 4:
            n = n - 1
        return n, y, 0 < n < (y := y + 3), y

    def in_an_expression(n):
        y = 5
        return (y * 2 if n > 0 and (y := n) > 1 else y), y

    def unbound_after(n):
        if n > 0 and (y := n) > 1:
            n = n + y
        return y

    for n in (-1, 0, 1, 2, 5, 11):
        for f in (bound_before, bound_in_the_body, with_an_else, in_a_loop, in_an_expression):
            agree(f, n)
    with pytest.raises(UnboundNameError, match="`y` is not bound on every path through the `if`"):
        ir(unbound_after, 3)


def test_in_compares_elements_whatever_holds_them() -> None:
    def f(a):
        inside = a in {2, 3}, a in frozenset((2.0, 5.0)), a in {2: "x", 7: "y"}, a in {1: 2, 2: 1}.values()
        outside = a not in {2, 3}, a in {"a": 1}, a in ("b", None, 7), a in [[2], (2,)], a in set(), a in collections.deque([7])
        return inside, outside, None in (a, None)

    for a in (2, 7, 4, 2.0):
        agree(f, a)


def _key(n):
    return len({n: 1, 2: 5})


def _member(n):
    return len({n, 2})


def _changed_set(n):
    members = {2}
    members.add(n)
    return len(members)


def _looked_up(n):
    return {2: 7}.get(n, 0)


@pytest.mark.parametrize("function", [_key, _member, _changed_set, _looked_up])
@pytest.mark.parametrize("is_eager", [False, True])
def test_keys_and_members_are_known_while_staging(function: Any, is_eager: bool) -> None:
    with st.eager() if is_eager else nullcontext(), pytest.raises(StagedValueError, match="cannot hash") as caught:
        st.function(function)(2)
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert "keys of dicts and members of sets" in str(caught.value)


def _found_once(x):
    flag, count = False, 0
    for _ in st.range(3):
        if flag is False:
            count, flag = count + 1, True
        else:
            count += 10
    return count


def _until_done(x):
    n, done = 0, False
    while done is not True:
        n += 1
        done = n > 4
    return n


def _all_positive(x):
    return 1 if bool(st.all(x > 0)) is True else 2


def _by_function(x):
    return 1 if operator.is_not(st.all(x > 0), True) else 2


def _chained(x):
    return 1 if (x[0] > 0) is True is not False else 2


def _array_is_true(x):
    return 1 if x is True else 2


def _array_is_none(x):
    return 1 if x is None or x is Ellipsis or type(x) is float else 2


@pytest.mark.parametrize(
    ("function", "result"),
    [(_found_once, 21), (_until_done, 5), (_all_positive, 1), (_by_function, 2), (_chained, 1), (_array_is_true, 2),
     (_array_is_none, 2)],
)  # fmt: skip
def test_a_value_is_true_if_it_is_equal_to_true(function: Any, result: int) -> None:
    assert st.function(function)(X) == result
    with st.eager():
        assert st.function(function)(X) == result


@pytest.mark.parametrize("compare", [lambda x: st.sum(x) is 0, lambda x: x[0] is x[1], lambda x: 1.0 is not x[0]])  # noqa: F632
def test_values_have_no_identity(compare: Any) -> None:
    with pytest.raises(StagedValueError, match="`==`"):
        st.function(lambda x: 1 if compare(x) else 2)(X)
