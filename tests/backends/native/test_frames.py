"""Frames of recursive calls and sequences that travel, compiled: values and gradients, memory that is given back."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.runtime.c import load
from staged.runtime.options import CompileOptions
from tests.programs import promises

STRICT = CompileOptions(extra=("-Wall", "-Wextra", "-Wconversion", "-Werror"))


def grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of a function of one number, or of a sum of products with fixed numbers for an array."""

    def derivative(x: Any) -> Any:
        made = st.grad(f)(x)
        return st.sum(made * st.cos(3.0 * x)) if made.ndim else made

    return derivative


# ---- loops of which a derivative is differentiated again ------------------------------------------


def bounded(x):
    a = x
    for _ in st.range(3):
        a = a * x + st.sin(a)
    return st.sum(a)


def unbounded(x):
    a = x
    while st.sum(a) < 40.0:
        a = a * 1.5 + st.sin(x)
    return st.sum(a * x)


def bounded_in_unbounded(x):
    a = x
    while st.sum(a) < 30.0:
        b = a
        for _ in st.range(2):
            b = st.sin(b) * x + b
        a = a * 1.5 + b * x
    return st.sum(a)


def unbounded_in_bounded(x):
    a = x
    for i in st.range(3):
        b = a
        while st.sum(b) < 6.0 + i:
            b = b * 1.7 + st.sin(a) * x
        a = b * 0.3 + a * x
    return st.sum(a)


def branches_in_a_loop(x):
    a = x
    for _ in st.range(4):
        if st.sum(a) > 2.0:
            for _ in st.range(2):
                a = st.sin(a) * x
        else:
            a = a * a + x
    return st.sum(a)


LOOPS = (bounded, unbounded, bounded_in_unbounded, unbounded_in_bounded, branches_in_a_loop)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_higher_derivatives_through_loops_compile_and_agree_with_eager_mode(f, order):
    def derivative(x):
        made = f
        for _ in range(order):
            made = grad(made)
        return made(x)

    for x in (1.2, np.array([0.9, 1.3])) if order == 2 else (1.2,):
        native = load(st.function(derivative).stage(x)._artifact, STRICT)
        with st.eager():
            expected = derivative(x)
        np.testing.assert_allclose(native(x)[0], expected, rtol=1e-9)


# ---- recursion --------------------------------------------------------------------------------------


@st.function
def encode(node, left, right, x, w):
    if left[node] < 0:
        return st.tanh(w @ x[node])
    a = encode(left[node], left, right, x, w)
    b = encode(right[node], left, right, x, w)
    return st.tanh(w @ (a + b * 0.5))


@st.function
def with_loops(n, x):
    """A loop with a bound and one without in each call, and calls inside of loops."""
    if n < 1:
        return st.sin(x)
    a = x
    for _ in st.range(2):
        a = st.sin(a) + with_loops(n - 1, a * x)
    while st.sum(a) < 3.0:
        a = a * 1.5 + 0.1 * x
    return a


@st.function
def even(n, x):
    if n == 0:
        return x * x
    return odd(n - 1, st.sin(x) * x)


@st.function
def odd(n, x):
    if n == 0:
        return x + 1.0
    return even(n - 1, x * 0.5 + st.cos(x))


LEFT, RIGHT = np.array([1, 3, -1, -1, 5, -1, -1]), np.array([2, 4, -1, -1, 6, -1, -1])
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((7, 5)), RNG.standard_normal((5, 5))


TREE = (LEFT, RIGHT, X)
RECURSIVE: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...]]] = {
    "tree": (lambda w, *tree: st.sum(encode(0, *tree, w) ** 2), W, TREE),
    "loops in recursion": (lambda x, n: st.sum(with_loops(n, x)), np.array([0.7, 0.4]), (2,)),
    "mutual": (lambda x, n: st.sum(even(n, x)), np.array([0.7, 0.4]), (5,)),
}


@pytest.mark.parametrize("name", RECURSIVE)
def test_gradients_of_recursion_agree_with_differences(name):
    f, at, given = RECURSIVE[name]

    @st.function
    def both(x, *given):
        return st.value_and_grad(f)(x, *given)

    primal = st.function(f)
    value, gradient = both(at, *given)
    np.testing.assert_allclose(value, primal(at, *given), rtol=1e-12)
    direction = np.cos(np.arange(at.size)).reshape(at.shape)
    ahead, behind = primal(at + 1e-6 * direction, *given), primal(at - 1e-6 * direction, *given)
    np.testing.assert_allclose(np.sum(gradient * direction), (ahead - behind) / 2e-6, rtol=1e-6)
    load(both.stage(at, *given)._artifact, STRICT)


def test_frames_lie_in_the_text_as_records_with_the_names_of_the_user():
    source = st.function(lambda w, *tree: st.grad(RECURSIVE["tree"][0])(w, *tree)).stage(W, *TREE).source
    record = re.search(r"struct encode_frame \{(.*?)\};", source, re.S)[1]
    assert re.search(r"const encode_frame \*.*// test_frames.py:\d+  a = encode", record)
    assert re.search(r"double b\[5\];  // \(5,\)  test_frames.py:\d+  b = encode", record) and "squashed" in record
    assert "value" not in record
    forward = source.split("static int encode_forward(")[1].split("\n}\n")[0]
    assert "encode_forward(m, host, left_2, left, right, x, w, frame->a, " in forward
    copied = re.findall(r"memcpy\((.*?), (.*?),", forward)
    assert [place for _, place in copied] == [
        "result",
        "result",
    ]  # the caller's array: what else is kept is made in the frame
    assert "fill" not in forward  # nothing is made for what the branch not taken would keep
    backward = source.split("static int encode_backward(")[1].split("\n}\n")[0]
    assert "memcpy" not in backward  # weights, arrays of the tree and their running sums are passed on as they are


# ---- memory -----------------------------------------------------------------------------------------


@st.function
def train(left, right, x, w, steps):
    def loss(w, scale):
        total = st.sum(encode(0, left, right, x, w) ** 2)
        a = total
        while a < 100.0:
            a = a * 1.5 + scale
        return total + 0.001 * a

    for i in st.range(steps):
        w = w - 0.01 * st.grad(loss)(w, 0.5 + 0.0 * i)
        bend = st.grad(lambda s: st.grad(lambda r: unbounded(r * s))(1.1))(1.0)
        w = w + 0.00001 * bend
    return w


def test_memory_is_given_back_in_every_turn_and_nothing_is_allocated_after_the_start(tmp_path):
    train.stage(LEFT, RIGHT, X, W, 1).export(tmp_path, target="portable")
    arrays = {"left": LEFT, "right": RIGHT, "x": X, "w": W}
    promises.build(tmp_path)
    runs = [promises.run(tmp_path, "train", arrays, ["--steps", steps, "--out", "."]) for steps in ("3", "3000")]
    assert runs[0].allocations == runs[1].allocations > 0
    promises.build(tmp_path, "-std=c11 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all")
    command = promises.command(tmp_path, "train", arrays, ["--steps", "20", "--out", "."])
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr == ""
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), train(LEFT, RIGHT, X, W, 20), rtol=1e-9)
