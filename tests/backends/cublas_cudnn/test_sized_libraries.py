"""Sizes that the program finds, in calls of cuDNN and in CUDA graphs: plans and graphs for each size, and none of another size."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.frontend.values import trees
from tests.backends.cublas_cudnn.harness import nothing_is_left, settings

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(5)
W = RANDOM.normal(size=(4, 2, 3, 3)).astype(np.float32)
B = RANDOM.normal(size=4).astype(np.float32)


def images(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def convolved(x: Any, w: Any, b: Any) -> Any:
    return st.conv2d(st.tanh(st.conv2d(x, w, b, stride=2, padding=1)), st.sum(w, axis=1, keepdims=True), groups=4)


def loss(x: Any, w: Any, b: Any) -> Any:
    return st.sum(convolved(x, w, b) ** 2)


def with_gradients(x: Any, w: Any, b: Any) -> Any:
    with with_backend(GPU, x, w, b):
        found = st.value_and_grad(loss, argnums=(0, 1, 2))(x, w, b)
    return found


AXES = {"x": ("N <= 6", 2, "H <= 12", "2*H")}


def check(function: Any, *given: Any) -> None:
    found = trees.flatten(function(*given))[0]
    with st.eager():
        wanted = trees.flatten(with_gradients(*given))[0]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_a_convolution_has_a_plan_for_each_size(device: Emulator) -> None:
    """Of no images, and without algorithms, kernels run instead."""
    for words in settings("eager forward", "lazy shuffled seed=3", "no-algorithms"):
        staged = st.function(dims=AXES)(with_gradients)
        for n, height in ((2, 7), (6, 12), (2, 7), (0, 8), (5, 5)):
            check(staged, images(n, 2, height, 2 * height), W, B)
        assert len(staged.programs) == 1
        notes = staged.stage(images(2, 2, 7, 14), W, B).report().notes
        assert len(notes) == (6 if words == "no-algorithms" else 0), notes


def test_plans_are_found_again_and_given_back(device: Emulator) -> None:
    staged = st.function(dims=AXES)(with_gradients)

    gc.collect()  # programs of other tests
    before = device.counts()

    def descriptors_after(n: int) -> int:
        staged(images(n, 2, 9, 18), W, B)
        return (device.counts() - before).live_descriptors

    descriptors_after(1)
    few = descriptors_after(2)
    assert descriptors_after(1) == descriptors_after(2) == few
    assert descriptors_after(3) == few + 6 * 2  # of x and y of each call
    staged = None
    nothing_is_left(device, before)


def test_more_sizes_than_plans(device: Emulator) -> None:
    def shape_sums(x: Any, w: Any) -> Any:
        with with_backend(GPU, x, w):
            found = st.sum(st.conv2d(x, w))
        return found

    staged = st.function(dims={"x": (1, 2, 3, "W <= 90")})(shape_sums)
    x = images(1, 2, 3, 90)
    for width in [*range(3, 80), 4, 3]:
        with st.eager():
            wanted = shape_sums(x[..., :width], W)
        np.testing.assert_allclose(staged(np.ascontiguousarray(x[..., :width]), W), wanted, rtol=1e-4, atol=1e-4)


def pooled(x: Any) -> Any:
    with with_backend(GPU, x):
        found = st.value_and_grad(lambda x: st.sum(st.avg_pool2d(x, 3, stride=2, padding=1) ** 2))(x)
    return found


def test_means_over_windows_have_plans(device: Emulator) -> None:
    staged = st.function(dims={"x": ("N <= 6", 2, "H <= 12", 7)})(pooled)
    for n, height in ((2, 7), (6, 12), (0, 8), (2, 7), (1, 2)):
        x = images(n, 2, height, 7)
        with st.eager():
            wanted = pooled(x)
        for one, other in zip(staged(x), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    text = staged.stage(images(2, 2, 7, 7)).source
    assert "cudnnPoolingForward" in text and "cudnnPoolingBackward" in text and len(staged.programs) == 1


def trained(x: Any, y: Any, w: Any, steps: Any, graphs: bool = True) -> Any:
    with with_backend(GPU, x, y, w, graphs=graphs):
        w = w + 0.0
        for step in st.range(steps):
            d_w = st.grad(lambda w: st.mean((st.tanh(x @ w) - y) ** 2))(w)
            w = w - 0.1 * (step + 1.0) * d_w
    return w


TRAINED = {"x": ("N <= 40", 3), "y": "N"}


@pytest.mark.parametrize("words", ["", "lazy shuffled seed=7"])
def test_a_graph_is_launched_for_its_own_sizes_alone(device: Emulator, words: str) -> None:
    device.configure(words)
    with_graphs = st.function(dims=TRAINED)(trained)
    without = st.function(dims=TRAINED, static="graphs")(trained)
    w = images(3)
    for n in (5, 40, 5, 7, 1, 0, 2, 3, 4, 6, 8, 9, 10, 5, 7):  # more than there are graphs
        x, y = images(n, 3), images(n)
        before = device.counts()
        found = with_graphs(x, y, w, 6)
        launched = (device.counts() - before).graph_launches
        assert 4 <= launched <= 6, n
        np.testing.assert_array_equal(found, without(x, y, w, 6, graphs=False))
    assert len(with_graphs.programs) == 1


def test_sizes_of_iterations_have_graphs(device: Emulator) -> None:
    x, y, w = images(22, 3), images(22), images(3)

    def epochs(x: Any, y: Any, w: Any, count: Any) -> Any:
        with with_backend(GPU, x, y, w):
            w = w + 0.0
            for step in st.range(count):
                start = step % 3 * 8
                n = st.dim("n", st.minimum(8, 22 - start), max=8)
                some, wanted = x[start : start + n], y[start : start + n]
                w = w - 0.1 * st.grad(lambda w, some=some, wanted=wanted: st.mean((st.tanh(some @ w) - wanted) ** 2))(w)
        return w

    before = device.counts()
    found = st.function(epochs)(x, y, w, 15)
    seen = device.counts() - before
    with st.eager():
        wanted = epochs(x, y, w, 15)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert seen.graph_launches == 15 - 2, seen
