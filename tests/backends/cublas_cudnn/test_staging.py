"""Batches of the host in a loop: their copies go beside the device's work, and nobody sees one too early or too late."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, with_backend
from staged.runtime.cuda.emulated import compile_emulated
from staged.runtime.cuda.program import CudaProgram
from staged.runtime.options import CompileOptions

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(96, 6)).astype(np.float32)
Y = RNG.normal(size=(96, 5)).astype(np.float32)
W = RNG.normal(size=(6, 5)).astype(np.float32)


def training(backend: Any) -> Callable[..., Any]:
    """The host makes each batch in the same memory, and asks for the loss of the last iteration alone."""
    w = st.Variable(W, name="w")

    @st.function
    def train(xs: Any, ys: Any, n: Any) -> Any:
        loss = 0.0
        for i in st.range(n):
            k = i % 12
            x = xs[k * 8 : k * 8 + 8] * 0.5 + i
            y = ys[k * 8 : k * 8 + 8]
            with with_backend(backend, x, y):
                loss, d_w = st.value_and_grad(lambda x=x, y=y: st.mean((st.tanh(x @ w) - y) ** 2), wrt=w)()
                w.value = w - 0.1 * d_w
        return loss, w + 0.0

    return train


@pytest.mark.parametrize("words", ["", *(f"lazy shuffled seed={seed}" for seed in range(6))])
def test_every_iteration_has_its_batch(device: Emulator, words: str) -> None:
    on_gpu, on_cpu = training(GPU), training(CPU)
    device.configure(words)
    for n in (1, 2, 3, 17):
        for found, expected in zip(on_gpu(X, Y, n), on_cpu(X, Y, n), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_copy_is_one_copy_and_takes_no_memory(device: Emulator) -> None:
    gc.collect()
    empty = device.counts()
    train = training(GPU)
    train(X, Y, 2)
    before = device.counts()
    train(X, Y, 50)
    seen = device.counts() - before
    assert (seen.copies_to_device, seen.bytes_to_device) == (100, 50 * 8 * (6 + 5) * 4)
    assert (seen.allocations, seen.live_pinned, seen.live_events, seen.live_streams) == (0, 0, 0, 0)
    assert seen.synchronisations <= 100 + 4, "the host waits where it is two turns ahead, and in the end"
    del train
    gc.collect()
    left = device.counts() - empty
    assert (left.live_pinned, left.live_events, left.live_streams, left.live_graphs) == (0, 0, 0, 0)


def test_a_program_that_stops_between_copies_goes_on_with_the_next_call(device: Emulator) -> None:
    @st.function
    def total(xs: Any, n: Any) -> Any:
        found = st.zeros((6,))
        for i in st.range(n):
            x = xs[i * 8 : i * 8 + 8] * 1.0
            with with_backend(GPU, x):
                found = found + st.sum(x, axis=0)
            assert i < 5, "far enough"
        return found

    for words in ("", "lazy seed=1", "lazy seed=2"):
        device.configure(words)
        for n in (3, 9, 4):
            if n > 5:
                with pytest.raises(AssertionError, match="far enough"):
                    total(X, n)
            else:
                np.testing.assert_allclose(total(X, n), X[: 8 * n].sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        "cudaEventSynchronize(staging->copied[k])",
        "cudaStreamWaitEvent(gpu->copies, staging->taken[k], 0)",
        "cudaEventRecord(staging->copied[k], gpu->copies)",
        "cudaStreamWaitEvent(gpu->stream, staging->copied[k], 0)",
        "cudaEventRecord(staging->taken[k], gpu->stream)",
    ],
)
@pytest.mark.usefixtures("misuse")
def test_no_event_is_needless(device: Emulator, call: str) -> None:
    """Without any one of them some order of the work gives other numbers: so the tests above would notice that it is missing."""

    @st.function
    def total(xs: Any, n: Any) -> Any:
        found = st.zeros((6,))
        for i in st.range(n):
            x = xs[i * 8 : i * 8 + 8] * 1.0 + i
            with with_backend(GPU, x):
                found = found + st.sum(x, axis=0) * (i + 1.0)
        return found

    expected = total(X, 9)
    artifact = total.stage(X, 9)._artifact
    source, count = re.subn(rf".*CUDA_CHECK\(site, {re.escape(call)}\);.*\n", "", artifact.source)
    assert count == 1
    broken = replace(artifact, source=source)
    program = CudaProgram(broken, compile_emulated(broken, CompileOptions()))
    wrong = 0
    for seed in range(6):
        device.configure(f"lazy shuffled seed={seed}")
        np.testing.assert_array_equal(total(X, 9), expected)
        wrong += not np.array_equal(program(X, 9)[0], expected)
    assert wrong
