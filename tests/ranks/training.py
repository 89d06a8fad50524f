"""Small networks in f64 that train on ranks, and the same programs without ranks.

`sharded` changes two lines of each: the data of a loop is `st.shard(x)`, the loss `st.all_reduce(loss, "mean")`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from examples.char_lstm.model import CharLSTM
from examples.gpt2.model import GPT2, Config
from staged import nn, optim
from staged.base.launcher import this_job

ROWS, SIZE = 48, 12
"""Rows of the data, and of a batch: 1, 2, 3 and 4 ranks divide them."""
STEPS = ROWS // SIZE
LEFT_OVER = 4 * SIZE + 5
_RNG = np.random.default_rng(7)
POINTS, VALUES = _RNG.normal(size=(ROWS, 5)), _RNG.integers(0, 3, ROWS)
IMAGES = 2.0 + _RNG.normal(size=(ROWS, 1, 6, 6))
TEXTS = _RNG.integers(0, 11, (ROWS, 9))


def shard(x: Any, sharded: bool) -> Any:
    return st.shard(x) if sharded else x


def mean(loss: Any, sharded: bool) -> Any:
    return st.all_reduce(loss, "mean") if sharded else loss


class Mlp(nn.Module):
    def __init__(self) -> None:
        self.first, self.drop, self.last = nn.Linear(5, 8, dtype=st.f64), nn.Dropout(0.3), nn.Linear(8, 3, dtype=st.f64)

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(st.tanh(self.first(x))))


class Cnn(nn.Module):
    def __init__(self, norm: Any) -> None:
        self.conv, self.norm = nn.Conv2d(1, 4, 3, bias=False, dtype=st.f64), norm(4, dtype=st.f64)
        self.out = nn.Linear(16, 3, dtype=st.f64)

    def forward(self, x: Any) -> Any:
        h = st.max_pool2d(st.relu(self.norm(self.conv(x))), 2)
        return self.out(h.reshape(h.shape[0], -1))


class Training:
    """A network with AdamW, a schedule, and the mean gradient of two batches a step.

    No bias precedes a norm: its gradient is rounding alone, which AdamW would scale to the size of a step.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.optimizer = optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
        self.schedule = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=8)
        self.accumulated = optim.MultiSteps(self.optimizer, 2)


@st.function(static=("sharded", "epochs"))
def train(training: Any, x: Any, y: Any, sharded: bool, epochs: int) -> Any:
    """The loss, the norm of the gradient and the number of right answers in each batch."""
    found = st.zeros((epochs, STEPS, 3), dtype=st.f64)

    def loss_of(images: Any, labels: Any) -> Any:
        scores = training.model(images)
        right = st.mean(st.astype(st.argmax(scores, -1) == labels, st.f64))
        return mean(st.cross_entropy(scores, labels), sharded), mean(right, sharded)

    for epoch in st.range(epochs):
        for step, (images, labels) in enumerate(st.batches(shard(x, sharded), shard(y, sharded), size=SIZE, shuffle=True)):
            (loss, right), grads = st.value_and_grad(loss_of, wrt=training.model, has_aux=True)(images, labels)
            grads, norm = optim.clip_grad_norm(grads, 0.5)
            if training.accumulated.step(grads):
                training.schedule.step()
            found[epoch, step] = st.stack([loss, norm, right])
    return found


@st.function(static=("sharded", "epochs"))
def train_texts(training: Any, texts: Any, sharded: bool, epochs: int) -> Any:
    """The loss of each batch of texts."""
    found = st.zeros((epochs, STEPS), dtype=st.f64)
    for epoch in st.range(epochs):
        for step, text in enumerate(st.batches(shard(texts, sharded), size=SIZE, shuffle=True)):
            loss, grads = st.value_and_grad(text_loss, wrt=training.model)(training.model, text, sharded)
            grads, _ = optim.clip_grad_norm(grads, 0.5)
            if training.accumulated.step(grads):
                training.schedule.step()
            found[epoch, step] = loss
    return found


def text_loss(model: Any, text: Any, sharded: bool) -> Any:
    if isinstance(model, GPT2):
        scores = model(text[:, :-1])
        return mean(st.cross_entropy(scores.reshape(-1, 11), text[:, 1:].reshape(-1)), sharded)
    state, loss = model.start(text.shape[0]), 0.0
    for place in st.range(text.shape[1] - 1):
        state, scores = model.step(state, text[:, place])
        loss += st.cross_entropy(scores, text[:, place + 1]) / (text.shape[1] - 1)
    return mean(loss, sharded)


def trained(run: Any, model: Any, *data: Any, sharded: bool) -> dict[str, np.ndarray[Any, Any]]:
    """The result of a training on this rank, and the weights after it."""
    training = Training(model)
    found = {"losses": np.asarray(run(training, *data, sharded, 3))}
    state = model.state_dict()
    return found | {name: np.asarray(value) for name, value in state.items()}


def case_mlp(sharded: bool = True) -> Any:
    st.seed(1)
    return trained(train, Mlp(), POINTS, VALUES, sharded=sharded)


def case_cnn(sharded: bool = True) -> Any:
    st.seed(2)
    return trained(train, Cnn(nn.SyncBatchNorm), IMAGES, VALUES, sharded=sharded)


def case_char_lstm(sharded: bool = True) -> Any:
    st.seed(3)
    return trained(train_texts, CharLSTM(11, 6, st.f64), TEXTS, sharded=sharded)


def case_gpt(sharded: bool = True) -> Any:
    st.seed(4)
    config = Config(layers=2, heads=2, width=8, places=8, vocabulary=11)
    return trained(train_texts, GPT2(config, 0.2, st.f64), TEXTS, sharded=sharded)


@st.function(static=("sharded",))
def samples(x: Any, noise: Any, sharded: bool) -> Any:
    """Batches, masks and random numbers of all ranks."""
    found = st.zeros((12, STEPS, SIZE, 3, 4), dtype=st.f64)
    for step, a in enumerate(st.batches(shard(x, sharded), size=SIZE, shuffle=True)):
        masks = [
            a,
            st.dropout(a, 0.3),
            a + noise.normal(a.shape, mean=1.0, std=2.0, dtype=st.f64),
            a + st.random.uniform(a.shape),
            a + noise.normal((3, 4), dtype=st.f64),
            a * st.random.bernoulli(0.6, (a.shape[0], 1, 1)),
            st.scaled_dot_product_attention(a, a, a, dropout_p=0.4),
            a + noise.gamma(st.exp(a), dtype=st.f64),
            a + noise.integers(0, 10**12, a.shape),
            a + st.random.categorical(a.reshape(a.shape[0], 12)).reshape(-1, 1, 1),
            a + st.concat([st.random.normal((a.shape[0], 1, 4), dtype=st.f64), a[:, 1:]], 1),
            st.dropout2d(a, 0.5),
        ]
        for number, mask in enumerate(masks):
            found[number, step] = st.all_gather(mask) if sharded else mask
    return found


def case_samples(sharded: bool = True) -> Any:
    st.seed(5)
    x = np.arange(ROWS * 12.0).reshape(ROWS, 3, 4) / 100.0
    return np.asarray(samples(x, st.random.Generator(6), sharded))


@st.function(static=("sharded",))
def shared_draws(x: Any, noise: Any, sharded: bool) -> Any:
    """Random numbers that ranks share along an axis, of all ranks."""
    found = []
    for axis in (0, 1):
        a = st.shard(x, axis) if sharded else x
        shape, given = a.shape, {"generator": noise, "shard": axis}
        channels = st.broadcast_to(a[:, :, None], (*shape, 3))
        draws = [
            st.random.uniform(shape, low=2.0, high=3.0, **given),
            st.random.normal(shape, dtype=st.f64, **given),
            st.random.bits(shape, **given),
            st.random.bernoulli(0.4, shape, **given),
            st.random.integers(0, 100, shape, **given),
            st.random.integers(0, 2**40, shape, **given),
            st.random.integers(0, st.astype(9 + a, st.i64), **given),
            st.random.exponential(shape, scale=3.0, **given),
            st.random.laplace(shape, dtype=st.f64, **given),
            st.random.logistic(shape, **given),
            st.random.gumbel(shape, loc=1.0, **given),
            st.random.cauchy(shape, **given),
            st.random.truncated_normal(shape, low=0.5, **given),
            st.random.gamma(0.5 + (a if axis == 0 else x[:, :1]), shape, dtype=st.f64, **given),
            st.random.beta(0.5, 2.0, shape, **given),
            st.random.dirichlet([1.0, 2.0, 0.5], shape, dtype=st.f64, **given),
            st.random.poisson(12.5, shape, **given),
            st.random.binomial(30, 0.3, shape, **given),
            st.random.multivariate_normal([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]], shape, dtype=st.f64, **given),
            st.random.categorical([0.0, 1.0, 0.5], shape, **given),
            st.random.choice(7, shape, **given),
            st.random.choice(3, shape, p=[0.2, 0.5, 0.3], **given),
            st.gumbel_softmax(channels, **given),
            st.dropout(a, 0.4, **given),
            st.dropout1d(channels, 0.4, **given),
            st.dropout2d(channels, 0.4, **given),
            st.dropout3d(channels[:, :, :, None, None], 0.4, **given),
            st.alpha_dropout(a, 0.4, True, **given),
            st.feature_alpha_dropout(channels, 0.4, True, **given),
        ]
        found += [st.all_gather(each, axis) if sharded else each for each in draws]
    return found


def case_shared_draws(sharded: bool = True) -> Any:
    x = np.arange(144.0).reshape(12, 12) / 100.0
    return [np.asarray(each) for each in shared_draws(x, st.random.Generator(9), sharded)]


@st.function(static=("sharded",))
def mean_of_all(x: Any, w: Any, sharded: bool) -> Any:
    """The mean loss of each batch, the last of which is padded."""
    found = st.zeros((5,), dtype=st.f64)
    for step, (a, is_row) in enumerate(st.batches(shard(x, sharded), size=SIZE, shuffle=True, drop_last=False, mask=True)):
        total, count = st.sum((a @ w) ** 2 * is_row), st.sum(is_row)
        found[step] = st.all_reduce(total) / st.all_reduce(count) if sharded else total / count
    return found


def case_padded(sharded: bool = True) -> Any:
    st.seed(8)
    x = np.random.default_rng(8).normal(size=(LEFT_OVER, 2))
    return np.asarray(mean_of_all(x, np.array([1.0, 2.0]), sharded))


@st.function(dims={"x": ("12 * N", 3)}, static=("sharded",))
def slope_of_rows(x: Any, w: Any, sharded: bool) -> Any:
    """A gradient by all rows, whose number is a dimension."""
    rows = shard(x, sharded)
    return st.grad(lambda w: mean(st.mean(st.tanh(rows @ w)), sharded))(w)


def case_dimension(sharded: bool = True) -> Any:
    x = np.random.default_rng(3).normal(size=(60, 3))
    return np.stack([slope_of_rows(x[:rows], np.ones(3), sharded) for rows in (12, 36, 60)])


@st.function(local=("x",))
def batches_of_own_rows(x: Any) -> Any:
    """Batches of the rows of each rank, which are the argument's."""
    found = st.zeros((3, 2), dtype=st.f64)
    for step, rows in enumerate(st.batches(x, size=2, shuffle=True)):
        found[step] = rows
    return st.all_gather(found, axis=1)


def case_own_rows() -> Any:
    st.seed(11)
    return np.asarray(batches_of_own_rows(np.arange(6.0) + 100.0 * this_job().rank))
