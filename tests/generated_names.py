"""Ten programs whose generated text is read by `test_generated_names.py`, with the names that it must have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim


@dataclass(frozen=True)
class Named:
    """A program: `make()` returns a staged function and its arguments; `names` are variables that exist at run time."""

    make: Callable[[], tuple[Any, tuple[Any, ...]]]
    names: str
    kernels: str = ""
    """Kernels by section, in order: `forward: h; backward: d_h`; empty if the test does not fix them."""


PROGRAMS: dict[str, Named] = {}


def named(names: str, kernels: str = "") -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enter a program under its function's name."""

    def enter(make: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[make.__name__] = Named(make, names, kernels)
        return make

    return enter


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def labels(count: int, classes: int) -> Any:
    return np.arange(count, dtype=np.int32) % classes


@named(
    "epoch total x y loss",
    "initial values: initial_linear_uniform; "
    "forward: linear1_relu linear3 cross_entropy; backward: d_linear3_relu; "
    "update: update_linear1_weight update_linear1_bias update_linear3_weight update_linear3_bias",
)
def the_readme() -> Any:
    @st.function
    def train(images: Any, targets: Any, epochs: Any) -> Any:
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )
        opt = optim.SGD(model.parameters(), lr=0.5)

        def loss_fn(x: Any, y: Any) -> Any:
            return st.cross_entropy(model(x), y)

        for epoch in st.range(epochs):
            total = 0.0
            for x, y in st.batches(images, targets, size=32):
                loss, grads = st.value_and_grad(loss_fn, wrt=model)(x, y)
                opt.step(grads)
                total += loss
            print(f"epoch {epoch}: loss {total:.2f}")
        return model.state_dict()

    return train, (floats(64, 64), labels(64, 10), 2)


class MLP(nn.Module):
    def __init__(self) -> None:
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        hidden = st.relu(self.fc1(x))
        logits = self.fc2(hidden)
        return logits


class CNN(nn.Module):
    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        first = st.relu(st.max_pool2d(self.conv1(x), 2))
        second = st.relu(self.conv2(first))
        pooled = st.max_pool2d(second, 2)
        logits = self.fc(st.reshape(pooled, (-1, 32)))
        return logits


def training(model: Any, x: Any, y: Any) -> Any:
    opt = optim.Adam(model.parameters(), lr=0.1)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        opt.step(grads)
        return loss

    return step, (x, y)


@named(
    "x y hidden logits d_logits fc1_weight fc2_bias",
    "forward: fc1_relu fc2 cross_entropy; backward: d_fc2_relu; "
    "update: update_fc1_weight update_fc1_bias update_fc2_weight update_fc2_bias",
)
def an_mlp() -> Any:
    return training(MLP(), floats(16, 64), labels(16, 10))


@named("x y first second pooled logits conv1_weight conv2_bias fc_weight")
def a_cnn() -> Any:
    return training(CNN(), floats(8, 1, 16, 16), labels(8, 10))


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention = nn.MultiheadAttention(size, 2, batch_first=True)
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: Any) -> Any:
        given = self.norm1(x)
        attended, _ = self.attention(given, given, given)
        between = x + attended
        return between + self.down(st.gelu(self.up(self.norm2(between))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        self.tokens = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList([Block(16), Block(16)])
        self.head = nn.Linear(16, 11)

    def forward(self, indices: Any) -> Any:
        x = self.tokens(indices)
        for block in self.blocks:
            x = block(x)
        return st.reshape(self.head(x), (-1, 11))


@named("indices y x given attended between head_weight tokens_weight blocks up_weight")
def a_transformer() -> Any:
    model = Transformer()
    opt = optim.SGD(model.parameters(), lr=0.1)

    @st.function
    def step(indices: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(indices), y), wrt=model)()
        opt.step(grads)
        return loss

    return step, (labels(12, 11).reshape(2, 6), labels(12, 11))


@named("xs target h c x out error loss")
def an_lstm_loop() -> Any:
    cell, head = nn.LSTMCell(5, 8), nn.Linear(8, 1)

    @st.function
    def gradient(xs: Any, target: Any) -> Any:
        def loss_fn() -> Any:
            h, c = st.zeros((3, 8)), st.zeros((3, 8))
            for x in xs:
                h, c = cell(x, (h, c))
            out = head(h)
            error = out - target
            return st.mean(error * error)

        loss, grads = st.value_and_grad(loss_fn, wrt=cell)()
        return loss, grads

    return gradient, (floats(7, 3, 5), floats(3, 1))


@named(
    "x y pred err d_err d_weight",
    "forward: model mean; backward: d_weight; update: update_weight update_bias",
)
def a_linear_regression() -> Any:
    model = nn.Linear(4, 1)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @st.function
    def step(x: Any, y: Any) -> Any:
        def loss_fn() -> Any:
            pred = model(x)
            err = pred - y
            return st.mean(err * err)

        loss, grads = st.value_and_grad(loss_fn, wrt=model)()
        opt.step(grads)
        return loss

    return step, (floats(8, 4), floats(8, 1))


@named("x scale curvature wave")
def a_second_derivative() -> Any:
    @st.function
    def second(x: Any, scale: Any) -> Any:
        def f(x: Any) -> Any:
            wave = st.sin(x) * scale
            return st.sum(wave * wave * wave)

        curvature = st.grad(lambda x: st.sum(st.grad(f)(x)))(x)
        return curvature * 2.0

    return second, (floats(40), floats(40))


@named("x depth half whole")
def a_recursion() -> Any:
    @st.function
    def power(x: Any, depth: Any) -> Any:
        if depth == 0:
            return x
        half = power(x, depth - 1)
        return half * half + x

    @st.function
    def run(x: Any, depth: Any) -> Any:
        whole = power(x, depth)
        return whole + 1.0

    return run, (floats(30), 3)


@named("rows weight scores best")
def a_vmap() -> Any:
    @st.function
    def ranked(rows: Any, weight: Any) -> Any:
        def one(row: Any) -> Any:
            scores = st.tanh(weight @ row)
            best = scores - st.max(scores)
            return best * 3.0

        return st.vmap(one)(rows)

    return ranked, (floats(6, 5), floats(4, 5))


@named("x weight hidden shifted")
def a_region() -> Any:
    @st.function
    def on_device(x: Any, weight: Any) -> Any:
        with st.with_backend(st.GPU, x, weight):
            hidden = st.tanh(x @ weight)
            shifted = hidden - st.mean(hidden, axis=0)
        return shifted

    return on_device, (floats(16, 8), floats(8, 12))
