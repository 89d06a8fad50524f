"""Eager mode and compiled programs agree where they could drift apart: weak numbers, randomness, text, errors, state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramAssertionError, ProgramIndexError, ProgramZeroDivisionError
from staged.testing import assert_backends_agree

X = np.linspace(-2.0, 3.0, 12, dtype=np.float32).reshape(3, 4)


def test_weak_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x, n, rate, on):
        a = n / 2
        b = n // 2 * rate
        c = x * rate + n
        if on:
            a = a + n % 3
        print(a, b, n, rate, on, f"{n:5d}|{rate:.3f}|{on}")
        return a, b, c, n * n, rate**2, n > 3

    for n, rate, on in [(7, 0.1, True), (-7, 2.5, False)]:
        result = assert_backends_agree(f, X, n, rate, on)
        assert isinstance(result[0], float) and isinstance(result[3], int) and result[2].dtype == np.float32


def test_integer_semantics() -> None:
    def f(a, b):
        return a // b, a % b, a * b, a + b, -a, abs(a), a & b, a | b, a ^ b

    a = np.array([7, -7, 7, -7, 2**31 - 1, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 3, 5], np.int32)
    assert_backends_agree(f, a, b)
    assert_backends_agree(f, a.astype(np.int64), b.astype(np.int64))


def test_randomness() -> None:
    def f(n):
        total = 0.0
        first = st.random.uniform((3,))
        for i in st.range(n):
            total += st.sum(st.random.uniform((4,)))
            if i % 2 == 0:
                total += st.sum(st.astype(st.random.bernoulli(0.5, (8,)), st.f32))
        return first, total, st.random.permutation(10), st.random.normal((5,))

    first, *_ = assert_backends_agree(f, 5, rtol=1e-5)
    again, *_ = assert_backends_agree(f, 5, rtol=1e-5)
    np.testing.assert_array_equal(first, again)


def test_helpers_recursion_and_trees() -> None:
    def power(x, n):
        return x if n == 1 else x * power(x, n - 1)

    def f(params, x):
        h = st.tanh(x @ params["w"] + params["b"])
        return {"h": power(h, 3), "both": [h, st.sum(h)], "name": "net"}

    result = assert_backends_agree(f, {"w": np.ones((4, 2), np.float32), "b": np.zeros(2, np.float32)}, X)
    assert result["name"] == "net"


def test_loops_with_exits() -> None:
    def f(x, limit):
        steps = 0
        while True:
            x = x * 1.5
            steps += 1
            if st.max(x) > limit:
                break
            if steps > 20:
                return x, -1
            if steps % 2 == 0:
                continue
            x = x + 0.5
        print(f"{steps} steps: {x}")
        return x, steps

    for limit in (10.0, 1e9):
        assert_backends_agree(f, X, limit)


def test_value_semantics_of_indexing() -> None:
    def f(x, i):
        y = x
        x[i] = 7.0
        x[0, 1:3] += 1.0
        return x, y, x[-1], x[i, ::-1]

    assert_backends_agree(f, X, 1)
    with pytest.raises(ProgramIndexError, match="index 3 is out of range"):
        assert_backends_agree(f, X, 3)


def test_errors_name_the_same_line() -> None:
    def f(x, n):
        assert st.sum(x) > n, f"the sum {st.sum(x):.2f} is not above {n}"
        return x // n if n > -100 else x

    with pytest.raises(ProgramAssertionError, match="the sum 6.00 is not above 100") as caught:
        assert_backends_agree(f, X, 100)
    assert caught.value.where is not None and caught.value.where.file == __file__
    with pytest.raises(ProgramZeroDivisionError):
        assert_backends_agree(f, np.array([4, 5]), 0)


def test_training_with_variables() -> None:
    w = st.Variable(np.full((4, 1), 0.1, np.float32), name="w")
    steps = st.Variable(0, name="steps")

    def loss_fn(x, y):
        steps.value = steps + 1
        return st.mean((x @ w - y) ** 2)

    def train(x, y, epochs):
        loss = 0.0
        for epoch in st.range(epochs):
            for a, b in st.batches(x, y, size=1, shuffle=True):
                loss, d_w = st.value_and_grad(loss_fn, wrt=w)(a, b)
                w.value = w - 0.05 * d_w
            print(f"{epoch}: {loss:.4f} after {steps.value}")
        return st.sum(w)

    assert_backends_agree(train, X, X @ np.ones((4, 1), np.float32), 3, variables=[w, steps])
    assert int(steps) == 0


@pytest.mark.parametrize("value", [np.float32(0.1), np.float64(1e300), np.int32(-5), np.bool_(True), 3, 2.5, False])
def test_text_of_scalars(value: Any) -> None:
    def f(x):
        print(x, [x, 1], (x,), {"x": x}, f"{x!r:>8}|{x}")
        return x

    assert_backends_agree(f, value)


@pytest.mark.parametrize("value", [-np.nan, -0.0, -np.inf, 1e22])
def test_text_of_numbers_that_c_prints_otherwise(value: float) -> None:
    def f(x, y, code):
        print(f"{x:.3f} 100 % {y:+.1e} {x:6.1f}|{code:c}{code:c}\0{code:05d}", x > 0)
        assert y > 1e30, f"{x:.2f}, {y}, {code}%"
        return x

    with pytest.raises(ProgramAssertionError, match="assertion failed: .*, .*, 0%"):
        assert_backends_agree(f, np.float64(value), np.float32(value), 0)


def test_text_of_arrays() -> None:
    def f(x, m):
        print(x, x > 0, st.astype(x, st.i32), x[:0], m)
        print(f"{x:+.2f}", [x[0], 1], sep="\n", end="end\n")
        return x

    assert_backends_agree(f, X, np.arange(8).reshape(2, 2, 2))


def test_looking_at_a_variable_does_not_cut_its_gradient() -> None:
    w = st.Variable(np.array([1.0, 2.0]), name="w")

    def loss_fn(x):
        w.value = w * x
        with pytest.raises(st.GradientError, match="being differentiated"):
            w.numpy()
        assert np.asarray(w).shape == (2,)
        assert str(w.value) == "[3.0 6.0]" and st.stop_gradient(w).numpy().shape == (2,)
        return st.sum(w * w)

    with st.eager():
        loss, d_w = st.value_and_grad(loss_fn, wrt=w)(np.float64(3.0))
    assert float(loss) == 45.0 and d_w.tolist() == [18.0, 36.0]


def test_names_of_the_program_do_not_meet_those_of_the_printer() -> None:
    def f(text, host, line, values, label, st_plain):
        message = text * 2.0
        print(text, host, line, values, label, st_plain, message)
        for progress_1 in st.progress(st.range(2), desc=f"{label}", show="message"):
            message = message + progress_1
        return message

    assert_backends_agree(f, 1.5, 2.5, 3, 4, 5, 6)
