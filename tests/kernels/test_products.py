"""Products that run as nests: of integers, tiny ones, empty sums, those of floats in tiles, with what happens to their elements."""

from __future__ import annotations

import numpy as np
import pytest
from harness import assert_same_bits, check, fused, kernels, tensor

from staged.ir.machine import PORTABLE, X86_64_V3, X86_64_V4
from staged.kernels import products
from staged.ops import comparisons
from staged.ops import contraction as D
from staged.ops import elementwise as E

MACHINES = [PORTABLE, X86_64_V4.with_cores(2)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_products_of_integers_of_every_transposition(machine, dtype, turned):
    def f(a, b, bias):
        return D.matrix_product(a, b, "a" in turned, "b" in turned) * 3 + bias

    a, b = ((9, 7) if "a" in turned else (7, 9)), ((37, 9) if "b" in turned else (9, 37))
    check(f, tensor(dtype, *a), tensor(dtype, *b), tensor(dtype, 37), count=1, machine=machine)


@pytest.mark.parametrize("m, k, n", [(1, 4, 1), (3, 0, 4), (1, 1, 33), (2, 2, 16), (1, 8, 8), (1, 60, 1)])
def test_tiny_and_empty_products(m, k, n):
    program = check(
        lambda x, w, b: E.maximum(D.matmul(x, w) + b, 0.0),
        tensor("f32", m, k), tensor("f32", k, n), tensor("f32", n), count=1,
    )  # fmt: skip
    assert [op.name for op in kernels(program.function)] == ["kernel"]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize("m, k, n", [(6, 60, 32), (13, 17, 70), (11, 70, 16), (2, 200, 33), (100, 40, 4)])
def test_tiles_of_integers_cover_every_element_once(machine, m, k, n):
    """In any number of pieces: threads take iterations of one loop, then those of the next."""
    program = check(
        lambda a, b, c: D.matmul(a, b) + c, tensor("i32", m, k), tensor("i32", k, n), tensor("i32", m, n),
        count=1, machine=machine,
    )  # fmt: skip
    assert "keep k: over r, s" in str(kernels(program.function)[0].attrs["schedule"])


@pytest.mark.parametrize("m, n", [(0, 4), (3, 0)])
def test_products_without_elements(m, n):
    check(lambda x, w: D.matmul(x, w), tensor("f32", m, 3), tensor("f32", 3, n))


def test_batches_of_products_of_integers():
    check(lambda a, b: D.matmul(a, b), tensor("i32", 3, 2, 4, 5), tensor("i32", 3, 2, 5, 6), count=1)


def test_sums_of_floats_keep_their_order():
    """A row of one matrix times a row of another is as long as a vector, and still one sum."""
    (kernel,) = kernels(fused(lambda x, w: D.matrix_product(x, w, False, True), tensor("f32", 1, 64), tensor("f32", 1, 64)))
    assert kernel.name == "kernel" and kernel.attrs["schedule"].lanes == 1
    assert str(kernel.attrs["schedule"]) == "write out k", "a loop might be compiled without fused multiply-adds"
    (kernel,) = kernels(fused(lambda x, w: D.matrix_product(x, w, False, True), tensor("i32", 1, 64), tensor("i32", 1, 64)))
    assert kernel.attrs["schedule"].lanes == 16


@pytest.mark.parametrize("twice", [False, True])
def test_a_result_lies_where_an_addend_does_unless_the_product_reads_that_too(twice):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (2, 12, 12))
    program = check(
        lambda x, y: D.matmul(x, y) + (x if twice else y * y), tensor("i32", 12, 12), tensor("i32", 12, 12), arguments=[x, y]
    )
    assert program.kernels[-1].may_alias == ()
    program = check(lambda x, y, z: D.matmul(x, y) + z, *[tensor("i32", 12, 12)] * 3)
    assert program.kernels[-1].may_alias == ((0, 2),)


def layer(x, w, b):
    return E.maximum(D.matmul(x, w) + b, 0.0)


def linear(x, w, b):
    return E.maximum(D.matrix_product(x, w, False, True) + b, 0.0)


def update(w, x, d):
    return w - 0.1 * D.matrix_product(x, d, True, False)


def two_results(x, w, y):
    z = D.matmul(x, w) * 0.5 - y
    return z, comparisons.greater(z, 0.0)


TILED = {
    "layer": (layer, ("f32", 21, 30), ("f32", 30, 96), ("f32", 96)),
    "one tile": (layer, ("f32", 5, 9), ("f32", 9, 16), ("f32", 16)),
    "rows of two sizes": (layer, ("f32", 64, 20), ("f32", 20, 16), ("f32", 16)),
    "panels of two sizes": (layer, ("f32", 7, 40), ("f32", 40, 176), ("f32", 176)),
    "update": (update, ("f32", 24, 64), ("f32", 40, 24), ("f32", 40, 64)),
    "two results": (two_results, ("f32", 12, 50), ("f32", 50, 48), ("f32", 12, 48)),
    "functions": (lambda x, w, b: E.tanh(D.matmul(x, w) + b), ("f32", 20, 30), ("f32", 30, 96), ("f32", 96)),
    "long": (lambda x, w, y: (D.matmul(x, w) * 0.9 + y) * y - y * 0.5, ("f64", 9, 33), ("f64", 33, 40), ("f64", 9, 40)),
    "chains": (layer, ("f32", 21, 400), ("f32", 400, 48), ("f32", 48)),
    "chains of two lengths": (update, ("f32", 24, 64), ("f32", 785, 24), ("f32", 785, 64)),
    "chains and columns left over": (layer, ("f32", 21, 900), ("f32", 900, 75), ("f32", 75)),
    "chains and a long epilogue": (two_results, ("f32", 9, 1000), ("f32", 1000, 32), ("f32", 9, 32)),
    "columns left over": (layer, ("f32", 13, 70), ("f32", 70, 107), ("f32", 107)),
    "columns left over, in place": (update, ("f32", 19, 61), ("f32", 70, 19), ("f32", 70, 61)),
    "columns left over, two results": (two_results, ("f32", 25, 70), ("f32", 70, 39), ("f32", 25, 39)),
    "columns left over of f64": (layer, ("f64", 9, 70), ("f64", 70, 43), ("f64", 43)),
    "f64": (layer, ("f64", 9, 33), ("f64", 33, 40), ("f64", 40)),
    "transposed": (linear, ("f32", 21, 30), ("f32", 96, 30), ("f32", 96)),
    "transposed, one panel": (linear, ("f32", 21, 32), ("f32", 16, 32), ("f32", 16)),
    "transposed, panels of two sizes": (linear, ("f32", 21, 40), ("f32", 176, 40), ("f32", 176)),
    "transposed, functions": (lambda x, w, b: E.tanh(linear(x, w, b)), ("f32", 20, 30), ("f32", 96, 30), ("f32", 96)),
    "transposed f64": (linear, ("f64", 9, 33), ("f64", 40, 33), ("f64", 40)),
    "transposed batch": (
        lambda a, b: D.matrix_product(a, b, False, True) * 0.5, ("f32", 3, 2, 9, 20), ("f32", 3, 2, 32, 20)
    ),
    "transposed, shared by threads": (linear, ("f32", 85, 100), ("f32", 160, 100), ("f32", 160)),
    "chains of a transposed operand": (linear, ("f32", 21, 390), ("f32", 48, 390), ("f32", 48)),
    "columns left over, transposed": (linear, ("f32", 21, 70), ("f32", 107, 70), ("f32", 107)),
    "batch": (lambda a, b: D.matmul(a, b) * 0.5, ("f32", 3, 2, 8, 20), ("f32", 3, 2, 20, 32)),
    "shared by threads": (layer, ("f32", 90, 100), ("f32", 100, 64), ("f32", 64)),
    "panels shared by threads": (layer, ("f32", 9, 100), ("f32", 100, 1024), ("f32", 1024)),
}


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4.with_cores(2)], ids=lambda m: m.name)
def test_tiles_of_floats_have_the_bits_of_the_function_that_other_products_have(machine, monkeypatch):
    types = {name: [tensor(*type) for type in types] for name, (_, *types) in TILED.items()}
    cases = {name: f for name, (f, *_) in TILED.items() if machine.vector_bytes >= 64 or not name.startswith(("columns", "chains"))}
    functions = [fused(f, *types[name], machine=machine) for name, f in cases.items()]
    for function in functions:
        (kernel,) = kernels(function)
        assert kernel.name == "kernel" and "keep k: over r, s" in str(kernel.attrs["schedule"])
    with monkeypatch.context() as patch:
        patch.setattr(products, "is_tiled", lambda *_: False)
        others = [fused(f, *types[name], machine=machine) for name, f in cases.items()]
        assert {kernels(other)[0].name for other in others} == {"contraction"}
    assert_same_bits({name: types[name] for name in cases}, functions, others, machine)

@pytest.mark.parametrize(
    "f, types, machine",
    [
        (lambda x, w: D.matrix_product(x, w, False, True), [(16, 20), (32, 20)], X86_64_V4),
        (lambda x, w: D.matrix_product(x, w, True, True), [(20, 9), (32, 20)], X86_64_V4),
        (lambda x, w: D.matrix_product(x, w, False, True), [(9, 10), (32, 10)], X86_64_V4),
        (lambda x, w: D.matrix_product(x, w, False, True), [(20, 200), (50, 200)], X86_64_V4),
        (lambda x, w: D.matrix_product(x, w, False, True), [(70, 200), (104, 200)], X86_64_V4.with_cores(2)),
        (D.matmul, [(4, 20), (20, 32)], X86_64_V4),
        (D.matmul, [(8, 400), (400, 32)], X86_64_V3),
        (D.matmul, [(8, 3000), (3000, 32)], X86_64_V4),
        (D.matmul, [(8, 20), (20, 32)], PORTABLE),
        (D.matmul, [(8, 20), (20, 33)], X86_64_V3),
        (D.matmul, [(16, 20), (20, 33)], X86_64_V4),
        (lambda x, w: E.exp(D.matmul(x, w)), [(9, 20), (20, 33)], X86_64_V4),
        (lambda x, w: D.matmul(x, w) * 0.5, [(13, 30), (30, 107)], X86_64_V4),
    ],
    ids=[
        "turned", "both turned", "turned, short rows", "turned, columns left over", "turned, more items",
        "few rows", "chains", "long sums", "short vectors",
        "left over", "waste", "functions of what is left over",
        "short sums and columns left over",
    ],
)
def test_other_products_of_floats_are_no_nests(f, types, machine):
    (kernel,) = kernels(fused(f, *(tensor("f32", *shape) for shape in types), machine=machine))
    assert kernel.name == "contraction"
