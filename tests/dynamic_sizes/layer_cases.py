"""Layers and small networks whose arguments have sizes that the program finds: more cases of the table."""

from __future__ import annotations

import numpy as np

import staged as st
from examples.mnist.models import CNN
from examples.squeezenet.model import Fire
from staged import nn
from tests.dynamic_sizes.cases import case, grid, seeded

IMAGES = grid(N=(4, 7, 16, 9), M=(5, 9, 4, 12))
IMAGE = (2, 4, "N <= 20", "M <= 20")

# ---- convolutions ----------------------------------------------------------------------------------


@case(*IMAGES, x=IMAGE, w=(6, 2, 3, 2))
def grouped_convolution(x, w):
    return st.conv2d(x, w, padding=1, dilation=(1, 2), groups=2)


@case(3, 4, 9, 17, x=(2, 3, "N <= 40"), w=(4, 3, 3), b=4)
def convolved_lines(x, w, b):
    return st.conv1d(x, w, b, stride=2), st.conv1d(x, w, padding="same")


@case(*IMAGES, x=IMAGE, w=(6, 2, 3, 2), v=(3, 4, 1, 1))
def convolution_with_phases(x, w, v):
    return st.conv2d(x, w, stride=(2, 3), padding=1, dilation=(1, 2), groups=2), st.conv2d(x, v, stride=2)


@case(*IMAGES, x=IMAGE, w=(4, 3, 3, 3))
def transposed_convolution(x, w):
    return st.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)


@case(*grid(N=(1, 2, 5), M=(6, 3, 4), K=(5, 8, 3)), x=("N <= 8", 2, "M <= 8", "K <= 8", 5), w=(3, 2, 2, 2, 2))
def convolved_volumes(x, w):
    return st.conv3d(x, w, padding=(1, 0, 0))


@case(*IMAGES, x=IMAGE, w=(4, 4, 1, 1))
def convolved_points(x, w):
    return st.relu(st.conv2d(x, w)) + x


# ---- pooling, other sizes --------------------------------------------------------------------------


@case(*IMAGES, x=IMAGE)
def pooled_with_padding(x):
    return st.max_pool2d(x, 3, stride=2, padding=1), st.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


@case(*IMAGES, x=IMAGE)
def pooled_with_places(x):
    return st.max_pool2d(x, 2, stride=1, dilation=2)


@case(*IMAGES, x=IMAGE)
def pooled_three_times_beyond_the_edge(x):
    for _ in range(3):
        x = st.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)
    return x


@case(*IMAGES, x=IMAGE)
def pooled_adaptively(x):
    return st.adaptive_avg_pool2d(x, 1), st.adaptive_avg_pool2d(x, (2, 3)), st.adaptive_avg_pool2d(x, (None, 2))


@case(*IMAGES, x=IMAGE)
def upsampled(x):
    return st.interpolate(x, scale_factor=2), st.interpolate(x, scale_factor=1.5, mode="bilinear")


@case(*IMAGES, x=IMAGE)
def resized(x):
    return st.interpolate(x, size=(7, 5), mode="bilinear", align_corners=True), st.interpolate(x, size=6)


@case(*IMAGES, x=IMAGE)
def patches(x):
    return st.unfold(x, 3, padding=1, stride=2), st.pixel_shuffle(x, 2)


@case(
    *grid(N=(1, 2, 3), H=(4, 1, 9), W=(1, 5, 3), M=(2, 4, 0)), x=("N <= 3", 2, "H <= 9", "W <= 9"), at=("N", 2, "M <= 4", 2)
)
def sampled(x, at):
    nearest = st.grid_sample(x, at, mode="nearest", padding_mode="border")
    return nearest, st.grid_sample(x, at, padding_mode="reflection", align_corners=True)


@case(*grid(N=(1, 2, 3), H=(4, 1, 9)), theta=("N <= 3", 2, 3), x=("N", 3, "H <= 9", 5))
def affine_grid(theta, x):
    return st.affine_grid(theta, x.shape)


# ---- norms -----------------------------------------------------------------------------------------


@case(*IMAGES, x=IMAGE)
def group_norm(x):
    return st.group_norm(x, 2)


@case(*grid(N=(2, 3, 1), M=(4, 1, 5)), x=("N <= 4", 4, "M <= 6", 3), mean=4, var=4)
def batch_norm_with_statistics(x, mean, var):
    y, here, spread = st.batch_norm_training(x, correction=1)
    return y, mean * 0.9 + here * 0.1, var * 0.9 + spread * 0.1


# ---- sequences -------------------------------------------------------------------------------------

_GRU = seeded(lambda: nn.GRU(4, 5, bidirectional=True, dtype=st.f64))
_RNN = seeded(lambda: nn.RNN(4, 5, dtype=st.f64))


@case(*grid(N=(1, 5, 9), M=(1, 2, 3)), x=("N <= 12", "M <= 4", 4))
def gru(x):
    return _GRU(x)


@case(*grid(N=(1, 5, 9), M=(1, 2, 0)), x=("N <= 12", "M <= 4", 4))
def rnn(x):
    return _RNN(x)


_LSTM = seeded(lambda: nn.LSTM(4, 5, bidirectional=True, dtype=st.f64))
LENGTHS = {"x": ("N <= 12", "M <= 4", 4), "lengths": "M"}


@case(*grid(N=(1, 5, 9, 3), M=(1, 2, 3, 0)), integers={"lengths": 12}, exported=True, **LENGTHS)
def lstm_of_lengths(x, lengths):
    return _LSTM(x, lengths=lengths % x.shape[0] + 1)


@case(*grid(N=(1, 5, 9), M=(1, 2, 3)), integers={"lengths": 12}, **LENGTHS)
def packed_gru(x, lengths):
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths % x.shape[0] + 1, enforce_sorted=False)
    y, h = _GRU(packed)
    return nn.utils.rnn.pad_packed_sequence(y, padding_value=2.0)[0], h


_ENCODER = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, dtype=st.f64))


@case(*grid(N=(1, 2, 3), M=(1, 5, 17)), x=("N <= 4", "M <= 20", 8))
def transformer_layer(x):
    return _ENCODER(x)


class Residual(nn.Module):
    """A layer of equal ones, which become a loop."""

    def __init__(self):
        self.norm, self.inner = nn.LayerNorm(6, dtype=st.f64), nn.Linear(6, 6, dtype=st.f64)

    def forward(self, x):
        return x + st.tanh(self.inner(self.norm(x)))


_DEEP = seeded(lambda: nn.Sequential(*[Residual() for _ in range(4)]))


@case(*grid(N=(1, 2, 0), M=(1, 5, 17)), x=("N <= 4", "M <= 20", 6))
def equal_layers(x):
    return _DEEP(x)


@case(
    *grid(N=(1, 3, 20), M=(5, 2, 0)), q=(2, 4, "N <= 20", 4), k=(2, 2, "M <= 20", 4), v=(2, 2, "M", 3), mask=("N", "M")
)
def attention_with_a_mask(q, k, v, mask):
    return st.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


@case(
    *grid(N=(1, 250, 600), M=(5, 700, 300)), q=("N <= 700", 2), k=("M <= 800", 2), v=("M", 3), gradient=True
)
def attention_in_blocks(q, k, v):
    return st.scaled_dot_product_attention(q, k, v)


@case(*grid(N=(1, 250, 600), M=(5, 700, 300)), q=("N <= 700", 2), k=("M <= 800", 2), v=("M", 3))
def causal_attention_in_blocks(q, k, v):
    return st.scaled_dot_product_attention(q, k, v, is_causal=True)


@case(
    *grid(N=(1, 2, 3), M=(4, 9, 1), K=(2, 5, 0)), x=("M <= 9", "N <= 3", 4), text=("N", "K <= 5"), length="N",
    integers={"text": 3, "length": 9},
)  # fmt: skip
def ctc_loss(x, text, length):
    steps = st.minimum(length + 2, x.shape[0])
    labels = st.minimum(st.minimum(length, text.shape[1]), steps)
    return st.ctc_loss(st.log_softmax(x), text + 1, steps, labels, reduction="none", zero_infinity=True)


@case(*grid(N=(1, 250, 385), M=(5, 513, 300)), q=("N <= 400", 2), k=("M <= 600", 2), v=("M", 3))
def attention_with_dropout(q, k, v):
    return st.scaled_dot_product_attention(q, k, v, dropout_p=0.3)


@case(3, 270, 200, x=("N <= 300", 2))
def causal_attention_with_dropout(x):
    return st.scaled_dot_product_attention(x, x, x, dropout_p=0.3, is_causal=True)


@case(
    *grid(H=(1, 3, 2), N=(1, 17, 0), M=(5, 9, 20)),
    q=("H <= 3", 2, "N <= 20", 4), k=("H", "M <= 20", 4), v=("H", "M", 3), mask=("N", "M")
)  # fmt: skip
def grouped_attention_of_any_heads(q, k, v, mask):
    q = q.reshape(2 * q.shape[0], *q.shape[2:])
    return st.scaled_dot_product_attention(q, k, v, mask > 0, is_causal=True, enable_gqa=True)


@case(*grid(N=(1, 3, 4), M=(1, 9, 20)), q=("N <= 4", 2, "M <= 20", 4), mask=("N", "M", "M"))
def mapped_attention_with_a_mask(q, mask):
    return st.vmap(lambda q, mask: st.scaled_dot_product_attention(q, q, q, mask))(q, mask)


# ---- networks --------------------------------------------------------------------------------------

_CNN = seeded(lambda: CNN(st.f64))


@case(1, 7, 64, x=("N <= 64", 1, 28, 28), labels="N", integers={"labels": 10})
def mnist(x, labels):
    return st.cross_entropy(_CNN(x), labels)


_FIRE = seeded(lambda: Fire(3, 4, 5, st.f64))


@case(*grid(N=(64, 100, 256), M=(64, 80, 33)), x=(1, 3, "N <= 256", "M <= 256"))
def fire(x):
    return st.mean(st.max_pool2d(_FIRE(x), 3, stride=2), (2, 3))


# ---- batches of some rows, the last of which may be smaller ------------------------------------------


@case(x=("N <= 40", 3), y="N")
def batches(x, y):
    weight = st.zeros(3, dtype=st.f64)
    total = 0.0
    for number, (rows, wanted) in enumerate(st.batches(x, y, size=8, drop_last=False)):
        error = rows @ weight - wanted
        weight = weight - 0.1 * (error @ rows) / rows.shape[0]
        total = total + st.sum(st.dropout(error, 0.5)) * (number + 1)
    return weight, total


@case(x=("N <= 40", 3), y="N")
def batches_in_random_order(x, y):
    total = 0.0
    for _ in st.range(2):
        for rows, wanted in st.batches(x, y, size=8, shuffle=True, drop_last=False):
            total = total * 0.5 + st.cross_entropy(rows, st.argmax(rows, axis=1)) + st.mean(wanted)
    return total


@case(x=("N <= 40", 3))
def whole_batches_in_reverse_order(x):
    total = x[:0].sum(axis=0)
    for rows in reversed(st.batches(x, size=8)):
        total = total * 0.5 + rows.sum(axis=0)
    return total


@case(x=("N <= 40", 3))
def number_of_batches(x):
    return len(st.batches(x, size=8, drop_last=False)) - len(st.batches(x, size=8)) + st.sum(x)


# ---- stacks of layers, transforms of layers ------------------------------------------------------

_STACK = seeded(lambda: nn.LSTM(4, 5, num_layers=2, batch_first=True, dtype=st.f64))
_ENCODERS = seeded(lambda: nn.ModuleList([nn.Linear(6, 6, dtype=st.f64) for _ in range(4)]))
_PLACES = np.random.default_rng(0).standard_normal((20, 6))


@case(*grid(N=(1, 5, 9), M=(1, 2, 3)), x=("M <= 4", "N <= 12", 4))
def lstm_of_two_layers(x):
    return _STACK(x)[0]


@case(*grid(N=(1, 3, 0), M=(1, 17, 20)), x=("N <= 4", "M <= 20", 6))
def checkpointed_layers_of_places(x):
    x = x + _PLACES[: x.shape[1]]
    for layer in _ENCODERS:
        x = st.checkpoint(lambda x, layer=layer: x + st.tanh(layer(x)))(x)
    return x


@case(*grid(N=(1, 3, 4), M=(1, 9, 20)), x=("N <= 4", "M <= 20", 6))
def mapped_attention(x):
    return st.vmap(lambda each: st.scaled_dot_product_attention(each, each, each, is_causal=True))(x)


@case(*grid(N=(1, 3, 4), M=(1, 9, 20)), x=("N <= 4", "M <= 20", 6), v=("N", "M", 6), gradient=False)
def curvature_of_a_layer(x, v):
    def loss(x):
        return st.sum(st.layer_norm(st.tanh(_ENCODERS[0](x)), 6) ** 3)

    return st.jvp(st.grad(loss), (x,), (v,))[1]


@case(*IMAGES, x=IMAGE, w=(3, 4, 3, 3), gradient=False)
def curvature_of_a_convolution(x, w):
    return st.grad(lambda w: st.sum(st.grad(lambda x: st.sum(st.conv2d(x, w) ** 3))(x) ** 2))(w)
