"""Networks that train in a GPU region: the CPU's losses, step by step, and what moves between the two memories."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from examples.mnist.models import CNN, MLP
from staged import CPU, GPU, data, optim, with_backend
from tests.backends.cublas_cudnn.harness import nothing_is_left

pytestmark = pytest.mark.usefixtures("device")
STEPS, BATCH = 50, 16


def mnist(folder: Path, dtype: Any) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """The first batches of MNIST: images (batch, 1, 28, 28) and labels."""
    images, labels, _, _ = data.mnist_split(str(folder))
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        yield images[rows].astype(dtype), labels[rows].astype(np.int32)


def training(make: Any, backend: Any, dtype: Any) -> Callable[..., Any]:
    """One step of SGD with momentum on a back end, from weights that are the same each time."""
    model = make(dtype=dtype)
    rng = np.random.default_rng(0)
    model.load_state_dict({
        name: (rng.normal(size=value.shape) / np.sqrt(np.prod(value.shape[1:]))).astype(dtype.numpy)
        for name, value in model.state_dict().items()
    })  # fmt: skip
    opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss_of(x: Any, labels: Any) -> Any:
        return st.cross_entropy(model(x), labels)

    @st.function
    def step(x: Any, labels: Any) -> Any:
        with with_backend(backend, x, labels):
            loss, grads = st.value_and_grad(loss_of, wrt=model)(x, labels)
            opt.step(grads)
        return loss

    return step


@pytest.mark.parametrize("make", [MLP, CNN])
@pytest.mark.parametrize(("dtype", "tolerance"), [(st.f64, 1e-8), (st.f32, 1e-4)], ids=["f64", "f32"])
def test_mnist_has_the_cpus_losses(make: Any, dtype: Any, tolerance: float, data_folder: Any) -> None:
    batches = list(mnist(data_folder("mnist"), dtype.numpy))
    on_gpu, on_cpu = training(make, GPU, dtype), training(make, CPU, dtype)
    found = [on_gpu(*batch) for batch in batches]
    wanted = [on_cpu(*batch) for batch in batches]
    # At this rate the loss rises at first, and what f32 rounds off grows with the steps: f64 compares them all.
    compared = len(found) if dtype is st.f64 else 30
    np.testing.assert_allclose(found[:compared], wanted[:compared], rtol=tolerance)
    assert found[-1] < found[0]


def test_a_step_moves_its_batch_and_its_loss_and_makes_nothing(device: Emulator) -> None:
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(BATCH, 1, 28, 28)).astype("f4"), rng.integers(0, 10, BATCH).astype("i4")
    gc.collect()
    empty = device.counts()
    step = training(CNN, GPU, st.f32)
    step(x, labels)
    before = device.counts()
    for _ in range(3):
        step(x, labels)
    seen = device.counts() - before
    assert (seen.allocations, seen.descriptors_created) == (0, 0)
    assert seen.bytes_to_device == 3 * (x.nbytes + labels.nbytes)
    assert seen.bytes_to_host < 3 * 256, "the loss, and whether a label was out of range"
    del step
    nothing_is_left(device, empty)
