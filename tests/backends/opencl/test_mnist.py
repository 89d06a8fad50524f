"""Training of the MNIST programs on an OpenCL device: the losses and weights are the host's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from examples.mnist.models import MODELS
from staged import GPU, optim, with_backend
from staged.testing import compare_trees
from tests import opencl_device

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(64, 1, 28, 28)).astype(np.float32)
LABELS = RNG.integers(0, 10, 64)


def train(name: str, images: Any, labels: Any) -> Any:
    st.seed(3)
    net = MODELS[name]()
    optimiser = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = st.zeros(6)
    step = 0
    for _ in st.range(3):
        for x, y in st.batches(images, labels, size=32, shuffle=True):
            loss, gradients = st.value_and_grad(lambda x, y: st.cross_entropy(net(x, dropout=0.5), y), wrt=net)(x, y)
            optimiser.step(gradients)
            losses[step] = loss
            step += 1
    return losses, net.state_dict()


@pytest.mark.parametrize("name", MODELS)
def test_training_agrees_with_the_host(name: str) -> None:
    opencl_device.require()

    @st.function
    def on_device(images: Any, labels: Any) -> Any:
        with with_backend(GPU, images, labels, using="opencl"):
            made = train(name, images, labels)
        return made

    on_host = st.function(lambda images, labels: train(name, images, labels))
    assert "// backend opencl" in on_device.stage(IMAGES, LABELS).source
    found = on_device(IMAGES, LABELS)
    compare_trees(found, on_host(IMAGES, LABELS), rtol=1e-4, atol=1e-6)
    assert len(set(np.asarray(found[0]).tolist())) == 6
