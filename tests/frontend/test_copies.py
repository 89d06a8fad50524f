"""Copies and pickles: what there is one of stays one, Variables are made anew, staged functions stay functions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.errors import LeakError, StagingError
from staged.ir.types import DTYPES

X = np.array([[1.0, 2.0]], np.float32)
WAYS: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]


@st.function
def forward(model, x):
    return model(x)


@pytest.mark.parametrize("way", WAYS, ids=["copy", "deepcopy", "pickle"])
def test_copy_of_a_dtype_is_the_dtype(way) -> None:
    assert all(way(dtype) is dtype for dtype in DTYPES.values())
    assert way(st.GPU) == st.GPU
    assert way(forward) is forward


@pytest.mark.parametrize("way", WAYS[1:], ids=["deepcopy", "pickle"])
def test_copy_of_a_model_runs_and_is_its_own(way) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    other = way(model)
    np.testing.assert_array_equal(forward(other, X), forward(model, X))
    before = forward(other, X)
    for parameter in model.parameters():
        parameter.value = parameter * 0.0
    np.testing.assert_array_equal(forward(other, X), before)
    assert not np.asarray(forward(model, X)).any()


def test_weight_under_two_names_is_one_in_the_copy() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    other = copy.deepcopy(model)
    assert other[0].weight is other[1].weight
    assert other[0].weight is not model[0].weight


def test_copy_of_a_variable_has_elements_of_its_own() -> None:
    first = st.Variable(np.ones(2, np.float32), name="w")
    for second in (copy.copy(first), copy.deepcopy(first)):
        second.buffer()[0] = 5.0
        assert (second.name, second.dtype) == ("w", st.f32)
    np.testing.assert_array_equal(first.numpy(), [1.0, 1.0])


def test_copy_inside_a_staged_function_lives_in_the_program() -> None:
    outer = nn.Linear(2, 1)

    @st.function
    def program(x):
        model = nn.Linear(2, 1)
        target, teacher = copy.deepcopy(model), copy.deepcopy(outer)
        for variable in (*model.parameters(), *outer.parameters()):
            variable.value = variable * 2.0
        return model(x) - 2.0 * target(x), outer(x) - 2.0 * teacher(x), st.sum(st.abs(teacher.weight))

    start = outer.weight.numpy()
    own, others, size = program(X)
    np.testing.assert_allclose([own, others], 0.0, atol=1e-6)
    np.testing.assert_allclose(size, np.abs(start).sum(), rtol=1e-6)
    np.testing.assert_allclose(outer.weight.numpy(), 2.0 * start, rtol=1e-6)


def test_pickle_inside_a_staged_function_is_refused() -> None:
    model = nn.Linear(2, 1)

    @st.function
    def program(x):
        return x, len(pickle.dumps(model))

    with pytest.raises(StagingError, match="cannot be pickled inside a staged function"):
        program(X)


def test_copy_of_a_variable_of_a_program_that_has_ended_is_refused() -> None:
    left: list[Any] = []

    @st.function
    def program(x):
        left.append(st.Variable(x))
        return x

    program(X)
    with pytest.raises(LeakError, match="lives in its program only"):
        copy.deepcopy(left[0])


@pytest.mark.parametrize("way", WAYS, ids=["copy", "deepcopy", "pickle"])
def test_copy_of_a_parameter_is_a_parameter(way) -> None:
    made = way(nn.Linear(2, 1).weight)
    assert type(made) is nn.Parameter and made.name == "weight" and type(way(st.Variable(1.0))) is st.Variable


def test_a_value_that_a_program_has_left_behind_is_nowhere_taken_for_a_number() -> None:
    left: dict[str, Any] = {}

    @st.function
    def program(x):
        left["x"] = x
        return x

    program(2.0)
    for use in (float, bool, np.asarray, pickle.dumps, list, "{:.2f}".format):
        with pytest.raises(LeakError, match="`x`.*of a staged function, which has ended|needs a first dim") as refused:
            use(left["x"])
        assert "test_copies.py" in str(refused.value) and "st.Variable" in (refused.value.hint or "")


def test_copy_of_an_object_with_a_staged_method_calls_its_own_method() -> None:
    class Trainer:
        def __init__(self, rate):
            self.rate = rate
            self.step = st.function(self.scaled)

        def scaled(self, x):
            return x * self.rate

    first = Trainer(2.0)
    second = copy.deepcopy(first)
    second.rate = 3.0
    np.testing.assert_array_equal(second.step(X), 3.0 * X)
    np.testing.assert_array_equal(first.step(X), 2.0 * X)
