"""Products whose sums have a wider dtype than their operands: exact, of every form, on every back end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from tests import opencl_device
from tests.torch_reference import reference

RNG = np.random.default_rng(0)
SIZES = [(1, 1, 1), (1, 300, 40), (3, 5, 7), (5, 64, 130), (33, 400, 65), (70, 129, 16), (64, 256, 128), (130, 1000, 3)]


def integers(*shape: int, dtype: Any = np.int8) -> np.ndarray[Any, Any]:
    """Any numbers of the dtype, the smallest and the largest more often than others."""
    limits = np.iinfo(dtype)
    data = RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    return np.where(RNG.random(shape) < 0.3, RNG.choice([limits.min, limits.max], shape), data).astype(dtype)


def wide(a: Any, b: Any, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    return np.matmul(a.astype(dtype), b.astype(dtype))


def plain(a: Any, b: Any) -> Any:
    return st.matmul(a, b, dtype=st.i32)


def turned(a: Any, b: Any) -> Any:
    return st.matmul(a, st.matrix_transpose(b), dtype=st.i32)


def both_turned(a: Any, b: Any) -> Any:
    return st.matmul(a.T, b.T, dtype=st.i32)


@pytest.mark.parametrize("target", ["native", "portable", "c99"])
@pytest.mark.parametrize("size", SIZES)
def test_products_of_i8_in_i32_are_exact(size: tuple[int, int, int], target: str) -> None:
    m, k, n = size
    a, b = integers(m, k), integers(k, n)
    expected = wide(a, b)
    for function, right, left in ((plain, b, a), (turned, b.T.copy(), a), (both_turned, b.T.copy(), a.T.copy())):
        program = st.function(function, target=target)
        np.testing.assert_array_equal(program(left, right), expected)
        assert program(left, right).dtype == np.int32


def test_the_worst_sum_is_exact() -> None:
    a = np.full((4, 4096), -128, np.int8)
    np.testing.assert_array_equal(st.function(turned)(a, a), np.full((4, 4), 4096 * 128**2))


@pytest.mark.parametrize(
    ("given", "sums"), [("int16", "int64"), ("uint8", "int32"), ("uint8", "uint32"), ("int32", "int64")]
)
def test_other_integers(given: str, sums: str) -> None:
    a, b = integers(9, 70, dtype=given), integers(21, 70, dtype=given)

    @st.function
    def product(a: Any, b: Any) -> Any:
        return st.matmul(a, b.T, dtype=sums)

    np.testing.assert_array_equal(product(a, b), wide(a, b.T, sums))
    with st.eager():
        np.testing.assert_array_equal(product(a, b), wide(a, b.T, sums))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7,), (7,)),
        ((7,), (7, 5)),
        ((3, 7), (7,)),
        ((2, 3, 7), (7, 5)),
        ((4, 3, 7), (4, 7, 5)),
        ((2, 1, 3, 7), (4, 7, 5)),
    ],
)
def test_vectors_and_batches(left: Any, right: Any) -> None:
    a, b = integers(*left), integers(*right)
    expected = wide(a, b)
    np.testing.assert_array_equal(st.function(plain)(a, b), expected)
    np.testing.assert_array_equal(st.matmul(a, b, dtype=st.i32), expected)


def test_what_follows_reads_the_wide_sums() -> None:
    a, b = integers(40, 96), integers(33, 96)
    bias = RNG.standard_normal(33).astype(np.float32)

    @st.function
    def layer(a: Any, b: Any, bias: Any) -> Any:
        return st.astype(turned(a, b), st.f32) * 0.5 + bias

    np.testing.assert_array_equal(layer(a, b, bias), wide(a, b.T).astype(np.float32) * np.float32(0.5) + bias)


def test_rows_of_a_size_that_the_program_finds() -> None:
    a, b, c = integers(17, 70), integers(70, 12), integers(17, 5)

    @st.function
    def first_rows(a: Any, b: Any, c: Any, count: Any) -> Any:
        n = st.dim("N", count, max=17)
        rows = st.matmul(a[0:n], b, dtype=st.i32)
        return st.sum(rows, axis=0), st.matmul(a[0:n, 3], c[0:n], dtype=st.i32)

    for count in (0, 1, 8, 17):
        rows, sums = first_rows(a, b, c, count)
        np.testing.assert_array_equal(rows, wide(a, b)[:count].sum(0))
        np.testing.assert_array_equal(sums, wide(a[:count, 3], c[:count]))


def test_mapped_products() -> None:
    a, b = integers(5, 6, 9), integers(5, 9, 4)
    np.testing.assert_array_equal(st.function(st.vmap(plain))(a, b), wide(a, b))
    one = st.function(lambda a, b: st.vmap(lambda x: plain(x, b))(a))
    np.testing.assert_array_equal(one(a, b[0]), wide(a, b[0]))


@pytest.mark.parametrize("using", [None, "opencl"])
def test_on_a_device(using: str | None, request: pytest.FixtureRequest) -> None:
    if using:
        opencl_device.require()
    else:
        request.getfixturevalue("emulated_device")
    a, b = integers(37, 70), integers(21, 70)

    @st.function
    def product(a: Any, b: Any) -> Any:
        with with_backend(GPU, using=using) if using else with_backend(GPU):
            return turned(a, b) + 1

    np.testing.assert_array_equal(product(a, b), wide(a, b.T) + 1)


def test_other_dtypes_are_those_of_both_operands() -> None:
    a, b = RNG.standard_normal((2, 3, 4)).astype(np.float32), RNG.standard_normal((4, 5)).astype(np.float32)
    np.testing.assert_array_equal(st.matmul(a, b, dtype=st.f64), np.matmul(a, b, dtype=np.float64))
    np.testing.assert_array_equal(st.matmul(a, b, dtype=st.f32), st.matmul(a, b))
    halves = a.astype(np.float16)
    found = st.matmul(halves, halves.swapaxes(1, 2), dtype=st.f32)
    np.testing.assert_allclose(found, np.matmul(halves, halves.swapaxes(1, 2), dtype=np.float32), rtol=1e-6)
    small = integers(3, 4)
    np.testing.assert_array_equal(st.matmul(small, small.T, dtype=st.f64), wide(small, small.T, np.float64))


@pytest.mark.parametrize(
    ("given", "sums"), [("float64", "float32"), ("int32", "int8"), ("int8", "uint32"), ("float32", "int32")]
)
def test_a_dtype_that_would_round_is_refused(given: str, sums: str) -> None:
    @st.function
    def product(a: Any) -> Any:
        return st.matmul(a, a, dtype=sums)

    with pytest.raises(st.DTypeError, match=r"would round what(.|\n)*st.matmul\(a, a, dtype=sums\)"):
        product(np.ones((2, 2), given))


def test_a_gradient_goes_through_a_wider_float() -> None:
    a = RNG.standard_normal((3, 4)).astype(np.float32)
    found = st.grad(lambda a: st.sum(st.matmul(a, a.T, dtype=st.f64)))(a)
    np.testing.assert_allclose(found, np.broadcast_to(2 * a.sum(0), (3, 4)), rtol=1e-5)
    assert found.dtype == st.f32


def test_as_torch_multiplies_integers() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((32, 64), (64, 16)))
    expected = reference(lambda torch, a, b: torch._int_mm(torch.tensor(a), torch.tensor(b)).numpy(), a, b)
    np.testing.assert_array_equal(st.function(plain)(a, b), expected)
