"""Placement: a print or a decision does not fetch a value that the host has anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from staged.ir.builder import Builder
from staged.ir.nodes import Effect, Function, VariableRef, walk_ops
from staged.ir.structure import VARIABLE_READ
from staged.ir.types import TensorType, f32, i64
from staged.passes.placement.merge_reads import merge_reads
from tests.passes.placement.test_place import crossings, placed

X = np.ones((3, 4), np.float32)
weights = st.Variable(np.ones(4, np.float32), name="weights")


def an_input(x: Any) -> Any:
    with with_backend(GPU, x):
        print(x, x[0])
        y = st.sum(x * 2.0)
        print(x[1, 2])
    return y


def a_constant(x: Any) -> Any:
    with with_backend(GPU, x):
        zeros = st.zeros(4)
        print(zeros, zeros[1])
        y = st.sum(x + zeros)
    return y


def what_the_host_computed(x: Any) -> Any:
    h = x + 1.0
    with with_backend(GPU):
        y = st.sum(h * 2.0)
        print(h, h[0])
    return y


def a_decision_and_a_print(x: Any) -> Any:
    with with_backend(GPU, x):
        total = st.sum(x)
        if total > 0.0:
            x = x * 2.0
        print(total)
        total = st.sum(x)
    return total


def a_print_and_decisions(x: Any) -> Any:
    with with_backend(GPU, x):
        total = st.sum(x * x)
        print(total, total * 0.5)
        if total > 3.0:
            print("large")
        elif total > 1.0:
            print("medium")
        assert total < 1e9, f"{total}"
    return x


def a_decision_and_a_print_inside(x: Any) -> Any:
    with with_backend(GPU, x):
        total = st.sum(x)
        if total > 0.0:
            print(total)
        y = st.sum(x * 2.0)
    return y


def parts_of_a_printed_array(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
        print(y)
        print(y[0], y[1, 2], st.reshape(y, (-1,)))
        if y[0, 0] > 0.0:
            print(y[2])
        z = st.sum(y)
    return z


def a_variable_twice(x: Any) -> Any:
    with with_backend(GPU, x):
        y = st.sum(x * weights)
        print(weights)
        print(weights)
        if weights[0] > 0.0:
            print(weights)
    return y


def a_variable_before_and_after_a_write(x: Any) -> Any:
    with with_backend(GPU, x):
        print(weights)
        weights.value = weights.value + st.sum(x)
        print(weights)
        print(weights)
    return 0


@pytest.mark.parametrize(
    ("function", "to_host"),
    [
        (an_input, [("y", "result")]),
        (a_constant, [("y", "result")]),
        (what_the_host_computed, [("y", "result")]),
        (a_decision_and_a_print, [("total", "decision"), ("total", "result")]),
        (a_print_and_decisions, [("total", "print")]),
        (a_decision_and_a_print_inside, [("total", "decision"), ("y", "result")]),
        (parts_of_a_printed_array, [("y", "print"), ("z", "result")]),
        (a_variable_twice, [("weights", "print"), ("y", "result")]),
        (a_variable_before_and_after_a_write, [("weights", "print"), ("weights", "print")]),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_the_host_copies_what_it_does_not_have(function: Any, to_host: list[tuple[str, str]]) -> None:
    found = [(what, why) for what, way, why in crossings(placed(function, X)) if way == "gpu->cpu"]
    assert found == to_host


def test_what_the_device_reads_stays_there() -> None:
    """A part of a printed array that a kernel computes with, and a number that a kernel computes with."""

    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
            total = st.sum(y)
            print(y, total)
            z = st.sum(y[0] * (total * 0.5))
        return z

    made = placed(f, X)
    found = [(what, way) for what, way, _ in crossings(made)]
    assert found == [("x", "cpu->gpu"), ("y", "gpu->cpu"), ("total", "gpu->cpu"), ("z", "gpu->cpu")]
    views = [op for op in walk_ops(made.block) if op.declared.is_view]
    assert views and all(op.device == GPU for op in views)


def test_a_read_after_a_write_in_a_loop_or_a_branch_is_another_one() -> None:
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            print(weights)
            for i in st.range(n):
                print(weights)
                if i == 1:
                    weights.value = weights.value * 0.5 + x[0]
                print(weights)
            print(weights)
        return 0

    printed = [way for what, way, why in crossings(placed(f, X, 3)) if why == "print"]
    assert printed == ["gpu->cpu"] * 4


def test_a_decision_on_a_number_that_is_not_printed_copies_the_decision() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            if st.sum(x) > 0.0:
                x = x * 2.0
        return x

    (first, _) = [(what, why) for what, way, why in crossings(placed(f, X)) if way == "gpu->cpu"]
    assert first == ("st.sum(x) > 0.0", "decision")


def test_reads_of_two_members_of_a_family_stay_two() -> None:
    type, builder = TensorType(f32, (4,)), Builder()
    members = tuple(VariableRef(name, type, True) for name in ("w0", "w1"))
    family = replace(members[0], members=members)
    effects = (Effect("read", family),)
    with builder.block([TensorType(i64), TensorType(i64)]) as opened:
        indices = [opened.params[number] for number in (0, 1, 0)]
        reads = [builder.op(VARIABLE_READ, [i], [type], attrs={"variable": family}, effects=effects) for i in indices]
        builder.end("return", [read.result for read in reads], None, None)
    merged = merge_reads(Function("f", opened.block, variables=[family])).block
    first, second, third = merged.end.operands
    assert first is third and first is not second
    assert len(merged.ops) == 2
