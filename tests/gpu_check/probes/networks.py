"""Probes of cuDNN: convolutions, batch norm, recurrent layers, CTC losses, attention."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import staged as st
from tests.gpu_check.probes.book import Book, on_device

CONVOLUTION, RECURRENT = 1e-4, 2e-4
"""Tolerances for f32; TF32 has factors of 10 bits after the point."""
TF32 = 5e-3

# (shape of x, shape of the weight, options): as `st.conv2d` accepts them.
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "5x5, one channel": ((20, 1, 28, 28), (10, 1, 5, 5), {}),
    "3x3, padding": ((4, 16, 14, 14), (24, 16, 3, 3), {"padding": 1}),
    "1x1, stride 2": ((4, 32, 8, 8), (16, 32, 1, 1), {"stride": 2}),
    "7x7, stride 2, padding 3": ((2, 3, 32, 32), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    "depthwise": ((4, 16, 10, 10), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    "two groups": ((4, 16, 9, 9), (8, 8, 3, 3), {"groups": 2}),
    "dilation 2": ((4, 8, 16, 16), (12, 8, 3, 3), {"dilation": 2, "padding": 2}),
    "1 axis": ((4, 8, 50), (12, 8, 5), {"padding": 2}),
    "3 axes": ((2, 3, 6, 7, 8), (4, 3, 3, 3, 3), {"padding": 1}),
}
_OF_RANK: dict[int, Any] = {3: st.conv1d, 4: st.conv2d, 5: st.conv3d}


def convolutions(book: Book) -> None:
    """Each kind of convolution: value, gradients by x, weight and bias; with relu; transposed; f64 and TF32."""

    def gradients(options: dict[str, Any], convolve: Any = None) -> Any:
        def with_gradients(x: Any, w: Any, b: Any) -> Any:
            function = convolve or _OF_RANK[len(x.shape)]

            def loss(x: Any, w: Any, b: Any) -> Any:
                y = function(x, w, b, **options)
                return st.sum(y * st.cos(y)) / y.shape[0], y

            return st.grad(loss, (0, 1, 2), has_aux=True)(x, w, b)

        return with_gradients

    def operands(shape: tuple[int, ...], weight: tuple[int, ...], dtype: Any = np.float32) -> Any:
        scale = 1.0 / np.sqrt(np.prod(weight[1:]))
        return book.normal(*shape, dtype=dtype), book.normal(*weight, dtype=dtype, scale=scale), book.normal(weight[0])

    for name, (shape, weight, options) in CONVOLUTIONS.items():
        book.check(name, on_device(gradients(options)), *operands(shape, weight), tolerance=CONVOLUTION)
    shape, weight, options = CONVOLUTIONS["3x3, padding"]
    x, w, b = operands(shape, weight)

    def activated(x: Any, w: Any, b: Any) -> Any:
        return st.relu(st.conv2d(x, w, b, **options))

    book.check("bias and relu", on_device(activated), x, w, b, tolerance=CONVOLUTION)
    book.check("TF32", on_device(gradients(options), tf32=True), x, w, b, tolerance=TF32)
    anything = on_device(gradients(options), deterministic=False)
    book.check("any algorithm", anything, x, w, b, tolerance=CONVOLUTION, repeats=False)
    timed = on_device(gradients(options), algorithms="timed")
    book.check("timed algorithms", timed, x, w, b, tolerance=CONVOLUTION, repeats=False)
    in_f64 = [each.astype(np.float64) for each in (x, w, b)]
    book.check("f64", on_device(gradients(options)), *in_f64, tolerance=1e-11)
    transposed = on_device(gradients({"stride": 2}, st.conv_transpose2d))
    up = book.normal(16, 12, 3, 3, scale=0.1)
    book.check("transposed", transposed, x, up, book.normal(12), tolerance=CONVOLUTION)


def batch_norm(book: Book) -> None:
    """Batch norm in training with running statistics, its gradients, and in inference."""

    def train(x: Any, w: Any, b: Any, shift: Any) -> Any:
        def loss(x: Any, w: Any, b: Any) -> Any:
            y, mean, var = st.batch_norm_training(x, w, b)
            return st.sum(st.cos(y) * shift) + st.sum(mean * mean) + st.sum(st.sqrt(var)), (y, mean, var)

        return st.value_and_grad(loss, (0, 1, 2), has_aux=True)(x, w, b)

    def running(x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        for step in st.range(5):
            y, batch_mean, batch_var = st.batch_norm_training(x * (1.0 + 0.1 * step), w, b)
            mean, var = 0.9 * mean + 0.1 * batch_mean, 0.9 * var + 0.1 * batch_var
        return mean, var, y, st.batch_norm(x, mean, var, w, b)

    for shape in [(8, 16, 7, 7), (32, 24), (4, 3, 50), (2, 4, 3, 5, 6)]:
        channels = shape[1]
        x, w, b = book.normal(*shape) + np.float32(0.7), book.normal(channels), book.normal(channels)
        name = f"{len(shape)} axes"
        book.check(name, on_device(train), x, w, b, book.normal(*shape), tolerance=CONVOLUTION)
    x, w, b = book.normal(8, 16, 7, 7), book.normal(16), book.normal(16)
    statistics = np.zeros(16, np.float32), np.ones(16, np.float32)
    book.check("running statistics", on_device(running), x, w, b, *statistics, tolerance=CONVOLUTION)


# ---- inside a capture -------------------------------------------------------------------------------


def lstm(book: Book) -> None:
    """Recurrent layers of cuDNN in a training loop, which becomes a CUDA graph: the descriptors and weights stay valid."""
    steps, batch, inputs, hidden = (6, 3, 4, 8) if book.small else (20, 16, 24, 32)

    def train(layer: Any) -> Any:
        def loop(x: Any, wanted: Any, states: Any, weights: Any, turns: Any) -> Any:
            losses = st.zeros((50,), dtype=x.dtype)
            for turn in st.range(turns):

                def loss(*weights: Any) -> Any:
                    return st.mean((layer(x[turn % 2], states, *weights)[0] - wanted) ** 2)  # noqa: B023

                value, grads = st.value_and_grad(loss, tuple(range(4)))(*weights)
                weights = tuple(w - 0.5 * grad for w, grad in zip(weights, grads, strict=True))
                losses[turn] = value
            return losses, weights

        return on_device(loop)

    x, wanted, state = book.normal(2, steps, batch, inputs), book.normal(steps, batch, hidden), book.normal(batch, hidden)
    kinds = {"lstm": (4, st.lstm, (state, state * 0.5)), "gru": (3, st.gru, state), "rnn": (1, st.rnn, state)}
    for name, (gates, layer, states) in kinds.items():
        weights = tuple(
            book.normal(*shape, scale=0.3)
            for shape in [(gates * hidden, inputs), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
        )
        book.check(f"{name}, 12 steps", train(layer), x, wanted, states, weights, 12, tolerance=RECURRENT, captures=True)


def ctc(book: Book) -> None:
    """The CTC loss of cuDNN in a loop that becomes a CUDA graph, with its gradient; and alone."""
    steps, batch, classes, labels = (9, 3, 6, 4) if book.small else (60, 8, 20, 12)
    scores = book.normal(steps, batch, classes, scale=2.0)
    targets = book.random.integers(1, classes, (batch, labels))
    targets[1] = targets[1, 0]  # equal labels, with a blank between each two of them
    lengths = np.array([labels, labels // 2, *[labels - 1] * (batch - 2)])
    inputs = np.array([steps, steps, *[steps - 1] * (batch - 2)])

    def loss(x: Any, *texts: Any) -> Any:
        return st.ctc_loss(st.log_softmax(x), *texts)

    def train(x: Any, *texts: Any) -> Any:
        losses = st.zeros((12,), dtype=x.dtype)
        for turn in st.range(12):
            value, d_x = st.value_and_grad(loss)(x, *texts)
            x = x - (0.5 + 0.1 * turn) * d_x
            losses[turn] = value
        return losses, x

    book.check("once", on_device(st.value_and_grad(loss)), scores, targets, inputs, lengths, tolerance=RECURRENT)
    book.check("12 steps", on_device(train), scores, targets, inputs, lengths, tolerance=1e-3, captures=True)


# ---- attention --------------------------------------------------------------------------------------

ATTENTIONS: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "heads": (((2, 4, 100, 32), (2, 4, 77, 32), (2, 4, 77, 32)), {}),
    "causal": (((2, 4, 256, 64), (2, 4, 256, 64), (2, 4, 256, 64)), {"is_causal": True}),
    "two heads for eight": (((1, 8, 128, 128), (1, 2, 128, 128), (1, 2, 128, 128)), {"enable_gqa": True, "is_causal": True}),
    "few": (((3, 2, 5, 8), (3, 2, 7, 8), (3, 2, 7, 8)), {"scale": 0.7}),
}
SMALL_ATTENTIONS = {
    "heads": (((1, 2, 10, 16), (1, 2, 7, 16), (1, 2, 7, 8)), {}),
    "causal": (((1, 2, 16, 8), (1, 2, 16, 8), (1, 2, 16, 8)), {"is_causal": True}),
}


def attention(book: Book) -> None:
    """Attention of f16 and bf16 with gradients, sums in one order and in any; f32 by the program's own kernels."""

    def with_gradients(options: dict[str, Any]) -> Any:
        def attend(q: Any, k: Any, v: Any) -> Any:
            def loss(q: Any, k: Any, v: Any) -> Any:
                y = st.scaled_dot_product_attention(q, k, v, **options)
                return st.sum(y * st.cos(y)), y

            return st.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)

        return attend

    for name, (shapes, options) in (SMALL_ATTENTIONS if book.small else ATTENTIONS).items():
        arrays = [book.normal(*shape) for shape in shapes]
        for dtype, tolerance in ((np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)):
            rounded = [array.astype(dtype) for array in arrays]
            for deterministic in (True, False):
                function = on_device(with_gradients(options), deterministic=deterministic)
                what = f"{name}, {np.dtype(dtype).name}, {'one order' if deterministic else 'any order'}"
                book.check(what, function, *rounded, tolerance=tolerance, repeats=deterministic)
        book.check(f"{name}, f32", on_device(with_gradients(options)), *arrays, tolerance=1e-4)
