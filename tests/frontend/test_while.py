# ruff: noqa: B007  (programs of users name their loop variables)
"""`while`: static, staged, endless, with compound conditions."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import staged as st
from staged.errors import CarriedValueError, StagingError
from staged.frontend.constructs import unrolling
from staged.frontend.trace_function import trace
from tests.frontend.harness import Case, agree, checks_of, interpret, ir, ops

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


def counted_in_python(x, last):
    t = 0.0
    while t < last:  # Python evaluates it
        x = x + t
        t = t + 1.0
    return x


def test_a_condition_of_python_that_unrolls_warns_and_then_stops(monkeypatch) -> None:
    """A number that Python counts made thousands of copies of the body, without a word."""
    for last in (99.0, 150.0):
        staged = st.function(lambda x, last=last: counted_in_python(x, last))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            np.testing.assert_array_equal(staged(X), X + last * (last - 1) / 2)
        texts = [str(each.message) for each in caught if "is unrolled" in str(each.message)]
        assert len(texts) == (last > 100)
        assert all("more than 100 times; start a variable of its condition as an array" in text for text in texts)
    monkeypatch.setenv("STAGED_UNROLL", "300")
    with pytest.raises(StagingError, match="is unrolled more than 300 times") as caught:
        ir(lambda x: counted_in_python(x, 1e9), X)
    assert "while t < last:  # Python evaluates it" in str(caught.value)
    assert "`t = st.zeros(())`" in caught.value.hint and "STAGED_UNROLL=3000" in caught.value.hint
    monkeypatch.setenv("STAGED_UNROLL", "none")
    with pytest.raises(st.ArgumentError, match="STAGED_UNROLL must be a number of iterations, got 'none'"):
        ir(lambda x: counted_in_python(x, 200.0), X)


def test_the_limit_of_copies_is_10000() -> None:
    assert unrolling.MOST == 10_000 and unrolling._limit() == unrolling.MOST


def test_the_fix_of_the_warning_makes_one_loop() -> None:
    def f(x):
        t = st.zeros(())
        while t < 4.0:
            x = x + t
            t = t + 1e-3
        return x

    assert ops(ir(f, X)).count("add") <= 3


def test_iterations_that_record_nothing_have_no_limit(monkeypatch) -> None:
    monkeypatch.setenv("STAGED_UNROLL", "200")

    def f(x):
        k, sizes = 0, []
        while k < 1000:
            sizes.append(k)
            k += 1
        for size in range(1000):
            sizes[size] += size
        return x * float(sum(sizes))

    np.testing.assert_allclose(st.function(f)(X), X * 999_000.0)


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
    tick = st.pure(turns.__next__)

    def f(x, n):
        for i in st.range(n):
            total = 0.0
            for j in st.range(n):
                tick()
                total += x.sum()
            x = x + total
        return x

    ir(f, X, 3)
    assert next(turns) <= 3
    np.testing.assert_allclose(interpret(trace(f, (X, 2))), f(X, 2))


# ---- sample programs ----------------------------------------------------------------------------


def guarded_by_and(x, n):
    i = 0
    while i < n and x[i] > 0.0:
        i += 1
    return i


def guarded_in_both_directions(x, low, high):
    total = 0.0
    while 0 <= low < high <= 4 and (x[low] < 2.5 or x[high - 1] < 2.5):
        if x[low] < x[high - 1]:
            total = total + x[low]
            low += 1
        else:
            total = total - x[high - 1]
            high -= 1
    return total, low, high


def negated_and_nested(x, limit):
    total = x[0]
    i = 0
    while not (total > limit or i >= 3) and not (i > 1 and not x[i] > 0.0):
        i += 1
        total = total * 1.5 + x[i]
    return total, i


def guarded_division(n, d):
    count = 0
    while d != 0 and n % d == 0 and n > 0:
        n = n // d
        count += 1
    return n, count


def condition_that_calls_a_helper(x, limit):
    def far(value, other):
        if value > limit:
            return False
        return value < 2.0 * other

    value = x[0]
    steps = 0
    while far(value, x[1]):
        value = value * 1.3
        steps += 1
    return value, steps


def condition_that_prints(x, n):
    def asked(i):
        print(f"asked {i}")
        return i < n

    i = 0
    total = 0.0
    while asked(i):
        total = total + x[i]
        i += 1
    return total


def static_condition_that_prints(x):
    def asked(k):
        print(f"asked {k}")
        return k < 2

    k = 0
    while asked(k):
        x = x * 2.0
        k += 1
    return x


def forever_with_exits(x, limit):
    value = x[0]
    count = 0
    while True:
        count += 1
        if count > 50:
            break
        value = value * 1.2
        if value < limit * 0.5:
            continue
        if value > limit:
            break
        value = value + 0.1 * x[1]
    return value, count


def static_flag_that_turns_staged(x, limit):
    found = False
    i = 0
    while not found and i < 4:
        if x[i] > limit:
            found = True
        else:
            i += 1
    return found, i


def walrus_read_after_the_loop(x, limit):
    value = x[0]
    while (error := (value * value - x[1]) ** 2) > limit:
        value = 0.5 * (value + x[1] / value)
    return value, error


def walrus_in_a_static_loop(x):
    k = 0
    parts = []
    while (k := k + 1) < 3:
        parts.append(x * k)
    return parts[0] + parts[1], k


def walrus_beside_break(x, limit):
    total = 0.0
    i = 0
    while (value := x[i]) > 0.0:
        total = total + value * value
        if total > limit:
            break
        i += 1
    return total, value


def while_in_while(x, n):
    i = 0
    total = 0.0
    while i < n:
        j = i
        while j > 0:
            total = total + x[j] * 0.5
            j -= 1
        total = total * 0.9
        i += 1
    return total


def arrays_carried(x, limit):
    previous = x * 0.0
    while ((x - previous) ** 2).sum() > limit:
        previous = x
        x = 0.5 * x + 0.25 * x.mean()
    return x, previous


def newton(x, tolerance):
    root = x
    while (abs(root * root - x) > tolerance).any():
        root = 0.5 * (root + x / root)
    return root


P = np.array([0.5, 2.0, -1.0, 3.0], np.float32)
Q = np.array([0.5, 2.0, 1.0, 3.0], np.float32)
CASES = [
    Case(guarded_by_and, [(P, 4), (P, 1), (P, 0), (Q, 4), (Q, 5)]),
    Case(guarded_in_both_directions, [(P, 0, 4), (Q, 0, 4), (P, 3, 3), (P, -1, 4), (P, 0, 9)], wrt=(0,)),
    Case(negated_and_nested, [(P, 1.1), (P, 100.0), (Q, 100.0), (Q, 0.1)], wrt=(0,)),
    Case(guarded_division, [(48, 2), (48, 0), (0, 3), (45, 3)]),
    Case(condition_that_calls_a_helper, [(P, 1.1), (P, 3.1), (P, 100.0)], wrt=(0,)),
    Case(condition_that_prints, [(P, 0), (P, 3)], wrt=(0,)),
    Case(static_condition_that_prints, [(P,)], wrt=(0,)),
    Case(forever_with_exits, [(P, 1.1), (P, 9.0), (P, 1e9)], wrt=(0,)),
    Case(static_flag_that_turns_staged, [(P, 1.1), (P, 10.0)]),
    Case(walrus_read_after_the_loop, [(Q, 0.1), (Q, 1e-2), (Q, 100.0)], wrt=(0,), rtol=1e-3),
    Case(walrus_in_a_static_loop, [(P,)], wrt=(0,)),
    Case(walrus_beside_break, [(P, 100.0), (P, 1.1), (P, 0.1)], wrt=(0,)),
    Case(while_in_while, [(P, 0), (P, 1), (P, 4)], wrt=(0,)),
    Case(arrays_carried, [(P, 0.1), (P, 1e-3), (P, 100.0)], wrt=(0,)),
    Case(newton, [(Q, 1e-3), (Q, 100.0)], wrt=(0,)),
]

test_programs, test_gradients = checks_of(CASES)


def test_a_guarded_condition_is_readable() -> None:
    text = st.function(guarded_by_and).stage(P, 4).source
    assert "while (" in text or "for (;;)" in text
