"""Local and replicated values: what is marked, and where `check_ranks` inserts a `vary`.

Gradients on several ranks are in `tests/ranks/test_local_gradients.py`, errors in `tests/ranks/test_wrong_programs.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.nodes import Block, Function, Op, walk_ops
from staged.ir.printer import print_function
from staged.ir.types import TensorType
from staged.passes.ranks import vary
from staged.passes.ranks.locality import Locality
from staged.passes.ranks.vary import check_ranks
from staged.system import target

X, W = np.ones((4, 3)), np.ones(3)


def staged(run: Any, *given: Any, **options: Any) -> Function:
    """The traced program."""
    return st.function(**options)(run).stage(*given)._traced.function


def checked(run: Any, *given: Any, **options: Any) -> Function:
    """The program after `check_ranks`, for any number of ranks. No op uses local and replicated arrays together."""
    program = check_ranks(staged(run, *given, **options), replace(target("portable"), ranks=None))
    after = Locality(program)
    for op in (op for each in every_function(program) for op in walk_ops(each.block, into_opaque=False)):
        for value, wants in zip(op.operands, after.wants_local(op), strict=True):
            has_gradient = isinstance(value.type, TensorType) and value.type.dtype.is_inexact
            assert not wants or value in after.local or not has_gradient or is_constant(value), op
    return program


def is_constant(value: Any) -> bool:
    """Return whether a value has no gradient: it has the elements of a constant or of integers."""
    while value.producer is not None and vary._only_moves(value.producer):
        value = value.producer.operands[0]
    is_source = value.producer is not None and value.producer.declared.kind == "source"
    return is_source or not value.type.dtype.is_inexact


def varied(block: Block) -> list[str]:
    """The names of the arrays that become local in a block itself."""
    return [op.operands[0].hint for op in block.ops if op.declared is prims.VARY]


def all_varied(program: Function) -> list[str]:
    ops = (op for each in every_function(program) for op in walk_ops(each.block))
    return [op.operands[0].hint for op in ops if op.declared is prims.VARY]


def named(program: Function, name: str) -> Op:
    """The first op of this name."""
    return next(op for each in every_function(program) for op in walk_ops(each.block) if op.name == name)


# ---- what is local ----------------------------------------------------------------------------------


def test_ir_marks_local_values():
    def step(x, w):
        y = x * st.astype(st.rank(), st.f64)
        total = st.all_reduce(y)
        return total + w, y

    assert st.function(step).stage(W, W).ir == (
        "func step(x: f64 (3,), w: f64 (3,)):\n"
        "  t: i64 () weak local = rank()\n"
        "  t_2: f64 () local = cast(t) {dtype=f64, weak=False}\n"
        "  t_3: f64 (3,) local = broadcast_to(t_2) {axes=(), shape=(3,)}\n"
        "  y: f64 (3,) local = multiply(x, t_3)\n"
        "  total: f64 (3,) = all_reduce(y) {by='sum'}\n"
        "  t_4: f64 (3,) = add(total, w)\n"
        "  return(t_4, y)\n"
    )


def test_declared_arguments_and_variables_are_marked():
    v = st.Variable(np.zeros(3), name="v", local=True)

    def step(batch, w):
        v.value = v.value + batch["x"] * w

    program = st.function(local="batch")(step).stage({"x": W, "y": [W, W]}, W)
    assert program.ir.startswith(
        "func step(batch_x: f64 (3,) local, batch_y_0: f64 (3,) local, batch_y_1: f64 (3,) local, w: f64 (3,)):\n"
        "  variable v: f64 (3,) outer local\n"
        "  v: f64 (3,) local = variable_read() {variable=$v}\n"
    )
    assert "x: f64 (3,) local" in program.explain()


def test_program_without_ranks_is_not_analysed(monkeypatch):
    def fail(program):
        raise AssertionError("analysed")

    monkeypatch.setattr(vary, "Locality", fail)
    program = st.function(lambda x: st.sum(st.tanh(x))).stage(X)
    assert "local" not in program.ir and program.source


def test_carried_values_become_local_in_a_later_iteration():
    def step(x, w):
        a, b, c = w, w, w
        for _ in st.range(4):
            a, b = b * 2.0, c
            c = c + x
        return a, b, c

    program = checked(step, W, W, local="x")
    loop = named(program, "for")
    assert all(value in Locality(program).local for value in loop.results)
    assert varied(program.block) == ["w"] and not varied(loop.blocks[0])


def test_a_local_continue_makes_the_carried_values_local_and_not_the_trip_count():
    def step(x, w):
        h = w
        for i in st.range(4):
            total = st.all_reduce(x)
            longer = h + total
            if st.rank() > i:
                continue
            h = longer
        return h, total

    local = Locality(program := staged(step, W, W, local="x")).local
    h, total = program.block.end.operands
    assert h in local and total not in local


def test_sizes_of_local_arguments_are_local():
    def step(x, w):
        return st.sum(st.ones(x.shape[0])), st.sum(st.ones(w.shape[0]))

    program = staged(step, X, X, local="x", dims={"x": ("N <= 9", 3), "w": ("M <= 9", 3)})
    first, second = program.block.end.operands
    assert first in Locality(program).local and second not in Locality(program).local
    program = staged(step, X, X, local="x", dims={"x": ("N <= 9", 3), "w": ("N", 3)})
    assert program.block.end.operands[0] not in Locality(program).local, "replicated arrays have equal sizes"


def test_values_of_python_and_clocks_are_local():
    def step(x):
        return st.callback(np.negative, x, result=x), st.broadcast(st.callback(np.negative, x, result=x)) + st.rank() * 0

    program = staged(step, W)
    assert program.block.end.operands[0] in Locality(program).local
    assert named(program, "broadcast").result not in Locality(program).local


# ---- where a `vary` is ------------------------------------------------------------------------------


def test_one_vary_for_all_uses_outside_of_loops():
    def step(x, w):
        total = st.sum(x * w)
        for i in st.range(3):
            for _ in st.range(2):
                total = total + st.sum(x * w * i)
        return st.all_reduce(total)

    program = checked(step, X, W, local="x")
    assert varied(program.block) == all_varied(program) == ["w"]


def test_vary_is_never_under_a_local_condition():
    def step(x, w, u):
        y = st.sum(x)
        if y > 0:
            y = y + st.sum(w)
        while y > 1:
            y = y * st.sum(st.tanh(u))
        if st.all_reduce(y) > 3:
            y = y * w[0]
        return st.all_reduce(y)

    program = checked(step, X, W, W, local="x")
    assert varied(program.block) == all_varied(program) == ["w", "u"]


def test_replicated_value_passed_by_a_local_branch():
    def step(x, w, u):
        v = w
        if x[0] > 0:
            v = u
        return v

    program = checked(step, W, W, W, local="x")
    assert varied(program.block) == ["w", "u"]
    assert program.block.end.operands[0] in Locality(program).local


def test_result_of_a_raise_on_some_ranks_is_replicated():
    def step(x, w):
        if x[0] > 0:
            raise ValueError("positive")
        return st.all_reduce(x) + w

    program = checked(step, W, W, local="x")
    assert not all_varied(program)


@st.function
def power(x, w, n):
    while n < 10:
        if n <= 0:
            return w
        n = n - 1
        x = power(x, w, n)
    return x


def test_recursion_varies_what_it_returns():
    program = checked(lambda x, w: power(x, w, st.astype(st.sum(w), st.i64)), W, W, local="x")
    (function,) = program.functions
    assert varied(function.block) == ["w"], "one of the values that it returns is local"
    assert Locality(program).returned.keys() == {(function.name, 0)}


@st.custom_vjp
def scaled(x, w):
    return x * w


scaled.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, ct: (ct * kept[1], ct * kept[0]))


def test_operands_of_a_custom_vjp_are_all_local_or_all_replicated():
    program = checked(lambda x, w: (scaled(x, w), scaled(w, w)), W, W, local="x")
    assert all_varied(program) == ["w"]
    first, second = program.block.end.operands
    assert first in Locality(program).local and second not in Locality(program).local


def test_element_of_a_sequence_by_a_local_index():
    def step(x, w):
        rows = st.stack([w * i for i in st.range(5)])
        return rows[st.rank()] * x

    assert all_varied(checked(step, W, W))


def test_derivative_varies_its_input_inside():
    def step(x, w):
        return st.grad(lambda w: st.all_reduce(st.sum(st.tanh(x * w))))(w)

    program = checked(step, W, W, local="x")
    assert varied(named(program, "vjp").blocks[0]) == ["w"] and not varied(program.block)
    assert program.block.end.operands[0] not in Locality(program).local


def test_constants_and_integers_are_not_varied():
    assert not all_varied(checked(lambda x, n: x * 2.0 + st.astype(n, st.f64), W, np.arange(3), local="x"))


# ---- keys -------------------------------------------------------------------------------------------


def test_programs_that_differ_in_a_declaration_have_different_keys():
    def step(x):
        return x * 2.0

    one, other = st.function(step).stage(W), st.function(local="x")(step).stage(W)
    assert one.key != other.key
    assert one.source == other.source, "on one rank both are the same program"
    v, u = (st.Variable(W, name="v", local=local) for local in (False, True))
    first, second = (st.function(lambda each=each: each.value * 2.0).stage() for each in (v, u))
    assert first.key != second.key and print_function(first._traced.function) != print_function(second._traced.function)


@pytest.mark.parametrize("local", [(), "x"])
def test_one_rank_has_the_program_without_collectives(local):
    def step(x, w):
        return st.value_and_grad(lambda w: st.all_reduce(st.sum(st.tanh(x @ w)), "mean"))(w)

    def plain(x, w):
        return st.value_and_grad(lambda w: st.sum(st.tanh(x @ w)))(w)

    made, expected = st.function(local=local)(step)(X, W), st.function(plain)(X, W)
    for mine, other in zip(made, expected, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()
