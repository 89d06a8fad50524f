"""Placement: which copies a program with a GPU region has, where they stand, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import CPU, GPU, with_backend
from staged.errors import UnsupportedError
from staged.frontend.trace_function import trace
from staged.ir.builder import Builder
from staged.ir.declaration import Declaration
from staged.ir.devices import value_devices
from staged.ir.machine import PORTABLE
from staged.ir.nodes import Function, Op, Value, walk_blocks, walk_ops
from staged.ir.printer import print_function
from staged.ir.rewrite import rewrite
from staged.ir.types import TensorType
from staged.ir.verifier import verify
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.normalize_exits import normalize_exits
from staged.passes.placement.place import place, transfers
from staged.pipeline import lower

X = np.ones((3, 4), np.float32)


def placed(function: Callable[..., Any], *args: Any) -> Function:
    made = place(eliminate_dead_code(normalize_exits(trace(function, args).function)))
    verify(made, "place")
    check_operands_are_at_hand(made)
    return made


def check_operands_are_at_hand(function: Function) -> None:
    """Every op finds its arrays where it runs; only a copy reaches across, and numbers go to kernels by value."""
    devices = value_devices(function)
    for op in walk_ops(function.block):
        for operand in op.operands:
            if op.name == "copy":
                assert devices[operand] == op.attrs["source"] != op.device
            elif not op.blocks and operand.tensor.shape:
                assert devices[operand] == op.device, op


def crossings(function: Function) -> list[tuple[str, str, str]]:
    return [(t.what, f"{t.source}->{t.target}", t.why) for t in transfers(function)]


def copies_in(ops: tuple[Op, ...] | list[Op]) -> list[str]:
    return [op.attrs["what"] for op in ops if op.name == "copy"]


def loops(function: Function) -> list[Op]:
    return [op for op in walk_ops(function.block) if op.name in ("for", "while")]


def test_a_program_without_a_region_stays_as_it_is() -> None:
    traced = trace(lambda x: x * 2.0, (X,)).function
    assert place(traced) is traced


def test_one_copy_in_and_one_copy_out() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = st.tanh(x * 2.0 + 1.0) * x
        return y

    made = placed(f, X)
    assert crossings(made) == [("x", "cpu->gpu", "input"), ("y", "gpu->cpu", "result")]
    assert [t.nbytes for t in transfers(made)] == [48, 48]
    assert transfers(made)[0].where is not None and "tanh" in transfers(made)[0].where.text


def test_two_regions_in_a_row_copy_nothing_between() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
        with with_backend(GPU):
            z = y + x
        return z

    assert crossings(placed(f, X)) == [("x", "cpu->gpu", "input"), ("z", "gpu->cpu", "result")]


def test_a_host_computation_inside_moves_there_and_back() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
            with with_backend(CPU):
                h = y + 1.0
            z = h * y
        return z

    assert crossings(placed(f, X)) == [
        ("x", "cpu->gpu", "input"), ("y", "gpu->cpu", "value"), ("h", "cpu->gpu", "value"), ("z", "gpu->cpu", "result"),
    ]  # fmt: skip


def test_what_does_not_change_in_a_loop_is_copied_before_it() -> None:
    def f(x: Any, b: Any, n: Any) -> Any:
        with with_backend(GPU):
            for _i in st.range(n):
                for _j in st.range(n):
                    x = x * b
        return x

    made = placed(f, X, X, 3)
    assert all(not copies_in(block.ops) for loop in loops(made) for block in walk_blocks(loop.blocks[0]))
    assert crossings(made)[:2] == [("x", "cpu->gpu", "input"), ("b", "cpu->gpu", "input")]


def test_a_print_in_a_loop_moves_just_its_number() -> None:
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            total = 0.0
            for i in st.range(n):
                x = x * 0.5
                total += st.sum(x)
                print(f"step {i}: {total}")
        return x

    made = placed(f, X, 3)
    (loop,) = loops(made)
    assert copies_in(loop.blocks[0].ops) == ["total"]
    assert [(t.what, t.nbytes, t.why) for t in transfers(made)] == [
        ("x", 48, "input"), ("total", 4, "print"), ("x", 48, "result"),
    ]  # fmt: skip


def test_a_print_in_a_branch_copies_in_the_branch() -> None:
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for i in st.range(n):
                x = x * 0.5
                if i > 1:
                    print(x)
        return x

    made = placed(f, X, 3)
    (loop,) = loops(made)
    assert copies_in(loop.blocks[0].ops) == []
    (branch,) = [op for op in walk_ops(made.block) if op.name == "if"]
    assert copies_in(branch.blocks[0].ops) == ["x"]


def test_a_print_of_an_element_moves_the_element() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
        print(y[1])
        return st.sum(y)

    moved = [t for t in transfers(placed(f, X)) if t.why == "print"]
    assert [t.nbytes for t in moved] == [16]


def test_a_decision_on_a_device_value_moves_one_flag() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            while st.sum(x) > 1.0:
                x = x * 0.5
        return x

    made = placed(f, X)
    assert [(t.nbytes, t.why) for t in transfers(made)] == [(48, "input"), (1, "decision"), (48, "result")]
    (loop,) = loops(made)
    assert len(copies_in(loop.blocks[0].ops)) == 1


def test_arithmetic_on_host_numbers_stays_on_the_host() -> None:
    def f(x: Any, rate: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for i in st.range(n):
                x = x * (rate / (1.0 + i))
        return x

    made = placed(f, X, 0.1, 3)
    assert crossings(made) == [("x", "cpu->gpu", "input"), ("x", "gpu->cpu", "result")]
    assert {op.device for op in walk_ops(made.block) if op.name == "divide"} == {CPU}


def test_constants_are_made_where_they_are_used() -> None:
    def f(x: Any) -> Any:
        w = st.zeros((3, 4))
        with with_backend(GPU, x):
            y = x + w
        return y, w

    assert crossings(placed(f, X)) == [("x", "cpu->gpu", "input"), ("y", "gpu->cpu", "result")]


def in_branch(made: Function, n: int) -> list[tuple[str, str]]:
    """(why, device) of the copies in branch `n` of the first `if`."""
    branch = next(op for op in walk_ops(made.block) if op.name == "if")
    return [(op.attrs["why"], str(op.device)) for op in walk_ops(branch.blocks[n]) if op.name == "copy"]


def test_a_branch_brings_what_it_makes_on_a_device_and_the_others_copy_nothing() -> None:
    def alone(x: Any, n: Any) -> Any:
        if n > 2:
            with with_backend(GPU, x):
                x = x * 2.0
        return x

    def beside_the_host(x: Any, n: Any) -> Any:
        if n > 2:
            with with_backend(GPU, x):
                y = st.exp(x)
        else:
            y = x - 1.0
        return y

    for f in (alone, beside_the_host):
        made = placed(f, X, 3)
        assert in_branch(made, 0) == [("input", "gpu"), ("value", "cpu")]
        assert in_branch(made, 1) == []
        assert len(transfers(made)) == 2


def test_what_a_loop_chooses_on_a_device_is_copied_once_after_it() -> None:
    def best(x: Any, n: Any) -> Any:
        found = x
        for i in st.range(n):
            with with_backend(GPU, x):
                y = st.exp(x)
            if i > 2:
                found = y
        return found

    made = placed(best, X, 3)
    loop = next(op for op in walk_ops(made.block) if op.name == "for")
    assert not [op for block in loop.blocks for op in walk_ops(block) if op.name == "copy"]
    assert [t.why for t in transfers(made)][-1] == "result"


def test_a_branch_that_a_device_computes_with_is_made_there() -> None:
    def goes_on(x: Any, n: Any) -> Any:
        if n > 2:
            with with_backend(GPU, x):
                y = st.exp(x)
        else:
            y = x - 1.0
        with with_backend(GPU, y):
            y = y * 2.0
        return y

    made = placed(goes_on, X, 3)
    assert in_branch(made, 0) == [("input", "gpu")] and in_branch(made, 1) == [("value", "gpu")]
    assert [t.why for t in transfers(made)] == ["input", "value", "result"]

    def on_all_paths(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            if n > 2:
                x = st.exp(x)
            else:
                x = st.sin(x)
        return x

    assert [t.why for t in transfers(placed(on_all_paths, X, 3))] == ["input", "result"]


@pytest.mark.parametrize("early", [False, True])
def test_early_exits_keep_their_values_together(early: bool) -> None:
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for i in st.range(n):
                x = x * 2.0
                if st.sum(x) > 100.0:
                    break
                if early:
                    if i > 3:
                        return x + 1.0
        return x

    kinds = [t.why for t in transfers(placed(f, X, 3))]
    assert kinds[0] == "input" and set(kinds[1:]) == {"decision", "result"}


def test_a_variable_of_python_lives_where_it_is_computed_with() -> None:
    v = st.Variable(np.zeros((3, 4), np.float32), name="v")

    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            v.value = v.value + x

    made = placed(f, X)
    assert crossings(made) == [("v", "cpu->gpu", "resident"), ("x", "cpu->gpu", "input")]
    assert [variable.device for variable in made.variables] == [GPU]


def test_a_variable_that_only_the_host_uses_stays_there() -> None:
    v, count = st.Variable(np.zeros((3, 4), np.float32), name="v"), st.Variable(0, name="count")

    def f(x: Any) -> Any:
        v.value = v.value + x
        with with_backend(GPU, x):
            y = x * 2.0
            count.value += 1
        return y

    made = placed(f, X)
    assert crossings(made) == [("x", "cpu->gpu", "input"), ("y", "gpu->cpu", "result")]
    assert {variable.device for variable in made.variables} == {CPU}


@pytest.mark.parametrize("outer", [False, True])
def test_a_number_that_a_device_computes_stays_there_in_its_variable(outer: bool) -> None:
    held = st.Variable(0.0, name="total")

    def f(x: Any, n: Any) -> Any:
        total = held if outer else st.Variable(0.0, name="total")
        with with_backend(GPU, x):
            for _ in st.range(n):
                total.value += st.sum(x)
        return total.value

    made = placed(f, X, 3)
    (loop,) = loops(made)
    assert copies_in(loop.blocks[0].ops) == []
    assert [(t.nbytes, t.why) for t in transfers(made)] == [(4, "resident")] * outer + [(48, "input"), (4, "result")]


def test_a_variable_made_on_the_host_moves_to_the_device_that_changes_it_in_a_loop() -> None:
    def f(x: Any, n: Any) -> Any:
        total = st.Variable(st.zeros((3, 4)), name="total")
        with with_backend(GPU, x):
            for _ in st.range(n):
                total.value = total.value + x
        return total.value

    made = placed(f, X, 3)
    assert [t.why for t in transfers(made)] == ["input", "result"]


def test_an_argument_that_is_on_a_device_crosses_only_to_the_host() -> None:
    def f(x: Any) -> Any:
        h = x + 1.0
        with with_backend(GPU):
            y = x * 2.0 + h
        return y

    traced = trace(f, (X,)).function.replace(param_devices=(GPU,))
    assert "x: f32 (3, 4) on gpu" in print_function(traced)
    made = place(traced)
    verify(made, "place")
    assert crossings(made) == [("x", "gpu->cpu", "value"), ("h", "cpu->gpu", "value"), ("y", "gpu->cpu", "result")]


def test_to_is_one_copy_outside_of_loops_and_nothing_where_the_array_is() -> None:
    def f(x: Any, b: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for _ in st.range(n):
                there = st.to(st.to(b, GPU), GPU)
                x = x * there
            y = st.to(x, CPU)
        total = st.to(st.sum(x), CPU) + 1.0
        return y + 1.0, total

    made = placed(f, X, X, 3)
    (loop,) = loops(made)
    assert copies_in(loop.blocks[0].ops) == []
    assert [(t.what, f"{t.source}->{t.target}", t.nbytes) for t in transfers(made)] == [
        ("x", "cpu->gpu", 48), ("b", "cpu->gpu", 48), ("x", "gpu->cpu", 48),
    ]  # fmt: skip
    assert not any(op.name == "to_device" for op in walk_ops(made.block))


def test_to_the_host_is_nothing_in_a_program_of_the_host() -> None:
    made = place(trace(lambda x: st.to(x, CPU) * 2.0, (X,)).function)
    assert [op.name for op in made.block.ops] == ["constant", "broadcast_to", "multiply"]


# ---- functions ----------------------------------------------------------------------------------

CHILDREN = np.array([[1, 2], [-1, -1], [-1, -1]])
VECTORS = np.ones((3, 4), np.float32)


@st.function
def encode(node: Any, children: Any, vectors: Any, weight: Any) -> Any:
    if children[node, 0] < 0:
        return vectors[node], 0.0
    left, below = encode(children[node, 0], children, vectors, weight)
    right, beside = encode(children[node, 1], children, vectors, weight)
    h = st.tanh(left + right) * weight
    return h, below + beside + st.sum(h)


def lowered(function: Callable[..., Any], *args: Any) -> Function:
    return lower(trace(function, args).function, PORTABLE)


def homes(function: Function) -> dict[str, str]:
    return {param.hint: str(device) for param, device in zip(function.params, function.param_devices, strict=True)}


def test_a_function_takes_arrays_where_it_computes_and_the_host_keeps_what_it_decides_with() -> None:
    def f(children: Any, vectors: Any, weight: Any) -> Any:
        with with_backend(GPU):
            return encode(0, children, vectors, weight)

    made = lowered(f, CHILDREN, VECTORS, np.float32(2.0) * np.ones(4, np.float32))
    (function,) = made.functions
    assert homes(function) == {"node": "cpu", "children": "cpu", "vectors": "gpu", "weight": "gpu"}
    calls = [op for each in (made, function) for op in walk_ops(each.block) if op.name == "call"]
    assert [op.attrs["devices"] for op in calls] == [(GPU, GPU)] * 3
    assert not [op for op in walk_ops(function.block) if op.name == "copy"]
    assert sorted(crossings(made)) == [
        *[("encode(0, children, vectors, weight)", "gpu->cpu", "result")] * 2,
        ("vectors", "cpu->gpu", "input"), ("weight", "cpu->gpu", "input"),
    ]  # fmt: skip


def test_frames_hold_arrays_on_the_device_and_decisions_on_the_host() -> None:
    def f(children: Any, vectors: Any, weight: Any) -> Any:
        with with_backend(GPU):
            return st.grad(lambda weight: encode(0, children, vectors, weight)[1])(weight)

    made = lowered(f, CHILDREN, VECTORS, np.ones(4, np.float32))
    (record,) = made.frames
    assert {
        (type.shape != (), str(record.device(number)))
        for number, (_, type) in enumerate(record.fields)
        if isinstance(type, TensorType)
    } == {(False, "cpu"), (True, "gpu")}
    backward = next(function for function in made.functions if function.name == "encode_backward")
    assert not [op for op in walk_ops(backward.block) if op.name == "copy"]


@st.function
def until(x: Any, limit: Any) -> Any:
    return x if st.sum(x) > limit else until(st.sin(x) * 3.0, limit) * x


def test_what_the_device_has_decided_once_is_recorded_on_the_host() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            return st.grad(lambda x: st.sum(until(x, 5.0)))(x)

    made = lowered(f, VECTORS)
    found = {function.name: [op.attrs["why"] for op in walk_ops(function.block) if op.name == "copy"] for function in made.functions}
    assert found == {"until_forward": ["decision"], "until_backward": []}


def test_an_op_that_makes_a_number_in_another_way_than_these_is_refused_with_its_line() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            return st.sum(x)  # the line

    def another(op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.name != "sum":
            return None
        unheard_of = Declaration(name="unheard_of", kind="structured")
        made = builder.op(unheard_of, op.operands, [op.result.type], device=op.device, where=op.where)
        return made.results

    function = rewrite(eliminate_dead_code(trace(f, (X,)).function), another)
    with pytest.raises(UnsupportedError, match="`unheard_of` with a single number as its result") as caught:
        place(function)
    assert caught.value.where is not None and "# the line" in caught.value.where.text
    assert "outside of the GPU region" in str(caught.value)
