# ruff: noqa: B007
"""`break`, `continue` and early `return`, in loops and branches, nested."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError
from tests.frontend.harness import Case, checks_of, ir

X = np.array([0.5, 2.0, -1.0, 3.0], np.float32)
M = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(4, 3)


def break_before_and_after_work(x, limit):
    total = 0.0
    for i in st.range(4):
        if x[i] > limit:
            break
        total = total + x[i]
        if total < -limit:
            total = total * 2.0
            break
    return total


def continue_skips_the_rest(x, limit):
    total = 0.0
    count = 0
    for i in st.range(4):
        if x[i] < limit:
            continue
        count += 1
        total = total + x[i] * count
    return total, count


def break_and_continue_in_both_branches(x, limit):
    total = x.sum() * 0.0
    for i in st.range(4):
        if x[i] > limit:
            total = total + x[i]
            if i > 2:
                break
            else:
                continue
        elif x[i] < -limit:
            total = total - 2.0 * x[i]
            continue
        else:
            break
    return total


def nested_loops_with_exits_in_each(m, limit):
    total = 0.0
    for i in st.range(4):
        if m[i, 0] > limit:
            break
        for j in st.range(3):
            if m[i, j] < -limit:
                continue
            total = total + m[i, j] * (j + 1)
            if total > limit * 4.0:
                break
        if total > limit * 3.0:
            continue
        total = total * 0.5
    return total


def return_out_of_two_loops(m, limit):
    total = 0.0
    for i in st.range(4):
        for j in st.range(3):
            total = total + m[i, j]
            if total > limit:
                return total * 100.0
    return total


def return_at_every_level(m, limit):
    if limit < -5.0:
        return m.sum()
    total = m[0, 0]
    for i in st.range(4):
        if m[i, 1] > limit:
            return total
        k = 0
        while k < 3:
            total = total + m[i, k]
            if total > 2.0 * limit:
                return total * total
            k += 1
        if total < -limit:
            break
    else:
        return total * 0.25
    if total > -10.0:
        return total - 1.0
    return total + 1.0


def return_in_a_helper_called_in_a_loop(x, limit):
    def clipped(value, count):
        for k in st.range(count):
            if value > limit:
                return value - limit
            value = value * 1.5
        return value

    total = 0.0
    for i in st.range(4):
        part = clipped(x[i], i)
        if part < 0.0:
            continue
        total = total + part
    return total


def return_of_trees(x, limit):
    best = {"value": x[0], "where": (0, x)}
    for i in st.range(4):
        if x[i] > limit:
            return {"value": x[i], "where": (i, x * 2.0)}
        best = {"value": best["value"] + x[i], "where": (i, x)}
    return best


def return_without_a_value(x, limit):
    for i in st.range(4):
        if x[i] > limit:
            print(f"found {x[i]:.1f} at {i}")
            return
        print(i)
    print("not found")


def while_true_with_three_exits(x, limit):
    i = 0
    value = x[0]
    while True:
        i += 1
        if i > 20:
            return -value
        if i % 3 == 0:
            continue
        value = value * 1.1 + x[1] * 0.1
        if value > limit:
            break
    return value + i


def while_true_left_by_return_only(x, limit):
    value = x[1]
    while True:
        value = value * 1.5
        if value > limit:
            return value


def exits_of_unrolled_loops(x, limit):
    total = 0.0
    for k in range(4):
        for j in range(2):
            if x[k] * (j + 1) > limit:
                break
            if x[k] < 0.0:
                continue
            total = total + x[k]
        if total > 10.0 * limit:
            return total
        if total > limit:
            continue
        total = total + 1.0
    return total


def staged_in_unrolled_in_staged(x, limit):
    total = 0.0
    for i in st.range(3):
        for k in range(2):
            for j in st.range(i + 1):
                if x[j] > limit:
                    break
                if k == 1:
                    continue
                total = total + x[j] * (k + 1)
            if total > 4.0:
                break
        else:
            total = total + 0.25
    return total


def loop_variable_after_break(x, limit):
    i = -1
    for i in st.range(4):
        if x[i] > limit:
            break
    return i, x * 1.0


def exit_carries_several_values(x, limit):
    low, high, count = x[0], x[0], 0
    for i in st.range(1, 4):
        low, high = (x[i], low) if x[i] < low else (low, x[i])
        count += 1
        if high - low > limit:
            low = low - 1.0
            break
    return low, high, count


def break_with_variable_state(x, limit):
    state = st.Variable(x * 0.0)
    for i in st.range(4):
        state.value = state.value + x * (i + 1)
        if state.value.sum() > limit:
            break
        state.value = state.value * 0.5
    return state.value


def exits_in_with(x, limit):
    total = 0.0
    for i in st.range(4):
        with contextlib.nullcontext(2.0) as scale:
            if x[i] > limit:
                break
            total = total + x[i] * scale
    return total


def static_exits_in_finally(x, limit):
    total = 0.0
    for i in st.range(4):
        try:
            total = total + x[i] * limit
            if x.shape == (4,):
                continue
            total = total * 100.0
        finally:
            total = total + 0.125
    return total


LIMITS = [(X, 1.1), (X, 2.6), (X, 10.2), (X, 0.3)]
GRIDS = [(M, 0.3), (M, 1.05), (M, 5.0), (M, -0.4)]
CASES = [
    Case(break_before_and_after_work, LIMITS, wrt=(0,)),
    Case(continue_skips_the_rest, LIMITS, wrt=(0,)),
    Case(break_and_continue_in_both_branches, LIMITS, wrt=(0,)),
    Case(nested_loops_with_exits_in_each, GRIDS, wrt=(0,)),
    Case(return_out_of_two_loops, GRIDS, wrt=(0,)),
    Case(return_at_every_level, [*GRIDS, (M, -9.0)], wrt=(0,)),
    Case(return_in_a_helper_called_in_a_loop, LIMITS, wrt=(0,)),
    Case(return_of_trees, LIMITS, wrt=(0,)),
    Case(return_without_a_value, LIMITS),
    Case(while_true_with_three_exits, LIMITS, wrt=(0,)),
    Case(while_true_left_by_return_only, LIMITS, wrt=(0,)),
    Case(exits_of_unrolled_loops, LIMITS, wrt=(0,)),
    Case(staged_in_unrolled_in_staged, LIMITS, wrt=(0,)),
    Case(loop_variable_after_break, LIMITS, wrt=(0,)),
    Case(exit_carries_several_values, LIMITS, wrt=(0,)),
    Case(break_with_variable_state, LIMITS, wrt=(0,)),
    Case(exits_in_with, LIMITS, wrt=(0,)),
    Case(static_exits_in_finally, LIMITS, wrt=(0,)),
]

test_programs, test_gradients = checks_of(CASES)


# ---- refused ------------------------------------------------------------------------------------


def test_staged_exit_out_of_a_try_with_finally_is_refused() -> None:
    def f(x, limit):
        total = 0.0
        for i in st.range(4):
            try:
                if x[i] > limit:
                    break
                total = total + x[i]
            finally:
                total = total + 0.125
        return total

    with pytest.raises(StagingError, match="`break` under a staged condition cannot leave a `try` with `finally`") as caught:
        ir(f, X, 1.0)
    assert caught.value.where.text == "if x[i] > limit:" and "before the exit" in caught.value.hint


def test_staged_exit_out_of_a_with_that_prints_as_it_ends_is_refused() -> None:
    @contextlib.contextmanager
    def announced():
        yield
        seen.value = seen.value + 1.0

    seen = st.Variable(0.0)

    def f(x, limit):
        for i in st.range(4):
            with announced():
                if x[i] > limit:
                    continue
        return x

    def fine(x, limit):
        for i in st.range(4):
            with announced():
                if x[i] > limit:
                    x = x + 1.0
        return x

    with pytest.raises(StagingError, match="`continue` under a staged condition cannot leave a `with` that does something"):
        ir(f, X, 1.0)
    ir(fine, X, 1.0)
