"""Products whose operands are changed before they are multiplied, and whose sums have a dtype of their own."""

from __future__ import annotations

import numpy as np
import pytest
from harness import MACHINE, record, tensor
from nest_interpreter import run_nest
from test_attention import compiled

from staged.ir.loops import Nest
from staged.ir.machine import PORTABLE
from staged.ir.nest_printer import print_nest
from staged.ir.nodes import Op, Value
from staged.ir.products import product_nest
from staged.ir.types import DType, TensorType, f32, f64, i32, u8
from staged.kernels.candidates import candidates
from staged.kernels.epilogue import lower_prologue
from staged.ops import elementwise as E
from staged.ops import shape as S

RNG = np.random.default_rng(11)
M, K, N = 5, 7, 18


def dequantised(w, scale):
    return (S.cast(w, f32) - 128.0) * scale


def product(types: tuple[TensorType, TensorType], made: DType, turned: str = "") -> Op:
    a, b = (Value(type, name) for type, name in zip(types, "ab", strict=True))
    m, n = types[0].shape[-1 if "a" in turned else -2], types[1].shape[-2 if "b" in turned else -1]
    shape = (*types[0].shape[:-2], m, n)
    attrs = {"transpose_a": "a" in turned, "transpose_b": "b" in turned}
    return Op("matmul", [a, b], [TensorType(made, shape)], attrs=attrs)


def prologue(function, operand: Value, *more: TensorType) -> Nest:
    """The nest of what `function` makes of an operand (and of more inputs)."""
    return lower_prologue(operand, record(function, operand.tensor, *more).block)


def in_c(nest: Nest, given: list[np.ndarray], dtype: type, shape: tuple[int, ...], machine) -> np.ndarray:
    out = np.full(shape, 77, dtype)
    compiled(nest, [np.ascontiguousarray(each) for each in given], out, machine)
    return out


@pytest.mark.parametrize("batch", [(), (3,)])
def test_bytes_are_summed_in_integers(batch):
    a, b = (RNG.integers(0, 256, (*batch, *shape)).astype(np.uint8) for shape in ((M, K), (K, N)))
    op = product((tensor("u8", *a.shape), tensor("u8", *b.shape)), i32)
    nest = product_nest(op, "product", total_dtype=i32)
    wanted = a.astype(np.int32) @ b.astype(np.int32)
    assert wanted.max() > 255
    (got,) = run_nest(nest, [a, b])
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
    for machine in (PORTABLE, MACHINE):
        np.testing.assert_array_equal(in_c(nest, [a, b], np.int32, wanted.shape, machine), wanted)


@pytest.mark.parametrize("terms", [K, 0])
def test_a_sum_is_wider_than_its_terms_and_its_result(terms):
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((M, terms), (terms, N)))
    nest = product_nest(product((tensor("f32", M, terms), tensor("f32", terms, N)), f32), "product", total_dtype=f64)
    wanted = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    (got,) = run_nest(nest, [a, b])
    np.testing.assert_allclose(got.reshape(M, N), wanted, rtol=1e-7)
    np.testing.assert_allclose(in_c(nest, [a, b], np.float32, (M, N), MACHINE), wanted, rtol=1e-7)


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_weights_of_bytes_with_a_scale_for_each_column_are_dequantised_where_they_are_read(turned):
    a, w = RNG.standard_normal((M, K)).astype(np.float32), RNG.integers(0, 256, (K, N)).astype(np.uint8)
    scale = RNG.uniform(0.01, 0.02, N).astype(np.float32)
    wanted = a @ ((w.astype(np.float32) - 128) * scale)
    a, w = a.T if "a" in turned else a, w.T if "b" in turned else w
    scale = scale[:, None] if "b" in turned else scale
    op = product((tensor("f32", *a.shape), tensor("u8", *w.shape)), f32, turned)
    weights = prologue(dequantised, op.operands[1], tensor("f32", *scale.shape))
    nest = product_nest(op, "product", prologues=(None, weights))
    (got,) = run_nest(nest, [a, w, scale])
    np.testing.assert_allclose(got.reshape(M, N), wanted, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(in_c(nest, [a, w, scale], np.float32, (M, N), MACHINE), wanted, rtol=2e-5, atol=1e-5)


def test_both_operands_have_prologues_whose_inputs_come_in_their_order():
    a, b, p, q = (RNG.standard_normal(shape) for shape in ((2, M, K), (2, K, N), (M, K), (2, K, 1)))
    op = product((tensor("f64", *a.shape), tensor("f64", *b.shape)), f64)
    left = prologue(lambda x, y: E.maximum(x, 0.0) * y, op.operands[0], tensor("f64", *p.shape))
    right = prologue(lambda x, y: E.tanh(x) + y, op.operands[1], tensor("f64", *q.shape))
    nest = product_nest(op, "product", prologues=(left, right))
    wanted = (np.maximum(a, 0) * p) @ (np.tanh(b) + q)
    (got,) = run_nest(nest, [a, b, p, q])
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-12)


def test_every_schedule_of_a_product_with_a_prologue_gives_its_bits():
    """Register tiles, reordered loops and panels: a prologue goes along with the element that it changes."""
    m, k, n = 24, 16, 64
    a, w = RNG.standard_normal((m, k)).astype(np.float32), RNG.integers(0, 256, (k, n)).astype(np.uint8)
    scale = RNG.uniform(0.01, 0.02, n).astype(np.float32)
    op = product((tensor("f32", m, k), tensor("u8", k, n)), f32)
    weights = prologue(dequantised, op.operands[1], tensor("f32", n))
    nest = product_nest(op, "product", prologues=(None, weights), total_dtype=f32)
    (wanted,) = run_nest(nest, [a, w, scale])
    found = list(candidates(nest, MACHINE))
    assert len(found) > 1
    for rewritten, _ in found[:4]:
        (got,) = run_nest(rewritten, [a, w, scale])
        assert got.tobytes() == wanted.tobytes(), print_nest(rewritten)


def test_a_prologue_is_printed_where_it_runs():
    op = product((tensor("f32", 2, 3), tensor("u8", 3, 4)), f32)
    weights = prologue(dequantised, op.operands[1], tensor("f32", 4))
    text = print_nest(product_nest(op, "scores", prologues=(None, weights), total_dtype=f64))
    lines = [line.strip() for line in text.splitlines()]
    begin = lines.index("for k < 3:")
    assert lines[begin + 1 : begin + 4] == ["x = a[3*row + k]", "x_f64 = cast(x, dtype=f64)", "y = b[column + 4*k]"], text
    assert u8.name in lines[0] and "total = sum(total, term)" in lines
