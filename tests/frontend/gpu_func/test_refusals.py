"""Code that a kernel cannot have, and places where it cannot be launched: refused while staging, with the user's line and a way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import CPU, GPU, cuda, with_backend

X = np.arange(8, dtype=np.float32)
N = np.arange(8)
OUTSIDE = np.ones(3)


def launched(kernel: Any, *args: Any, block: Any = 32, grid: Any = 1) -> None:
    def f(*args: Any) -> Any:
        with with_backend(GPU, args):
            made = kernel[grid, block](*args)
        return made

    with st.eager():
        st.function(f)(*args)


def helper(x: Any) -> Any:
    return x


@st.gpu_func
def returns_a_value(x):
    return x[0]  # here


@st.gpu_func
def writes_nothing(x):  # here
    _ = x[0]


@st.gpu_func
def slices(x):
    x[0] = x[1:3]  # here


@st.gpu_func
def too_few_indices(x):
    x[0] = x[0, 0]  # here


@st.gpu_func
def negative_index(x):
    x[-1] = 0  # here


@st.gpu_func
def fraction_as_index(x):
    x[x[0]] = 0  # here


@st.gpu_func
def fraction_into_integers(n):
    n[0] = 1.5  # here


@st.gpu_func
def number_into_an_array(x):
    x = 1.0  # here  # noqa: F841


@st.gpu_func
def two_dtypes(x, n):
    a = x[0]
    if n[0] > 0:
        a = st.astype(n[0], st.f64)  # here
    x[0] = a


@st.gpu_func
def bound_on_some_paths(x):
    if x[0] > 0:
        y = 1.0
    x[0] = y  # here


@st.gpu_func
def bound_in_a_loop(x, n):
    for i in range(n[0]):
        y = x[i]
    x[0] = y  # here


@st.gpu_func
def not_bound(x):
    x[0] = nowhere  # here  # noqa: F821


@st.gpu_func
def calls_a_helper(x):
    x[0] = helper(x[0])  # here


@st.gpu_func
def makes_an_array(x):
    x[0] = st.ones(3)  # here


@st.gpu_func
def array_as_number(x):
    x[0] = x + 1  # here


@st.gpu_func
def array_from_outside(x):
    x[0] = OUTSIDE  # here


@st.gpu_func
def loops_over_elements(x):
    for value in x:  # here
        x[0] = value


@st.gpu_func
def steps_of_any_sign(x, n):
    for i in range(0, 8, n[0]):  # here
        x[i] = 0


@st.gpu_func
def prints(x):
    print(x[0])  # here


@st.gpu_func
def asserts(x):
    assert x[0] > 0  # here


@st.gpu_func
def a_list(x):
    y = [1, 2]  # here
    x[0] = y[0]


@st.gpu_func
def shared_of_any_size(x, n):
    tile = cuda.shared(n[0], st.f32)  # here
    x[0] = tile[0]


@st.gpu_func
def shared_in_a_branch(x):
    if x[0] > 0:
        tile = cuda.shared(4, st.f32)  # here
        x[0] = tile[0]


@st.gpu_func
def too_much_shared(x):  # here
    tile = cuda.shared((128, 128), st.f32)
    x[0] = tile[0, 0]


@st.gpu_func
def shuffle_in_a_condition(x):
    if cuda.shuffle(x[0], 0) > 0:  # here
        x[0] = 0


@st.gpu_func
def shuffle_left_out(x):
    x[0] = 1.0 if x[0] > 0 else cuda.shuffle(x[0], 0)  # here


@st.gpu_func
def atomic_on_bytes(x):
    cuda.atomic_add(x, 0, 1)  # here


@st.gpu_func
def two_atomics(n):
    n[0] = cuda.atomic_add(n, 1, 1) + cuda.atomic_add(n, 2, 1)  # here


@st.gpu_func
def does_nothing(x):
    x[0] + 1  # here


@st.gpu_func
def tile_out_of_range(x):
    tile = cuda.shared(4, st.f32)
    x[0] = tile[4]  # here


@st.gpu_func
def a_text(x):
    x[0] = "1"  # here


@st.gpu_func
def fine(x, out):
    i = cuda.global_index.x
    if i < len(x):
        out[i] = x[i]


@pytest.mark.parametrize(
    ("kernel", "args", "error", "words"),
    [
        (returns_a_value, (X,), st.StagingError, "a kernel returns nothing"),
        (writes_nothing, (X,), st.StagingError, "`writes_nothing` writes no array"),
        (slices, (X,), st.StagingError, "a slice in a kernel"),
        (too_few_indices, (X,), st.StagingError, r"`x` has 1 axis, got 2 indices"),
        (negative_index, (X,), st.ShapeError, "indices of a kernel count from 0"),
        (fraction_as_index, (X,), st.StagingError, "is f32, and an integer is needed here"),
        (fraction_into_integers, (N,), st.DTypeError, "`n` holds i64, and this is f64"),
        (number_into_an_array, (X,), st.StagingError, "`x` is a parameter of the kernel"),
        (two_dtypes, (X, N), st.CarriedValueError, "`a` is f32 elsewhere, and f64 here"),
        (bound_on_some_paths, (X,), st.UnboundNameError, "`y` may not be bound here"),
        (bound_in_a_loop, (X, N), st.UnboundNameError, "`y` may not be bound here"),
        (not_bound, (X,), st.UnboundNameError, "`nowhere` is not bound"),
        (calls_a_helper, (X,), st.StagingError, "`helper` cannot be called in a kernel"),
        (makes_an_array, (X,), st.StagingError, "`ones` works on arrays, and a kernel has the numbers of one thread"),
        (array_as_number, (X,), st.StagingError, "`x` is an array, and a number is needed here"),
        (array_from_outside, (X,), st.StagingError, "`OUTSIDE` is an ndarray from outside"),
        (loops_over_elements, (X,), st.StagingError, "a loop over `x` in a kernel"),
        (steps_of_any_sign, (X, N), st.StagingError, "may be positive or negative"),
        (prints, (X,), st.StagingError, "`print` in a kernel"),
        (asserts, (X,), st.StagingError, "the statement `assert` in a kernel"),
        (a_list, (X,), st.StagingError, r"`\[1, 2\]` in a kernel"),
        (shared_of_any_size, (X, N), st.StagingError, "the shape of shared memory is known while staging"),
        (shared_in_a_branch, (X,), st.StagingError, "made once, outside of branches"),
        (too_much_shared, (X,), st.StagingError, "65,536 bytes of shared memory"),
        (shuffle_in_a_condition, (X,), st.StagingError, "a shuffle in a condition"),
        (shuffle_left_out, (X,), st.StagingError, "may be left out"),
        (atomic_on_bytes, (N.astype(np.uint8),), st.StagingError, "no atomic_add on arrays of u8"),
        (two_atomics, (N,), st.StagingError, "several atomic operations in one statement"),
        (does_nothing, (X,), st.StagingError, "does nothing"),
        (tile_out_of_range, (X,), IndexError, "index 4 is out of range for an axis of 4 elements"),
        (a_text, (X,), st.StagingError, "a text in a kernel"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_a_kernel_cannot_have_is_refused_at_its_line(kernel: Any, args: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        launched(kernel, *args)
    assert isinstance(caught.value, st.StagedError) and caught.value.where is not None
    assert "# here" in caught.value.where.text, str(caught.value)
    assert caught.value.where.file == __file__


def test_a_shuffle_takes_whole_warps() -> None:
    with pytest.raises(st.StagingError, match="a shuffle in blocks of 48x1x1 threads"):
        launched(shuffle_left_out, X, block=48)


# ---- launches -------------------------------------------------------------------------------------


def outside_of_a_region(x: Any) -> Any:
    return fine[1, 32](x, st.zeros_like(x))  # here


def in_a_region_of_the_host(x: Any) -> Any:
    with with_backend(GPU, x):
        with with_backend(CPU):
            y = fine[1, 32](x, st.zeros_like(x))  # here
    return y


def of_an_array_of_the_host(x: Any) -> Any:
    with with_backend(GPU):
        y = fine[1, 32](x, st.zeros(x.shape))  # here
    return y


def of_a_result_of_the_host(x: Any) -> Any:
    other = x + 1.0
    with with_backend(GPU, x):
        y = fine[1, 32](x, other)  # here
    return y


def with_a_staged_grid(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine[st.astype(st.sum(x), st.i64), 32](x, st.zeros(x.shape))  # here
    return y


def with_large_blocks(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine[1, (32, 33)](x, st.zeros(x.shape))  # here
    return y


def with_deep_blocks(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine[1, (1, 1, 65)](x, st.zeros(x.shape))  # here
    return y


def with_a_wide_grid(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine[(1, 65536), 32](x, st.zeros(x.shape))  # here
    return y


def without_a_launch(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine(x, st.zeros(x.shape))  # here
    return y


def without_a_block(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine[1](x, st.zeros(x.shape))  # here
    return y


def without_an_argument(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine[1, 32](x)  # here
    return y


def with_a_text(x: Any) -> Any:
    with with_backend(GPU, x):
        y = fine[1, 32](x, "out")  # here
    return y


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (outside_of_a_region, "`fine` is a kernel of a GPU, and what stands here runs on the CPU"),
        (in_a_region_of_the_host, "`fine` is a kernel of a GPU"),
        (of_an_array_of_the_host, r"takes arrays that are on the GPU, and `x` \(f32 \(8,\)\) is on the host"),
        (of_a_result_of_the_host, r"takes arrays that are on the GPU, and `out` \(f32 \(8,\)\) is on the host"),
        (with_a_staged_grid, "the grid of `fine` is known only when the program runs"),
        (with_large_blocks, "asks for blocks of 32 x 33 x 1 threads"),
        (with_deep_blocks, "asks for blocks of 1 x 1 x 65 threads"),
        (with_a_wide_grid, "asks for 65,536 blocks along y"),
        (without_a_launch, "a call says how many threads run it"),
        (without_a_block, "takes the grid and the block"),
        (without_an_argument, "missing a required argument: 'out'"),
        (with_a_text, "takes arrays and numbers, and `out` is a str"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_at_its_line(function: Any, words: str) -> None:
    with pytest.raises(st.StagingError, match=words) as caught:
        st.function(function).stage(X)
    assert caught.value.where is not None and "# here" in caught.value.where.text, str(caught.value)


def test_the_names_of_a_kernel_mean_nothing_outside() -> None:
    for use in (lambda: cuda.thread_index.x, cuda.syncthreads, lambda: cuda.shared(4, st.f32), cuda.lane_index):
        with pytest.raises(st.StagingError, match="belongs into a kernel"):
            use()
    with pytest.raises(st.StagingError, match="`fine` is launched outside of a staged function"):
        fine[1, 32](X, X)


def test_parameters_have_names() -> None:
    with pytest.raises(st.StagingError, match=r"`\*arrays` in a kernel"):

        @st.gpu_func
        def f(*arrays):
            arrays[0][0] = 1
