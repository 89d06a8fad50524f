# ruff: noqa: B007  (programs of users name their loop variables)
"""`while`: static, staged, endless, with compound conditions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import staged as st
from staged.errors import CarriedValueError
from staged.frontend.trace import trace
from tests.frontend.harness import agree, interpret, ir, ops

X = np.arange(1, 4, dtype=np.float32)


def test_static_condition_runs_while_staging() -> None:
    def f(x):
        k = 0
        while k < 3:
            x = x * 2.0
            k += 1
        return x

    assert "while" not in ops(ir(f, X))
    agree(f, X)


def test_staged_condition_is_a_loop() -> None:
    def f(x, limit):
        total = x.sum()
        count = 0
        while total < limit:
            total = total * 2.0
            count += 1
        return total, count

    assert ops(ir(f, X, 100.0)).count("while") == 1
    agree(f, X, 100.0)
    agree(f, X, 1.0)


def test_condition_that_turns_staged_makes_the_whole_loop_staged() -> None:
    def f(x):
        error = 1.0
        steps = 0
        while error > 0.01:
            error = error * x.min() * 0.25
            steps += 1
        return error, steps

    text = ir(f, X)
    assert ops(text).count("while") == 1
    assert ops(text).count("multiply") == 2, "no iteration is peeled off"
    agree(f, X)


def test_endless_loop_is_left_by_its_exits() -> None:
    def f(n):
        i = 0
        while True:
            i += 1
            if i > n:
                break
            if i % 2 == 0:
                continue
            i += 2
        return i

    assert "break @while" in ir(f, 7)
    agree(f, 7)


def test_compound_condition_is_one_expression_where_nothing_can_fail() -> None:
    def f(x, n):
        i = 0
        while i < n and x.sum() < 100.0 or i == 0:
            x = x * 2.0
            i += 1
        return x, i

    assert "if" not in ops(ir(f, X, 9))
    agree(f, X, 9)
    agree(f, X, 2)


def test_compound_condition_guards_what_can_fail() -> None:
    def f(x, n):
        i = 0
        while i < n and x[i] < 3.0:
            i += 1
        return i

    assert "if" in ops(ir(f, X, 3)), "x[i] is not evaluated where i is out of range"
    agree(f, X, 3)
    agree(f, X, 1)


def test_walrus_in_the_condition() -> None:
    def f(x, n):
        total = 0.0
        while (step := x.sum() + total) < n:
            total = total + step
        return total

    agree(f, X, 60)


def test_while_in_while_with_static_names_that_turn_staged() -> None:
    def f(n):
        total = 0
        i = 0
        while i < n:
            j = 0
            while j < i:
                total += j
                j += 1
            i += 1
        return total, i

    agree(f, 6)


def test_return_in_an_endless_loop() -> None:
    def f(n):
        i = 0
        while True:
            i += 3
            if i > n:
                return i

    agree(f, 7)


def test_carried_value_that_changes_dtype_is_an_error() -> None:
    def f(n):
        k = st.astype(n, st.i32)
        while k < 10:
            k = k * 1.5
        return k

    with pytest.raises(CarriedValueError, match=r"`k` is i32 \(\) before the loop and f32 \(\) after an iteration"):
        ir(f, 3)


def test_dataclass_and_dict_state() -> None:
    def f(x, n):
        state = {"x": x, "k": 0, "name": "s"}
        while state["k"] < n:
            state = {**state, "x": state["x"] * 2.0, "k": state["k"] + 1}
        return state["x"], state["name"]

    agree(f, X, 3)


def test_staging_is_not_repeated_for_inner_loops() -> None:
    turns = itertools.count()

    def f(x, n):
        for i in st.range(n):
            total = 0.0
            for j in st.range(n):
                next(turns)
                total += x.sum()
            x = x + total
        return x

    ir(f, X, 3)
    assert next(turns) <= 3
    np.testing.assert_allclose(interpret(trace(f, (X, 2))), f(X, 2))
