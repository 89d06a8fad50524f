"""A `raise` on every path of a function that is differentiated or mapped, in a staged loop: it keeps its message and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn

X = np.ones((3, 63), np.float32)
LINEAR = nn.Linear(64, 10)
COUNT = st.Variable(np.float32(2.0))


def wrong(y: Any) -> Any:
    raise ValueError(f"the sum is {st.sum(y)}")


def wrong_shape(y: Any) -> Any:
    if y.shape[-1] != 64:
        raise ValueError(f"wrong shape {y.shape}")
    return st.sum(y)


def wrong_on_both_paths(y: Any) -> Any:
    if st.sum(y) > 0:
        raise IndexError("positive")
    else:
        raise ValueError("negative")


def wrong_after_a_write() -> Any:
    COUNT.value = COUNT.value + 1.0
    raise ValueError(f"the count is {COUNT.value}")


CASES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "layer": (
        lambda x: st.value_and_grad(lambda: st.mean(LINEAR(x)), wrt=LINEAR)()[0],
        "Linear has 64 input features",
        "<lambda>",
    ),
    "grad": (lambda x: st.sum(st.grad(wrong)(x)), "the sum is 189.0", "wrong"),
    "shape": (lambda x: st.sum(st.grad(wrong_shape)(x)), "wrong shape (3, 63)", "wrong_shape"),
    "both paths": (lambda x: st.sum(st.grad(wrong_on_both_paths)(x)), "positive", "wrong_on_both_paths"),
    "Variables": (
        lambda x: st.value_and_grad(wrong_after_a_write, wrt=[COUNT])()[0],
        "the count is 3.0",
        "wrong_after_a_write",
    ),
    "jvp": (lambda x: st.jvp(wrong, (x,), (x,))[1], "the sum is 189.0", "wrong"),
    "hessian": (lambda x: st.sum(st.hessian(wrong)(x)), "the sum is 189.0", "wrong"),
    "vmap": (lambda x: st.sum(st.vmap(wrong_shape)(x)), "wrong shape (63,)", "wrong_shape"),
    "checkpoint": (lambda x: st.sum(st.checkpoint(wrong)(x)), "the sum is 189.0", "wrong"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_program_stops_with_the_own_message_if_it_gets_there(name: str) -> None:
    step, message, function = CASES[name]

    def f(x: Any, n: Any) -> Any:
        total = 0.0
        for _ in st.range(n):
            total += step(x)
        return total

    compiled = st.function(f)
    assert float(compiled(X, 0)) == 0.0
    with pytest.raises((ValueError, IndexError)) as caught:
        compiled(X, 2)
    assert message in str(caught.value)
    assert re.search(rf"test_raise_in_transforms.py, line \d+, in {function}\n", str(caught.value))
    assert float(COUNT.value) == 2.0


def test_messages_of_mapped_elements_are_refused() -> None:
    def f(x: Any, n: Any) -> Any:
        total = 0.0
        for _ in st.range(n):
            total += st.sum(st.vmap(wrong)(x))
        return total

    with pytest.raises(st.StagingError, match="`wrong` stops the program on every path, with a message that depends"):
        st.function(f)(X, 0)


def test_a_reverse_that_stops_on_every_path_has_no_derivative() -> None:
    twice = st.custom_vjp(lambda x: 2.0 * x)
    twice.defvjp(lambda x: (2.0 * x, x), lambda x, ct: wrong(x))

    def f(x: Any, n: Any) -> Any:
        total = 0.0
        for _ in st.range(n):
            total += st.sum(st.grad(lambda x: st.sum(twice(x)))(x))
        return total

    with pytest.raises(st.GradientError, match="stops the program on every path, it has no derivative"):
        st.function(f)(X, 0)
