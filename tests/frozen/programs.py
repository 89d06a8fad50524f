"""The frozen set: forty programs that between them use every construct, op family, schedule and library call.

Each is a function without arguments that returns a Python function and its arguments. `device` marks those whose text
is also written for a GPU, with all of their arguments in one region.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim


@dataclass(frozen=True)
class Frozen:
    """One program: `make()` returns the Python function and its arguments; `device`: it is written for a GPU too."""

    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    device: bool


PROGRAMS: dict[str, Frozen] = {}


def frozen(make: Callable[[], Any] | None = None, *, device: bool = True) -> Any:
    """Enter a program in the set, under its function's name."""

    def enter(real: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[real.__name__] = Frozen(real, device)
        return real

    return enter if make is None else enter(make)


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def integers(high: int, *shape: int, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, high, shape).astype(dtype)


def training_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        optimizer.step(grads)
        return loss

    return step


# ---- models -------------------------------------------------------------------------------------


@frozen
def mlp_sgd() -> Any:
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    return training_step(model, optim.SGD(model.parameters(), lr=0.05, momentum=0.9)), (
        floats(64, 784),
        integers(10, 64),
    )


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x: Any, dropout: float = 0.0) -> Any:
        x = st.max_pool2d(st.relu(self.conv1(x)), 2)
        x = st.max_pool2d(st.relu(self.conv2(x)), 2)
        return self.fc2(st.dropout(st.relu(self.fc1(x.reshape(x.shape[0], -1))), dropout))


@frozen
def cnn_whole_training() -> Any:
    def train(images: Any, labels: Any, epochs: int, lr: float) -> Any:
        st.seed(3)
        net = Cnn()
        optimizer = optim.SGD(net.parameters(), lr=lr, momentum=0.5)
        losses = st.zeros(8)
        for epoch in st.range(epochs):
            total = 0.0
            for x, y in st.batches(images, labels, size=8, shuffle=True):
                loss, grads = st.value_and_grad(lambda x, y: st.cross_entropy(net(x, 0.5), y), wrt=net)(x, y)
                optimizer.step(grads)
                total += loss
            losses[epoch] = total / 2
            correct = st.sum(st.argmax(net(images), axis=1) == labels)
            print(f"epoch {epoch + 1}: loss {total / 2:.4f}, {100 * correct / 16:.2f} %")
        return net.state_dict(), losses

    return train, (floats(16, 1, 28, 28), integers(10, 16), 2, 0.05)


@frozen
def batch_norm_resnet() -> Any:
    class Residual(nn.Module):
        def __init__(self, channels: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = (
                nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(out),
            )
            self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
            self.short = nn.Conv2d(channels, out, 1, stride=stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = st.relu(self.bn1(self.conv1(x)))
            return st.relu(self.bn2(self.conv2(y)) + self.short(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Residual(3, 8, 1), Residual(8, 16, 2)
            self.out = nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            return self.out(st.mean(self.second(self.first(x)), axis=(2, 3)))

    model = Net()
    return training_step(model, optim.Adam(model.parameters(), lr=1e-3)), (floats(4, 3, 12, 12), integers(10, 4))


@frozen
def char_lstm() -> Any:
    class CharLstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.cell, self.out = nn.Embedding(26, 26), nn.LSTMCell(26, 50), nn.Linear(50, 26)

        def forward(self, text: Any) -> Any:
            h, c = st.zeros((text.shape[1], 50)), st.zeros((text.shape[1], 50))
            total = 0.0
            for t in st.range(20):
                h, c = self.cell(self.embedding(text[t]), (h, c))
                total += st.cross_entropy(self.out(h), text[t + 1])
            return total / 20

    model = CharLstm()
    optimizer = optim.Adagrad(model.parameters(), lr=0.1)

    def step(text: Any) -> Any:
        loss, grads = st.value_and_grad(model, wrt=model)(text)
        optimizer.step(optim.clip_grad_value(grads, 5.0))
        return loss

    return step, (integers(26, 21, 4),)


@frozen
def transformer() -> Any:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
            self.qkv, self.proj = nn.Linear(64, 192), nn.Linear(64, 64)
            self.fc1, self.fc2 = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x: Any) -> Any:
            B, T, C = x.shape
            y = self.qkv(self.norm1(x)).reshape(B, T, 3, 4, C // 4)
            q, k, v = (y[:, :, i].permute(0, 2, 1, 3) for i in range(3))
            scores = q @ k.transpose(2, 3) / 4.0
            seen = st.arange(T)[:, None] >= st.arange(T)[None, :]
            weights = st.softmax(st.where(seen, scores, -1e9), axis=-1)
            x = x + self.proj((weights @ v).permute(0, 2, 1, 3).reshape(B, T, C))
            return x + self.fc2(st.gelu(self.fc1(self.norm2(x))))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(65, 64), nn.Embedding(16, 64)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 65)

        def forward(self, x: Any) -> Any:
            h = self.tokens(x) + self.places(st.arange(x.shape[1]))
            for block in self.blocks:
                h = block(h)
            return self.head(self.norm(h)).reshape(-1, 65)

    model = Transformer()
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y.reshape(-1)), wrt=model)()
        grads, norm = optim.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        return loss, norm

    return step, (integers(65, 2, 16), integers(65, 2, 16))


@frozen
def recurrent_layers() -> Any:
    lstm, gru, rnn = nn.LSTM(8, 16, num_layers=2), nn.GRU(16, 12), nn.RNN(12, 10)

    def loss(x: Any) -> Any:
        y, _ = lstm(x)
        y, _ = gru(y)
        y, h = rnn(y)
        return st.mean(y**2) + st.sum(h)

    def step(x: Any) -> Any:
        return st.value_and_grad(lambda: loss(x), wrt=(lstm, gru, rnn))()

    return step, (floats(7, 3, 8),)


@frozen(device=False)
def tree_lstm() -> Any:
    w, left_w, right_w = (
        st.Variable(floats(6, 6 + i) if i else floats(6, 6), name=n) for i, n in ((0, "w"), (0, "l"), (0, "r"))
    )

    @st.function
    def node(tree: Any, words: Any, i: Any) -> Any:
        if tree[i, 0] < 0:
            return st.tanh(words[tree[i, 1]] @ w)
        a, b = node(tree, words, tree[i, 0]), node(tree, words, tree[i, 1])
        return st.tanh(a @ left_w + b @ right_w)

    def step(tree: Any, words: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.sum(node(tree, words, 0) ** 2), wrt=(w, left_w, right_w))()
        for variable, gradient in zip((w, left_w, right_w), grads, strict=True):
            variable.value = variable.value - 0.1 * gradient
        return loss

    return step, (np.array([[1, 2], [-1, 0], [3, 4], [-1, 1], [-1, 2]]), floats(3, 6))


@frozen
def ctc() -> Any:
    def loss(x: Any, targets: Any) -> Any:
        def value(x: Any) -> Any:
            return st.ctc_loss(st.log_softmax(x, axis=2), targets, np.array([9, 7]), np.array([3, 2]))

        return st.value_and_grad(value)(x)

    return loss, (floats(9, 2, 5), np.array([[1, 2, 2], [3, 1, 0]], np.int32))


# ---- products and convolutions ------------------------------------------------------------------


@frozen
def products() -> Any:
    def function(a: Any, b: Any, c: Any, v: Any) -> Any:
        plain = st.relu(a @ b + v)
        left, right, both = a.T @ plain, a @ c.T, b.T @ a.T
        return plain, left, right, both, a @ v[:33], v[:50] @ a, st.sum(plain), st.outer(v, v)[:3]

    return function, (floats(50, 33), floats(33, 70), floats(21, 33), floats(70))


@frozen
def batched_products_f64() -> Any:
    def function(a: Any, b: Any) -> Any:
        value, (da, db) = st.value_and_grad(lambda a, b: st.sum(st.tanh(a @ b) ** 2), argnums=(0, 1))(a, b)
        return value, da, db, st.tensordot(a, b, axes=([2], [1]))[:1]

    return function, (floats(3, 17, 9, dtype=np.float64), floats(3, 9, 12, dtype=np.float64))


@frozen
def integer_products() -> Any:
    def function(a: Any, b: Any) -> Any:
        return a @ b, a[0] @ b, st.sum(a @ b, axis=0)

    return function, (integers(9, 8, 13), integers(9, 13, 6))


@frozen
def convolutions() -> Any:
    def function(x: Any, w: Any, p: Any, g: Any, d: Any) -> Any:
        def value(x: Any, w: Any, p: Any, g: Any, d: Any) -> Any:
            y = st.relu(st.conv2d(x, w, padding=1))
            y = st.conv2d(y, p)
            y = st.conv2d(y, g, groups=2, stride=2)
            y = st.conv2d(y, d, dilation=2, padding=2)
            return st.mean(y**2)

        return st.value_and_grad(value, argnums=(0, 1, 2, 3, 4))(x, w, p, g, d)

    return function, (
        floats(2, 4, 14, 14),
        floats(8, 4, 3, 3),
        floats(6, 8, 1, 1),
        floats(4, 3, 3, 3),
        floats(5, 4, 3, 3),
    )


@frozen
def transposed_and_one_dimensional() -> Any:
    def function(x: Any, w: Any, s: Any, v: Any) -> Any:
        def value(x: Any, w: Any, s: Any, v: Any) -> Any:
            up = st.conv_transpose2d(x, w, stride=2, padding=1)
            line = st.avg_pool1d(st.conv1d(s, v, stride=2), 2)
            return st.sum(up * up) + st.sum(st.silu(line))

        return st.value_and_grad(value, argnums=(0, 1, 2, 3))(x, w, s, v)

    return function, (floats(2, 3, 6, 6), floats(3, 4, 4, 4), floats(2, 3, 20), floats(5, 3, 3))


@frozen
def pooling() -> Any:
    def function(x: Any) -> Any:
        def value(x: Any) -> Any:
            y = st.max_pool2d(x, 3, stride=2, padding=1)
            z = st.avg_pool2d(x, 2)
            return st.sum(y * y) + st.sum(st.exp(z)) + st.sum(st.adaptive_avg_pool2d(x, (2, 3)) ** 2)

        return st.value_and_grad(value)(x)

    return function, (floats(2, 3, 12, 12),)


# ---- elementwise work, reductions, shapes -------------------------------------------------------


@frozen
def every_function() -> Any:
    def function(x: Any, p: Any) -> Any:
        a = [
            f(x)
            for f in (st.exp, st.expm1, st.sin, st.cos, st.tan, st.sinh, st.cosh, st.tanh, st.erf, st.erfc, st.atan)
        ]
        b = [f(p) for f in (st.log, st.log1p, st.log2, st.log10, st.sqrt, st.rsqrt, st.asin, st.acos)]
        c = [f(x) for f in (st.floor, st.ceil, st.trunc, st.round, st.abs, st.sign, st.square, st.sigmoid, st.softplus)]
        d = [st.pow(p, x), st.atan2(x, p), st.maximum(x, p), st.minimum(x, p), x / p, x // p, x % p, st.clip(x, -1, 1)]
        e = [
            st.elu(x),
            st.gelu(x),
            st.silu(x),
            st.leaky_relu(x),
            st.log_sigmoid(x),
            st.isnan(x),
            x > p,
            st.where(x > 0, x, p),
        ]
        return a, b, c, d, e

    return function, (floats(37), np.abs(floats(37)) / 8 + 0.01)


@frozen
def every_function_f64_gradients() -> Any:
    def function(x: Any, p: Any) -> Any:
        def value(x: Any, p: Any) -> Any:
            a = st.exp(x) * st.sin(x) + st.tanh(x) * st.erf(x) + st.log(p) * st.sqrt(p) + st.pow(p, x)
            return st.sum(a + st.atan2(x, p) + st.maximum(x, p) + st.logsumexp(x) + st.gelu(x) + st.asin(p))

        return st.value_and_grad(value, argnums=(0, 1))(x, p)

    return function, (floats(37, dtype=np.float64), np.abs(floats(37, dtype=np.float64)) / 8 + 0.01)


@frozen
def integer_arithmetic() -> Any:
    def function(a: Any, b: Any, u: Any, m: Any) -> Any:
        return (
            *(
                a + b,
                a - b,
                a * b,
                a // b,
                a % b,
                a & b,
                a | b,
                a ^ b,
                a << (b % 7),
                a >> (b % 5),
                ~a,
                -a,
                abs(a),
                a / b,
            ),
            *(u + u, u.astype(st.i64) * a, m & (a > b), m | (a == b), ~m, st.sum(m), st.sum(u), st.prod(b % 3 + 1)),
            *(st.max(a), st.argmin(b), a.astype(st.f32) / 3, st.any(m), st.all(m), st.count_nonzero(a)),
        )

    arrays = (integers(1000, 41, dtype=np.int64) - 500, integers(9, 41, dtype=np.int64) + 1)
    return function, (*arrays, integers(255, 41, dtype=np.uint8), integers(2, 41).astype(bool))


@frozen
def reductions() -> Any:
    def function(x: Any, long: Any) -> Any:
        whole = [f(x) for f in (st.sum, st.mean, st.max, st.min, st.prod, st.var, st.std, st.argmax)]
        rows = [f(x, axis=-1) for f in (st.sum, st.mean, st.max, st.argmin, st.std, st.logsumexp)]
        columns = [f(x, axis=0) for f in (st.sum, st.mean, st.min, st.argmax, st.var)]
        middle = [st.sum(st.exp(x), axis=1), st.sum(x, axis=(0, 2), keepdims=True), st.norm(x)]
        return whole, rows, columns, middle, st.sum(long), st.sum(long * long), st.mean(st.exp(long))

    return function, (floats(20, 5, 35), floats(70001))


@frozen
def softmax_and_norms() -> Any:
    def function(x: Any, g: Any, b: Any) -> Any:
        def value(x: Any, g: Any, b: Any) -> Any:
            y = st.layer_norm(x, (x.shape[-1],), g, b) + st.rms_norm(x, (x.shape[-1],), g)
            return (
                st.sum(st.softmax(y, axis=-1) * x)
                + st.sum(st.log_softmax(x, axis=0) ** 2)
                + st.sum(st.normalize(x) * y)
            )

        return (
            st.value_and_grad(value, argnums=(0, 1, 2))(x, g, b),
            st.softmax(x, axis=0),
            st.group_norm(x.reshape(5, 8, -1), 4),
        )

    return function, (floats(40, 96), floats(96), floats(96))


@frozen
def shapes() -> Any:
    def function(x: Any, y: Any) -> Any:
        joined = st.concat([x, y], axis=0)
        parts = st.split(joined, [2, 7], axis=0)
        moved = (
            st.permute(x.reshape(4, 3, 5, 2), (2, 0, 3, 1)),
            st.flip(x, axis=1),
            st.roll(x, 3, axis=1),
            x.T,
            x[::2, ::-1],
        )
        made = (
            st.pad(x, ((1, 2), (0, 3))),
            st.tile(y, (2, 1)),
            st.repeat(y, 3, axis=0),
            st.tril(x),
            st.stack([x, x + 1], axis=1),
        )
        others = st.eye(4), st.linspace(0, 1, 7), st.one_hot(st.arange(5), 6), st.sum(x * x[::-1]), x[None, 3:, ..., 1]
        return parts, moved, made, others

    return function, (floats(12, 10), floats(3, 10))


@frozen
def transposed_sums() -> Any:
    def function(x: Any, y: Any) -> Any:
        return st.sum(x * y.T), st.sum(x + y.T, axis=0), (x.T * 2 + y).T, st.sum(st.exp(x).T, axis=1), x.T.reshape(-1)

    return function, (floats(200, 130), floats(130, 200))


@frozen
def indexing() -> Any:
    def function(table: Any, index: Any, x: Any, k: Any) -> Any:
        def value(table: Any, x: Any) -> Any:
            picked = table[index] * x[:, None]
            y = st.take_along_axis(picked, index[:, None] % 4, axis=1)
            return st.sum(picked**2) + st.sum(y) + st.sum(table[k]) + st.sum(table[k : k + 2] ** 3)

        out = st.scatter_add(st.zeros_like(table), index, st.ones((len(index), 4)))
        out[k] = 7.0
        out[1:3, ::2] += 1.0
        return st.value_and_grad(value, argnums=(0, 1))(table, x), out, out[::-1], table[k, 1]

    return function, (floats(11, 4), integers(11, 19), floats(19), 3)


@frozen
def random_numbers() -> Any:
    def function(n: int) -> Any:
        st.seed(11)
        total = st.random.normal((33,)) + st.random.uniform((33,), low=-1, high=2)
        for _ in st.range(n):
            total = total + (st.random.uniform((33,)) < 0.3) * st.random.normal((33,), dtype=st.f32)
        return total, st.random.permutation(17), st.random.integers(0, 100, (9,)), st.dropout(total, 0.5)

    return function, (3,)


# ---- control flow -------------------------------------------------------------------------------


@frozen
def branches() -> Any:
    def function(x: Any, n: int) -> Any:
        def value(x: Any) -> Any:
            if st.sum(x) > 0:
                y = st.exp(x)
                z = 1.0
            elif n % 2 == 0:
                y, z = x * x, 2.0
            else:
                y, z = -x, st.max(x)
            return st.sum(y) * z if n < 100 else st.sum(y)

        return st.value_and_grad(value)(x)

    return function, (floats(30), 5)


@frozen
def loops_with_exits() -> Any:
    def function(x: Any, limit: float, n: int) -> Any:
        total, count, found = 0.0, 0, -1
        for i in st.range(n):
            if x[i] < -1.5:
                continue
            total += x[i]
            for j in st.range(i, 0, -1):
                if x[j] > limit:
                    found = j
                    break
                count += 1
            else:
                total *= 1.01
            if total > 50:
                return total, count, i
        while total > 1.0 and count > 0:
            total /= 2
            count -= 1
        return total, count, found

    return function, (floats(40), 1.2, 40)


@frozen
def gradients_through_loops() -> Any:
    def function(x: Any, w: Any, n: int) -> Any:
        def value(x: Any, w: Any) -> Any:
            h = x
            steps = 0
            for _ in st.range(n):
                h = st.tanh(h @ w)
                if st.sum(h) > 3:
                    h = h * 0.5
                steps += 1
            while st.sum(h * h) > 0.1:
                h = 0.7 * h + 0.01 * w[0]
            return st.sum(h) * steps

        return st.value_and_grad(value, argnums=(0, 1))(x, w)

    return function, (floats(8), floats(8, 8) / 4, 6)


@frozen
def recursion() -> Any:
    @st.function
    def power(x: Any, n: Any) -> Any:
        if n == 0:
            return x * 0 + 1.0
        half = power(x, n // 2)
        return half * half * x if n % 2 == 1 else half * half

    def function(x: Any, n: int) -> Any:
        return st.value_and_grad(lambda x: st.sum(power(x, n)))(x)

    return function, (floats(5) / 8 + 1, 13)


@frozen(device=False)
def objects_files_and_prints() -> Any:
    class Meter:
        def __init__(self) -> None:
            self.total, self.count, self.worst = 0.0, 0, {"loss": 0.0}

        def add(self, value: Any) -> None:
            self.total += value
            self.count += 1
            if value > self.worst["loss"]:
                self.worst["loss"] = value

    def function(x: Any, n: int) -> Any:
        meter, history = Meter(), [0.0, 0.0]
        heights = st.Stack(x[0], max=20)
        start = time.perf_counter()
        for i in st.range(n):
            meter.add(x[i])
            history[0] = meter.total
            if x[i] > 0:
                heights.append(x[i])
            print("step", i, f"{meter.total:8.3f}", x[i : i + 2], sep=" | ")
            assert meter.count <= n, f"too many: {meter.count}"
        print(f"done in {0.0 * (time.perf_counter() - start):.1f} s", end="!\n")
        return meter.total, meter.worst, history, len(heights), heights[0]

    return function, (floats(20), 9)


@frozen(device=False)
def try_with_and_raise() -> Any:
    def function(x: Any, n: int) -> Any:
        total = 0.0
        for i in st.range(n):
            try:
                if x[i] > 2:
                    raise ValueError("too large")
                if x[i] < -1:
                    total -= 0.5
                total += x[i]
            finally:
                total += 0.001
        return total

    return function, (floats(20) / 4, 20)


@frozen
def sizes_found_by_the_program() -> Any:
    def function(x: Any, starts: Any, w: Any) -> Any:
        norms, rows = st.zeros((len(starts) - 1,)), st.zeros_like(x)
        for group in st.range(len(starts) - 1):
            first = starts[group]
            n = st.dim("N", starts[group + 1] - first, max=8)
            part = st.tanh(x[first : first + n] @ w)
            rows[first : first + n] = part
            norms[group] = st.sqrt(st.sum(part * part) / n)
        return norms, st.sum(rows)

    return function, (floats(12, 4), np.array([0, 1, 7, 12]), floats(4, 4))


@frozen(device=False)
def newton_with_derivatives() -> Any:
    def function(x: Any, target: float) -> Any:
        def f(v: Any) -> Any:
            return st.sum(v**4) + st.sum(st.sin(v)) * st.prod(v)

        value, tangent = st.jvp(f, (x,), (st.ones_like(x),))
        steps = 0
        while st.norm(st.grad(f)(x)) > target:
            x = x - 0.1 * st.grad(f)(x)
            steps += 1
            if steps > 30:
                break
        return x, value, tangent, st.hessian(f)(x), st.jacrev(lambda v: v * v[::-1])(x)

    return function, (floats(4) / 2, 0.05)


@frozen(device=False)
def batched_control_flow() -> Any:
    def one(x: Any, n: Any) -> Any:
        total = 0.0
        for i in st.range(n):
            if x[i] > 0:
                total += x[i]
            else:
                total -= 0.5 * x[i]
        while total > 1.0:
            total = total / 2
        return total

    def function(xs: Any, ns: Any) -> Any:
        return st.vmap(one)(xs, ns), st.vmap(st.grad(lambda x: st.sum(st.tanh(x) ** 2)))(xs)

    return function, (floats(6, 5), np.array([5, 3, 0, 1, 4, 2]))


@frozen
def checkpoints_and_custom_rules() -> Any:
    @st.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 1.0

    clipped.defvjp(lambda x: (x * 1.0, None), lambda kept, ct: (st.clip(ct, -0.1, 0.1),))

    def function(x: Any, w: Any) -> Any:
        def layer(x: Any) -> Any:
            return st.tanh(st.tanh(x @ w) @ w)

        def value(x: Any) -> Any:
            y = st.checkpoint(layer)(x)
            for _ in st.range(3):
                y = st.checkpoint(layer)(y)
            return st.sum(clipped(y) ** 2)

        return st.value_and_grad(value)(x)

    return function, (floats(5, 8), floats(8, 8) / 4)


@frozen
def second_derivatives() -> Any:
    def function(x: Any, w: Any, n: int) -> Any:
        def inner(w: Any) -> Any:
            h = x
            for _ in st.range(n):
                h = st.tanh(h @ w)
            return st.sum(h**2)

        def penalty(w: Any) -> Any:
            return st.sum(st.grad(inner)(w) ** 2)

        return st.value_and_grad(penalty)(w)

    return function, (floats(3, 6), floats(6, 6) / 4, 2)


@frozen
def optimizers() -> Any:
    a, b, c = st.Variable(floats(70), name="a"), st.Variable(floats(9, 7), name="b"), st.Variable(floats(3), name="c")
    first, second, third = (
        optim.Adam([a], lr=0.1),
        optim.Adagrad([b], lr=0.1),
        optim.SGD([c], lr=0.1, nesterov=True, momentum=0.9),
    )

    def function(x: Any, n: int) -> Any:
        loss = 0.0
        for _ in st.range(n):
            loss, (da, db, dc) = st.value_and_grad(
                lambda: st.sum(a * x) ** 2 + st.sum(st.exp(b)) + st.sum(c**3), wrt=(a, b, c)
            )()
            first.step([da])
            second.step([db])
            third.step([dc])
        return loss

    return function, (floats(70), 3)


@frozen
def losses() -> Any:
    def function(x: Any, y: Any, labels: Any) -> Any:
        def value(x: Any) -> Any:
            p = st.sigmoid(x)
            return (
                st.mse_loss(x, y)
                + st.l1_loss(x, y)
                + st.huber_loss(x, y)
                + st.smooth_l1_loss(x, y)
                + st.binary_cross_entropy(p, st.sigmoid(y))
                + st.cross_entropy(x, labels)
                + st.binary_cross_entropy_with_logits(x, st.sigmoid(y))
                + st.kl_div(st.log_softmax(x, axis=1), st.softmax(y, axis=1))
            )

        return st.value_and_grad(value)(x)

    return function, (floats(12, 7), floats(12, 7), integers(7, 12))


@frozen
def functions_called_often() -> Any:
    def layer(x: Any, w: Any, k: Any) -> Any:
        for _ in st.range(k):
            x = st.tanh(x @ w)
        return x

    def function(x: Any, w: Any, n: int) -> Any:
        def value(x: Any) -> Any:
            total = 0.0
            for i in st.range(n):
                total += st.sum(layer(x, w, i % 3)) * i
            return total

        return st.value_and_grad(value)(x)

    return function, (floats(4, 6), floats(6, 6) / 3, 7)


# ---- regions and kernels of the user's ----------------------------------------------------------


@frozen(device=False)
def two_regions_and_the_host() -> Any:
    w = st.Variable(floats(16, 8), name="w")

    def function(x: Any, n: int) -> Any:
        loss = 0.0
        for i in st.range(n):
            with st.with_backend(st.GPU, x):
                loss, gradient = st.value_and_grad(lambda: st.mean((x @ w) ** 2), wrt=w)()
                w.value = w.value - 0.1 * gradient
                if i % 2 == 0:
                    print(f"step {i}: {loss:.4f}")
            scale = 1.0 / (1.0 + i)
            with st.with_backend(st.GPU):
                w.value = w.value * (1.0 - 0.01 * scale)
        return loss, st.sum(st.exp(w.value))

    return function, (floats(10, 16), 4)


@frozen(device=False)
def kernel_of_the_users_own() -> Any:
    @st.gpu_func
    def saxpy(a, x, y, out):
        i = st.cuda.global_index.x
        if i < len(x):
            out[i] = a * x[i] + y[i]

    @st.gpu_func
    def block_sums(x, out):
        part = st.cuda.shared((32,), x.dtype)
        t = st.cuda.thread_index.x
        i = st.cuda.global_index.x
        part[t] = x[i] if i < len(x) else 0.0
        st.cuda.syncthreads()
        if t == 0:
            total = 0.0
            for k in range(32):
                total += part[k]
            out[st.cuda.block_index.x] = total

    def function(x: Any, y: Any) -> Any:
        with st.with_backend(st.GPU, x, y):
            z = saxpy[4, 32](2.0, x, y, out=st.zeros_like(x))
            sums = block_sums[4, 32](z, out=st.zeros((4,)))
        return z, sums

    return function, (floats(100), floats(100))


@frozen(device=False)
def two_devices() -> Any:
    def function(x: Any, y: Any) -> Any:
        with st.with_backend(st.GPU(0), x):
            a = st.softmax(x @ x.T, axis=1)
        with st.with_backend(st.GPU(1), y):
            b = st.sum(a * st.exp(y), axis=0)
        with st.with_backend(st.GPU(0)):
            c = a @ b
        return c + 1

    return function, (floats(12, 5), floats(12, 12))
