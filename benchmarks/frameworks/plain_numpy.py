"""NumPy as one writes it without a compiler; the MLP's gradients are by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rows import BATCHES, LEARNING_RATE, Row, parameters
from benchmarks.workload import NotWritten, Workload


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    return e


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5)) * gain + bias


def conv2d(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


OPS: dict[str, Callable[..., np.ndarray]] = {
    "softmax": softmax,
    "layer_norm": layer_norm,
    "row_sum": lambda x, y, z: (np.exp(x) + y * z).sum(1),
    "sgemm_64": np.matmul,
    "sgemm_256": np.matmul,
    "sgemm_1024": np.matmul,
    "conv2d": conv2d,
}


def build(framework: str, row: Row, threads: int, data: tuple[Any, ...]) -> Workload:
    # The BLAS below NumPy reads its number of threads from the environment, which the caller of the worker sets.
    if row.name == "mlp_mnist":
        return mlp(row, data)
    if row.is_training:
        raise NotWritten
    function = OPS[row.name]

    def run(calls: int) -> np.ndarray:
        for _ in range(calls):
            result = function(*data)
        return result

    return Workload(run)


def mlp(row: Row, data: tuple[Any, ...]) -> Workload:
    p = parameters(row)
    weights = [p["fc1.weight"], p["fc2.weight"], p["fc3.weight"]]
    biases = [p["fc1.bias"], p["fc2.bias"], p["fc3.bias"]]
    images, labels = data
    rate = np.float32(LEARNING_RATE)
    rows = np.arange(row.batch)

    def step(x: np.ndarray, y: np.ndarray) -> float:
        inputs = [x]
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(np.maximum(inputs[-1] @ w.T + b, 0))
        logits = inputs[-1] @ weights[-1].T + biases[-1]
        shifted = logits - logits.max(1, keepdims=True)
        e = np.exp(shifted)
        total = e.sum(1, keepdims=True)
        loss = float((np.log(total[:, 0]) - shifted[rows, y]).mean())
        d = e / total
        d[rows, y] -= 1
        d /= np.float32(row.batch)
        for layer in (2, 1, 0):
            d_w, d_b = d.T @ inputs[layer], d.sum(0)
            if layer:
                d = (d @ weights[layer]) * (inputs[layer] > 0)
            weights[layer] -= rate * d_w
            biases[layer] -= rate * d_b
        return loss

    def run(steps: int) -> float:
        for i in range(steps):
            loss = step(images[i % BATCHES], labels[i % BATCHES])
        return loss

    return Workload(run)
