"""Products of vectors that are put off: the same sums, in fewer passes over the matrix."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.ir.functions import map_functions
from staged.ir.nodes import Function, walk_ops
from staged.ir.types import TensorType, f32, i64
from staged.ir.verifier import verify
from staged.passes import defer_products as pass_
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.defer_products import ROWS, defer_products
from staged.pipeline import build
from staged.runtime.c import load
from staged.system import target
from tests.ir_functions import Functions, assemble, define
from tests.ir_interpreter import run

INT, COLUMN, ROW = TensorType(i64), TensorType(f32, (130, 1)), TensorType(f32, (1, 140))
SUM = TensorType(f32, (130, 140))
IN_PLACE = ((3, 0),)


def walk(p: Functions, n, a, b, total):
    """Two calls in each: products of both orders of operands, one of which is given transposed."""

    def more():
        s = total + a @ b
        (s,) = p.call("walk", [n - 1, a * 0.5, b, s], [SUM], in_place=IN_PLACE)
        s = a @ (b * 2.0) + s
        return p.call("walk", [n - 2, a, b * 0.25, s], [SUM], in_place=IN_PLACE)

    return p.if_(n < 1, lambda: (total,), more)


def main(p: Functions, n, a, b, start):
    (once,) = p.call("walk", [n, a, b, start], [SUM], in_place=IN_PLACE)
    (twice,) = p.call("walk", [n - 1, a, b, once * 0.5], [SUM], in_place=IN_PLACE)
    return [once, twice]


def program(body=walk) -> Function:
    return assemble(define("main", [INT, COLUMN, ROW, SUM], main), define("walk", [INT, COLUMN, ROW, SUM], body))


RNG = np.random.default_rng(0)
GIVEN = [RNG.standard_normal(type.shape).astype(np.float32) for type in (COLUMN, ROW, SUM)]


def products(made: Function) -> list[tuple[int, ...]]:
    (function,) = made.functions
    return [op.operands[0].tensor.shape for op in walk_ops(function.block) if op.name == "matmul"]


def test_on_a_gpu_each_product_is_added_at_once() -> None:
    """There a launch is what costs: two rows to keep, where adding the product is one call of cuBLAS."""

    @st.function
    def f(x, w, n):
        @st.function
        def walk(n, h, w):
            return h if n < 1 else walk(n - 1, st.tanh(w @ h), w)

        with st.with_backend(st.GPU, x, w):
            return st.grad(lambda w: st.sum(walk(n, x, w)))(w)

    x, w = np.ones((130,), np.float32), np.ones((130, 130), np.float32)
    placed = f.stage(x, w, 3)
    assert "put off" not in placed.source
    assert [(copy.why, copy.source.kind) for copy in placed.transfers()] == [
        ("input", "cpu"),
        ("input", "cpu"),
        ("result", "gpu"),
    ]


@pytest.mark.parametrize("n", [0, 1, 5, 9])
def test_the_sums_are_the_same(n):
    made = map_functions(defer_products(program()), eliminate_dead_code)
    verify(made, "defer_products")
    assert set(products(made)) == {(ROWS, 130)}
    for have, want in zip(run(made, n, *GIVEN), run(program(), n, *GIVEN), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)


def test_compiled_twice_in_a_row_they_start_afresh():
    native = load(build(program(), target("native")).emitted.artifact)
    want = run(program(), 9, *GIVEN)
    for _ in range(2):
        for have, expected in zip(native(9, *GIVEN), want, strict=True):
            np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-4)
    source = build(program(), target("native")).emitted.artifact.source
    assert "total_left" in source and "memcpy" not in source.split("static int walk(")[1].split("\n}\n")[0]


def reads_its_sum(p: Functions, n, a, b, total):
    return p.if_(
        n < 1,
        lambda: (total,),
        lambda: p.call("walk", [n - 1, a * total[0, 0], b, total + a @ b], [SUM], in_place=IN_PLACE),
    )


def adds_it_to_itself(p: Functions, n, a, b, total):
    return p.if_(
        n < 1,
        lambda: (total,),
        lambda: p.call("walk", [n - 1, a, b, (total + a @ b) + total], [SUM], in_place=IN_PLACE),
    )


def hands_on_another(p: Functions, n, a, b, total):
    def more():
        (inner,) = p.call("walk", [n - 1, a, b, total * 2.0], [SUM], in_place=IN_PLACE)
        return (inner + a @ b,)

    return p.if_(n < 1, lambda: (total,), more)


def carries_it_round_a_loop(p: Functions, n, a, b, total):
    def more():
        (s,) = p.for_(2, [total], lambda loop, i, s: (s + a @ b,))
        return p.call("walk", [n - 1, a, b, s], [SUM], in_place=IN_PLACE)

    return p.if_(n < 1, lambda: (total,), more)


@pytest.mark.parametrize("body", [reads_its_sum, adds_it_to_itself, hands_on_another, carries_it_round_a_loop])
def test_sums_that_somebody_needs_meanwhile_are_left_alone(body):
    assert products(defer_products(program(body))) == products(program(body))


def test_small_sums_are_left_alone(monkeypatch):
    monkeypatch.setattr(pass_, "LEAST_ELEMENTS", SUM.size + 1)
    assert products(defer_products(program())) == products(program())


@st.function
def encode(n, x, w):
    if n < 1:
        return st.tanh(w @ x)
    return st.tanh(w @ (encode(n - 1, x * 0.9, w) + 0.5 * encode(n - 2, x, w)))


def test_the_gradient_of_a_weight_agrees_with_differences():
    @st.function
    def both(n, x, w):
        return st.value_and_grad(lambda w: st.sum(encode(n, x, w) ** 2))(w)

    primal = st.function(lambda n, x, w: st.sum(encode(n, x, w) ** 2))
    w, x = RNG.standard_normal((130, 130)) / 12, RNG.standard_normal(130)
    direction = RNG.standard_normal(w.shape)
    gradient = both(6, x, w)[1]
    ahead, behind = primal(6, x, w + 1e-6 * direction), primal(6, x, w - 1e-6 * direction)
    np.testing.assert_allclose(np.sum(gradient * direction), (ahead - behind) / 2e-6, rtol=1e-5)
    source = both.stage(6, x, w).source
    assert re.search(rf"\.d_w_left = .* // \({ROWS}, 130\)  rows put off: {ROWS} outer products are added to `d_w` ", source)
    assert re.search(r"\.d_w_rows = &d_w_rows, +// i64  how many rows are put off  test_defer_products.py:\d+  ", source)
    backward = source.split("static int encode_backward(")[1].split("\n}\n")[0]
    assert "// a product of vectors is put off" in backward and "// what is left of the products" not in backward
    assert source.count("// what is left of the products that were put off for d_w\n") == 1
