"""The residuals of loops, compiled: made in its slot of the history, copied only where it must be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.runtime.c import load
from staged.runtime.options import CompileOptions

STRICT = CompileOptions(extra=("-Wall", "-Wextra", "-Wconversion", "-Werror"))
X = np.random.default_rng(0).normal(size=3)
W = np.random.default_rng(1).normal(size=(3, 3))


def cell(x, w):
    h = x
    for _ in st.range(5):
        a = st.tanh(w @ h)
        h = st.sigmoid(a) * h + a
    return st.sum(h * h)


def nested(x, w):
    h = x
    for i in st.range(3):
        g = st.tanh(w @ h)
        for j in st.range(4):
            q = st.exp(0.1 * st.sin(w @ g) - 0.01 * j)
            if st.sum(q) > 3.2:
                g = q * g + st.cos(h)
            else:
                g = st.tanh(q) * g
        h = st.sigmoid(g) * st.tanh(h) + 0.1 * i
    return st.sum(h * h)


def left_early(x, w):
    h = x
    for i in st.range(6):
        a = st.tanh(w @ h)
        if st.sum(a * a) > 1.0 + 0.1 * i:
            break
        h = st.exp(a) * h + a
    return st.sum(h * h)


def in_a_loop_without_bound(x, w):
    h = x
    while st.sum(h * h) < 50.0:
        a = h
        for _ in st.range(3):
            a = st.tanh(w @ a) * 0.5 + st.exp(0.1 * a)
        h = h + a * a
    return st.sum(h)


def of_numbers(x, w):
    a, b, rounds = x[0] * x[0] + 1.0, w[0, 0], 0
    while a < 20.0:
        c = 0.5 * a
        if b > -1.0 or rounds < 1:
            while c < a:
                c = c + st.exp(-0.1 * b * c) + 0.25
                if c > 3.0:
                    c = c * 1.05 + st.tanh(b) * st.tanh(b)
        a = a * (1.125 + 0.1 * st.tanh(c * b)) + st.sin(c) * st.sin(c)
        b = b * 0.97 - 0.1 * st.tanh(c)
        rounds += 1
    return a * b + rounds


def of_numbers_and_arrays(x, w):
    t = x[1]
    while st.sum(x * x) < 50.0:
        s = st.tanh(st.sum(x)) + t
        x = x + st.exp(s * 0.1) * st.exp(0.1 * st.tanh(w @ x))
        t = t + s * st.sin(s)
    return st.sum(x) * t


@st.function
def climb(h, w, n):
    for _ in st.range(2):
        h = st.tanh(w @ h) + st.exp(0.1 * h)
    if n > 0:
        return climb(h, w, n - 1) * st.sigmoid(h)
    return h


def in_a_recursion(x, w):
    return st.sum(climb(x, w, 3))


LOOPS = (cell, nested, left_early, in_a_loop_without_bound, of_numbers, of_numbers_and_arrays, in_a_recursion)


def first(f: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: Any, w: Any) -> Any:
        return st.grad(f, argnums=(0, 1))(x, w)

    return gradient


def second(f: Callable[..., Any]) -> Callable[..., Any]:
    def slope(x: Any, w: Any) -> Any:
        d_x, d_w = st.grad(f, argnums=(0, 1))(x, w)
        return st.sum(d_x * st.cos(x)) + st.sum(d_w * st.sin(w))

    return first(slope)


@pytest.mark.parametrize("order", [first, second])
@pytest.mark.parametrize("f", LOOPS)
def test_gradients_of_loops_that_keep_arrays(f, order):
    derivative = order(f)
    native = load(st.function(derivative).stage(X, W)._artifact, STRICT)
    with st.eager():
        expected = derivative(X, W)
    for made, wanted in zip(native(X, W), expected, strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("f", LOOPS)
def test_gradients_agree_with_differences(f):
    st.check_grads(f, (X, W), order=1)


def test_carried_values_are_computed_in_their_slot():
    source = st.function(first(nested)).stage(X, W).source
    places = re.findall(r" double \*const (\w+) = m->(\w+_history) \+ (.*);", re.sub("const double.*", "", source))
    made = {history: place for _, history, place in places}
    inner = {"product_history", "q_history", "q_squashed_history"}
    assert set(made) == {"g_history", "h_history", "h_squashed_history", "g_sigmoid_history", *inner}
    assert {made[name] for name in inner} == {"(i * 4 + j) * 3"} and made["g_history"] == "i * 3"
    following = re.findall(r" double \*const next_(\w+) = (.*);", source)
    assert following == [
        ("h", "i < 2 ? m->h_history + (i + 1) * 3 : m->h"),
        ("g", "j < 3 ? m->g_history_2 + (i * 4 + j + 1) * 3 : m->g"),
    ]
    # The initial values: what the caller passes, and what is in a history of its own.
    assert re.findall(r"memcpy\((.*), 3 \*", source) == ["m->h_history, args->x", "m->g_history_2 + i * 4 * 3, g"]


def test_an_initial_value_is_computed_in_the_first_slot():
    def doubled(x, w):
        return cell(2.0 * x, w)

    source = st.function(first(doubled)).stage(X, W).source
    assert "memcpy(m->" not in source and "_x(args->x, m->h_history);" in source


def test_numbers_that_an_iteration_keeps_are_pushed_together():
    source = st.function(first(of_numbers)).stage(X, W).source
    assert len(re.findall(r"st_stack_push\(", source)) == 2  # one for each loop
    outer, inner = (re.findall(rf"typedef struct {{\n([^}}]*)}} {name};", source)[0] for name in ("Kept_2", "Kept"))
    assert "int64_t first;" in outer and "double c;" in inner
    arrays = st.function(first(of_numbers_and_arrays)).stage(X, W).source
    assert len(re.findall(r"st_stack_push\(host, m->\w+, &kept", arrays)) == 1
    assert len(re.findall(r"st_stack_push\(host,\s+m->\w+,\s+m->", arrays)) == len(re.findall(r"\w+ \(3,\) per turn", arrays))


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_a_loop_over_a_dimension_keeps_arrays_of_its_bound(rows):
    def steps(x, w):
        h = x[0] if x.shape[0] > 7 else st.ones(3, dtype=st.f64)
        for t in st.range(x.shape[0]):
            h = st.tanh(w @ h) + x[t]
        return st.sum(h * h)

    gradient = st.grad(steps, argnums=(0, 1))
    given = np.random.default_rng(rows).normal(size=(rows, 3)), W
    dynamic = st.function(dims={"args.0": ("N <= 9", 3)})(lambda *args: gradient(*args))
    for found, right in zip(dynamic(*given), st.function(gradient)(*given), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)
    source = dynamic.stage(*given).source
    assert "st_stack" not in source and "next_h = t < N - 1" in source
