"""A training step and an evaluation share the function of their forward pass, with the same results."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.backends.host import file, outlining, shared_forward
from staged.backends.host.sections import Origin, Sections
from staged.code.expr import call
from staged.code.tree import Do
from staged.passes.memory import plan
from staged.source import Position

STRICT = "-O1 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Wstrict-prototypes -Werror"
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((48, 6)).astype(np.float32), RNG.integers(0, 3, 48).astype(np.int32)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Functions of few lines."""
    monkeypatch.setattr(outlining, "MOST", 40)
    for name in ("LEAST", "LEAST_OF_SECTION"):
        for module in (outlining, shared_forward):
            monkeypatch.setattr(module, name, 3)
    monkeypatch.setenv("STAGED_CFLAGS", STRICT)


class Net(nn.Module):
    def __init__(self, dropout: float) -> None:
        self.fc1, self.fc2, self.fc3, self.fc4 = (nn.Linear(*sizes) for sizes in ((6, 16), (16, 24), (24, 8), (8, 3)))
        self.dropout = dropout

    def forward(self, x, training=True):
        h1 = st.relu(self.fc1(x))
        h2 = st.relu(self.fc2(h1))
        h3 = st.relu(self.fc3(h2))
        return self.fc4(st.dropout(h3, self.dropout if training else 0.0))


def train(x, y, epochs, dropout=0.0):
    st.seed(1)
    net = Net(dropout)
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    def loss_fn(x, y):
        return st.cross_entropy(net(x), y)

    total, right = 0.0, 0
    for _ in st.range(epochs):
        for images, labels in st.batches(x[:32], y[:32], size=8, shuffle=True):
            loss, grads = st.value_and_grad(loss_fn, wrt=net)(images, labels)
            optimizer.step(grads)
            total += loss
        for images, labels in st.batches(x[32:], y[32:], size=8):
            right += st.sum(st.argmax(net(images, training=False), axis=1) == labels)
    return net.state_dict(), total, right


def program(target: str):
    return st.function(train, static=("dropout",), target=target)


def results(program, dropout: float) -> list[bytes]:
    state, *others = program(X, Y, 3, dropout)
    return [np.asarray(each).tobytes() for each in (*state.values(), *others)]


def apart(monkeypatch) -> None:
    """Leave the functions of a training step and of an evaluation apart."""
    monkeypatch.setattr(file, "with_shared_forward", lambda outliner, equal, rest: rest)
    monkeypatch.setattr(plan, "join_twins", lambda *arguments: set())


@pytest.mark.parametrize("target", ["native", "portable"])
def test_an_evaluation_calls_the_forward_function_of_training(target, monkeypatch) -> None:
    shared = program(target)
    source = shared.stage(X, Y, 3, 0.0).source
    (loss,) = re.findall(r"^static int compute_loss\(.*?^}", source, re.M | re.S)
    training, evaluation = re.findall(r" forward\((args, m, .*)\);", source)
    assert f" forward({training});" in loss and training != evaluation and "evaluate(" not in source
    assert re.search(r"^// Loss: `loss_fn` of test_shared_forward.py$", source, re.M)
    made = results(shared, 0.0)
    apart(monkeypatch)
    whole = program(target)
    assert " evaluate(" in whole.stage(X, Y, 3, 0.0).source
    assert results(whole, 0.0) == made


def test_a_part_of_the_forward_pass_is_shared(monkeypatch) -> None:
    shared = program("native")
    source = shared.stage(X, Y, 3, 0.5).source
    assert len(re.findall(r" part_of_forward\(args, m, ", source)) == 2
    assert " forward(" in source and " evaluate(" in source
    made = results(shared, 0.5)
    apart(monkeypatch)
    assert results(program("native"), 0.5) == made


STATEMENTS = [Do(call(name)) for name in "abcd"]


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (("", "fire1.squeeze", "fire2.squeeze", ""), "forward"),
        (("features.stem", "features.fire1.squeeze", "features.fire2.squeeze", ""), "forward_fire1_to_fire2"),
        (("", "features.fire1.squeeze", "features.fire1.expand", "head"), "forward_squeeze_to_expand"),
        (("", "fc", "fc", "head"), "forward_fc"),
        (("head", "", "", ""), "part_of_forward"),
    ],
)
def test_a_part_is_called_after_its_layers(paths, name) -> None:
    places = [Position("model.py", 1, 0, 1, 1, function) for function in ("loss", "forward", "forward", "loss")]
    table = {each: Origin("forward", *rest) for each, *rest in zip(STATEMENTS, paths, places, strict=True)}
    assert Sections(table, None).part_of_forward(STATEMENTS[1:3], [STATEMENTS[0], STATEMENTS[3]]) == name
