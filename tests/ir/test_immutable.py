"""Ops, blocks, values and functions are never changed once they are built: held here by classes that refuse it.

mypy holds the same for what it sees (their attributes are `Final`); in the programs of users they refuse nothing, which
would cost time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ir.nodes import Block, End, Function, Op, Value, VariableRef
from staged.ir.types import TensorType, f32

NAMES_OF_PEOPLE: dict[type, set[str]] = {Value: {"hint"}, Op: set(), Block: {"_free"}, Function: set(), VariableRef: {"name"}}
"""The attributes that may be set anew: names, and what a block has found out about itself."""


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: type, free: set[str]) -> None:
        def set_once(self: object, name: str, value: object) -> None:
            if name not in free and hasattr(self, name):
                raise AttributeError(f"`{name}` of {self!r} is set again")
            object.__setattr__(self, name, value)

        monkeypatch.setattr(kind, "__setattr__", set_once, raising=False)

    for kind, free in NAMES_OF_PEOPLE.items():
        refuse(kind, free)


@pytest.mark.parametrize("kind", NAMES_OF_PEOPLE, ids=lambda kind: kind.__name__)
def test_a_change_is_refused(kind: type) -> None:
    op = Op("constant", [], [TensorType(f32)])
    block = Block([Value(TensorType(f32), "x")], [op], End("return", op.results))
    function = Function("f", block, variables=[VariableRef("v", TensorType(f32), False)])
    made: dict[type, Any] = {type(each): each for each in (op, op.result, block, function, *function.variables)}
    for name in (name for name in kind.__slots__ if name not in NAMES_OF_PEOPLE[kind]):  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="set again"):
            setattr(made[kind], name, getattr(made[kind], name))


@st.function
def fib(n: Any, x: Any) -> Any:
    if n < 2:
        return x * n
    return fib(n - 1, x) + fib(n - 2, x * x)


X = np.linspace(0.5, 1.5, 8, dtype=np.float32)


def training() -> st.Program:
    weight, again = st.Variable(X, name="w"), st.Variable(X, name="w")

    @st.function
    def step(x: Any) -> Any:
        total = x
        for i in st.range(3):
            def loss_of() -> Any:
                return st.sum((x * weight * again)[i : i + 4])  # noqa: B023  (called at once)

            loss, (d_weight, d_again) = st.value_and_grad(loss_of, wrt=(weight, again))()
            weight.value = weight.value - 0.1 * d_weight
            again.value = again.value - d_again
            total = total + loss
        return total

    return step.stage(X)


def recursive_gradient() -> st.Program:
    @st.function
    def f(n: Any, x: Any) -> Any:
        return st.grad(lambda y: st.sum(fib(n, y)))(x)

    return f.stage(5, X)


def recomputed() -> st.Program:
    @st.function
    def f(x: Any, i: Any) -> Any:
        return st.grad(lambda y: st.sum(st.checkpoint(lambda z: st.exp(z)[i] * z)(y)))(x)

    return f.stage(X, 2)


def mapped() -> st.Program:
    def element(x: Any, i: Any) -> Any:
        if x > 1.0:
            while x < 9.0:
                x = x * x * X[i]
        return x

    return st.function(lambda x, i: st.vmap(element)(x, i)).stage(X, np.arange(8))


def on_two_devices() -> st.Program:
    @st.function
    def f(x: Any) -> Any:
        total = st.zeros(8)
        with st.with_backend(st.GPU, x, total):
            for _ in st.range(3):
                total = st.softmax(total + x)
        return total

    return f.stage(X)


@pytest.mark.parametrize("program", [training, recursive_gradient, recomputed, mapped, on_two_devices])
def test_no_pass_changes_what_is_built(program: Callable[[], st.Program]) -> None:
    assert program().source
