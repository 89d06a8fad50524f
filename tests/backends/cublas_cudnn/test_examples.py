"""The examples train in a GPU region on real data with the CPU's losses; what changes in their source is the `with` line."""

from __future__ import annotations

import importlib.util
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import staged as st
from examples.char_lstm.model import CharLSTM
from examples.char_rnn import train as char_training
from examples.char_rnn.corpus import read
from examples.char_rnn.model import CharRNN
from examples.mnist import train as mnist_training
from examples.treelstm import batched
from examples.treelstm.vectors import word_vectors
from staged import GPU, data, with_backend

pytestmark = pytest.mark.usefixtures("device")
MNIST_BATCH, MNIST_STEPS, EPOCHS = 16, 10, 5
CHARACTERS = 100_000
# At 0.1 the RNN's first steps are chaotic: test_char_models.py shows that PyTorch's are too.
CHAR_MODELS = {"rnn": (CharRNN, 0.03), "lstm": (CharLSTM, 0.1)}


def mnist(folder: Path) -> tuple[Any, ...]:
    """The arguments of `examples/mnist/train.py` for 50 steps: images and labels of both parts, epochs, rate and seed."""
    images, labels, test_images, test_labels = data.mnist_split(str(folder))
    rows, test_rows = MNIST_STEPS * MNIST_BATCH, 2 * MNIST_BATCH
    return images[:rows], labels[:rows], test_images[:test_rows], test_labels[:test_rows], EPOCHS, 0.02, 0


def figures(printed: str) -> list[float]:
    """The numbers that a program has printed."""
    return [float(number) for number in re.findall(r"\d+\.\d+|\d+", printed)]


def with_the_line(module: ModuleType, before: str, folder: Path) -> ModuleType:
    """The module as if the user had written `with with_backend(GPU):` around the loop that begins with the line `before`."""
    source = inspect.getsource(module)
    head, line, tail = source.partition(before)
    assert line, f"{module.__name__} has no line {before!r}"
    indentation = line[: len(line) - len(line.lstrip())]
    # The loop ends where the indentation of its first line comes back.
    end = re.search(rf"\n{indentation}\S", tail)
    assert end is not None
    loop, rest = line + tail[: end.start()], tail[end.start() :]
    region = f"{indentation}with st.with_backend(st.GPU):\n"
    path = folder / f"{module.__name__.replace('.', '_')}_on_gpu.py"
    path.write_text(head + region + textwrap.indent(loop, "    ") + rest)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    changed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(changed)
    return changed


def compare_training(found: tuple[Any, ...], wanted: tuple[Any, ...], tolerance: float) -> None:
    """Weights and what was measured on the way."""
    assert found[0].keys() == wanted[0].keys()
    for name, weights in wanted[0].items():
        np.testing.assert_allclose(found[0][name], weights, rtol=10 * tolerance, atol=10 * tolerance, err_msg=name)
    for measured, expected in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(measured, expected, rtol=tolerance)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_mnist_trains_with_dropout_and_shuffled_batches(
    model: str, data_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    given, options = mnist(data_folder("mnist")), {"model": model, "batch": MNIST_BATCH}
    wanted = mnist_training.train(*given, **options)
    expected = figures(capsys.readouterr().out)
    with with_backend(GPU):
        found = mnist_training.train(*given, **options)
    np.testing.assert_allclose(figures(capsys.readouterr().out), expected, rtol=1e-3)
    compare_training(found, wanted, 1e-4)
    losses = np.asarray(found[1])[:EPOCHS]
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("kind", CHAR_MODELS)
@pytest.mark.parametrize(("dtype", "steps", "tolerance"), [(st.f64, 50, 1e-8), (st.f32, 20, 1e-4)], ids=str)
def test_characters_are_learned(
    kind: str, dtype: Any, steps: int, tolerance: float, data_folder: Callable[[str], Path]
) -> None:
    text, alphabet = read(data_folder("tinyshakespeare"))
    model, rate = CHAR_MODELS[kind]
    given, options = (text[:CHARACTERS], alphabet, steps, 1, rate, 3), {"model": model, "dtype": dtype}
    wanted = char_training.train(*given, **options)
    with with_backend(GPU):
        found = char_training.train(*given, **options)
    compare_training(found, wanted, tolerance)
    losses = np.asarray(found[1])
    assert losses[steps - 1] < 0.95 * losses[0]


def test_a_network_on_the_device_writes_the_text_of_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    text, alphabet = read(None)
    given = (text, alphabet, 4, 2, 0.1, 0)
    options: dict[str, Any] = {"model": CharLSTM, "hidden": 16, "length": 5, "batch": 4, "sample": 30, "dtype": st.f64}
    char_training.train(*given, **options)
    wanted = capsys.readouterr().out
    with with_backend(GPU):
        char_training.train(*given, **options)
    assert capsys.readouterr().out == wanted
    assert len(wanted) > 60


# ---- the line in the source ---------------------------------------------------------------------


def test_the_line_around_the_epochs_of_mnist(data_folder: Callable[[str], Path], tmp_path: Path) -> None:
    given, options = mnist(data_folder("mnist")), {"model": "mlp", "batch": MNIST_BATCH}
    on_gpu = with_the_line(mnist_training, "    for epoch in st.range(epochs):", tmp_path)
    program = on_gpu.train.stage(*given, **options)
    assert "__global__" in program.source
    compare_training(program(*given), mnist_training.train(*given, **options), 1e-4)
    # Batches are put together on the device, and the weights are made there.
    assert [t.what for t in program.transfers() if t.why == "input" and t.nbytes > 1000] == ["images", "test_images"]


def test_the_line_around_the_steps_of_characters(tmp_path: Path) -> None:
    text, alphabet = read(None)
    given, options = (text, alphabet, 10, 1, 0.1, 3), {"model": CharLSTM, "hidden": 20, "length": 8, "dtype": st.f64}
    on_gpu = with_the_line(char_training, "    for step in st.range(steps):", tmp_path)
    program = on_gpu.train.stage(*given, **options)
    assert "__global__" in program.source
    compare_training(program(*given), char_training.train(*given, **options), 1e-8)


def test_the_line_around_the_epochs_of_trees_by_level(tmp_path: Path) -> None:
    trees = data.treebank(Path(batched.__file__).parent / "sentences.txt")
    levels = batched.by_level(trees, 25)
    table = word_vectors(trees.vocabulary, 6).astype(np.float64)
    given = (*levels[:7], table, 2, 0.05, 3, levels.widest, levels.largest, 25)
    on_gpu = with_the_line(batched, "    for epoch in st.range(epochs):", tmp_path)
    program = on_gpu.train.stage(*given, hidden=4, dtype=st.f64)
    assert "nodes" in program.source and "__global__" in program.source
    found = on_gpu.train(*given, hidden=4, dtype=st.f64)
    compare_training(found, batched.train(*given, hidden=4, dtype=st.f64), 1e-10)
    # Which nodes a level has the host knows, and the loss is shown once an epoch.
    assert not [transfer for transfer in program.transfers() if transfer.why == "decision"]
