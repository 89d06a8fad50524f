"""Training loops written without `@st.function`: decorated without other changes, they run on the CPU and in a region.

Each program is a function that makes fresh state and returns the loop. Its loop runs as plain Python, as one program on the CPU,
and as one program in `with with_backend(GPU, x): loop()` on the emulated device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, nn, optim, with_backend
from staged.testing import compare_trees

pytestmark = pytest.mark.usefixtures("device")
numbers = np.random.default_rng(7)
X = numbers.normal(size=(32, 4)).astype(np.float32)
TARGETS = (X @ np.array([1.0, -2.0, 0.5, 3.0], np.float32) + 0.1).astype(np.float32)
LABELS = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
SERIES = np.sin(np.arange(40) * 0.3).astype(np.float32)

Loop = Callable[[], Any]


def linear_regression() -> Loop:
    """Closes over its arrays; a list of losses; prints every few steps."""
    weights = st.Variable(np.zeros(4, np.float32))
    bias = st.Variable(0.0)

    def loss() -> Any:
        return st.mean((X @ weights + bias - TARGETS) ** 2)

    def train_loop() -> Any:
        losses = []
        for step in range(12):
            value, (d_weights, d_bias) = st.value_and_grad(loss, wrt=[weights, bias])()
            weights.value = weights.value - 0.1 * d_weights
            bias.value = bias.value - 0.1 * d_bias
            losses.append(value)
            if step % 5 == 0:
                print(f"step {step}: loss {value:.3f}")
        return losses, weights.value, bias.value

    return train_loop


def network_with_an_optimiser() -> Loop:
    """A model and an optimiser; minibatches as slices of NumPy arrays; an accuracy at the end."""
    st.seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    opt = optim.Adam(model.parameters(), lr=0.05)

    def train_loop() -> Any:
        history = []
        for epoch in range(3):
            total = 0.0
            for start in range(0, len(X), 8):
                x, y = X[start : start + 8], LABELS[start : start + 8]
                value, gradient = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
                opt.step(gradient)
                total += value
            history.append(total / 4)
            print(f"epoch {epoch}: {total / 4:.2f}")
        accuracy = st.mean(st.astype(st.argmax(model(X), axis=1) == LABELS, st.f32))
        return history, accuracy

    return train_loop


def early_exit() -> Loop:
    """Stops when the loss is small enough; counts its steps."""
    weights = st.Variable(np.zeros(4, np.float32))

    def train_loop() -> Any:
        steps = 0
        value = 0.0
        for _ in range(40):
            value, gradient = st.value_and_grad(lambda: st.mean((X @ weights - TARGETS) ** 2), wrt=weights)()
            if value < 0.5:
                print("small enough:", steps)
                break
            weights.value = weights.value - 0.2 * gradient
            steps += 1
        else:
            print("not small enough")
        return steps, value

    return train_loop


def until_it_stops_improving() -> Loop:
    """A `while` with patience; the best weights are kept."""
    weights = st.Variable(np.zeros(4, np.float32))

    def train_loop() -> Any:
        best, best_weights, patience, steps = 1e9, weights.value, 0, 0
        while patience < 2 and steps < 30:
            value, gradient = st.value_and_grad(lambda: st.mean(st.abs(X @ weights - TARGETS)), wrt=weights)()
            if value < best - 0.05:
                best, best_weights, patience = value, weights.value, 0
            else:
                patience += 1
            weights.value = weights.value - 0.5 * gradient
            steps += 1
        print(f"{steps} steps, best {best:.2f}")
        return best, best_weights

    return train_loop


def functional_parameters() -> Loop:
    """Parameters as a dict of arrays that the loop replaces, as in JAX; a learning rate that falls."""
    start = {"w": np.full((4, 5), 0.1, np.float32), "b": np.zeros(5, np.float32), "v": np.full(5, 0.2, np.float32)}

    def predict(p: Any, x: Any) -> Any:
        return st.relu(x @ p["w"] + p["b"]) @ p["v"]

    def train_loop() -> Any:
        p = {name: st.asarray(value) for name, value in start.items()}
        rate = 0.05
        for _ in range(10):
            gradient = st.grad(lambda p: st.mean((predict(p, X) - TARGETS) ** 2))(p)
            p = {name: p[name] - rate * gradient[name] for name in p}
            rate *= 0.9
        return p

    return train_loop


class Trainer:
    """A class that keeps its model, its data and its history."""

    def __init__(self) -> None:
        st.seed(2)
        self.model = nn.Linear(4, 1)
        self.opt = optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.best: Any = st.Variable(1e9)

    def loss(self) -> Any:
        return st.mean((self.model(X)[:, 0] - TARGETS) ** 2)

    def step(self) -> Any:
        value, gradient = st.value_and_grad(self.loss, wrt=self.model)()
        self.opt.step(gradient)
        return value

    def fit(self) -> Any:
        values = [self.step() for _ in range(8)]
        for value in values:
            self.best.value = st.minimum(self.best.value, value)
        return values, self.best.value, self.model.weight.value


def trainer_object() -> Loop:
    return Trainer().fit


class Forecast(nn.Module):
    def __init__(self) -> None:
        self.cell = nn.RNNCell(1, 6)
        self.head = nn.Linear(6, 1)

    def forward(self, series: Any) -> Any:
        h = st.zeros((1, 6))
        made = []
        for t in range(10):
            h = self.cell(series[t : t + 1, None], h)
            made.append(self.head(h)[0, 0])
        return st.stack(made)


def recurrent_network() -> Loop:
    """A state that a Python loop carries over a series, inside the model."""
    st.seed(3)
    model = Forecast()
    opt = optim.RMSprop(model.parameters(), lr=0.01)

    def loss() -> Any:
        return st.mean((model(st.asarray(SERIES)) - SERIES[1:11]) ** 2)

    def train_loop() -> Any:
        values = []
        for _ in range(4):
            value, gradient = st.value_and_grad(loss, wrt=model)()
            opt.step(gradient)
            values.append(value)
        print("done after", len(values))
        return values

    return train_loop


def batches_from_a_generator() -> Loop:
    """A generator of batches, shuffled in NumPy beforehand; enumerate and zip."""
    weights = st.Variable(np.zeros(4, np.float32))
    order = np.random.default_rng(5).permutation(len(X))

    def batches(size: int) -> Any:
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            yield X[chosen], TARGETS[chosen]

    def train_loop() -> Any:
        values = []
        for number, (x, y) in enumerate(batches(8)):
            value, gradient = st.value_and_grad(lambda: st.mean((x @ weights - y) ** 2), wrt=weights)()
            weights.value = weights.value - 0.1 / (1 + number) * gradient
            values.append(value)
        for number, value in zip(range(2), values, strict=False):
            print(number, f"{value:.2f}")
        return weights.value, values

    return train_loop


def numpy_words() -> Loop:
    """NumPy's functions on the arrays of the program, and its operators; gradients by hand."""

    def train_loop() -> Any:
        w = np.zeros(4, np.float32)
        for _ in range(10):
            error = np.dot(X, w) - TARGETS
            gradient = 2.0 * np.dot(X.T, error) / len(X)
            norm = np.sqrt(np.sum(gradient**2))
            w = w - 0.1 * gradient / np.maximum(norm, 1.0)
        return w, np.mean(np.square(np.dot(X, w) - TARGETS))

    return train_loop


def logs_and_checks() -> Loop:
    """Asserts, a dict of lists, formatted prints, and a schedule in Python."""
    weights = st.Variable(np.zeros(4, np.float32))

    def rate(step: int) -> float:
        return 0.2 if step < 4 else 0.05

    def train_loop() -> Any:
        log: dict[str, list[Any]] = {"loss": [], "norm": []}
        for step in range(8):
            value, gradient = st.value_and_grad(lambda: st.mean((X @ weights - TARGETS) ** 2), wrt=weights)()
            assert value < 1e6, f"diverged at step {step}: {value}"
            log["loss"].append(value)
            log["norm"].append(st.sqrt(st.sum(gradient * gradient)))
            weights.value = weights.value - rate(step) * gradient
        print(f"first {log['loss'][0]:.2f}, last {log['loss'][-1]:.2f}, {len(log['norm'])} norms")
        return log

    return train_loop


PROGRAMS = [
    linear_regression, network_with_an_optimiser, early_exit, until_it_stops_improving, functional_parameters,
    trainer_object, recurrent_network, batches_from_a_generator, numpy_words, logs_and_checks,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_decorated_loop_needs_no_other_change(program: Callable[[], Loop], capsys: pytest.CaptureFixture[str]) -> None:
    expected = program()()
    printed = capsys.readouterr().out
    on_the_host = st.function(program())()
    assert capsys.readouterr().out == printed
    compare_trees(on_the_host, expected, rtol=1e-4, atol=1e-5)
    train_loop = st.function(program())
    with with_backend(GPU, X, TARGETS):
        found = train_loop()
    assert capsys.readouterr().out == printed
    compare_trees(found, expected, rtol=1e-4, atol=1e-5)


def test_a_loop_that_is_not_decorated_warns_and_gives_the_same_results(capsys: pytest.CaptureFixture[str]) -> None:
    expected = linear_regression()()
    train_loop = linear_regression()
    with pytest.warns(UserWarning, match="no work ran on gpu in this region: `train_loop`, line"):
        with with_backend(GPU, X):
            found = train_loop()
    compare_trees(found, expected, rtol=1e-6)


def test_arrays_that_the_loop_closes_over_are_copied_once(device: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """`with with_backend(GPU, x): train_loop()`, in which `train_loop` has no parameters."""
    train_loop = st.function(linear_regression())
    before = device.counts()
    with with_backend(GPU, X, TARGETS):
        for _ in range(3):
            train_loop()
    seen = device.counts() - before
    assert seen.copies_to_device == 2 + 2, "the two arrays, and the two Variables"
    assert seen.bytes_to_device == X.nbytes + TARGETS.nbytes + 4 * 4 + 4


def test_a_decorated_step_in_a_loop_of_plain_python(device: Emulator) -> None:
    expected = Trainer().fit()
    trainer = Trainer()
    trainer.step = st.function(trainer.step)  # type: ignore[method-assign]
    with with_backend(GPU, X, TARGETS):
        found = trainer.fit()
    compare_trees(found, expected, rtol=1e-4, atol=1e-5)
