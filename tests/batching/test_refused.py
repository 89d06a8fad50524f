# ruff: noqa: B007  (programs of users name their loop variables)
"""Code that cannot be mapped is refused while staging, with the line and the way out; in eager mode the effects likewise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import StagedError

X = np.arange(6.0).reshape(2, 3)
N = np.array([1, 2])
counter = st.Variable(np.zeros(()), name="counter")


def writes(r: Any, n: Any) -> Any:
    counter.value = counter + r.sum()
    return r


def writes_in_a_gradient(r: Any, n: Any) -> Any:
    def loss(r):
        counter.value = counter + 1.0
        return r.sum()

    return st.grad(loss)(r)


def prints(r: Any, n: Any) -> Any:
    print(r)
    return r


def prints_in_a_branch(r: Any, n: Any) -> Any:
    if r[0] > 0.0:
        print("positive")
    return r


def draws(r: Any, n: Any) -> Any:
    return r + st.random.uniform((3,))


EFFECTS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "write": (writes, "the Variable `counter` is written inside a `vmap`", "write the Variable after the `vmap`"),
    "write in a gradient": (writes_in_a_gradient, "the Variable `counter` is written inside a `vmap`", "after the"),
    "print": (prints, "`print` inside a `vmap`", "print it after the `vmap`"),
    "print in a branch": (prints_in_a_branch, "`print` inside a `vmap`", "print it after the `vmap`"),
    "random": (draws, "random numbers are drawn inside a `vmap`", "pass them as a mapped argument"),
}


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("is_eager", [False, True])
def test_effects(name: str, is_eager: bool) -> None:
    f, message, hint = EFFECTS[name]
    program = st.function(lambda x, n: st.vmap(f)(x, n))
    with pytest.raises(st.StagingError, match=message) as caught:
        if is_eager:
            with st.eager():
                program(X, N)
        else:
            program.stage(X, N)
    assert caught.value.where is not None and caught.value.where.function in (f.__name__, "loss")
    assert hint in (caught.value.hint or "")
    assert float(counter) == 0.0


def step_of_an_element(r: Any, n: Any) -> Any:
    t = 0.0
    for i in st.range(0, 9, n):
        t = t + r[0]
    return t


def second_derivative(r: Any, n: Any) -> Any:
    def f(r):
        t = 1.0
        for i in st.range(n):
            t = t * r[0] + i
        return t

    return st.grad(lambda r: st.grad(f)(r).sum())(r)


PROGRAMS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "step": (step_of_an_element, "the step of a loop under `vmap` differs", "one step for all"),
    "second derivative": (
        second_derivative, "iterations of a loop that is differentiated", "outside",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    f, message, hint = PROGRAMS[name]
    with pytest.raises(st.StagingError, match=message) as caught:
        st.function(lambda x, n: st.vmap(f)(x, n)).stage(X, N).source  # noqa: B018
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert hint in (caught.value.hint or "")


def test_a_result_said_not_to_depend_on_what_is_mapped() -> None:
    program = st.function(lambda x: st.vmap(lambda r: r * 2.0, out_axes=None)(x))
    with pytest.raises(st.StagingError, match="with None in `out_axes` depends on what is mapped"):
        program.stage(X).source  # noqa: B018
    with st.eager(), pytest.raises(st.StagingError, match="with None in `out_axes` depends on what is mapped"):
        program(X)


def test_effects_inside_a_jacobian_name_it() -> None:
    def noisy(x):
        print("noise")
        return x * 2.0

    for jacobian, name in ((st.jacfwd, "jacfwd"), (st.jacrev, "jacrev")):
        if name == "jacrev":
            # The function runs once, and its pullback, which prints nothing, is mapped.
            st.function(lambda x, jacobian=jacobian: jacobian(noisy)(x)).stage(X[0])
            continue
        with pytest.raises(st.StagingError, match=f"`print` inside a `{name}`") as caught:
            st.function(lambda x, jacobian=jacobian: jacobian(noisy)(x)).stage(X[0])
        assert "after the `jacfwd`" in (caught.value.hint or "")


def add(a: Any, b: Any) -> Any:
    return a + b


ARGUMENTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "scalar": (lambda x: st.vmap(add)(x, 1.0), "maps argument 1, which is a scalar"),
    "no such axis": (lambda x: st.vmap(add, in_axes=(2, 0))(x, x), "maps axis 2 of argument 0"),
    "extents": (lambda x: st.vmap(add, in_axes=(0, 1))(x, x), "different extents: 2 of argument 0, 3 of argument 1"),
    "nothing": (lambda x: st.vmap(add, in_axes=None)(x, x), "maps nothing"),
    "count": (lambda x: st.vmap(add, in_axes=(0,))(x, x), "1 `in_axes` for 2 positional arguments"),
    "tree": (lambda x: st.vmap(add, in_axes=((0, 0), 0))(x, x), "`in_axes` of `vmap` of `add` does not fit"),
    "no axis": (lambda x: st.vmap(add, in_axes="a")(x, x), "`in_axes` of `vmap` of `add` does not fit"),
    "out": (lambda x: st.vmap(add, out_axes=(0, 1))(x, x), "`out_axes` of `vmap` of `add` does not fit"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("is_eager", [False, True])
def test_arguments(name: str, is_eager: bool) -> None:
    call, message = ARGUMENTS[name]
    with pytest.raises(StagedError, match=message) as caught:
        if is_eager:
            call(X)
        else:
            st.function(call).stage(X)
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_assertions_hold_for_every_element_or_stop_the_program() -> None:
    def positive(r):
        assert r[0] >= 0.0, "negative"
        return r * 2.0

    f = st.function(lambda x: st.vmap(positive)(x))
    np.testing.assert_array_equal(f(X), X * 2.0)
    with pytest.raises(AssertionError, match="negative"):
        f(-X - 1.0)


def test_raise_in_a_branch_that_an_element_takes() -> None:
    def checked(r):
        if r[0] > 100.0:
            raise ValueError("too large")
        return r * 2.0

    f = st.function(lambda x: st.vmap(checked)(x))
    np.testing.assert_array_equal(f(X), X * 2.0)
    with pytest.raises(ValueError, match="too large"):
        f(X * 100.0)


@pytest.mark.parametrize("is_eager", [False, True])
def test_variables_made_inside_are_each_elements_own(is_eager: bool) -> None:
    leaked: list[st.Variable] = []

    def element(r, n):
        total = st.Variable(r[0] * 0.0, name="total")
        for i in st.range(n):
            total.value = total + r[i]
        leaked[:] = [total]
        return total * 2.0

    program = st.function(lambda x, n: st.vmap(element)(x, n))
    expected = np.array([X[0, :1].sum(), X[1, :2].sum()]) * 2.0
    if is_eager:
        with st.eager():
            np.testing.assert_array_equal(program(X, N), expected)
        return
    np.testing.assert_array_equal(program(X, N), expected)

    def outside(x, n):
        made = st.vmap(element)(x, n)
        return made + leaked[0]

    with pytest.raises(st.LeakError, match="`total` was made inside"):
        st.function(outside).stage(X, N)
