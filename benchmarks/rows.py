"""What is measured: sizes, data and initial weights, the same arrays for every framework.

A *training* row is a whole step (forward, backward, SGD) of a small network. Step `i` of a run takes batch
`i % BATCHES`, so that nobody can keep one batch's work. An *op* row is one call from Python on arrays in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

LEARNING_RATE = 0.05
BATCHES = 16
CLASSES = 10

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Row:
    """One line of the table. `shapes` are the operands of an op; `flops` counts one call's or step's arithmetic."""

    name: str
    kind: Literal["train", "op"]
    what: str
    batch: int = 0
    image: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    flops: int = 0


def _sgemm(n: int) -> Row:
    return Row(f"sgemm_{n}", "op", f"`a @ b`, {n} x {n}", shapes=((n, n), (n, n)), flops=2 * n**3)


ROWS = {
    row.name: row
    for row in (
        Row("mlp_mnist", "train", "step of 784-256-128-10, relu, batch 64, SGD 0.05", batch=64, image=(784,)),
        Row(
            "cnn_mnist",
            "train",
            "step of Lantern's CNN (conv 5x5 1-10, pool, conv 5x5 10-20, pool, fc 320-50-10), batch 100, SGD 0.05",
            batch=100,
            image=(1, 28, 28),
        ),
        Row("softmax", "op", "softmax over rows, 4096 x 1024", shapes=((4096, 1024),)),
        Row("layer_norm", "op", "layer norm over rows, 4096 x 1024", shapes=((4096, 1024), (1024,), (1024,))),
        Row("row_sum", "op", "`(exp(x) + y * z).sum(1)`, 4096 x 4096", shapes=((4096, 4096),) * 3),
        _sgemm(64),
        _sgemm(256),
        _sgemm(1024),
        Row(
            "conv2d",
            "op",
            "conv2d, 16 x 64 x 56 x 56, 64 filters 3x3, padding 1",
            shapes=((16, 64, 56, 56), (64, 64, 3, 3)),
            flops=2 * 16 * 64 * 56 * 56 * 64 * 9,
        ),
    )
}

# PyTorch's names and layouts; the order is the network's.
PARAMETERS: dict[str, dict[str, tuple[int, ...]]] = {
    "mlp_mnist": {
        "fc1.weight": (256, 784),
        "fc1.bias": (256,),
        "fc2.weight": (128, 256),
        "fc2.bias": (128,),
        "fc3.weight": (10, 128),
        "fc3.bias": (10,),
    },
    "cnn_mnist": {
        "conv1.weight": (10, 1, 5, 5),
        "conv1.bias": (10,),
        "conv2.weight": (20, 10, 5, 5),
        "conv2.bias": (20,),
        "fc1.weight": (50, 320),
        "fc1.bias": (50,),
        "fc2.weight": (10, 50),
        "fc2.bias": (10,),
    },
}


def parameters(row: Row) -> dict[str, Floats]:
    """Initial weights of a training row, uniform within 1 / sqrt(fan in) as PyTorch's layers draw them."""
    generator = np.random.default_rng(1)
    values, bound = {}, 0.0
    for name, shape in PARAMETERS[row.name].items():
        if name.endswith("weight"):
            bound = 1.0 / math.sqrt(math.prod(shape[1:]))
        values[name] = generator.uniform(-bound, bound, shape).astype(np.float32)
    return values


def training_data(row: Row) -> tuple[Floats, NDArray[np.int32]]:
    """Images (BATCHES, batch, *image) and labels (BATCHES, batch)."""
    generator = np.random.default_rng(2)
    images = generator.standard_normal((BATCHES, row.batch, *row.image), dtype=np.float32)
    return images, generator.integers(0, CLASSES, (BATCHES, row.batch), dtype=np.int32)


def operands(row: Row) -> tuple[Floats, ...]:
    generator = np.random.default_rng(3)
    return tuple(generator.standard_normal(shape, dtype=np.float32) for shape in row.shapes)


def digest(result: Any) -> list[float]:
    """A few figures of a result that tell a wrong one from a right one: mean, mean square and spread-out elements."""
    flat = np.asarray(result, dtype=np.float64).ravel()
    picked = flat[np.linspace(0, flat.size - 1, min(flat.size, 64)).astype(int)]
    return [float(flat.mean()), float((flat**2).mean()), *picked.tolist()]


def digests_agree(one: list[float], other: list[float], tolerance: float = 2e-3) -> bool:
    """Equal up to float32 arithmetic in another order, relative to the result's own size."""
    if len(one) != len(other) or not all(map(math.isfinite, [*one, *other])):
        return False
    scale = math.sqrt(max(one[1], other[1])) or 1.0
    return all(abs(a - b) <= tolerance * max(scale, abs(a), abs(b)) for a, b in zip(one, other, strict=True))
