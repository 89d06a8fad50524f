"""`if`, conditional expressions, and what names hold after them."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import CarriedValueError, StagedValueError, StagingError, UnboundNameError
from tests.frontend.harness import Case, agree, checks_of, ir, ops

X = np.arange(3, dtype=np.float32)


def test_static_condition_decides_while_staging() -> None:
    def f(x, flag):
        if flag:
            return x + 1.0
        return x - 1.0

    assert "if" not in ops(ir(f, X, True))
    agree(f, X, True)
    agree(f, X, False)


def test_staged_condition_becomes_an_if_that_joins_names() -> None:
    def f(x, n):
        y = x
        if n > 3:
            y = x + 1.0
            z = y * 2.0
        else:
            z = x
        return y, z

    assert ops(ir(f, X, 4)).count("if") == 1
    agree(f, X, 4)
    agree(f, X, 2)


def test_numbers_that_differ_by_branch_become_staged() -> None:
    def f(n):
        if n > 3:
            k = 1
        elif n > 1:
            k = 2.5
        else:
            k = True
        return k

    for n in (5, 2, 0):
        agree(f, n)


def test_static_that_is_the_same_in_both_branches_stays_static() -> None:
    def f(x, n):
        name = "a"
        if n > 3:
            size = 3
            name = "b"
        else:
            size = 3
            name = "b"
        return x.reshape((size, 1)), name

    assert agree(f, X, 4)[1] == "b"


def test_name_bound_in_one_branch_is_an_error_where_it_is_read() -> None:
    def f(x, n):
        if n > 3:
            y = x
        n = n + 1
        return y

    with pytest.raises(UnboundNameError, match="`y` is not bound on every path through the `if` at line") as caught:
        ir(f, X, 4)
    assert caught.value.where.text == "return y"


def test_name_bound_in_one_branch_and_never_read_is_fine() -> None:
    def f(x, n):
        if n > 3:
            unused = x * 2.0
            x = unused + 1.0
        return x

    agree(f, X, 4)
    agree(f, X, 1)


def test_shapes_that_differ_by_branch_are_an_error_that_names_the_variable() -> None:
    def f(x, n):
        y = x
        if n > 3:
            y = x.sum()
        return y

    with pytest.raises(CarriedValueError, match=r"`y` is f32 \(\) in the first branch and f32 \(3,\) in the other"):
        ir(f, X, 4)


def test_strings_that_differ_by_branch_are_an_error() -> None:
    def f(n):
        name = "small"
        if n > 3:
            name = "large"
        return name

    with pytest.raises(CarriedValueError, match="`name` is the value 'large'"):
        ir(f, 4)


def test_early_return_meets_the_rest_as_a_value() -> None:
    def f(x, n):
        if n > 3:
            return x
        y = x * 2.0
        if n > 1:
            return y
        return y + 1.0

    assert "scope" not in ops(ir(f, X, 4))
    for n in (5, 2, 0):
        agree(f, X, n)


def test_return_in_one_branch_only_is_an_error() -> None:
    def f(x, n):
        if n > 3:
            return x

    with pytest.raises(StagingError, match="missing return"):
        ir(f, X, 4)


def test_condition_of_an_array_is_refused() -> None:
    def f(x):
        if x > 1.0:
            return x
        return -x

    with pytest.raises(StagedValueError, match=r"a condition needs one truth value, .* has shape \(3,\)"):
        ir(f, X)


def test_number_as_condition() -> None:
    def f(n, x):
        if n:
            return x + 1.0
        return x

    agree(f, 0, 2.0)
    agree(f, 3, 2.0)


def test_conditional_expression() -> None:
    def f(x, n):
        y = x if n > 2 else -x
        z = 1 if n > 3 else 2.0
        w = "a" if True else "b"
        return y, z, w

    for n in (1, 3, 5):
        agree(f, X, n)


def test_nested_ifs_and_trees() -> None:
    def f(x, n):
        state = {"a": x, "n": 0}
        if n > 2:
            if n > 4:
                state = {"a": x * 2.0, "n": 1}
            else:
                state = {"a": x * 3.0, "n": 0}
        return state

    for n in (1, 3, 5):
        agree(f, X, n)


def test_structure_that_differs_by_branch_is_an_error() -> None:
    def f(x, n):
        pair = (x, x)
        if n > 2:
            pair = (x,)
        return pair

    with pytest.raises(CarriedValueError, match="the structure differs"):
        ir(f, X, 3)


def test_raise_in_a_branch_is_recorded() -> None:
    def f(x, n):
        if n < 0:
            raise ValueError(f"n is {n}")
        return x

    text = ir(f, X, 3)
    assert "raise(n) {kind='value', parts=('n is ', (0, '', ''))}" in text
    agree(f, X, 3)


def test_both_branches_raise_ends_the_program() -> None:
    def f(x, n):
        if n < 0:
            raise ValueError("negative")
        else:
            raise IndexError("not negative")
        return x

    assert ops(ir(f, X, 3)).count("raise") == 5  # two ops, and the ends of three blocks


def test_constant_made_in_the_branch_that_goes_on() -> None:
    def f(x, n):
        for i in st.range(n):
            if i > 2:
                break
            else:
                k = st.asarray(2.0)
            x = x * k
        return x

    agree(f, X, 5)


# ---- sample programs ----------------------------------------------------------------------------


def branches_of_every_kind(x, n):
    y = x * 1.0
    if n > 3:
        y = y * 2.0
        count = 1
    elif n > 1:
        if x.sum() > 2.0:
            y = y + x
            count = 2
        else:
            count = 3
    elif n == 1:
        count = 4
        y = y * y
    else:
        y = x.sum() * x
        count = 5
    if count > 2:
        y = y - 1.0
    return y, count


def swap_by_branch(x, n):
    a, b = x, x * x
    if n > 2:
        a, b = b, a
    if n > 3:
        a = a + b
    return a - 2.0 * b


def elements_set_in_branches(x, n):
    y = x * 1.0
    if n > 2:
        y[0] = x[1] * x[2]
    else:
        y[1:3] += x[0]
    if n == 0:
        y[n] = 7.0
    return y


def variable_in_branches(x, n):
    state = st.Variable(x * 2.0)
    if n > 2:
        state.value = state.value * x
        if n > 4:
            state.value = state.value + 1.0
    else:
        n = n + 10
    return state.value * n


def returns_in_branches(x, n):
    if n > 4:
        if x[0] > 0.0:
            return x * 2.0
        elif x[1] > 0.0:
            return x * x
    elif n == 0:
        return -x
    return x + n


def raises_in_a_branch(x, n):
    if n < 0:
        raise ValueError(f"n is {n}")
    elif n > 5:
        raise IndexError("too large")
    return x * n


Y = np.array([-0.5, 2.0, 1.5], np.float32)
VALUES = [(Y, 0), (Y, 1), (Y, 2), (Y, 3), (Y, 5), (-Y, 2), (-Y, 5)]
CASES = [
    Case(branches_of_every_kind, VALUES, wrt=(0,)),
    Case(swap_by_branch, VALUES, wrt=(0,)),
    Case(elements_set_in_branches, VALUES, wrt=(0,)),
    Case(variable_in_branches, VALUES, wrt=(0,)),
    Case(returns_in_branches, VALUES, wrt=(0,)),
    Case(raises_in_a_branch, [(Y, 2), (Y, -1), (Y, 7)], wrt=(0,)),
]

test_programs, test_gradients = checks_of(CASES)
