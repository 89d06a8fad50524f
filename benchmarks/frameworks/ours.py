"""`staged`: a training run is one generated program, an op a program of one op called from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staged as st
from benchmarks.frameworks import ours_recurrent
from benchmarks.frameworks.ours_models import Cnn, Mlp
from benchmarks.frameworks.ours_recurrent import made
from benchmarks.rows import BATCHES, LEARNING_RATE, Row, parameters
from benchmarks.workload import NotWritten, Workload
from staged import optim

OPS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: st.softmax(x, axis=-1),
    "layer_norm": lambda x, gain, bias: st.layer_norm(x, (x.shape[-1],), gain, bias),
    "row_sum": lambda x, y, z: st.sum(st.exp(x) + y * z, axis=1),
    "sgemm_64": lambda a, b: a @ b,
    "sgemm_256": lambda a, b: a @ b,
    "sgemm_1024": lambda a, b: a @ b,
    "conv2d": lambda x, w: st.conv2d(x, w, padding=1),
}


MODELS: dict[str, Callable[[], Any]] = {"mlp_mnist": Mlp, "cnn_mnist": Cnn}


def build(framework: str, row: Row, threads: int, data: Any, device: str = "cpu") -> Workload:
    # The number of threads comes from the environment, which the caller of the worker sets.
    backend = st.GPU if device == "gpu" else st.CPU
    if row.kind == "train":
        return training(row, data, backend)
    if row.kind in ("recurrent", "trees"):
        return ours_recurrent.build(row, data, backend)
    if row.name not in OPS or device != "cpu":
        raise NotWritten
    return op(row, data)


def training(row: Row, data: tuple[Any, ...], backend: Any = st.CPU) -> Workload:
    model = MODELS[row.name]()
    model.load_state_dict(parameters(row))
    optimizer = optim.SGD(model.parameters(), lr=LEARNING_RATE)
    images, labels = st.to(data, backend)

    def loss_fn(x: Any, y: Any) -> Any:
        return st.cross_entropy(model(x), y)

    @st.function
    def train(images: Any, labels: Any, steps: Any) -> Any:
        loss = 0.0
        for step in st.range(steps):
            batch = step % BATCHES
            loss, grads = st.value_and_grad(loss_fn, wrt=model)(images[batch], labels[batch])
            optimizer.step(grads)
        return loss

    program, figures = made(train, images, labels, 1, backend=backend)
    return Workload(lambda steps: program(images, labels, steps), np.asarray, figures)


def op(row: Row, data: tuple[Any, ...]) -> Workload:
    program, figures = made(st.function(OPS[row.name]), *data)

    def run(calls: int) -> Any:
        for _ in range(calls):
            result = program(*data)
        return result

    return Workload(run, figures=figures)
