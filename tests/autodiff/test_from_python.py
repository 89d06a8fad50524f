"""Python programs, traced, differentiated and run by the interpreter, against the tape of eager mode.

The tape follows the path that Python takes and shares nothing with reverse mode on IR but the per-op rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import staged as st
from staged.frontend.trace_function import trace
from staged.ir.nodes import Function
from staged.ir.verifier import verify
from staged.pipeline import PASSES
from tests.ir_interpreter import Interpreter


def check(f: Callable[..., Any], *arguments: Any) -> Function:
    """The same results from eager mode and from the IR after all passes, which are verified one by one."""
    traced = trace(f, arguments, {})
    function = traced.function
    for name, run in PASSES:
        function = run(function)
        verify(function, name)
    variables = {v: np.zeros(v.type.shape, v.type.dtype.numpy) for v in function.variables}
    found = Interpreter(variables).run(function, *arguments, *traced.hidden)
    with st.eager():
        expected = [np.asarray(leaf) for leaf in optree.tree_leaves(f(*arguments))]
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
    return function


def escape(x, y):
    def loss(x, y):
        a = x
        for _ in st.range(6):
            if a > 3.0:
                break
            a = a * y
            if a > 2.0:
                a = st.exp(a) * x
                continue
            a = a * x + y
        return a * a

    return st.value_and_grad(loss, argnums=(0, 1))(x, y)


@pytest.mark.parametrize("x", [0.2, 0.5, 0.9, 1.4, 4.0])
def test_break_and_continue(x: float) -> None:
    check(escape, np.float64(x), np.float64(1.3))


def early(x, n):
    def helper(v, n):
        k = 0
        while k < n:
            v = st.sin(v) * x
            if v < 0.1:
                return v * 2.0
            k += 1
        return v + 1.0

    def loss(x):
        t = helper(x, n)
        if t > 1.2:
            return t * x
        return helper(t * t, n)

    return st.value_and_grad(loss)(x)


@pytest.mark.parametrize("x", [0.05, 0.3, 0.9, 1.9])
def test_early_return_from_a_loop_in_a_helper(x: float) -> None:
    check(early, np.float64(x), np.int64(4))


def recurrent(w, xs):
    def loss(w, xs):
        h = st.zeros((4,), dtype=st.f64)
        total = 0.0
        for t in st.range(5):
            h = st.tanh(w @ h + xs[t])
            total += st.sum(h * h)
        return total

    return st.value_and_grad(loss, argnums=(0, 1))(w, xs)


def test_recurrent_network() -> None:
    generator = np.random.default_rng(0)
    check(recurrent, generator.normal(size=(4, 4)), generator.normal(size=(5, 4)))


def second_order(x):
    def outer(x):
        def inner(y):
            total = 0.0
            for i in st.range(3):
                total += st.sum(y**3) * x[i]
            return total

        return st.sum(st.grad(inner)(x) ** 2)

    return st.value_and_grad(outer)(x)


def test_gradient_of_a_gradient_of_a_loop() -> None:
    check(second_order, np.array([0.3, -0.7, 1.2]))


def search(x):
    def loss(x):
        best = x[0] * 1.0
        for i in st.range(4):
            for j in st.range(4):
                if i * j > 6:
                    break
                if x[i] > best:
                    best = best + x[j] * x[i]
            best = best * 0.5
        return best

    return st.value_and_grad(loss)(x)


def test_nested_loops_over_elements() -> None:
    check(search, np.array([0.3, -0.7, 1.2, 0.8]))


def network(x, y):
    w1 = st.Variable(np.linspace(-1, 1, 12).reshape(3, 4), name="w1")
    w2 = st.Variable(np.linspace(1, -1, 8).reshape(4, 2), name="w2")

    def loss(x, y):
        return st.cross_entropy(st.relu(x @ w1.value) @ w2.value, y)

    total = 0.0
    for _ in st.range(3):
        value, grads = st.value_and_grad(loss, wrt={"w1": w1, "w2": w2})(x, y)
        w1.value = w1.value - 0.1 * grads["w1"]
        w2.value = w2.value - 0.1 * grads["w2"]
        total += value
    return total, w1.value, w2.value


def test_training_steps_in_a_loop_collect_nothing() -> None:
    generator = np.random.default_rng(0)
    function = check(network, generator.normal(size=(5, 3)), np.array([0, 1, 1, 0, 1], np.int32))
    assert not [op for op in function.block.ops if op.attrs.get("collected")]


def projectile(speed):
    """An event ends the simulation: the time step in which the ground is met is divided."""

    def flight(speed):
        height, velocity, distance = 0.0, speed, 0.0
        while True:
            below = height + 0.1 * velocity
            if below < 0.0:
                part = height / (height - below)
                distance += part
                break
            height = below
            velocity = velocity - 0.981
            distance += 1.0
        return distance * distance

    return st.value_and_grad(flight)(speed)


def test_simulation_with_an_event() -> None:
    check(projectile, np.float64(5.3))


def loops_in_branches(x, n):
    def loss(x):
        total = x * 1.0
        for i in st.range(n):
            a = x * total
            for j in st.range(i + 1):
                a = st.sin(a) * x + total
                if a > 0.7:
                    for _ in st.range(j):
                        a = st.cos(a) * a
            while a < 0.5:
                a = a * 0.5 + 0.5
            total = total + a * a
        return total

    return st.value_and_grad(loss)(x)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_loops_of_unknown_length_in_branches_and_loops(n: int) -> None:
    check(loops_in_branches, np.float64(0.8), np.int64(n))


GENERATOR = np.random.default_rng(0)
PROGRAMS = [
    (escape, np.float64(0.5), np.float64(1.3)),
    (early, np.float64(0.9), np.int64(4)),
    (early, np.float64(0.05), np.int64(4)),
    (recurrent, GENERATOR.normal(size=(4, 4)), GENERATOR.normal(size=(5, 4))),
    (search, np.array([0.3, -0.7, 1.2, 0.8])),
    (network, GENERATOR.normal(size=(5, 3)), np.array([0, 1, 1, 0, 1], np.int32)),
    (projectile, np.float64(5.3)),
    (loops_in_branches, np.float64(0.8), np.int64(3)),
]


@pytest.mark.parametrize("case", PROGRAMS, ids=[f"{case[0].__name__}-{i}" for i, case in enumerate(PROGRAMS)])
def test_the_compiled_program_gives_the_same(case: tuple[Any, ...]) -> None:
    f, *arguments = case
    found = optree.tree_leaves(st.function(f)(*arguments))
    with st.eager():
        expected = optree.tree_leaves(f(*arguments))
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-9, atol=1e-12)


# ---- what a branch does not have ------------------------------------------------------------------
# In the interpreter it is NaN: whoever computed with it would show.


BOTH = np.array([1.0, -1.0])


def two_ways(x, s):
    if s < 0.0:
        y = st.tanh(st.exp(x * s)).sum()
    else:
        a = st.log(x * x + s)
        y = s
        for i in st.range(3):
            if a[i] > 0.3:
                y = y + (st.sin(a) * st.exp(x) * y).sum()
            else:
                y = y * st.sqrt(a * a + 1.0).sum()
    return y * y


@pytest.mark.parametrize("s", [0.4, -0.3])
@pytest.mark.parametrize(
    "derivative",
    [
        lambda x, s: st.grad(two_ways, argnums=(0, 1))(x, s),
        lambda x, s: st.hessian(lambda x: two_ways(x, s))(x),
        lambda x, s: st.jacrev(st.grad(lambda x: two_ways(x, s)))(x),
        lambda x, s: st.grad(lambda x: st.jvp(lambda x: two_ways(x, s), (x,), (x,))[1])(x),
        lambda x, s: st.grad(lambda x: st.checkpoint(two_ways)(x, s))(x),
        lambda x, s: st.vmap(lambda x: st.grad(two_ways)(x, s))(st.stack([x, -x])),
        lambda x, s: st.vmap(lambda x, s: st.grad(two_ways)(x, s))(st.stack([x, -x]), BOTH * s),
        lambda x, s: st.grad(lambda x: st.vmap(two_ways)(x, BOTH * s).sum())(st.stack([x, -x])),
        lambda x, s: st.jvp(lambda x: st.vmap(st.grad(two_ways))(x, BOTH * s), (st.stack([x, x]),), (st.stack([x, x]),)),
    ],
    ids=["grad", "hessian", "reverse of reverse", "reverse of forward", "checkpoint", "one way mapped", "both mapped",
         "mapped before", "forward of mapped"],
)  # fmt: skip
def test_residuals_of_the_branch_not_taken_are_never_read(derivative: Callable[..., Any], s: float) -> None:
    check(derivative, np.array([0.3, -1.2, 2.0]), np.float64(s))
