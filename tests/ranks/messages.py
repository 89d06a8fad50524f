"""Steps of training on several ranks: how many messages they send, and the weights with and without overlap."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import staged as st
from examples.gpt2.model import GPT2, Config
from staged import nn, optim

LAYERS = 3


def trained(make: Any, inputs: Any, outputs: Any, **variables: str) -> dict[str, Any]:
    """The weights after three steps, the messages of the three, and what `explain` says of them."""
    os.environ.update(variables)
    st.seed(0)
    model = make()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @st.function
    def step(x: Any, y: Any) -> Any:
        x, y = st.shard(x), st.shard(y)

        def loss_fn() -> Any:
            scores = model(x)
            return st.all_reduce(st.cross_entropy(scores.view(-1, scores.shape[-1]), y.reshape(-1)), "mean")

        loss, grads = st.value_and_grad(loss_fn, wrt=model)()
        optimizer.step(grads)
        return loss

    program = step.stage(inputs, outputs)
    for _ in range(3):
        loss = program(inputs, outputs)
    for name in variables:
        del os.environ[name]
    report = program.report()
    return {
        "weights": {name: np.asarray(value) for name, value in model.state_dict().items()} | {"loss": loss},
        "messages": report.messages,
        "bytes": report.message_bytes,
        "explained": program.explain().partition("## Messages between ranks\n\n")[2].partition("\n\n")[0],
        "source": program.source,
    }


def mlp(**variables: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def make() -> nn.Module:
        layers = [nn.Linear(20, 30, dtype=st.f64), nn.Tanh(), nn.Linear(30, 30, dtype=st.f64), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(30, 5, dtype=st.f64))

    return trained(make, rng.normal(size=(12, 20)), rng.integers(0, 5, 12), **variables)


def case_mlp() -> dict[str, Any]:
    return mlp()


def case_small_buckets() -> dict[str, Any]:
    return mlp(STAGED_BUCKET_BYTES="2000")


def case_overlap() -> dict[str, Any]:
    return mlp(STAGED_BUCKET_BYTES="2000", STAGED_OVERLAP="1")


def case_layers() -> dict[str, Any]:
    tokens = np.random.default_rng(0).integers(0, 11, (4, 9))
    return trained(lambda: GPT2(Config(LAYERS, 2, 8, 8, 11), dtype=st.f64), tokens[:, :-1], tokens[:, 1:])
