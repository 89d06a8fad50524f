"""Transposes of products become products of transposes: the IR before and after, with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staged.ir.printer import print_function
from staged.ir.types import TensorType, f64
from staged.ir.verifier import verify
from staged.ops.array import METHODS
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.transposes import fold_transpose_of_matmul
from tests.ir_interpreter import run
from tests.ir_programs import function

A, B = np.arange(12.0).reshape(2, 2, 3), np.arange(24.0).reshape(2, 3, 4)


def program(axes: tuple[int, ...], batch: bool = True) -> Any:
    """x @ y with its axes permuted, and the operands."""

    def body(p: Any, x: Any, y: Any) -> Any:
        product = METHODS["matmul"](x, y)
        return (METHODS["permute"](product, axes),)

    operands = (A, B) if batch else (A[0], B[0])
    return function(body, *(TensorType(f64, each.shape) for each in operands)), operands


def folded(before: Any) -> Any:
    after = fold_transpose_of_matmul(before)
    verify(after, "fold_transpose_of_matmul")
    return eliminate_dead_code(after)


def test_a_transposed_product_is_the_product_of_the_transposes() -> None:
    before, operands = program((1, 0), batch=False)
    after = folded(before)
    assert print_function(before) == """\
func f(x: f64 (2, 3), y: f64 (3, 4)):
  t: f64 (2, 4) = matmul(x, y) {transpose_a=False, transpose_b=False}
  t_2: f64 (4, 2) = permute(t) {axes=(1, 0)}
  return(t_2)
"""
    assert print_function(after) == """\
func f(x: f64 (2, 3), y: f64 (3, 4)):
  t: f64 (4, 2) = matmul(y, x) {transpose_a=True, transpose_b=True}
  return(t)
"""
    np.testing.assert_array_equal(run(after, *operands), run(before, *operands))


@pytest.mark.parametrize(("axes", "left"), [((0, 2, 1), ["matmul"]), ((1, 0, 2), ["matmul", "permute"])])
def test_of_a_batch_the_matrices_may_be_transposed(axes: tuple[int, ...], left: list[str]) -> None:
    before, operands = program(axes)
    after = folded(before)
    assert [op.name for op in after.block.ops] == left
    np.testing.assert_array_equal(run(after, *operands), run(before, *operands))


def test_a_product_with_other_users_stays() -> None:
    def both(p: Any, x: Any, y: Any) -> Any:
        product = METHODS["matmul"](x, y)
        return product, METHODS["permute"](product, (1, 0))

    before = function(both, TensorType(f64, (2, 3)), TensorType(f64, (3, 4)))
    assert print_function(folded(before)) == print_function(before)
