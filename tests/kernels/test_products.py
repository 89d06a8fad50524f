"""Products that run as plain loops: of integers, tiny ones, empty sums, with what happens to their elements."""

from __future__ import annotations

import numpy as np
import pytest
from harness import check, fused, kernels, tensor

from staged.ir.machine import PORTABLE, X86_64_V4
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
