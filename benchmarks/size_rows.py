"""The rows of `python -m benchmarks.dynamic_sizes`: functions, the axes of their arguments, and sizes.

The tests of models with dynamic sizes compute the same losses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import staged as st
from examples.char_lstm.model import CharLSTM
from examples.gpt2.model import GPT2, Config
from examples.mnist.models import CNN
from examples.squeezenet.model import SqueezeNet
from staged import nn, optim

Axes = Mapping[str, tuple[int | str, ...]]


@dataclass(frozen=True)
class Row:
    """`make()` returns a function of `*args`. Each size is the value of all dims of its arguments."""

    what: str
    make: Callable[[], Callable[..., Any]]
    axes: Axes
    sizes: tuple[int, ...]
    integers: Mapping[str, int] = field(default_factory=dict)
    """Arguments that are indices, and the number that bounds them."""
    slow: bool = False

    @property
    def dims(self) -> Axes:
        """The axes of the arguments, as `st.function` accepts them."""
        return {f"args.{place}": axes for place, axes in enumerate(self.axes.values())}

    def arguments(self, size: int, dtype: Any = np.float32) -> list[Any]:
        """Random arguments of one size."""
        names = {axis.split()[0] for axes in self.axes.values() for axis in axes if isinstance(axis, str)}
        return arguments(self.axes, self.integers, dict.fromkeys(names, size), dtype)


def arguments(axes: Axes, integers: Mapping[str, int], sizes: Mapping[str, int], dtype: Any) -> list[Any]:
    """Random arguments: numbers between -1 and 1, or indices."""
    draw, made = np.random.default_rng(sum(sizes.values())), []
    for name, extents in axes.items():
        shape = [sizes[extent.split()[0]] if isinstance(extent, str) else extent for extent in extents]
        most = integers.get(name)
        made.append(draw.integers(0, most, shape) if most else draw.uniform(-1, 1, shape).astype(dtype))
    return made


# ---- models -------------------------------------------------------------------------------------


def mnist_loss(model: Any, x: Any, y: Any) -> Any:
    return st.cross_entropy(model(x, dropout=0.5), y)


def lstm_loss(model: Any, x: Any, y: Any) -> Any:
    state, total = model.start(x.shape[1]), 0.0
    for t in st.range(x.shape[0]):
        state, scores = model.step(state, x[t])
        total += st.cross_entropy(scores, y[t])
    return total / x.shape[0]


def gpt2_loss(model: Any, x: Any, y: Any) -> Any:
    scores = model(x)
    return st.cross_entropy(scores.view(-1, scores.shape[-1]), y.reshape(-1))


def squeezenet_loss(model: Any, x: Any, y: Any) -> Any:
    return st.cross_entropy(model(x), y)


def training(make: Callable[[], Any], loss: Callable[..., Any], optimizer: Callable[..., Any]) -> Callable[[], Any]:
    """A function that makes a model and returns its training step."""

    def made() -> Any:
        st.seed(1)
        model = make()
        descent = optimizer(model.parameters(), lr=1e-5)

        def step(*args: Any) -> Any:
            value, grads = st.value_and_grad(lambda: loss(model, *args), wrt=model)()
            descent.step(grads)
            return value

        return step

    return made


TEXTS: Axes = {"x": (4, "T <= 200"), "y": (4, "T")}
LINES: Axes = {"x": ("T <= 200", 20), "y": ("T", 20)}
TRAINING = {
    "mnist": Row(
        "MNIST's CNN: batches",
        training(CNN, mnist_loss, optim.SGD),
        {"x": ("N <= 64", 1, 28, 28), "y": ("N",)},
        (1, 2, 3, 5, 8, 16, 17, 32, 64),
        {"y": 10},
    ),
    "char_lstm": Row(
        "char-LSTM, hidden 50, batch 20: lengths",
        training(lambda: CharLSTM(48, 50), lstm_loss, optim.Adagrad),
        LINES,
        (1, 2, 5, 17, 50, 100, 200),
        {"x": 48, "y": 48},
    ),
    "gpt": Row(
        "GPT, 2 layers, width 128, batch 4: lengths",
        training(lambda: GPT2(Config(2, 4, 128, 256, 96)), gpt2_loss, optim.AdamW),
        TEXTS,
        (1, 2, 5, 10, 17, 50, 128, 200),
        {"x": 96, "y": 96},
    ),
    "squeezenet": Row(
        "SqueezeNet, batch 2: images",
        training(lambda: SqueezeNet(224, 10), squeezenet_loss, optim.SGD),
        {"x": (2, 3, "H <= 256", "W <= 256"), "y": (2,)},
        (64, 96, 128, 224, 256),
        {"y": 10},
        slow=True,
    ),
}

# ---- single layers, with the gradients of all arguments that are numbers ------------------------


def gradients(function: Callable[..., Any], integers: Mapping[str, int], axes: Axes) -> Callable[..., Any]:
    """The gradients of the sum of the squares of a result."""
    places = tuple(place for place, name in enumerate(axes) if name not in integers)

    def loss(*args: Any) -> Any:
        result = function(*args)
        return st.sum(result * result)

    return lambda *args: st.grad(loss, argnums=places)(*args)


def lstm_gradients() -> Callable[..., Any]:
    """The gradients of the parameters of an LSTM."""
    st.seed(1)
    model = nn.LSTM(32, 64)

    def loss(*args: Any) -> Any:
        result, _ = model(*args)
        return st.sum(result * result)

    return lambda *args: st.grad(loss, wrt=model)(*args)


BATCHES, POSITIONS, IMAGES = (1, 2, 3, 8, 17, 64, 256), (5, 17, 64, 128, 200, 512), (5, 8, 17, 32, 64)
LSTM_INPUT: Axes = {"x": (20, "N <= 256", 32)}
LAYERS = {"lstm": Row("LSTM 32-64 over 20 positions: batches", lstm_gradients, LSTM_INPUT, BATCHES)}


def layer(what: str, *sizes: int, integers: Mapping[str, int] | None = None, **axes: tuple[int | str, ...]) -> Any:
    """Add a row."""
    indices = integers or {}

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        LAYERS[function.__name__] = Row(what, lambda: gradients(function, indices, axes), axes, sizes, indices)
        return function

    return register


@layer("2 x: elements", *BATCHES, x=("N <= 256",))
def doubled(x: Any) -> Any:
    return x * 2.0


@layer("linear 784-256: batches", *BATCHES, x=("N <= 256", 784), w=(256, 784), b=(256,))
def linear(x: Any, w: Any, b: Any) -> Any:
    return x @ w.T + b


HEADS: Any = (2, 4, "T <= 512", 32)


@layer("causal attention, 2 x 4 heads of 32: positions", *POSITIONS, q=HEADS, k=HEADS, v=HEADS)
def attention(q: Any, k: Any, v: Any) -> Any:
    return st.scaled_dot_product_attention(q, k, v, is_causal=True)


PIXELS: Any = (4, 16, "H <= 64", "W <= 64")


@layer("conv2d 3x3, 16-32 channels: images", *IMAGES, x=PIXELS, w=(32, 16, 3, 3))
def conv2d_3x3(x: Any, w: Any) -> Any:
    return st.conv2d(x, w, padding=1)


@layer("conv2d 5x5, 16-32 channels: images", *IMAGES, x=PIXELS, w=(32, 16, 5, 5))
def conv2d_5x5(x: Any, w: Any) -> Any:
    return st.conv2d(x, w, padding=2)


@layer("conv2d 3x3, stride 2: images", *IMAGES, x=PIXELS, w=(32, 16, 3, 3))
def conv2d_strided(x: Any, w: Any) -> Any:
    return st.conv2d(x, w, stride=2, padding=1)


@layer("max pooling 2x2: images", *IMAGES[1:], x=PIXELS)
def max_pool(x: Any) -> Any:
    return st.max_pool2d(x, 2)


@layer("batch norm, 16 channels of 8 x 8: batches", *BATCHES, x=("N <= 256", 16, 8, 8))
def batch_norm(x: Any) -> Any:
    return st.batch_norm_training(x)[0]


@layer("layer norm of 128: rows", *BATCHES, x=("N <= 256", 128), w=(128,), b=(128,))
def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return st.layer_norm(x, (128,), w, b)


@layer("softmax of 64 rows: columns", *BATCHES, x=(64, "N <= 256"))
def softmax(x: Any) -> Any:
    return st.softmax(x, axis=-1)


@layer("embedding of 64 in 1000: indices", *BATCHES, integers={"at": 1000}, table=(1000, 64), at=("N <= 256",))
def embedding(table: Any, at: Any) -> Any:
    return table[at]


@layer("matmul of three dynamic sizes", 1, 2, 5, 17, 64, 200, a=("N <= 200", "K <= 200"), b=("K", "M <= 200"))
def matmul(a: Any, b: Any) -> Any:
    return a @ b


@layer("vmap of the gradient of tanh(x @ w): vectors", *BATCHES, x=("N <= 256", 32), w=(32, 32))
def vmapped_gradient(x: Any, w: Any) -> Any:
    return st.vmap(lambda row: st.grad(lambda row: st.sum(st.tanh(row @ w)))(row))(x)


ROWS = {**TRAINING, **LAYERS}
