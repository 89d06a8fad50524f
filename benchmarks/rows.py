"""The measured rows: sizes, data and initial weights, the same arrays for every framework.

A *training* row is a whole step (forward, backward, update) of a small network. Step `i` of a run takes batch
`i % BATCHES`, so that nobody can keep one batch's work. An *op* row is one call from Python on arrays in memory.
Recurrent rows and the tree LSTM have the sizes of Lantern's evaluation; a step of the tree LSTM is an epoch of 64 trees.
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
# Of the recurrent rows and of the tree LSTM.
VOCABULARY, HIDDEN, LENGTH, RECURRENT_RATE, CLIP = 26, 50, 20, 0.1, 5.0
TREES, WORDS, VECTOR, TREE_HIDDEN, TREE_CLASSES, TREE_RATE = 64, 2000, 300, 150, 5, 0.05

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Row:
    """One line of the table. `shapes` are the operands of an op; `flops` counts one call's or step's arithmetic."""

    name: str
    kind: Literal["train", "recurrent", "trees", "op", "call"]
    what: str
    batch: int = 0
    image: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    flops: int = 0
    steps_of: str = ""
    """Of a call: the training row whose step it is."""
    blocks: int = 0
    """Of a call: transformer blocks."""

    @property
    def is_training(self) -> bool:
        """Whether `run(n)` trains n steps."""
        return self.kind not in ("op", "call")


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
        Row(
            "char_rnn",
            "recurrent",
            "step of an RNN over 20 characters of 26, hidden 50, batch 20, clip 5, Adagrad 0.1",
            batch=20,
        ),
        Row(
            "char_lstm",
            "recurrent",
            "step of an LSTM over 20 characters of 26, hidden 50, batch 20, clip 5, Adagrad 0.1",
            batch=20,
        ),
        Row(
            "treelstm",
            "trees",
            "epoch of a tree LSTM over 64 trees, one Adagrad step (0.05) each; word vectors 300, hidden 150, 5 classes",
            batch=1,
        ),
        Row(
            "treelstm_levels",
            "trees",
            "the same with 16 trees per step, whose nodes of one height `staged` computes together",
            batch=16,
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


def _recurrent(gates: int) -> dict[str, tuple[int, ...]]:
    """The parameters of the examples' models: a row of `embed` is what a one-hot input picks."""
    shapes = {"embed": (VOCABULARY, gates), "recur": (HIDDEN, gates), "bias": (gates,)}
    return {**shapes, "out.weight": (VOCABULARY, HIDDEN), "out.bias": (VOCABULARY,)}


_TREE: dict[str, tuple[int, ...]] = {
    "w_leaf": (VECTOR, 3 * TREE_HIDDEN),
    "b_leaf": (3 * TREE_HIDDEN,),
    "u_left": (TREE_HIDDEN, 5 * TREE_HIDDEN),
    "u_right": (TREE_HIDDEN, 5 * TREE_HIDDEN),
    "b_node": (5 * TREE_HIDDEN,),
    "out.weight": (TREE_CLASSES, TREE_HIDDEN),
    "out.bias": (TREE_CLASSES,),
}

# PyTorch's names and layouts; the order is the network's.
PARAMETERS: dict[str, dict[str, tuple[int, ...]]] = {
    "char_rnn": _recurrent(HIDDEN),
    "char_lstm": _recurrent(4 * HIDDEN),
    "treelstm": _TREE,
    "treelstm_levels": _TREE,
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
    values, bound = {}, 1.0 / math.sqrt(HIDDEN if row.kind == "recurrent" else VECTOR)
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


def recurrent_data() -> NDArray[np.int64]:
    """Characters (BATCHES, LENGTH + 1, batch): inputs are all but the last, targets all but the first."""
    return np.random.default_rng(2).integers(0, VOCABULARY, (BATCHES, LENGTH + 1, ROWS["char_rnn"].batch))


@dataclass(frozen=True)
class Trees:
    """Trees as `staged.data.Trees` has them, and the words' vectors."""

    labels: NDArray[np.int64]
    words: NDArray[np.int64]
    lefts: NDArray[np.int64]
    rights: NDArray[np.int64]
    starts: NDArray[np.int64]
    table: Floats


def tree_data() -> Trees:
    """Trees with as many words as the sentences of the Stanford Sentiment Treebank have (19 +- 9), split anywhere."""
    generator = np.random.default_rng(2)
    nodes: list[tuple[int, int, int]] = []
    starts = [0]

    def grow(leaves: int) -> int:
        if leaves == 1:
            nodes.append((int(generator.integers(WORDS)), -1, -1))
        else:
            split = int(generator.integers(1, leaves))
            left, right = grow(split), grow(leaves - split)
            nodes.append((-1, left, right))
        return len(nodes) - 1

    for _ in range(TREES):
        grow(int(np.clip(generator.normal(19, 9), 2, 50)))
        starts.append(len(nodes))
    words, lefts, rights = np.array(nodes, np.int64).T.copy()
    labels = generator.integers(0, TREE_CLASSES, len(nodes))
    table = (0.4 * generator.standard_normal((WORDS, VECTOR))).astype(np.float32)
    return Trees(labels, words, lefts, rights, np.array(starts, np.int64), table)


def data_of(row: Row) -> Any:
    """The arrays of a row: the operands of an op, or the data of its training."""
    match row.kind:
        case "op":
            return operands(row)
        case "train":
            return training_data(row)
        case "recurrent":
            return recurrent_data()
        case "trees":
            return tree_data()


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
