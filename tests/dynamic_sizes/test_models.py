"""Whole models over sizes: one trace and one program serve all sizes, with the results of the static programs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staged as st
from benchmarks.size_rows import arguments, gpt2_loss, lstm_loss, mnist_loss, squeezenet_loss
from examples.char_lstm.model import CharLSTM
from examples.gpt2.model import GPT2, Config
from examples.mnist.models import CNN
from examples.squeezenet.model import SqueezeNet
from staged import nn, optim
from staged.frontend.values import trees


@dataclass(frozen=True)
class Example:
    """A model, functions of it and of arrays, and their sizes."""

    make: Callable[[Any], nn.Module]
    loss: Callable[..., Any]
    forward: Callable[..., Any]
    axes: dict[str, tuple[int | str, ...]]
    optimizer: Callable[[nn.Module], Any]
    integers: dict[str, int]
    """Arguments that are indices, with the number that they stay below."""
    sizes: tuple[dict[str, int], ...]
    larger: tuple[dict[str, int], ...] = ()


def mnist_classes(model, x, y):
    scores = model(x)
    return scores, st.sum(st.argmax(scores, axis=1) == y)


def lstm_text(model, x, y):
    """As many characters as `x` has, drawn after them."""
    state, last = model.start(x.shape[1]), x[0]
    for t in st.range(x.shape[0]):
        state, _ = model.step(state, x[t])
    text = st.zeros(x.shape, dtype=st.i64)
    for t in st.range(x.shape[0]):
        state, scores = model.step(state, last)
        last = st.random.categorical(scores / 0.7)
        text[t] = last
    return text, state[0]


def gpt2_text(model, x, y):
    """The first text of `x`, and as many tokens drawn after it."""
    prompt = x[0]
    length = 2 * x.shape[1]
    tokens = st.concat([prompt, st.zeros((length - prompt.shape[0],), dtype=st.i64)])
    cache = model.cache(length)
    for place in st.range(length):
        scores, cache = model.step(tokens[place], place, cache)
        if place + 1 >= prompt.shape[0] and place + 1 < length:
            tokens[place + 1] = st.random.categorical(scores / 0.8)
    return tokens


def squeezenet_scores(model, x, y):
    return st.softmax(model(x), axis=1)


EXAMPLES = {
    "mnist": Example(
        CNN,
        mnist_loss,
        mnist_classes,
        {"x": ("N <= 64", 1, 28, 28), "y": ("N",)},
        lambda model: optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        {"y": 10},
        ({"N": 1}, {"N": 7}),
        ({"N": 8}, {"N": 33}, {"N": 64}),
    ),
    "char_lstm": Example(
        lambda dtype: CharLSTM(11, 6, dtype),
        lstm_loss,
        lstm_text,
        {"x": ("T <= 200", "N <= 4"), "y": ("T", "N")},
        lambda model: optim.Adagrad(model.parameters(), lr=0.1),
        {"x": 11, "y": 11},
        ({"T": 1, "N": 3}, {"T": 9, "N": 1}),
        ({"T": 50, "N": 4}, {"T": 200, "N": 2}),
    ),
    "gpt2": Example(
        lambda dtype: GPT2(Config(2, 2, 16, 400, 13), 0.2, dtype),
        gpt2_loss,
        gpt2_text,
        {"x": ("N <= 3", "T <= 192"), "y": ("N", "T")},
        lambda model: optim.AdamW(model.parameters(), lr=0.01),
        {"x": 13, "y": 13},
        ({"T": 1, "N": 2}, {"T": 9, "N": 1}),
        ({"T": 50, "N": 3}, {"T": 192, "N": 2}),
    ),
    "gpt2_in_blocks": Example(
        lambda dtype: GPT2(Config(2, 2, 16, 400, 13), 0.2, dtype),
        gpt2_loss,
        gpt2_text,
        {"x": ("N <= 3", "T <= 200"), "y": ("N", "T")},
        lambda model: optim.AdamW(model.parameters(), lr=0.01),
        {"x": 13, "y": 13},
        ({"T": 1, "N": 2}, {"T": 200, "N": 1}),
        ({"T": 50, "N": 3}, {"T": 193, "N": 2}),
    ),
    "squeezenet": Example(
        lambda dtype: SqueezeNet(64, 5, ((4,), (4,), (6,)), dtype=dtype),
        squeezenet_loss,
        squeezenet_scores,
        {"x": ("N <= 2", 3, "H <= 256", "W <= 256"), "y": ("N",)},
        lambda model: optim.AdamW(model.parameters(), lr=0.01),
        {"y": 5},
        ({"N": 1, "H": 64, "W": 65}, {"N": 2, "H": 81, "W": 70}),
        ({"N": 1, "H": 100, "W": 256}, {"N": 2, "H": 256, "W": 64}),
    ),
}


def compare(example: Example, model: Any, function: Any, target: str, optimizer: Any, sizes: Any, dtype: Any) -> None:
    """At each size the program has the results of the static program, and leaves the same parameters."""
    tolerance = 1e-10 if dtype == st.f64 else 1e-5
    states = {owner: copy.deepcopy(owner.state_dict()) for owner in (model, optimizer)}
    dynamic = st.function(dims=example.axes, target=target)(function)
    for each in sizes:
        given, found = arguments(example.axes, example.integers, each, dtype.numpy), []
        for program in (dynamic, st.function(target=target)(function)):
            for owner, state in states.items():
                owner.load_state_dict(state)
            st.seed(3)
            result = program(*given)
            found.append([*trees.flatten(result)[0], *map(np.array, model.state_dict().values())])
        for one, other in zip(*found, strict=True):
            assert np.shape(one) == np.shape(other), each
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=str(each))
    assert (len(dynamic.programs), dynamic.programs[0].traces) == (1, 1)


def sizes_of(example: Example, full: bool) -> tuple[dict[str, int], ...]:
    return example.sizes + (example.larger if full else ())


@pytest.mark.parametrize("dtype", [st.f64, st.f32], ids=str)
@pytest.mark.parametrize("target", ["native", "portable"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_training_step_serves_all_sizes(name: str, target: str, dtype: Any, full: bool) -> None:
    example = EXAMPLES[name]
    st.seed(0)
    model = example.make(dtype)
    # The first step of Adam is a sign: single precision decides the sign of a gradient that is 0.
    optimizer = example.optimizer(model) if dtype == st.f64 else optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        loss, grads = st.value_and_grad(lambda: example.loss(model, x, y), wrt=model)()
        optimizer.step(grads)
        return loss, grads

    compare(example, model, step, target, optimizer, sizes_of(example, full), dtype)


@pytest.mark.parametrize("target", ["native", "portable"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_evaluation_and_sampling_serve_all_sizes(name: str, target: str, full: bool) -> None:
    example = EXAMPLES[name]
    st.seed(0)
    model = example.make(st.f64)
    model.eval()

    def forward(x, y):
        return example.forward(model, x, y)

    compare(example, model, forward, target, example.optimizer(model), sizes_of(example, full), st.f64)
