"""Training steps of networks in a region of the emulated device: one program serves all sizes, with the static numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from examples.char_lstm.model import CharLSTM
from examples.gpt2.model import GPT2, Config
from examples.mnist.models import MODELS
from examples.squeezenet.model import SqueezeNet
from staged import GPU, optim, with_backend

pytestmark = pytest.mark.usefixtures("device")
LETTERS = 20
STEPS = 3
"""Steps of a call: the last ones are CUDA graphs."""


def trainer(make: Callable[[], tuple[Any, Any]], axes: Any) -> Any:
    """A staged function that trains a new model on one batch; it returns the last loss."""
    st.seed(0)
    model, loss_of = make()
    opt = optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def train(x: Any, y: Any, steps: Any) -> Any:
        last = 0.0
        with with_backend(GPU, x, y):
            for _ in st.range(steps):
                last, gradients = st.value_and_grad(lambda: loss_of(x, y), wrt=model)()
                opt.step(gradients)
        return last

    return st.function(dims=axes)(train)


def of_images(model: Any) -> tuple[Any, Any]:
    return model, lambda x, y: st.cross_entropy(model(x), y)


def char_lstm() -> tuple[Any, Any]:
    """`x`: letters by time and batch."""
    model = CharLSTM(LETTERS, 16)

    def loss(x: Any, y: Any) -> Any:
        state, total = model.start(x.shape[1]), 0.0
        for t in st.range(x.shape[0]):
            state, scores = model.step(state, x[t])
            total += st.cross_entropy(scores, y[t])
        return total / x.shape[0]

    return model, loss


def gpt() -> tuple[Any, Any]:
    model = GPT2(Config(layers=2, heads=2, width=16, places=200, vocabulary=LETTERS))

    def loss(x: Any, y: Any) -> Any:
        return st.cross_entropy(st.reshape(model(x), (-1, LETTERS)), st.reshape(y, (-1,)))

    return model, loss


def letters(*shape: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    return draw.integers(0, LETTERS, shape), draw.integers(0, LETTERS, shape)


def pictures(classes: int, *shape: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    return draw.normal(size=shape).astype(np.float32), draw.integers(0, classes, shape[0])


MODELS_AND_SIZES = {
    "mnist": (
        lambda: of_images(MODELS["cnn"]()),
        {"x": ("N <= 64", 1, 28, 28), "y": "N"},
        [pictures(10, n, 1, 28, 28) for n in (5, 64, 1)],
    ),
    "char_lstm": (char_lstm, {"x": ("T <= 200", 3), "y": ("T", 3)}, [letters(n, 3) for n in (5, 200, 1)]),
    "squeezenet": (
        lambda: of_images(SqueezeNet(64, 5, ((2,), (2,)), dropout=0.0)),
        {"x": ("N <= 2", 3, "H <= 256", "W <= 256"), "y": "N"},
        [pictures(5, 2, 3, 64, 65), pictures(5, 1, 3, 256, 64)],
    ),
    "gpt": (gpt, {"x": (2, "T <= 200"), "y": (2, "T")}, [letters(2, n) for n in (5, 200, 1)]),
}


@pytest.mark.parametrize("name", MODELS_AND_SIZES)
def test_one_program_trains_with_all_sizes(name: str, device: Emulator) -> None:
    make, axes, batches = MODELS_AND_SIZES[name]
    one = trainer(make, axes)
    static = trainer(make, None)
    for x, y in batches:
        found, wanted = one(x, y, STEPS), static(x, y, STEPS)
        np.testing.assert_allclose(found, wanted, rtol=2e-4, err_msg=str(x.shape))
    assert len(one.programs) == 1 and len(static.programs) == len(batches)
