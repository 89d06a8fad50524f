"""The rows of `python -m benchmarks.calls`: one call from Python's own loop, with the same arrays for every framework.

A call is a step of training, an op on a small array, or a controller that looks ahead. The steps of `benchmarks.rows` are
the same here; only the loop around them is Python's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.rows import Floats, Row

BLOCK_BATCH, BLOCK_TIME, BLOCK_WIDTH, BLOCK_HEADS, BLOCK_RATE = 4, 16, 64, 4, 1e-3
AHEAD, CONTROLLER_HIDDEN, TICK = 20, 16, 0.05

CALLS = {
    row.name: row
    for row in (
        Row("call_add", "call", "`x + 1`, 10 elements"),
        Row("call_mlp_1", "call", "a step of `mlp_mnist` at batch 1", batch=1, image=(784,), steps_of="mlp_mnist"),
        Row("call_mlp_64", "call", "a step of `mlp_mnist`", batch=64, image=(784,), steps_of="mlp_mnist"),
        Row("call_cnn", "call", "a step of `cnn_mnist`", batch=100, image=(1, 28, 28), steps_of="cnn_mnist"),
        Row("call_lstm", "call", "a step of `char_lstm`", batch=20, steps_of="char_lstm"),
        Row("call_block_1", "call", "a training step of one transformer block, AdamW", batch=BLOCK_BATCH, blocks=1),
        Row("call_block_4", "call", "a training step of four transformer blocks, AdamW", batch=BLOCK_BATCH, blocks=4),
        Row("call_control", "call", f"the cost of a controller's next {AHEAD} steps"),
    )
}

GUARDED = (1, 10, 100)
"""Objects that a function reads while it is staged, of the table of guards."""


def add_data() -> Floats:
    """The argument of `call_add`."""
    return np.random.default_rng(2).standard_normal(10).astype(np.float32)


def block_data() -> tuple[Floats, Floats]:
    """Inputs and targets of the transformer's blocks."""
    generator = np.random.default_rng(2)
    shape = (BLOCK_BATCH, BLOCK_TIME, BLOCK_WIDTH)
    return generator.standard_normal(shape, dtype=np.float32), generator.standard_normal(shape, dtype=np.float32)


def block_parameters(blocks: int) -> dict[str, Floats]:
    """Weights of the blocks; a linear layer's are (outputs, inputs)."""
    generator = np.random.default_rng(1)
    wide, values = 4 * BLOCK_WIDTH, {}
    for number in range(blocks):
        for name, shape in {
            "norm1.weight": (BLOCK_WIDTH,),
            "norm1.bias": (BLOCK_WIDTH,),
            "qkv.weight": (3 * BLOCK_WIDTH, BLOCK_WIDTH),
            "qkv.bias": (3 * BLOCK_WIDTH,),
            "out.weight": (BLOCK_WIDTH, BLOCK_WIDTH),
            "out.bias": (BLOCK_WIDTH,),
            "norm2.weight": (BLOCK_WIDTH,),
            "norm2.bias": (BLOCK_WIDTH,),
            "up.weight": (wide, BLOCK_WIDTH),
            "up.bias": (wide,),
            "down.weight": (BLOCK_WIDTH, wide),
            "down.bias": (BLOCK_WIDTH,),
        }.items():
            drawn = generator.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))
            values[f"blocks.{number}.{name}"] = np.ones(shape, np.float32) if name.endswith("norm1.weight") else drawn
    return values


def control_data() -> Floats:
    """States that a controller starts from, one for each call."""
    return np.random.default_rng(2).standard_normal((16, 2)).astype(np.float32)


def control_parameters() -> dict[str, Floats]:
    """The controller's two layers, and how the pendulum moves: `x + TICK * (x @ drift + sin(x) @ pull + u @ push)`."""
    generator = np.random.default_rng(1)
    return {
        "w1": generator.standard_normal((2, CONTROLLER_HIDDEN)).astype(np.float32),
        "b1": generator.standard_normal(CONTROLLER_HIDDEN).astype(np.float32),
        "w2": (0.1 * generator.standard_normal((CONTROLLER_HIDDEN, 1))).astype(np.float32),
        "drift": np.array([[0, 0], [1, -0.1]], np.float32),
        "pull": np.array([[0, 1], [0, 0]], np.float32),
        "push": np.array([[0, 1]], np.float32),
    }


def data_of_call(row: Row) -> Any:
    """The arrays that a row works on."""
    if row.blocks:
        return block_data()
    return add_data() if row.name == "call_add" else control_data()
