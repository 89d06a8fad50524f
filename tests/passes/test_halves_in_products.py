"""Products read halves as they are stored: the IR before and after, with the same values; and what stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ir.machine import C99, PORTABLE, Blas, Machine
from staged.ir.printer import print_function
from staged.ir.types import DType, TensorType, bf16, f16, f32
from staged.ir.verifier import verify
from staged.ops.array import METHODS
from staged.ops.context import bind
from staged.ops.primitive import PRIMITIVES
from staged.ops.promote import cast
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.halves_in_products import FEW_ROWS, multiply_halves
from tests.ir_interpreter import run
from tests.ir_programs import function


def multiplied(before: Any, machine: Machine = PORTABLE) -> Any:
    after = multiply_halves(before, machine)
    verify(after, "multiply_halves")
    return eliminate_dead_code(after)


def product(first: DType, second: DType) -> Any:
    def body(p: Any, x: Any, y: Any) -> Any:
        return (METHODS["matmul"](cast(x, f32), cast(y, f32)),)

    return function(body, TensorType(first, (2, 3)), TensorType(second, (3, 4)))


def test_a_product_of_converted_halves_is_one_of_the_halves() -> None:
    before = product(bf16, bf16)
    after = multiplied(before)
    assert print_function(before) == """\
func f(x: bf16 (2, 3), y: bf16 (3, 4)):
  t: f32 (2, 3) = cast(x) {dtype=f32, weak=False}
  t_2: f32 (3, 4) = cast(y) {dtype=f32, weak=False}
  t_3: f32 (2, 4) = matmul(t, t_2) {transpose_a=False, transpose_b=False}
  return(t_3)
"""
    assert print_function(after) == """\
func f(x: bf16 (2, 3), y: bf16 (3, 4)):
  t: f32 (2, 4) = matmul(x, y) {dtype=f32, transpose_a=False, transpose_b=False}
  return(t)
"""
    x, y = np.arange(6).reshape(2, 3).astype(bf16.numpy), np.arange(12).reshape(3, 4).astype(bf16.numpy) / 8
    np.testing.assert_array_equal(run(after, x, y), run(before, x, y))


def test_what_is_reshaped_after_its_conversion_is_reshaped_as_halves() -> None:
    def body(p: Any, x: Any, y: Any) -> Any:
        flat = bind(PRIMITIVES["reshape"], [cast(x, f32)], shape=(6, 3))
        return (METHODS["matmul"](flat, cast(y, f32)),)

    after = multiplied(function(body, TensorType(f16, (2, 3, 3)), TensorType(f16, (3, 4))))
    assert print_function(after) == """\
func f(x: f16 (2, 3, 3), y: f16 (3, 4)):
  t: f16 (6, 3) = reshape(x) {shape=(6, 3)}
  t_2: f32 (6, 4) = matmul(t, y) {dtype=f32, transpose_a=False, transpose_b=False}
  return(t_2)
"""


@pytest.mark.parametrize(("first", "second"), [(f16, bf16), (f32, bf16), (bf16, f32)])
def test_operands_of_two_dtypes_are_multiplied_as_f32(first: DType, second: DType) -> None:
    before = product(first, second)
    assert print_function(multiplied(before)) == print_function(eliminate_dead_code(before))


@pytest.mark.parametrize("machine", [C99, replace(PORTABLE, blas=Blas(("-lblas",)))])
def test_a_machine_without_vectors_or_with_a_blas_multiplies_f32(machine: Machine) -> None:
    before = product(bf16, bf16)
    assert print_function(multiplied(before, machine)) == print_function(before)


@pytest.mark.parametrize(
    ("rows", "is_before", "halves"), [(40, False, True), (40, True, False), (FEW_ROWS + 1, True, False), (FEW_ROWS, True, True)]
)
def test_what_is_converted_before_a_loop_is_read_as_f32_in_it_unless_rows_are_few(
    rows: int, is_before: bool, halves: bool
) -> None:
    def sums(x: Any, w: Any, n: Any) -> Any:
        before = st.astype(w, st.f32) if is_before else None
        for _ in range(n):
            x = st.astype(st.astype(x, st.f32) @ (before if is_before else st.astype(w, st.f32)), st.bf16)
        return x

    x, w = (np.ones((size, 40), bf16.numpy) for size in (rows, 40))
    assert ("bf16 in f32" in st.function(sums).stage(x, w, np.int64(3)).source) == halves
