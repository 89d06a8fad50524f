"""Training steps: the same networks, weights and batches for `staged` and for PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from tests.gpu_check.timing.model import Work

PRECISIONS = ("f32", "tf32", "bf16")
BATCHES = 4
RATE = 1e-3


@dataclass(frozen=True)
class Sizes:
    """The sizes of a network: `options` of its constructor; a batch; the FLOP of a forward pass, parameters, activations."""

    batch: int
    options: dict[str, Any]
    flop: float
    parameters: float
    activations: float
    """Elements that a forward pass writes."""
    launches: int

    def work(self) -> Work:
        """Forward and backward are three forward passes. An activation is written, and read or written five times more."""
        return Work(3.0 * self.flop, 28.0 * self.parameters + 6 * 4.0 * self.activations, self.launches)


@dataclass(frozen=True)
class Network:
    """`batches(sizes)` gives arrays whose first axis is that of the batches, the targets last."""

    name: str
    full: Sizes
    small: Sizes
    batches: Callable[[Sizes], tuple[np.ndarray[Any, Any], ...]]
    optimizer: str = "SGD"


def drawn(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Numbers of N(0, 1): a million of them, repeated."""
    return np.resize(np.random.default_rng(seed).standard_normal(1_000_003, np.float32), shape)


def classes(seed: int, below: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, below, shape)


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The first value of a parameter: ones for norms, zeros for biases, else N(0, 1 / inputs), by name and shape alone."""
    if len(shape) < 2:
        return (np.ones if name.endswith("weight") else np.zeros)(shape, np.float32)
    scale = 0.02 if "wte" in name or "wpe" in name else 1.0 / math.sqrt(math.prod(shape[1:]))
    return (drawn(sum(name.encode()), *shape) * np.float32(scale)).astype(np.float32)


def _images(channels: int, side: int, below: int) -> Callable[[Sizes], tuple[np.ndarray[Any, Any], ...]]:
    def batches(sizes: Sizes) -> tuple[np.ndarray[Any, Any], ...]:
        edge = sizes.options.get("size", side)
        shape = (BATCHES, sizes.batch, channels, edge, edge) if channels else (BATCHES, sizes.batch, side)
        return drawn(2, *shape), classes(3, sizes.options.get("classes", below), BATCHES, sizes.batch)

    return batches


def _texts(sizes: Sizes) -> tuple[np.ndarray[Any, Any], ...]:
    length, below = sizes.options["places"], sizes.options["vocabulary"]
    tokens = classes(3, below, BATCHES, sizes.batch, length + 1)
    return tokens[:, :, :-1].copy(), tokens[:, :, 1:].copy()


def _characters(sizes: Sizes) -> tuple[np.ndarray[Any, Any], ...]:
    tokens = classes(3, 26, BATCHES, 21, sizes.batch)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def _gpt2(batch: int, layers: int, heads: int, width: int, places: int, vocabulary: int) -> Sizes:
    matrices = layers * 12 * width * width + vocabulary * width
    tokens = batch * places
    flop = 2.0 * matrices * tokens + layers * 2.0 * batch * places * places * width
    options = {"layers": layers, "heads": heads, "width": width, "places": places, "vocabulary": vocabulary}
    activations = tokens * (layers * 16.0 * width + vocabulary)
    return Sizes(batch, options, flop, matrices + places * width, activations, launches=44 * layers + 30)


_RESNET = {"size": 224, "classes": 1000, "blocks": (3, 4, 6, 3), "width": 64}
_SMALL_RESNET = {"size": 32, "classes": 10, "blocks": (1, 1, 1, 1), "width": 4}
_MLP = Sizes(64, {}, 2.0 * 234_752 * 64, 235_146, 64 * 394.0, 20)
_CNN = Sizes(100, {}, 2.0 * 100 * (250 * 576 + 5000 * 64 + 16_500), 21_840, 100 * 8_400.0, 40)
_LSTM = Sizes(20, {}, 2.0 * 20 * 20 * (50 * 200 + 50 * 26), 16_526, 20 * 20 * 400.0, 400)
NETWORKS = {
    network.name: network
    for network in (
        Network("mlp", _MLP, _MLP, _images(0, 784, 10)),
        Network("cnn", _CNN, Sizes(4, {}, 1.0, 1.0, 1.0, 40), _images(1, 28, 10)),
        Network("char-lstm", _LSTM, Sizes(2, {}, 1.0, 1.0, 1.0, 400), _characters),
        Network(
            "resnet50", Sizes(16, _RESNET, 16 * 8.2e9, 25.6e6, 16 * 2.2e7, 700),
            Sizes(2, _SMALL_RESNET, 1.0, 1.0, 1.0, 700), _images(3, 224, 1000),
        ),
        Network("gpt2", _gpt2(8, 12, 12, 768, 1024, 50257), _gpt2(1, 1, 2, 16, 8, 32), _texts, "AdamW"),
    )
}  # fmt: skip


# ---- ours -------------------------------------------------------------------------------------------


@contextmanager
def without_draws() -> Iterator[None]:
    """Layers are created with zeros: drawing 124 million numbers in Python takes longer than the measurement."""
    import staged as st

    def zeros(shape: Any, *, dtype: Any = st.f32, **others: Any) -> Any:
        return st.zeros(shape, dtype=dtype)

    with mock.patch.object(st.random, "normal", zeros), mock.patch.object(st.random, "uniform", zeros):
        yield


def model_of(network: Network, sizes: Sizes) -> Any:
    """The network of the examples and benchmarks, with the first values of `weight`."""
    from benchmarks.frameworks.ours import MODELS
    from examples.char_lstm.model import CharLSTM
    from examples.gpt2.model import GPT2, Config
    from examples.resnet50.model import ResNet

    with without_draws():
        model = {
            "mlp": MODELS["mlp_mnist"],
            "cnn": MODELS["cnn_mnist"],
            "char-lstm": lambda: CharLSTM(26, 50),
            "resnet50": lambda: ResNet(**sizes.options),
            "gpt2": lambda: GPT2(Config(**sizes.options)),
        }[network.name]()
    for name, parameter in model.named_parameters():
        parameter.value = weight(name, parameter.shape)
    return model


def ours(network: Network, precision: str, small: bool) -> tuple[Any, tuple[Any, ...]]:
    """(staged function, its arguments but the number of steps): returns the loss of the last step."""
    import staged as st
    from staged import GPU, optim, with_backend

    sizes = network.small if small else network.full
    model = model_of(network, sizes)
    optimizer = getattr(optim, network.optimizer)(model.parameters(), lr=RATE)
    data = [st.to(array, GPU) for array in network.batches(sizes)]

    def loss_fn(x: Any, y: Any) -> Any:
        with st.autocast(st.bf16) if precision == "bf16" else nullcontext():
            if network.name != "char-lstm":
                scores = model(x)
                return st.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
            state, total = model.start(sizes.batch), 0.0
            for t in st.range(20):
                state, scores = model.step(state, x[t])
                total += st.cross_entropy(scores, y[t])
            return total / 20

    @st.function(target="portable")
    def train(xs: Any, ys: Any, steps: Any) -> Any:
        loss = 0.0
        with with_backend(GPU, xs, ys, tf32=precision == "tf32"):
            for step in st.range(steps):
                loss, grads = st.value_and_grad(loss_fn, wrt=model)(xs[step % BATCHES], ys[step % BATCHES])
                optimizer.step(grads)
        return loss

    return train, tuple(data)


# ---- PyTorch's --------------------------------------------------------------------------------------


def torchs(network: Network, precision: str, small: bool, compiled: Callable[[Any], Any]) -> Callable[[int], Any]:
    """The same in PyTorch: a function of the number of steps, which returns the loss of the last one."""
    import torch

    from tests.gpu_check.timing.torch_networks import loss_of

    where = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    sizes = network.small if small else network.full
    model, loss = loss_of(network, sizes, where)
    autocast = torch.autocast(where, torch.bfloat16, enabled=precision == "bf16")
    optimizer = getattr(torch.optim, network.optimizer)(model.parameters(), lr=RATE, fused=True)
    data = [torch.from_numpy(array).to(where) for array in network.batches(sizes)]

    @compiled
    def forward(x: Any, y: Any) -> Any:
        with autocast:
            return loss(x, y)

    def run(steps: int) -> Any:
        found = torch.zeros(())
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            found = forward(*(part[step % BATCHES] for part in data))
            found.backward()
            optimizer.step()
        return found.detach().reshape(-1).clone()

    return run
