"""`staged`, called from Python's own loop: `staged` calls the staged function, `program` the program that `stage` gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import staged as st
from benchmarks.call_rows import (
    AHEAD,
    BLOCK_HEADS,
    BLOCK_RATE,
    BLOCK_WIDTH,
    TICK,
    block_parameters,
    control_parameters,
)
from benchmarks.frameworks.ours import MODELS
from benchmarks.rows import (
    BATCHES,
    CLIP,
    HIDDEN,
    LEARNING_RATE,
    LENGTH,
    RECURRENT_RATE,
    ROWS,
    VOCABULARY,
    Row,
    parameters,
)
from benchmarks.workload import Workload
from examples.char_lstm.model import CharLSTM
from staged import nn, optim

Call = tuple[st.StagedFunction, Sequence[tuple[Any, ...]]]
"""A staged function, and the arguments of its calls one after another."""


class Block(nn.Module):
    """A transformer's block: norm, attention, norm, two layers, each pair around a residual."""

    def __init__(self) -> None:
        super().__init__()
        wide = BLOCK_WIDTH
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: Any) -> Any:
        batch, time, wide = x.shape
        size = wide // BLOCK_HEADS
        q, k, v = (
            part.reshape(batch, time, BLOCK_HEADS, size).transpose(0, 2, 1, 3)
            for part in st.split(self.qkv(self.norm1(x)), 3, axis=2)
        )
        weights = st.softmax(q @ k.transpose(0, 1, 3, 2) / size**0.5, axis=-1)
        x = x + self.out((weights @ v).transpose(0, 2, 1, 3).reshape(batch, time, wide))
        return x + self.down(st.gelu(self.up(self.norm2(x))))


class Blocks(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(count)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def add(row: Row, data: Any) -> Call:
    return st.function(lambda x: x + 1), [(data,)]


def training(row: Row, data: Any) -> Call:
    model = MODELS[row.steps_of]()
    model.load_state_dict(parameters(ROWS[row.steps_of]))
    optimizer = optim.SGD(model.parameters(), lr=LEARNING_RATE)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda x: st.cross_entropy(model(x), y), wrt=model)(x)
        optimizer.step(grads)
        return loss

    return step, list(zip(*data, strict=True))


def recurrent(row: Row, data: Any) -> Call:
    model = CharLSTM(VOCABULARY, HIDDEN)
    model.load_state_dict(parameters(ROWS[row.steps_of]))
    optimizer = optim.Adagrad(model.parameters(), lr=RECURRENT_RATE)

    def loss_fn(text: Any) -> Any:
        state, total = model.start(row.batch), 0.0
        for t in st.range(LENGTH):
            state, scores = model.step(state, text[t])
            total += st.cross_entropy(scores, text[t + 1])
        return total / LENGTH

    @st.function
    def step(text: Any) -> Any:
        loss, grads = st.value_and_grad(loss_fn, wrt=model)(text)
        optimizer.step(optim.clip_grad_value(grads, CLIP))
        return loss

    return step, [(text,) for text in data]


def blocks(row: Row, data: Any) -> Call:
    model = Blocks(row.blocks)
    model.load_state_dict(block_parameters(row.blocks))
    optimizer = optim.AdamW(model.parameters(), lr=BLOCK_RATE)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda x: st.mean((model(x) - y) ** 2), wrt=model)(x)
        optimizer.step(grads)
        return loss

    return step, [data]


def control(row: Row, data: Any) -> Call:
    w = control_parameters()

    @st.function
    def cost(x: Any) -> Any:
        total = 0.0
        for _ in st.range(AHEAD):
            u = st.tanh(x @ w["w1"] + w["b1"]) @ w["w2"]
            x = x + TICK * (x @ w["drift"] + st.sin(x) @ w["pull"] + u @ w["push"])
            total += st.sum(x * x) + 0.1 * st.sum(u * u)
        return total

    return cost, [(state,) for state in data]


class Part:
    """An object of the user's with a number in it."""

    def __init__(self, rate: float) -> None:
        self.rate = rate


def guarded(count: int) -> Call:
    """`x + total`, with a total over so many objects, each of which is looked at in every call."""
    parts = tuple(Part(float(number)) for number in range(count))

    def add_all(x: Any) -> Any:
        total = 0.0
        for part in parts:
            total = total + part.rate
        return x + total

    return st.function(add_all), [(np.arange(10, dtype=np.float32),)]


KINDS: dict[str, Callable[[Row, Any], Call]] = {"char_lstm": recurrent, "mlp_mnist": training, "cnn_mnist": training}


def build(framework: str, row: Row, threads: int, data: Any) -> Workload:
    make = KINDS[row.steps_of] if row.steps_of else blocks if row.blocks else add if row.name == "call_add" else control
    function, arguments = make(row, data)
    return calling(function.stage(*arguments[0]) if framework == "program" else function, arguments)


def calling(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Workload:
    """Calls one after another, with these arguments in turn."""
    if len(arguments) == 1:
        (given,) = arguments

        def run_same(calls: int) -> Any:
            for _ in range(calls):
                result = function(*given)
            return result

        return Workload(run_same, np.asarray)

    def run(calls: int) -> Any:
        for call in range(calls):
            result = function(*arguments[call % BATCHES])
        return result

    return Workload(run, np.asarray)
