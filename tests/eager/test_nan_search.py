"""`check_nan`: the error names the first NaN or infinity, in programs by a second run in eager mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.call import nan_search
from staged.testing import captured_prints

LINES = Path(__file__).read_text().splitlines()
X, W = np.array([1.0, -1.0, 2.0]), np.ones(3)


def fails(call: Any, words: str, remark: str) -> None:
    """Check the words of the error, and that it cites the line that ends with `# remark`."""
    line = next(number for number, text in enumerate(LINES, 1) if text.endswith(f"# {remark}"))
    with pytest.raises(FloatingPointError) as caught:
        call()
    assert str(caught.value).startswith(words), str(caught.value)
    assert f"test_nan_search.py, line {line}," in str(caught.value)


def everywhere(call: Any, words: str, remark: str) -> None:
    """In the first call of a program, in a later one, and in eager mode."""
    fails(call, words, remark)
    fails(call, words, remark)
    with st.eager():
        fails(call, words, remark)


def test_the_first_op_is_named_if_fusion_leaves_the_last() -> None:
    @st.function(check_nan=True)
    def loss(x: Any, w: Any) -> Any:
        p = st.log(x)  # the logarithm
        q = p * w
        r = q + 1.0
        s = st.tanh(r)
        return st.mean(s)

    everywhere(lambda: loss(X, W), "`log` has NaN at position 1", "the logarithm")
    assert loss(W, W) == np.tanh(1.0)
    with st.eager():
        assert loss(W, W) == np.tanh(1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, st.f16.numpy, st.bf16.numpy])
def test_an_infinity_is_named_before_the_nan_that_it_causes(dtype: Any) -> None:
    @st.function(check_nan=True)
    def f(x: Any, y: Any) -> Any:
        z = 1.0 / x  # the quotient
        return {"total": st.sum(z * y)}

    x, y = np.array([1, 0, 2], dtype), np.array([1, 0, 0], dtype)
    everywhere(lambda: f(x, y), "`divide` has an infinity at position 1", "the quotient")


def test_values_that_where_does_not_choose_are_no_errors() -> None:
    @st.function(check_nan=True)
    def f(x: Any) -> Any:
        scores = st.where(x > 0, st.log(x), 0.0)
        hidden = st.where(x > 0, scores, -float("inf"))
        return st.sum(st.softmax(hidden)) + st.max(scores)

    assert f(X) == 1.0 + np.log(2.0)
    with st.eager():
        assert f(X) == 1.0 + np.log(2.0)


class Model(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.Parameter(np.array([4.0, 1.0, 1.0]))

    @st.function(check_nan=True, seed=3)
    def step(self, x: Any) -> Any:
        print("a step")
        loss, grads = st.value_and_grad(lambda: st.sum(st.sqrt(self.weight.value - x)), wrt=[self.weight])()  # the root
        self.weight.value = self.weight.value - 0.1 * grads[0]
        return loss + st.random.uniform(())


def test_the_second_run_begins_with_the_variables_before_the_call() -> None:
    first, second, plain = Model(), Model(), Model()
    x = np.array([0.0, 0.5, 0.0])
    for model in (first, second):
        model.step(np.zeros(3))
    before = second.weight.numpy()
    with captured_prints() as printed:
        # NaN in the new weight alone: if the search began with it, the first op would be `subtract`.
        fails(
            lambda: first.step(before + [0.0, 1.0, 0.0] - [1.0, 0.0, 1.0]), "`sqrt` has NaN at position 1", "the root"
        )
    assert printed.text == "a step\n"
    assert np.isfinite(before).all()
    second.step(x)
    assert np.isfinite(second.weight.numpy()).all()
    with st.eager():
        plain.step(np.zeros(3))
        kept = plain.weight.numpy()
        fails(
            lambda: plain.step(before + [0.0, 1.0, 0.0] - [1.0, 0.0, 1.0]), "`sqrt` has NaN at position 1", "the root"
        )
        np.testing.assert_array_equal(plain.weight.numpy(), kept)  # the check comes before the write


def test_variables_and_random_numbers_are_afterwards_what_the_program_left() -> None:
    draws = []
    for check_nan in (True, False):
        v = st.Variable(np.zeros(2), name="v")
        generator = st.random.Generator(5)

        @st.function(check_nan=check_nan)
        def f(x: Any) -> Any:
            v.value = v.value + 1.0  # noqa: B023
            return st.log(x) * st.random.uniform((2,), generator=generator)  # noqa: B023

        f(np.ones(2))
        if check_nan:
            with pytest.raises(FloatingPointError):
                f(-np.ones(2))
        else:
            f(-np.ones(2))
        draws.append((v.numpy(), f(np.full(2, 2.0))))
    for one, other in zip(*draws, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_loop_names_the_op_of_its_iteration() -> None:
    @st.function(check_nan=True)
    def f(x: Any, n: int) -> Any:
        for _ in st.range(n):
            x = st.sqrt(x - 1.0)  # the iteration
        return x

    fails(lambda: f(np.array([1e4]), 9), "`x` has NaN at position 0", "the iteration")
    with st.eager():
        fails(lambda: f(np.array([1e4]), 9), "`sqrt` has NaN at position 0", "the iteration")


def test_a_call_with_effects_outside_does_not_run_twice() -> None:
    seen = []

    @st.function(check_nan=True)
    def f(x: Any) -> Any:
        st.callback(lambda x: seen.append(1), x)
        return st.tanh(st.log(x)) + 1.0  # the sum

    with pytest.raises(FloatingPointError) as of_program:
        f.stage(X)(X)
    assert "`log`" not in str(of_program.value)
    seen.clear()
    fails(lambda: f(X), str(of_program.value), "the sum")
    assert len(seen) == 1


def test_a_search_that_takes_too_long_gives_the_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    @st.function(check_nan=True)
    def f(x: Any) -> Any:
        return st.tanh(st.log(x)) + 1.0  # the last op

    with pytest.raises(FloatingPointError) as of_program:
        f.stage(X)(X)
    monkeypatch.setattr(nan_search, "MOST_SECONDS", -1.0)
    fails(lambda: f(X), str(of_program.value), "the last op")
    monkeypatch.undo()
    fails(lambda: f(X), "`log` has NaN at position 1", "the last op")


def test_without_the_check_nothing_is_searched() -> None:
    f = st.function(lambda x: st.log(x))
    assert np.isnan(f(X)).any()
    with st.eager():
        assert np.isnan(f(X)).any()
