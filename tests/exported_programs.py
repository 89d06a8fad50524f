"""Programs with Variables and captured arrays, each to be exported and run in a folder with nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim

RNG = np.random.default_rng(7)
TABLE = RNG.standard_normal((5, 4)).astype(np.float32)
SOC = np.linspace(0.0, 1.0, 4)
X = RNG.standard_normal((6, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 6).astype(np.int32)

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def step_of(model: nn.Module) -> Callable[..., Any]:
    """A step of training with Adam."""
    opt = optim.Adam(model.parameters(), lr=0.05)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        opt.step(grads)
        return loss

    return step


def classifier() -> Case:
    """Trained in Python, then captured."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    step = step_of(model)
    for _ in range(5):
        step(X, Y)

    @st.function
    def predict(x: Any) -> Any:
        return st.softmax(model(x), axis=-1)

    return predict, (X,)


def passed_model() -> Case:
    @st.function
    def forward(model: Any, x: Any) -> Any:
        return {"logits": model(x), "class": st.argmax(model(x), axis=-1)}

    return forward, (nn.Sequential(nn.Linear(4, 3)), X)


def training_step() -> Case:
    """Variables of the model and of the optimiser, which the program writes."""
    return step_of(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))), (X, Y)


def two_models() -> Case:
    actor, critic = nn.Sequential(nn.Linear(4, 2)), nn.Sequential(nn.Linear(4, 1))

    @st.function
    def both(x: Any) -> Any:
        return actor(x), critic(x)

    return both, (X,)


class Tied(nn.Module):
    def __init__(self) -> None:
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        return self.head(st.tanh(self.embedding(tokens)))


def tied() -> Case:
    model = Tied()

    @st.function
    def scores(tokens: Any) -> Any:
        return model(tokens)

    return scores, (np.array([0, 3, 4]),)


class Dynamics:
    """A class of the user's that is no module."""

    def __init__(self) -> None:
        self.parts = {"net": nn.Linear(4, 4)}
        self.gain = st.Variable(0.5, name="gain")

    @st.function
    def advance(self, x: Any) -> Any:
        self.gain.value = self.gain.value * 2.0
        return self.parts["net"](x) * self.gain + TABLE[1] + st.astype(SOC, st.f32)


def method() -> Case:
    return Dynamics().advance, (X,)


def dtypes() -> Case:
    """Every kind of elements, a Variable without elements, and names with all kinds of characters."""
    held = {
        "half": st.Variable(st.asarray([0.5, 2.0], dtype=st.f16)),
        "brain": st.Variable(st.asarray([1.5, -2.0, 3.0], dtype=st.bf16)),
        "bits": st.Variable(np.array([True, False, True])),
        "bytes": st.Variable(np.array([1, 255, 3], np.uint8)),
        "long": st.Variable(np.array([2**40, -1])),
        "plane": st.Variable(np.array([1 + 2j, -3j]), name='z "\\ é\t✓ \U0001f600'),
        "none": st.Variable(np.zeros((0, 3))),
        "number": st.Variable(3.0),
    }

    @st.function
    def total(x: Any) -> Any:
        kept = [
            st.sum(st.astype(held[key].value, st.f64))
            for key in ("half", "brain", "bits", "bytes", "long", "none", "number")
        ]
        return st.stack(kept) * x, held["plane"] * 2.0

    return total, (2.0,)


def loop_with_history() -> Case:
    """The gradient of a loop whose length is known when it runs."""
    scale = st.Variable(np.full(3, 0.9), name="scale")

    @st.function
    def slope(x: Any, n: Any) -> Any:
        def loss(x: Any) -> Any:
            while st.sum(x) > n:
                x = st.tanh(x * scale)
            return st.sum(x)

        return st.grad(loss)(x)

    return slope, (np.ones(3), 0.5)


def recursion() -> Case:
    """Frames of recursive calls are kept for the gradient."""
    weight = st.Variable(np.array([0.5, 0.25]), name="weight")

    @st.function
    def deep(n: Any, x: Any) -> Any:
        return st.sum(x * weight) if n < 1 else deep(n - 1, st.tanh(x + weight)) * 0.5

    @st.function
    def slope(n: Any, x: Any) -> Any:
        return st.grad(lambda x: deep(n, x))(x)

    return slope, (50, np.ones(2))


def random_numbers() -> Case:
    noise, weight = st.random.Generator(5), st.Variable(np.ones(3), name="weight")

    @st.function
    def noisy(x: Any) -> Any:
        return x * weight + st.random.normal((3,), generator=noise, dtype=st.f64)

    return noisy, (np.ones(3),)


def applied(model: nn.Module, x: Any) -> Case:
    """A model for inference."""
    model.eval()

    @st.function
    def apply(x: Any) -> Any:
        return model(x)

    return apply, (x,)


def transformer() -> Case:
    return applied(nn.TransformerEncoderLayer(8, 2, 16), RNG.standard_normal((3, 5, 8)).astype(np.float32))


def recurrent() -> Case:
    model = nn.LSTM(4, 5)

    @st.function
    def apply(x: Any) -> Any:
        return model(x)[0]

    return apply, (X[:, None],)


def convolutions() -> Case:
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    return applied(nn.Sequential(*layers), RNG.standard_normal((2, 3, 8, 8)).astype(np.float32))


def quantized() -> Case:
    return applied(st.quantize(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))), X)


def shared_encoder() -> Case:
    """A module of two others: it has its names in the first."""
    encoder = nn.Linear(4, 4)
    first, second = nn.Sequential(encoder, nn.Linear(4, 1)), nn.Sequential(encoder, nn.Linear(4, 2))

    @st.function
    def both(x: Any) -> Any:
        return {"second": second(x), "first": first(x)}

    return both, (X,)


CASES = {case.__name__: case for case in (
    classifier, passed_model, training_step, two_models, tied, method, dtypes, loop_with_history, recursion, random_numbers,
    transformer, recurrent, convolutions, quantized, shared_encoder,
)}  # fmt: skip
