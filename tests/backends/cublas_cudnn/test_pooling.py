"""Pooling on the device: means by cuDNN, maxima and their gradients by kernels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from tests.backends.cublas_cudnn.harness import agrees_in_any_order, on_gpu

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(11)


def normal(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(dtype)


# (shape, kernel, stride, padding): apart, overlapping, with gaps between windows, with rows that no window has.
WINDOWS: list[tuple[tuple[int, ...], Any, Any, Any]] = [
    ((2, 3, 4, 6), 2, 2, 0),
    ((2, 2, 5, 7), 2, 2, 0),
    ((1, 2, 7, 6), 3, 2, 1),
    ((2, 1, 6, 5), 3, 1, 1),
    ((1, 3, 9, 9), 3, 3, 0),
    ((1, 2, 8, 7), (3, 2), (1, 3), (1, 0)),
    ((1, 2, 9, 8), (1, 2), (3, 3), (0, 1)),
    ((2, 2, 6, 5), (4, 5), (3, 2), (2, 2)),
    ((1, 1, 3, 4), (3, 4), 1, 0),
    ((3, 2, 1, 1), 1, 1, 0),
]


def pooled(pool: Any, **more: Any) -> Any:
    """Values and gradients of a pooling over all of `WINDOWS`."""

    def every(arrays: Any) -> Any:
        found = []
        for x, (_, kernel, stride, padding) in zip(arrays, WINDOWS, strict=True):
            weighted = lambda x: st.sum(st.sin(pool(x, kernel, stride, padding, **more)))  # noqa: B023, E731
            found.append((pool(x, kernel, stride, padding, **more), st.grad(weighted)(x)))
        return found

    return on_gpu(every)


def calls(text: str) -> list[str]:
    return re.findall(r"CUDNN_CHECK\(site, cudnn(\w+)\(", text)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 2e-6), ("f8", 1e-14)])
def test_means_and_their_gradients_are_calls(dtype: str, tolerance: float, device: Emulator) -> None:
    arrays = [normal(*shape, dtype=dtype) for shape, *_ in WINDOWS]
    staged = pooled(st.avg_pool2d)
    agrees_in_any_order(staged, device, tolerance, arrays)
    text = staged.stage(arrays).source
    assert sorted(calls(text)) == ["PoolingBackward"] * len(WINDOWS) + ["PoolingForward"] * len(WINDOWS)
    assert text.count("cudnnSetPooling2dDescriptor") == len({str(each[1:]) for each in WINDOWS})


@pytest.mark.parametrize("more", [{"count_include_pad": False}, {"ceil_mode": True}], ids=["edges", "over the edge"])
def test_means_of_what_is_inside(more: dict[str, Any], device: Emulator) -> None:
    arrays = [normal(*shape) for shape, *_ in WINDOWS]
    staged = pooled(st.avg_pool2d, **more)
    agrees_in_any_order(staged, device, 3e-6, arrays)
    assert "PoolingForward" in calls(staged.stage(arrays).source)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_maxima_and_their_gradients_are_kernels_with_a_thread_for_each_element(
    dtype: str, device: Emulator
) -> None:
    # Few values, so that there are many ties.
    arrays = [np.round(normal(*shape, dtype=dtype)) for shape, *_ in WINDOWS]
    arrays[2][0, 0, 2, 3] = np.nan
    arrays[3][0, 0] = -np.inf
    staged = pooled(st.max_pool2d)
    agrees_in_any_order(staged, device, 1e-6 if dtype == "f4" else 1e-15, arrays)
    text = staged.stage(arrays).source
    assert "cudnn.h" not in text
    # Nowhere does a thread go through the elements of an image.
    assert not re.findall(r"for \((?:int|int64_t) j\w* = ", text)


@pytest.mark.parametrize("sizes", [(3, 1, 1), ((3, 2), (1, 2), 1, (2, 3)), (2, 2, 0, 2), (2, 3, 1, (4, 1), True)])
def test_the_gradient_of_maxima_has_the_same_bits_as_on_the_host(sizes: Any, device: Emulator) -> None:
    x = np.round(normal(2, 3, 11, 10))
    weights = normal(*st.max_pool2d(x, *sizes).shape)

    def gradient(x: Any, weights: Any) -> Any:
        return st.grad(lambda x: st.sum(st.max_pool2d(x, *sizes) * weights))(x)

    wanted = st.function(gradient)(x, weights)
    for words in ("eager forward", "lazy shuffled seed=9"):
        device.configure(words)
        np.testing.assert_array_equal(on_gpu(gradient)(x, weights), wanted)


def test_means_that_cudnn_does_not_take_are_kernels_with_a_thread_for_each_element(device: Emulator) -> None:
    def every(arrays: Any) -> Any:
        found = []
        for x, (kernel, stride, padding) in zip(arrays, LARGE, strict=True):
            weighted = lambda x: st.sum(st.sin(st.avg_pool2d(x, kernel, stride, padding) * 9.0))  # noqa: B023, E731
            found.append(st.value_and_grad(weighted)(x))
        return found

    arrays = [normal(1, 2, 26, 29), normal(2, 1, 30, 24), normal(1, 1, 1, 600)]
    staged = on_gpu(every)
    agrees_in_any_order(staged, device, 1e-5, arrays)
    text = staged.stage(arrays).source
    assert "cudnn.h" not in text and not re.findall(r"for \((?:int|int64_t) j\w* = ", text)


LARGE: list[tuple[Any, Any, Any]] = [((24, 23), 1, 0), ((23, 24), (5, 3), (3, 2)), ((1, 520), (2, 20), 0)]
"""(kernel, stride, padding) of windows with more elements than cuDNN takes."""


def test_means_of_no_images(device: Emulator) -> None:
    staged, x = on_gpu(lambda x: st.avg_pool2d(x, 2)), np.zeros((0, 2, 4, 4), "f4")
    assert np.asarray(staged(x)).shape == (0, 2, 2, 2)
    assert "cudnn.h" not in staged.stage(x).source
