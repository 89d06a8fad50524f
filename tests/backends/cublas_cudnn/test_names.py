"""The user's names may be words of C++ and CUDA, and names that the generated text has itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, cuda, with_backend
from staged.testing import compare_trees

X = np.random.default_rng(4).normal(size=(6, 6)).astype(np.float32)
pytestmark = pytest.mark.usefixtures("emulated_device")


def in_fused_kernels(gpu: Any, threadIdx: Any) -> Any:
    with with_backend(GPU, gpu, threadIdx):
        values = st.tanh(gpu @ threadIdx)
        copied = gpu - st.sum(gpu, axis=1, keepdims=True)
        and_ = st.softmax(values, axis=1) * copied
        blockIdx = st.zeros((6, 6))
        blockIdx[1:3] += and_[:2] @ values
        warpSize = and_ @ blockIdx
        char16_t = warpSize[np.array([2, 1, 0])]
    return values, copied, and_, blockIdx, warpSize, char16_t


def in_launches_that_clear(blocks: Any) -> Any:
    with with_backend(GPU, blocks, deterministic=False):
        grid = blocks * 2.0
        cleared = st.scatter_add(st.zeros((3, 6)), np.array([0, 2, 1, 1, 0, 2]), grid)
        copied = st.scatter_add(cleared, np.array([0, 2, 1, 1, 0, 2]), blocks)
    return cleared, copied


@st.function
def gridDim(dim3: Any, not_: Any, block: Any) -> Any:
    if block < 1:
        return dim3
    warpSize = st.tanh(dim3 @ not_)
    return gridDim(warpSize, not_, block - 1) + warpSize


def in_functions(m: Any, d: Any, host: Any) -> Any:
    with with_backend(GPU, m, d):
        return st.value_and_grad(lambda or_: st.sum(gridDim(m, or_, host)))(d)


@st.gpu_func
def values(gpu: Any, grid: Any, block: Any, values: Any) -> None:
    threadIdx = cuda.global_index.x
    if threadIdx < len(gpu):
        values[threadIdx] = gpu[threadIdx] * grid + block


def in_kernels_of_the_users(gpu: Any) -> Any:
    with with_backend(GPU, gpu):
        return values[1, 32](gpu[0], 2.0, 3.0, st.zeros(6))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (in_fused_kernels, (X, X)),
        (in_launches_that_clear, (X,)),
        (in_functions, (X, X, 3)),
        (in_kernels_of_the_users, (X,)),
    ],
)
def test_names_that_mean_something_elsewhere(function: Any, arguments: tuple[Any, ...]) -> None:
    staged = st.function(target="portable")(function)
    with st.eager():
        expected = staged(*arguments)
    compare_trees(staged(*arguments), expected, rtol=1e-4, atol=1e-4)
