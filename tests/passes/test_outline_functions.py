"""`outline functions`: calls that were recorded alike at several places become one function."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.frontend.trace_function import TracedFunction, trace
from staged.ir.functions import callees, every_function
from staged.ir.nodes import Function, walk_ops
from staged.ir.verifier import verify
from staged.passes.outline_functions import FEWEST_OPS, outline_functions
from tests.ir_interpreter import Interpreter

X = np.linspace(0.1, 1.0, 6).reshape(2, 3)
W = np.linspace(-0.5, 0.5, 9).reshape(3, 3)


def outlined(function, *args) -> Function:
    """The outlined program, after checking that it computes what the traced one does and prints the same."""
    traced: TracedFunction = trace(function, args)
    after = outline_functions(traced.function)
    verify(after, "outline functions")
    assert not any(op.name.startswith("call_") for f in every_function(after) for op in walk_ops(f.block))
    assert {op.where for f in every_function(after) for op in walk_ops(f.block) if op.name != "call"} <= {
        op.where for f in every_function(traced.function) for op in walk_ops(f.block)
    }
    answers = []
    for program in (traced.function, after):
        state = {
            ref: np.asarray(variable)
            for ref, variable in zip((r for r in program.variables if r.outer), traced.variables, strict=True)
        }
        interpreter = Interpreter(state)
        results = interpreter.run(program, *(argument.value for argument in traced.arguments), *traced.hidden)
        answers.append((results, interpreter.output, list(state.values())))
    for before, now in zip(*answers, strict=True):
        assert len(before) == len(now)
        for left, right in zip(before, now, strict=True):
            np.testing.assert_array_equal(left, right)
    return after


def names(program: Function) -> list[str]:
    return [function.name for function in program.functions]


@st.function
def layer(x, w):
    """Long enough to be worth a function: several results, a loop with an exit, an early return."""
    h = st.tanh(x @ w) * 2.0 + 1.0
    for i in st.range(4):
        h = h * 0.5 + x * i
        if h.sum() > 10.0:
            break
    if h.sum() > 5.0:
        return h, h.sum()
    return st.tanh(h - 1.0) + x, st.max(h)


@st.function
def small(x):
    return x * 2.0 + 1.0


def test_two_call_sites_share_a_function_with_the_names_of_its_parameters() -> None:
    def f(a, b, w):
        p, s = layer(a, w)
        q, t = layer(b, w)
        return p + q * s + t

    program = outlined(f, X, X * 2.0, W)
    assert names(program) == ["layer"]
    assert callees(program.block) == ("layer",)
    assert [op.name for op in program.block.ops].count("call") == 2
    assert program.functions[0].param_paths == ("x", "w")
    assert program.functions[0].where.function == "layer"


def test_small_and_single_calls_stay_in_place() -> None:
    def f(a, w):
        return layer(a, w)[0] + small(a) + small(a * 2.0)

    assert names(outlined(f, X, W)) == []


@pytest.mark.parametrize(("ops", "is_function"), [(FEWEST_OPS - 1, False), (FEWEST_OPS, True)])
def test_size_decides(ops: int, is_function: bool) -> None:
    @st.function
    def chain(x):
        for _ in range(ops):
            x = st.tanh(x)
        return x

    def f(x):
        return chain(x) + chain(x + x)

    assert names(outlined(f, X)) == (["chain"] if is_function else [])


def test_lines_do_not_grow_with_call_sites() -> None:
    def program(count):
        def f(x, w):
            for _ in range(count):
                x = layer(x, w)[0]
            return x

        return outlined(f, X, W)

    def ops(function):
        return sum(1 for _ in walk_ops(function.block))

    few, many = program(2), program(20)
    assert ops(few.functions[0]) == ops(many.functions[0])
    assert ops(many) - ops(few) == 18


def test_only_results_that_some_call_uses_are_returned() -> None:
    def f(a, w):
        return layer(a, w)[0] + layer(a * 2.0, w)[0]

    (called,) = outlined(f, X, W).functions
    assert len(called.result_paths) == 1


def test_types_and_static_arguments_tell_functions_apart() -> None:
    @st.function(static=("kind",))
    def act(x, kind):
        for _ in range(12):
            x = (st.tanh(x) if kind == "tanh" else st.exp(x)) * x
        return x

    def f(x, y):
        return (act(x, "tanh") + act(x * x, "tanh")).sum() + (act(y, "tanh") + act(y * y, "exp")).sum()

    assert names(outlined(f, X, X[:1] * 0.1)) == ["act"]


def test_inner_calls_first() -> None:
    @st.function
    def pair(a, b, w):
        p, s = layer(a, w)
        q, t = layer(b, w)
        for _ in range(10):
            p = p * q + s * t
        return p

    def f(a, w):
        return pair(a, a * 0.5, w) + pair(a * 0.1, a, w)

    program = outlined(f, X, W)
    assert names(program) == ["layer", "pair"]
    assert callees(program.functions[1].block) == ("layer",)
    assert callees(program.block) == ("pair",)


def test_calls_in_branches_loops_and_recursive_functions() -> None:
    @st.function
    def down(x, w, n):
        if n == 0:
            return layer(x, w)[0]
        return down(layer(x * 0.5, w)[0], w, n - 1)

    def f(x, w, n):
        for i in st.range(n):
            if i > 1:
                x = layer(x, w)[0]
        return down(x, w, n)

    program = outlined(f, X, W, 3)
    assert names(program) == ["down", "layer"]
    assert callees(program.functions[0].block) == ("layer", "down")


def test_effects_are_those_of_the_function() -> None:
    total = st.Variable(0.0, "total")

    @st.function
    def log(x):
        for _ in range(8):
            x = st.tanh(x) + x
        total.value = total + st.sum(st.astype(x, st.f32))
        print(f"sum {st.sum(x)}")
        return x * st.random.uniform((3,))

    def f(x):
        return log(x) + log(x * 2.0)

    program = outlined(f, X)
    call = next(op for op in program.block.ops if op.name == "call")
    assert {effect.kind for effect in call.effects} == {"read", "write", "io"}
    assert {effect.target.name for effect in call.effects if effect.target} == {"total", "random_seed", "random_counter"}
    assert [variable.name for variable in program.functions[0].variables] == [
        variable.name for variable in program.variables
    ]


def test_inner_variables_of_a_call_stay_its_own() -> None:
    @st.function
    def count(x):
        seen = st.Variable(0.0)
        for _ in range(15):
            seen.value = seen + 1.0
            x = st.tanh(x) * seen.value
        return x

    def f(x):
        return count(x) + count(x)

    assert names(outlined(f, X.astype(np.float32))) == []


def test_range_that_leaves_the_function_around_it_stays() -> None:
    """A call that stops the program on every path has no end; the one around it still becomes a function."""

    @st.function
    def fail(x):
        raise ValueError("no")

    @st.function
    def checked(x):
        if x.sum() > 1000.0:
            fail(x)
        for _ in range(12):
            x = st.tanh(x) + x
        return x

    def f(x):
        return checked(x) + checked(x * 0.5)

    assert names(outlined(f, X)) == ["checked"]


def test_gpu_regions_stay_in_place() -> None:
    def f(a, w):
        with st.with_backend(st.GPU, a, w):
            return layer(a, w)[0] + layer(a * 2.0, w)[0]

    traced = trace(f, (X, W))
    assert names(outline_functions(traced.function)) == []


def test_inside_a_derivative() -> None:
    def loss(a, w):
        return st.sum(layer(a, w)[0] + layer(a * 2.0, w)[0])

    def f(a, w):
        return st.grad(loss)(a, w)

    traced = trace(f, (X, W))
    program = outline_functions(traced.function)
    verify(program, "outline functions")
    assert names(program) == ["layer"]
    vjp = next(op for op in program.block.ops if op.name == "vjp")
    assert callees(vjp.blocks[0]) == ("layer",)
