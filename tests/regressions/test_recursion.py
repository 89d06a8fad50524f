"""Faults that a review of recursive programs and their derivatives found: errors and texts in the user's names."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramRecursionError, StagingError
from staged.testing import assert_backends_agree


@st.function
def chain(x, n):
    if n == 0:
        return x
    return st.sin(chain(x * 0.5, n - 1)) + x


def test_a_gradient_that_recurses_too_deep_names_the_function_as_the_user_does() -> None:
    slope = st.function(lambda x, n: st.grad(lambda x: chain(x, n))(x))
    with pytest.raises(ProgramRecursionError, match="`chain` recurses deeper"):
        slope(np.float64(0.5), -1)


def test_the_cotangent_of_an_argument_without_a_name_is_named_after_the_parameter() -> None:
    source = st.function(lambda x, n: st.grad(lambda x: chain(x, n))(x)).stage(np.float64(0.5), 3).source
    backward = source[source.index("static int chain_backward(") :]
    inner = backward[backward.index("if (chain_backward(") :].splitlines()[0]
    assert "&d_x" in inner, inner


class Scale:
    """An object that is no tree: known while staging."""

    def __init__(self, by) -> None:
        self.by = by


@st.function
def scaled(x, scale, n):
    if n == 0:
        return x * scale.by
    return scaled(x, Scale(scale.by * 0.5), n - 1)


def test_a_recursion_that_makes_a_new_static_object_each_time_names_the_argument() -> None:
    with pytest.raises(StagingError, match=r"`scaled` calls itself with another `scale` \(Scale\) each time") as caught:
        st.function(lambda x, n: scaled(x, Scale(2.0), n)).stage(np.float64(0.5), 3)
    assert "@dataclass" in caught.value.hint


@st.function
def twofold(x, n):
    if n <= 0:
        return x
    return twofold(st.sin(twofold(x, n - 2)), n - 2)


def a_gradient_that_nobody_reads(x, n):
    def loss(x):
        st.grad(lambda x: st.sum(st.sin(twofold(x, n))))(x)
        return st.sum(x)

    return st.grad(loss)(x)


def a_gradient_of_a_gradient(x, n):
    return st.grad(lambda x: st.sum(st.sin(st.grad(lambda x: st.sum(st.sin(twofold(x, n))))(x))))(x)


@pytest.mark.parametrize("program", [a_gradient_that_nobody_reads, a_gradient_of_a_gradient])
def test_second_derivatives_of_two_calls_in_a_row(program) -> None:
    """The reverse of a call gives the call before it cotangents, be they zeros, which the pair of functions must take."""
    assert_backends_agree(program, np.array([0.1, -0.4, 0.7]), 3)


@st.function
def dwindling(x, n):
    if n <= 0:
        return x
    dwindling(st.sin(x), n - 2)
    return st.sin(x)


def a_loop_of_calls_whose_gradient_nobody_reads(x, n):
    def loss(x):
        def last(x):
            value = st.sigmoid(x[0])
            for i in st.range(n):
                value = st.sin(dwindling(x[1], i % 3) + value * st.sum(x))
            return value

        st.grad(last)(x)
        return st.sum(x)

    return st.grad(loss)(x)


def test_a_loop_carries_no_cotangents_for_the_sake_of_frames() -> None:
    assert_backends_agree(a_loop_of_calls_whose_gradient_nobody_reads, np.array([0.1, -0.4, 0.7]), 3)
