"""Kernels that the user writes: what they compute, their text, their failures, their derivatives."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, cuda, with_backend
from staged.testing import compare_trees
from tests.backends.cublas_cudnn import gpu_funcs
from tests.backends.cublas_cudnn.gpu_funcs import X, Y
from tests.backends.cublas_cudnn.harness import in_groups, together

pytestmark = pytest.mark.usefixtures("emulated_device")


def portable(function: Any) -> Any:
    return st.function(target="portable")(function)


def kernels_of(text: str) -> str:
    """The kernels of the user's in the device's part of a program: those of ops name these in a line of their own."""
    found = re.findall(r"(?:^//[^\n]*\n)+extern \"C\" __global__ void.*?^}\n", text, re.MULTILINE | re.DOTALL)
    return "\n".join(kernel for kernel in found if not re.search(r"^// (fused: .*|\w+)$", kernel, re.MULTILINE))


def close(found: Any, wanted: Any, name: str = "") -> None:
    """Equal up to rounding, whatever the dtypes."""
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted), name
        for one, other in zip(found, wanted, strict=True):
            close(one, other, name)
        return
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("cases", in_groups(gpu_funcs.PROGRAMS, 3))
def test_values_are_those_of_numpy_and_of_threads_in_python(cases: Any, emulated_device: Any) -> None:
    staged, arguments = together(cases)
    with st.eager():
        expected = staged(arguments)
    for (name, result), (_, _, wanted) in zip(expected.items(), cases, strict=True):
        if wanted is not None:
            close(result, wanted, name)
    found = staged(arguments)
    compare_trees(found, expected, rtol=1e-6, atol=1e-6)
    for order in ("reverse", "shuffled"):
        emulated_device.set_thread_order(order, seed=3)
        compare_trees(staged(arguments), found, rtol=0.0, atol=0.0, where=order)


def test_the_text_reads_as_the_python(golden: Any) -> None:
    """Names, lines, checks only where nothing shows that an index is in range."""
    texts = []
    for function, arguments, _ in gpu_funcs.PROGRAMS:
        if function in (gpu_funcs.turned, gpu_funcs.sums_of_blocks, gpu_funcs.counted, gpu_funcs.collatz_steps):
            texts.append(kernels_of(portable(function).stage(*arguments).source))
    golden("\n".join(texts), suffix=".cu")


def test_one_kernel_serves_all_shapes() -> None:
    text = portable(gpu_funcs.of_two_shapes).stage(X, X[:50]).source
    assert text.count('extern "C" __global__ void __launch_bounds__(32) saxpy_kernel') == 1
    assert len(re.findall(r"launch_saxpy\(gpu, st_dim3_of\(", text)) == 2


def test_an_array_that_nobody_needs_is_changed_in_place() -> None:
    assert "DeviceToDevice" not in portable(gpu_funcs.in_place).stage(X, 3).source
    assert portable(gpu_funcs.as_it_was).stage(X).source.count("DeviceToDevice") == 1


# ---- failures -------------------------------------------------------------------------------------


@st.gpu_func
def gather(x, places, out):
    i = cuda.global_index.x
    if i < len(out):
        out[i] = x[places[i]]  # the read


@st.gpu_func
def spread(x, places, out):
    i = cuda.global_index.x
    if i < len(x):
        out[places[i], 0] = x[i]  # the write


@st.gpu_func
def quotients(n, d, out):
    i = cuda.global_index.x
    if i < len(out):
        out[i] = n[i] // d[i]  # the division


@st.gpu_func
def counts(places, out):
    i = cuda.global_index.x
    if i < len(places):
        cuda.atomic_add(out, places[i], 1)  # the sum


@st.gpu_func
def shuffled_by_some(x, out):
    t = cuda.thread_index.x
    if len(x) == 32:
        out[t] = cuda.shuffle(x[t], 0)  # the shuffle: lanes that have no element take part


PLACES = np.array([0, 3, 99, 1])


def gathered(x: Any, places: Any) -> Any:
    with with_backend(GPU, x, places):
        y = gather[1, 32](x, places, st.zeros(places.shape))
    return y


def spread_out(x: Any, places: Any) -> Any:
    with with_backend(GPU, x, places):
        y = spread[1, 32](x, places, st.zeros((40, 2)))
    return y


def divided(n: Any, d: Any) -> Any:
    with with_backend(GPU, n, d):
        q = quotients[1, 32](n, d, st.zeros(n.shape, st.i64))
    return q


def summed(places: Any) -> Any:
    with with_backend(GPU, places):
        y = counts[1, 32](places, st.zeros((40,), st.i32))
    return y


def met(x: Any) -> Any:
    with with_backend(GPU, x):
        y = shuffled_by_some[1, 32](x, st.zeros((20,)))
    return y


@pytest.mark.parametrize(
    ("function", "arguments", "error", "words", "line"),
    [
        (gathered, (X, PLACES + 1), IndexError, "index 100 is out of range for an axis of 100 elements", "the read"),
        (gathered, (X, PLACES - 1), IndexError, "index -1 is out of range for an axis of 100 elements", "the read"),
        (spread_out, (X[:4], PLACES), IndexError, "index 99 is out of range for an axis of 40 elements", "the write"),
        (divided, (PLACES, PLACES), ZeroDivisionError, "integer division or modulo by zero", "the division"),
        (met, (X[:32],), IndexError, r"index \d+ is out of range for an axis of 20 elements", "the shuffle"),
        (summed, (PLACES,), IndexError, "index 99 is out of range for an axis of 40 elements", "the sum"),
    ],
)
def test_what_fails_stops_the_program_with_the_kernels_line(
    function: Any, arguments: Any, error: type[Exception], words: str, line: str
) -> None:
    staged = portable(function)
    for eager in (True, False):
        with pytest.raises(error, match=words) as caught:
            if eager:
                with st.eager():
                    staged(*arguments)
            else:
                staged(*arguments)
        assert f"# {line}" in str(caught.value), str(caught.value)


def test_the_program_goes_on_after_a_failure() -> None:
    staged = portable(gathered)
    with pytest.raises(IndexError):
        staged(X, PLACES + 1)
    np.testing.assert_array_equal(staged(X, PLACES), X[PLACES])


def test_without_checks_the_text_has_none() -> None:
    unchecked = st.gpu_func(checked=False)(gather.function)

    def f(x: Any, places: Any) -> Any:
        with with_backend(GPU, x, places):
            y = unchecked[1, 32](x, places, st.zeros(places.shape))
        return y

    staged = portable(f)
    text = staged.stage(X, PLACES).source
    assert "failed" not in text and "out[i] = x[places[i]];" in text
    np.testing.assert_array_equal(staged(X, PLACES), X[PLACES])


# ---- derivatives ----------------------------------------------------------------------------------


@st.gpu_func
def cube(x, out):
    i = cuda.global_index.x
    if i < len(x):
        out[i] = x[i] ** 3


@st.gpu_func
def cube_slope(x, d_out, d_x):
    i = cuda.global_index.x
    if i < len(x):
        d_x[i] = 3 * x[i] * x[i] * d_out[i]


def cube_forward(launch: Any, x: Any, out: Any) -> Any:
    return launch(x, out), x


def cube_backward(launch: Any, x: Any, d_out: Any) -> Any:
    return cube_slope[launch.grid, launch.block](x, d_out, st.zeros_like(x)), None


cube.defvjp(cube_forward, cube_backward)


def loss_of_cubes(x: Any) -> Any:
    with with_backend(GPU, x):
        found = st.value_and_grad(lambda x: st.sum(cube[4, 32](2.0 * x, st.zeros_like(x))))(x)
    return found


def loss_around_a_region(x: Any) -> Any:
    def loss(x: Any) -> Any:
        with with_backend(GPU, x):
            total = st.sum(cube[4, 32](2.0 * x, st.zeros_like(x)))
        return total

    return st.value_and_grad(loss)(x)


@pytest.mark.parametrize("function", [loss_of_cubes, loss_around_a_region])
def test_a_vjp_that_is_given_is_used(function: Any) -> None:
    staged = portable(function)
    wanted = (np.sum((2 * X) ** 3), 24 * X**2)
    with st.eager():
        close(staged(X), wanted)
    close(staged(X), wanted)
    assert "cube_slope_kernel" in staged.stage(X).source


def test_without_a_vjp_a_derivative_is_refused_with_the_line() -> None:
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            g = st.grad(lambda x: st.sum(gpu_funcs.scale[4, 32](x, 2.0, st.zeros_like(x))))(x)  # the line
        return g

    def forward(x: Any) -> Any:
        with with_backend(GPU, x):
            _, t = st.jvp(lambda x: gpu_funcs.scale[4, 32](x, 2.0, st.zeros_like(x)), (x,), (x,))  # the line
        return t

    for function in (f, forward):
        for eager in (True, False):
            with pytest.raises(st.GradientError, match=r"cannot differentiate through `scale`") as caught:
                if eager:
                    with st.eager():
                        portable(function)(X)
                else:
                    portable(function)(X)
            assert "# the line" in str(caught.value) and "scale.defvjp(forward, backward)" in str(caught.value)


def test_scalars_and_results_keep_their_names() -> None:
    text = portable(gpu_funcs.by_value).stage(X, Y).source
    assert "saxpy_kernel(double a, const float *x, const float *y, float *out" in text
