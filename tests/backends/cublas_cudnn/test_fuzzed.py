"""What the fuzzer found on the emulated device, each as a program of its own: eager mode's values, whatever the order of work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from staged.runtime import cuda
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import agrees_in_any_order, on_gpu

X = np.array([0.5, -1.5, 2.0])


@pytest.fixture(autouse=True)
def device(emulated_device: cuda.Emulator) -> cuda.Emulator:
    """Every test here runs on it."""
    return emulated_device


@pytest.fixture
def two(device: cuda.Emulator) -> Iterator[cuda.Emulator]:
    """Two emulated devices."""
    device.configure("devices=2")
    yield device
    device.configure()


def an_element_of_the_host(x: Any) -> Any:
    first = x[0]
    with with_backend(GPU):
        y = st.sin(x) * first
    return y


def a_total_of_one_element(x: Any) -> Any:
    total = st.sum(x[:1])
    with with_backend(GPU):
        y = st.arange(6.0, dtype=st.f64) + total
        if min(x[-1], 2.0) < st.exp(-abs(x[-1])):
            y = y * 2.0
    return y


@pytest.mark.parametrize("function", [an_element_of_the_host, a_total_of_one_element])
def test_kernels_take_numbers_of_the_hosts_arrays_by_value(function: Any, device: cuda.Emulator) -> None:
    agrees_in_any_order(st.function(function), device, 1e-12, X)


def a_name_that_is_a_function_of_cuda(x: Any) -> Any:
    rsqrt = st.rsqrt(1.0 + x * x)
    expf = st.exp(-rsqrt)
    return rsqrt + expf * st.sum(rsqrt)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_names_of_cudas_functions_are_not_taken_by_variables(dtype: str, device: cuda.Emulator) -> None:
    agrees_in_any_order(on_gpu(a_name_that_is_a_function_of_cuda), device, 1e-5, X.astype(dtype))


def test_numbers_of_the_host_are_checked_for_nan_beside_a_region(device: cuda.Emulator) -> None:
    @st.function(check_nan=True)
    def f(x: Any) -> Any:
        total = st.sum(x)
        with with_backend(GPU, x):
            y = x * 2.0
        return y + st.sqrt(total)

    agrees_in_any_order(f, device, 1e-12, X)
    with pytest.raises(FloatingPointError, match="not finite|NaN|nan"):
        f(-X)


def carried_elsewhere(x: Any, n: Any) -> Any:
    with with_backend(GPU(1)):
        first = x * 2.0
        second = st.zeros((3,), dtype=st.f64)
    with with_backend(GPU):
        for i in st.range(n):
            first, second = st.sin(second) + x[0], first * 0.5
            if i > 3:
                second = second + 1.0
                continue
            second = second - first
    return first, second


def test_a_carried_value_has_one_place_where_two_devices_make_it(two: cuda.Emulator) -> None:
    def slope(x: Any, n: Any) -> Any:
        return st.grad(lambda x: st.sum(carried_elsewhere(x, n)[0] * carried_elsewhere(x, n)[1]))(x)

    for n in (0, 1, 6):
        for function in (carried_elsewhere, slope):
            staged = st.function(function)
            with st.eager():
                expected = staged(X, n)
            for words in ("devices=2", "devices=2 lazy shuffled seed=3"):
                two.configure(words)
                compare_trees(staged(X, n), expected, 1e-12, 1e-12)


def test_a_check_of_an_index_that_moves_nothing_leaves_no_name(device: cuda.Emulator) -> None:
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            y = x[n % 1] * 2.0 + st.zeros_like(x[n % 3, 0])
        return y

    staged = st.function(f)
    agrees_in_any_order(staged, device, 1e-12, np.ones((1, 3)), 0)  # its host part is compiled with warnings as errors
    with pytest.raises(IndexError):
        staged(np.ones((1, 3)), 2)


@st.gpu_func
def doubled(x, out):  # type: ignore[no-untyped-def]
    i = st.cuda.global_index.x
    if i < len(x):
        out[i] = x[i] * 2.0


def test_a_kernel_of_constants_needs_no_derivative_in_eager_mode_either(device: cuda.Emulator) -> None:
    def slope(x: Any) -> Any:
        return st.grad(lambda x: st.sum(doubled[1, 8](st.stop_gradient(x), st.zeros_like(x)) * x))(x)

    agrees_in_any_order(on_gpu(slope), device, 1e-12, X)
