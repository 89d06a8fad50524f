# ruff: noqa: B007  (programs of users: loop variables, and `else` on loops without `break`)
"""`else` on `for` and `while`: it runs unless a `break` has left the loop."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.frontend.harness import Case, checks_of, ir, ops

X = np.array([1.0, 4.0, 2.0, 8.0], np.float32)
M = np.arange(10, dtype=np.float32).reshape(5, 2) * 0.5


def without_a_break(x, n):
    for i in st.range(n):
        x = x * 1.5
    else:
        x = x + 1.0
    return x


def after_break(x, limit):
    total = 0.0
    for i in st.range(4):
        total = total + x[i]
        if total > limit:
            break
    else:
        total = total * 10.0
    return total


def bound_on_both_ways_only(x, limit):
    for i in st.range(4):
        if x[i] > limit:
            found = i
            value = x[i] * 2.0
            break
    else:
        found = -1
        value = x[0] * 0.5
    return found, value


def through_nested_branches(x, n, limit):
    state = x * 0.0
    for i in st.range(n):
        state = state + x * (i + 1)
        if i > 0:
            if state.sum() > limit:
                if state[0] > 100.0:
                    continue
                state = state - 1.0
                break
            elif i == 5:
                break
        else:
            state = state * 0.5
    else:
        state = state * 3.0
        if limit > 1e6:
            state = state + x
    return state


def is_prime(n):
    count = 0
    for candidate in st.range(2, n):
        for divisor in st.range(2, candidate):
            if candidate % divisor == 0:
                break
        else:
            count += 1
    return count


def break_in_the_else_leaves_the_outer_loop(x, limit):
    total = 0.0
    for i in st.range(6):
        for j in st.range(4):
            total = total + x[j]
            if total > limit * (i + 1):
                break
        else:
            total = total + 100.0
            if i > 1:
                break
            continue
        total = total - 0.5
    return total


def return_in_the_else(x, limit):
    for i in st.range(4):
        if x[i] > limit:
            break
    else:
        return x * 2.0
    return x * x[i - i]


def return_in_the_loop_of_a_helper(x, limit):
    def search(values):
        for i in st.range(4):
            if values[i] > limit:
                return values[i] * 10.0
            if values[i] > 100.0:
                break
        else:
            return values[0] * 7.0
        return values[1]

    return search(x) + search(x + 50.0)


def while_with_break(x, limit):
    i = 0
    total = 0.0
    while i < 4:
        total = total + x[i] * x[i]
        if total > limit:
            break
        i += 1
    else:
        total = -total
    return total, i


def while_without_break(x, limit):
    while x.sum() < limit:
        x = x * 2.0
    else:
        x = x - 1.0
    return x


def while_with_a_walrus(x, limit):
    count = 0
    while (level := x.sum()) < limit:
        x = x * 1.25
        count += 1
        if level > 40.0:
            break
    else:
        x = x + level
    return x, count


def unrolled_with_a_staged_break(x, limit):
    total = 0.0
    for k in range(4):
        total = total + x[k]
        if total > limit:
            break
        if total > limit - 1.0:
            continue
        total = total + 0.5
    else:
        total = total * 2.0
    return total


def unrolled_while_with_a_staged_break(x, limit):
    k = 0
    while k < 3:
        x = x * 1.5
        if x[0] > limit:
            break
        k += 1
    else:
        x = x - 3.0
    return x


def static_break(x, limit):
    for k in range(3):
        if k == 1:
            break
        x = x + limit
    else:
        x = x * 0.0
    for i in st.range(3):
        x = x + 1.0
        break
    else:
        x = x * 0.0
    return x


def else_in_else(x, limit):
    for i in st.range(3):
        if x[i] > limit:
            break
    else:
        for j in st.range(3):
            x = x + 1.0
            if x[j] > limit:
                break
        else:
            x = x * 2.0
    return x


def prints_in_order(x, limit):
    for i in st.range(3):
        print(f"at {i}")
        if x[i] > limit:
            print("found")
            break
    else:
        print("none")
    print("done")
    return x


def batches_with_a_rest(m, limit):
    total = 0.0
    for rows in st.batches(m, size=2, drop_last=False):
        total = total + rows.sum()
        if total > limit:
            break
    else:
        total = total * 2.0
    return total


def rest_of_batches_is_left_by_break_and_continue(m, limit):
    total = 0.0
    for rows in st.batches(m, size=2, drop_last=False):
        if rows.sum() > limit * 3.0:
            break
        if rows.sum() > limit:
            continue
        total = total + rows.sum()
    return total


def variable_written(x, limit):
    count = st.Variable(0.0)
    for i in st.range(4):
        count.value = count.value + x[i]
        if count.value > limit:
            break
    else:
        count.value = count.value * 10.0
    return count.value * 2.0


EVERY = [(X, 0.6), (X, 3.1), (X, 6.4), (X, 1000.0)]
CASES = [
    Case(without_a_break, [(X, 0), (X, 3)], wrt=(0,)),
    Case(after_break, EVERY, wrt=(0,)),
    Case(bound_on_both_ways_only, EVERY, wrt=(0,)),
    Case(through_nested_branches, [(X, 0, 1.0), (X, 3, 20.0), (X, 7, 1e5), (X, 3, 1e7), (X, 9, 300.0)], wrt=(0,)),
    Case(is_prime, [(2,), (3,), (20,)]),
    Case(break_in_the_else_leaves_the_outer_loop, [*EVERY, (X, 20.0)], wrt=(0,)),
    Case(return_in_the_else, EVERY, wrt=(0,)),
    Case(return_in_the_loop_of_a_helper, [*EVERY, (X, 53.0)], wrt=(0,)),
    Case(while_with_break, EVERY, wrt=(0,)),
    Case(while_without_break, EVERY, wrt=(0,)),
    Case(while_with_a_walrus, [*EVERY, (X, 35.0)], wrt=(0,)),
    Case(unrolled_with_a_staged_break, EVERY, wrt=(0,)),
    Case(unrolled_while_with_a_staged_break, EVERY, wrt=(0,)),
    Case(static_break, EVERY, wrt=(0,)),
    Case(else_in_else, EVERY, wrt=(0,)),
    Case(prints_in_order, EVERY, wrt=(0,)),
    Case(batches_with_a_rest, [(M, 1.0), (M, 9.0), (M, 20.0), (M, 100.0)], wrt=(0,)),
    Case(rest_of_batches_is_left_by_break_and_continue, [(M, 1.0), (M, 2.0), (M, 7.0), (M, 100.0)], wrt=(0,)),
    Case(variable_written, EVERY),
]

test_programs, test_gradients = checks_of(CASES)


def test_break_past_the_else_is_one_jump() -> None:
    names = ops(ir(after_break, X, 3.0))
    assert names.count("scope") == 1 and names.count("for") == 1
    assert "scope" not in ops(ir(without_a_break, X, 3)), "without a `break`, what follows is just what follows"
    assert "goto end_break" in st.function(after_break).stage(X, 3.0).source
