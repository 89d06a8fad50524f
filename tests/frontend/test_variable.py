# ruff: noqa: B007  (programs of users name their loop variables)
"""Variables: reads and writes, inside and outside, and in eager mode."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import DTypeError, LeakError, ShapeError, StagingError
from staged.frontend.trace_function import trace
from tests.frontend.harness import interpret, ir, ops

X = np.arange(3, dtype=np.float32)


def test_outside_it_holds_a_buffer() -> None:
    v = st.Variable(np.ones(3, np.float32), name="w")
    v.value = v + 1.0
    np.testing.assert_array_equal(np.asarray(v), [2, 2, 2])
    v.buffer()[0] = 9.0
    np.testing.assert_array_equal(v.numpy(), [9, 2, 2])
    assert st.Variable(0.5).dtype is st.f32
    assert st.Variable(3).dtype is st.i64


def test_reads_and_writes_are_ordered_ops() -> None:
    v = st.Variable(np.ones(3, np.float32), name="w")

    def step(x):
        v.value = v * x
        v.value += 1.0
        return v.value

    traced = trace(step, (X,))
    assert traced.variables == (v,)
    text = ir(step, X)
    assert "variable w: f32 (3,) outer" in text
    assert [n for n in ops(text) if n.startswith("variable_")] == ["variable_read", "variable_write"] * 2 + [
        "variable_read"
    ]
    np.testing.assert_array_equal(interpret(traced), X + 1.0)


def test_made_inside_it_lives_in_the_program() -> None:
    def f(x, n):
        count = st.Variable(0, name="count")
        for i in st.range(n):
            if i % 2 == 0:
                count.value += i
        return count.value

    assert "variable count: i64 ()\n" in ir(f, X, 5)
    assert interpret(trace(f, (X, 5))) == 6


def test_made_in_a_staged_loop_is_refused() -> None:
    def f(x, n):
        for i in st.range(n):
            v = st.Variable(x)
            x = v + 1.0
        return x

    with pytest.raises(StagingError, match="a Variable is made inside a staged loop"):
        ir(f, X, 3)


def test_used_after_its_program_is_refused() -> None:
    kept = []

    def f(x):
        kept.append(st.Variable(x, name="w"))
        return x

    ir(f, X)
    with pytest.raises(LeakError, match="`w` was made inside a staged function"):
        _ = kept[0].value


def test_writing_another_type_is_refused() -> None:
    v = st.Variable(np.ones(3, np.float32), name="w")

    def shape(x):
        v.value = x.sum()
        return x

    def dtype(x):
        v.value = st.astype(x, st.f64)
        return x

    with pytest.raises(ShapeError, match=r"`w` holds f32 \(3,\), got f32 \(\)"):
        ir(shape, X)
    with pytest.raises(DTypeError, match=r"`w` holds f32 \(3,\), got f64 \(3,\)") as caught:
        ir(dtype, X)
    assert "st.astype(value, st.f32)" in caught.value.hint


def test_elements_and_truth_of_a_variable() -> None:
    v = st.Variable(np.ones(3, np.float32), name="w")
    n = st.Variable(2, name="n")

    def f(i):
        v.value[i] = 5.0
        w = v.value
        w[0] = 7.0
        if n:
            w = w * 2.0
        return w, v[i]

    traced = trace(f, (1,))
    w, second = interpret(traced)
    np.testing.assert_array_equal(w, [14, 10, 2])
    assert second == 5.0


def test_same_names_are_told_apart() -> None:
    a, b = st.Variable(1.0, name="w"), st.Variable(2.0, name="w")

    def f(x):
        return x * a + b

    text = ir(f, X)
    assert "variable w: " in text
    assert "variable w_2: " in text


def test_random_numbers_advance_in_loops_and_go_on_with_every_call() -> None:
    def f(n):
        total = 0.0
        for i in st.range(n):
            total += st.random.uniform()
        return total + st.random.uniform()

    text = ir(f, 3)
    assert text.count("variable random_counter: i64 () outer") == text.count("variable random_seed: i64 () outer") == 1

    def twice(seed):
        st.seed(seed)
        return interpret(trace(f, (3,))), interpret(trace(f, (3,)))

    assert twice(0) == twice(0) != twice(1)
    first, second = twice(0)
    assert first != second


def test_seed() -> None:
    def f(n):
        st.seed(n)
        a = st.random.uniform()
        st.seed(n)
        return a - st.random.uniform()

    assert interpret(trace(f, (3,))) == 0.0
