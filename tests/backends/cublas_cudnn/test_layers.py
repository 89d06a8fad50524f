"""Equal layers in a region: loops over families inside the graph of a step, with the bits of a program of copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from examples.gpt2.model import GPT2, Config
from staged import GPU, optim, pipeline, with_backend
from tests.backends.cublas_cudnn.harness import on_gpu, run_with_race_detector
from tests.passes.rolling import programs
from tests.passes.rolling.programs import PROGRAMS, Layers
from tests.passes.rolling.test_roll import answers

pytestmark = pytest.mark.usefixtures("device")
LOOP = "for (int64_t layer"
LAYERED = {name for name, (_, loops) in PROGRAMS.items() if loops}
X = programs.X


def without_rolling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PASSES", tuple(row for row in pipeline.PASSES if row[0] != "roll"))
    monkeypatch.setattr("staged.call.program.find_artifact", lambda *_: None)
    monkeypatch.setattr("staged.call.program.store_artifact", lambda *_: None)


@pytest.mark.parametrize("name", sorted(LAYERED))
def test_a_program_of_loops_has_the_bits_of_one_of_copies(
    name: str, device: Emulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "portable", on_gpu)
    device.configure("lazy shuffled seed=3")
    rolled = answers(name, capsys)
    without_rolling(monkeypatch)
    copies = answers(name, capsys)
    assert rolled[1] == copies[1]
    for left, right in zip(rolled[0], copies[0], strict=True):
        np.testing.assert_array_equal(left.view(np.uint8), right.view(np.uint8))


@pytest.mark.parametrize("name", sorted(LAYERED))
def test_equal_layers_are_a_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "portable", on_gpu)
    function, arguments, _ = PROGRAMS[name][0]()
    assert LOOP in function.stage(*arguments).source


def gpt(layers: int, dropout: float) -> tuple[Any, tuple[Any, ...]]:
    """Training steps of a GPT of small blocks."""
    model = GPT2(Config(layers, 2, 16, 8, 17), dropout)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    @st.function
    def train(tokens: Any, labels: Any, steps: Any) -> Any:
        loss = 0.0
        with with_backend(GPU, tokens, labels):
            for _ in st.range(steps):
                loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(tokens), labels), wrt=model)()
                optimizer.step(grads)
        return loss

    tokens = np.arange(16).reshape(2, 8)
    return train, (tokens, tokens[::-1].copy(), 3)


def test_lines_do_not_depend_on_the_number_of_layers() -> None:
    few, many = (train.stage(*given).source for train, given in (gpt(2, 0.1), gpt(24, 0.1)))
    assert len(few.splitlines()) == len(many.splitlines())
    assert many.count("if (repeat(") == 1


def test_a_step_is_one_graph(device: Emulator) -> None:
    train, given = gpt(3, 0.1)
    train(*given)
    before = device.counts()
    train(*given)
    assert (device.counts() - before).graph_launches == 3


def test_copies_are_those_of_the_copies_of_layers(device: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer prints a number of the device; the host updates the layers."""

    def counted() -> tuple[int, int]:
        layers = [st.Variable(row.reshape(1, 6).T @ row.reshape(1, 6)) for row in X]

        def model(x: Any) -> Any:
            for weight in layers:
                x = st.tanh(x @ weight)
                print(st.max(x))
            return st.sum(x)

        @st.function
        def step(x: Any) -> None:
            with with_backend(GPU, x):
                grads = st.grad(model, wrt=layers)(x)
            for weight, grad in zip(layers, grads, strict=True):
                weight.value = weight.value - 0.1 * grad

        step(X)
        before = device.counts()
        step(X)
        seen = device.counts() - before
        return seen.copies_to_device, seen.copies_to_host

    rolled = counted()
    without_rolling(monkeypatch)
    assert rolled == counted()


def test_layers_on_two_devices_and_on_the_host_are_copies() -> None:
    model = Layers(12)

    @st.function
    def run(x: Any) -> Any:
        with with_backend(GPU, x):
            for layer in list(model.layers)[:6]:
                x = st.tanh(layer(x))
        for layer in list(model.layers)[6:]:
            x = st.tanh(layer(x))
        return x

    assert run.stage(X).source.count(LOOP) == 2  # one checks addresses, one is over the layers of the region


def test_graphs_know_where_layers_are(device: Emulator) -> None:
    model = Layers(4, 8)

    @st.function
    def run(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for _ in st.range(n):
                x = model(x)
        return x

    x = np.ones((4, 8), np.float32)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.value = np.asarray(parameter) * 0.9
        with st.eager():
            expected = run(x, 3)
        np.testing.assert_allclose(run(x, 3), expected, rtol=1e-5, atol=1e-6)
    source = run.stage(x, 3).source
    assert "memcmp(gpu->known_layers, args->layers, sizeof gpu->known_layers)" in source
    assert "args->layers[layer].weight" in source


@pytest.mark.slow
def test_layers_have_no_races(tmp_path: Path) -> None:
    @st.function
    def run(x: Any) -> Any:
        with with_backend(GPU, x):
            weights = [st.Variable(st.ones((6,)) * (0.1 * number)) for number in range(4)]
            for _ in st.range(3):
                grads = st.grad(lambda x: st.sum(forward(weights, x)), wrt=weights)(x)
                for weight, grad in zip(weights, grads, strict=True):
                    weight.value = weight.value - 0.1 * grad
            return forward(weights, x)

    done = run_with_race_detector(run, np.zeros((4, 6), np.float32), tmp_path)
    assert "status 0" in done.stdout, done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr, done.stderr


def forward(weights: Any, x: Any) -> Any:
    for weight in weights:
        x = st.tanh(x * st.softmax(x + weight))
    return x
