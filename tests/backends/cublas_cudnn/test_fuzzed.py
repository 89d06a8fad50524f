"""Faults that the fuzzer found on the emulated device, each as a program of its own: eager mode's values, in any order of work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import agrees_in_any_order, on_gpu

pytestmark = pytest.mark.usefixtures("device")
X = np.array([0.5, -1.5, 2.0])


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
def test_kernels_take_numbers_of_the_hosts_arrays_by_value(function: Any, device: Emulator) -> None:
    agrees_in_any_order(st.function(function), device, 1e-12, X)


def an_element_of_what_the_region_made(x: Any) -> Any:
    """Every kind of kernel takes it: next to elements in another order, filled in, moved around, by a library."""
    twice = st.repeat(x, 2)
    number = twice[3]
    row = st.broadcast_to(number, (3,))
    return (
        twice * number,
        st.full((3,), number) + 1.0,
        st.concat([row, x]),
        st.repeat(row, 2),
        st.pad(row, 1),
        st.take(row, np.array([0, 2])),
        st.broadcast_to(number, (3, 4)) @ st.ones((4, 2), dtype=x.dtype),
        st.sum(st.tile(row, 2)),
        st.repeat(number > 0.0, 3),
    )


def test_an_element_of_an_array_of_the_device_is_read_there(device: Emulator) -> None:
    agrees_in_any_order(on_gpu(an_element_of_what_the_region_made), device, 1e-12, X)


def a_name_that_is_a_function_of_cuda(x: Any) -> Any:
    rsqrt = st.rsqrt(1.0 + x * x)
    expf = st.exp(-rsqrt)
    return rsqrt + expf * st.sum(rsqrt)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_names_of_cudas_functions_are_not_taken_by_variables(dtype: str, device: Emulator) -> None:
    agrees_in_any_order(on_gpu(a_name_that_is_a_function_of_cuda), device, 1e-5, X.astype(dtype))


def test_numbers_of_the_host_are_checked_for_nan_beside_a_region(device: Emulator) -> None:
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


def test_a_carried_value_has_one_place_where_two_devices_make_it(two: Emulator) -> None:
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


def test_a_check_of_an_index_that_moves_nothing_leaves_no_name(device: Emulator) -> None:
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


def test_a_kernel_of_constants_needs_no_derivative_in_eager_mode_either(device: Emulator) -> None:
    def slope(x: Any) -> Any:
        return st.grad(lambda x: st.sum(doubled[1, 8](st.stop_gradient(x), st.zeros_like(x)) * x))(x)

    agrees_in_any_order(on_gpu(slope), device, 1e-12, X)


def kept_in_one_branch(x: Any, n: Any) -> Any:
    """The number that an iteration keeps is the device's; the other branch keeps none."""
    if n > 1:
        for _ in st.range(n):
            x = x * st.sin(st.sum(x * x))
    return st.sum(x)


def test_what_one_branch_alone_keeps_is_on_the_device_in_both(device: Emulator) -> None:
    def slope(x: Any, n: Any) -> Any:
        return st.jvp(st.grad(lambda x: kept_in_one_branch(x, n)), (x,), (x,))

    for n in (1, 3):
        agrees_in_any_order(on_gpu(slope), device, 1e-9, X * 0.3, n)


@st.function
def with_a_constant(p: Any, q: Any, n: Any) -> Any:
    if n <= 0:
        return p
    with_a_constant(0.0 * p, st.sin(q), n - 1)
    return st.sum(q[-1]) + 0.0 * p


def test_an_element_of_a_constant_array_is_made_where_it_is_used(device: Emulator) -> None:
    def slope(x: Any, n: Any) -> Any:
        return st.grad(lambda x: st.sum(with_a_constant(x[0, 1], st.full((1,), -1.25, dtype=st.f64), n) * x))(x)

    for n in (0, 2):
        agrees_in_any_order(on_gpu(slope), device, 1e-9, np.ones((2, 3)), n)


def test_frames_that_nothing_makes_have_no_maker(device: Emulator) -> None:
    def unread(x: Any, n: Any) -> Any:
        st.grad(lambda x: st.sum(with_a_constant(x[0, 1], x[0], n) * x))(x)
        return n

    agrees_in_any_order(on_gpu(unread), device, 1e-9, np.ones((2, 3)), 2)


def test_arrays_without_elements_are_not_copied(device: Emulator) -> None:
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU):
            state = st.Variable(x * 2.0)
            for _ in st.range(n):
                state.value, x = x, state.value
        return x, state

    agrees_in_any_order(st.function(f), device, 1e-12, np.zeros((0, 3)), 3)
    agrees_in_any_order(st.function(f), device, 1e-12, np.ones((2, 3)), 3)


def test_devices_with_nothing_for_each_other_have_no_copy_between_them(two: Emulator) -> None:
    @st.function
    def f(x: Any, y: Any) -> Any:
        with with_backend(GPU, x):
            x = st.sin(x)
        with with_backend(GPU(1), y):
            y = st.cos(y)
        return x, y

    assert "copy_from_peer" not in f.stage(X, X).source
    for found, expected in zip(f(X, X), (np.sin(X), np.cos(X)), strict=True):
        np.testing.assert_allclose(found, expected)
