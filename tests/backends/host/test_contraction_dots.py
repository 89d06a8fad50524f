"""Products of i8 in i32 as dot products of bytes, which those of few rows or columns are: exact for every size, vector
width, number of threads and epilogue.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.cpu.contraction.dots import COLUMNS_OF_ITEM, ROWS_OF_ITEM
from staged.ir.machine import MACHINES
from staged.runtime.machine import native_machine
from tests.ops.test_contraction import integers, wide

TARGETS = ["portable", "x86-64-v3", "x86-64-v4", "native"]
# Sums shorter than a vector, of whole vectors, with a rest; few and many rows and columns, with a rest of each.
SIZES = [
    *((4, 64, 64), (1, 300, 600), (3, 25, 200), (2, 5000, 2), (4, 129, COLUMNS_OF_ITEM + 7), (500, 25, 2)),
    *((ROWS_OF_ITEM + 8, 129, 2), (130, 1000, 1), (257, 20, 2)),
]


def product(a: Any, b: Any) -> Any:
    return st.matmul(a, st.matrix_transpose(b), dtype=st.i32)


def scaled(a: Any, b: Any, scale: Any, bias: Any) -> Any:
    y = st.astype(product(a, b), st.f32) * scale + bias
    return st.relu(y), st.sum(y > 0.0)


def runs(target: str) -> str:
    if target == "x86-64-v4" and native_machine().vector_bytes < 64:
        pytest.skip("needs AVX-512")
    return target


@pytest.mark.parametrize("target", TARGETS)
def test_sums_are_exact(target: str) -> None:
    program = st.function(product, target=runs(target))
    for m, k, n in SIZES:
        a, b = integers(m, k), integers(n, k)
        source = program.stage(a, b).source
        assert "dot products of" in source, (m, k, n)
        np.testing.assert_array_equal(program(a, b), wide(a, b.T))


@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_gets_each_sum_once(target: str) -> None:
    program = st.function(scaled, target=runs(target))
    for m, k, n in ((3, 100, 41), (500, 25, 2), (2, 65, COLUMNS_OF_ITEM + 7)):
        a, b = integers(m, k), integers(n, k)
        scale, bias = np.random.default_rng(1).standard_normal((2, n)).astype(np.float32)
        y = wide(a, b.T).astype(np.float64) * scale + bias
        found, count = program(a, b, scale, bias)
        np.testing.assert_allclose(found, np.maximum(y, 0), rtol=1e-5, atol=1e-2)
        assert count == np.sum(y > 0)


def test_batches() -> None:
    a, b = integers(2, 3, 4, 100), integers(2, 3, 50, 100)
    np.testing.assert_array_equal(st.function(product)(a, b), wide(a, b.swapaxes(2, 3)))


def test_sums_wrap_around() -> None:
    a = np.full((4, 140_000), -128, np.int8)
    expected = np.int64(140_000 * 128**2 - 2**32)
    np.testing.assert_array_equal(st.function(product)(a, a), np.full((4, 4), expected))


@pytest.mark.parametrize(
    ("shapes", "form"),
    [(((64, 64), (64, 64)), "a function"), (((2, 64), (3, 64)), "a nest"), (((64, 3), (64, 3)), "a nest")],
)
def test_tiny_products_are_nests(shapes: Any, form: str) -> None:
    a, b = (integers(*shape) for shape in shapes)
    source = st.function(product, target=MACHINES["x86-64-v3"].name).stage(a, b).source
    assert ("st_dot_i8" in source) == (form == "a function")
