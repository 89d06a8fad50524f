"""Every example in a GPU region, in small: results, and what is printed, are the CPU's in two orders of work.

`test_examples.py` trains MNIST's and those of characters for longer, on real data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from examples import images
from examples.char_lstm.model import CharLSTM
from examples.char_rnn import train as char
from examples.char_rnn.corpus import read
from examples.deepspeech2 import train as speech
from examples.gaussian_process import regress
from examples.gpt2 import train as gpt2
from examples.gpt2.model import GPT2, Config
from examples.gpt2.tokens import Characters
from examples.heat import invert
from examples.kalman_mpc import control
from examples.mnist import models, python_loop
from examples.mnist import train as mnist
from examples.neural_ode import train as neural_ode
from examples.newton import ball, orbit
from examples.pinn import train as pinn
from examples.reinforce import train as reinforce
from examples.resnet50.model import ResNet
from examples.squeezenet import train as classify
from examples.squeezenet.model import SqueezeNet
from examples.transformer import train as transformer
from examples.treelstm import batched
from examples.treelstm import train as treelstm
from examples.treelstm.vectors import word_vectors
from examples.vae import train as vae
from staged import GPU, data, optim, with_backend
from staged.testing import compare_trees

EXAMPLES = Path(mnist.__file__).parents[1]
TEXT = Config(layers=2, heads=2, width=16, places=16, vocabulary=11)
F64: dict[str, Any] = {"dtype": st.f64}


def pictures(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic images of 32 x 32 in f64, and their labels."""
    drawn, labels = images.waves(count, 32, count)
    return drawn.astype(np.float64), labels


def small_squeezenet(size: int, classes: int, dtype: Any) -> SqueezeNet:
    return SqueezeNet(size, classes, fires=((2,), (2,)), dtype=dtype)


def small_resnet(size: int, classes: int, dtype: Any) -> ResNet:
    return ResNet(size, classes, blocks=(1,), width=2, dtype=dtype)


def classifying(model: Any) -> Any:
    return classify.train(*pictures(8), *pictures(4), 1, 1e-3, 0, model=model, batch=4, **F64)


def hearing() -> Any:
    heard = [speech.synthetic(count, count, 24, 24, 2) for count in (8, 4)]
    heard = [each._replace(sound=each.sound.astype(np.float64)) for each in heard]
    codes = np.array([ord(letter) for letter in speech.LETTERS])
    return speech.train(*heard, codes, 5, 1e-3, 0, batch=4, hidden=6, layers=1, channels=2, **F64)


def characters(**options: Any) -> Any:
    return char.train(*read(None), 4, 2, 0.1, 0, hidden=8, length=5, batch=4, sample=10, **F64, **options)


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    drawn, labels = data.digits(size=28)
    return drawn[:count], labels[:count]


def step_by_step() -> Any:
    x, y = digits(12)
    net = models.MODELS["mlp"]()
    batches = [(x[:6], y[:6]), (x[6:], y[6:])]
    return [
        float(python_loop.step(net, opt, *each)) for opt in [optim.SGD(net.parameters(), lr=0.02)] for each in batches
    ]


def training_of_gpt2() -> Any:
    tokens = np.random.default_rng(5).integers(0, TEXT.vocabulary, 200)
    training = gpt2.Training(GPT2(TEXT, dtype=st.f64), 1e-3, 4, 1)
    losses = gpt2.train(training, tokens, 0, 3, 1, batch=2, length=8, accumulate=2)
    return losses, training.state_dict()


def writing_of_gpt2() -> Any:
    letters = Characters(np.arange(97, 97 + TEXT.vocabulary))
    model = GPT2(TEXT, dtype=st.f64)
    return gpt2.generate(model, letters.encode("abc"), *letters.spelling(), 0.8, 0, length=12, top_k=4)


def trees() -> tuple[data.Trees, np.ndarray]:
    found = data.treebank(EXAMPLES / "treelstm" / "sentences.txt")
    return found, word_vectors(found.vocabulary, 6).astype(np.float64)


def tree_by_tree() -> Any:
    found, table = trees()
    return treelstm.train(*found[:5], table, 3, 1, 0.05, 0, hidden=4, **F64)


def level_by_level() -> Any:
    found, table = trees()
    levels = batched.by_level(found, 30)
    return batched.train(*levels[:7], table, 1, 0.05, 0, levels.widest, levels.largest, 30, hidden=4, **F64)


def conductivity() -> Any:
    start, truth = invert.rod()
    return invert.invert(start, invert.measure(start, truth), np.full(invert.CELLS, 0.25), 1, 0.01)


CASES: dict[str, Callable[[], Any]] = {
    "char_lstm": lambda: characters(model=CharLSTM),
    "char_rnn": characters,
    "deepspeech2": hearing,
    "gaussian_process: fit": lambda: regress.fit(*regress.measurements(12), regress.START),
    "gaussian_process: predict": lambda: regress.predict(
        *regress.measurements(12), np.linspace(0, 6, 5), regress.START
    ),
    "gpt2: train": training_of_gpt2,
    "gpt2: generate": writing_of_gpt2,
    "heat": conductivity,
    "kalman_mpc": lambda: control.control(*control.start()),
    "mnist": lambda: mnist.train(*digits(32), *digits(16), 1, 0.02, 0, model="mlp", batch=16),
    "mnist: loop in Python": step_by_step,
    "neural_ode": lambda: neural_ode.train(*neural_ode.spiral(40), 2, 1e-3, 0, batch=4, window=4, hidden=5),
    "neural_ode: adjoint": lambda: neural_ode.train(
        *neural_ode.spiral(40), 2, 1e-3, 0, batch=4, window=4, hidden=5, adjoint=True
    ),
    "newton: ball": lambda: ball.aim(2.0, 3.0, 7.0, 0.5, 0.02, 2.2),
    "newton: orbit": lambda: orbit.fit(*orbit.observations(), np.array([0.3, 1.25, 0.2])),
    "pinn": lambda: pinn.train(3, 3e-3, 0, points=16, width=6, report=1),
    "reinforce": lambda: reinforce.train(2, 1e-2, 0, carts=3, longest=12, report=1, **F64),
    "resnet50": lambda: classifying(small_resnet),
    "squeezenet": lambda: classifying(small_squeezenet),
    "transformer": lambda: transformer.train(2, 3e-3, 0, task="sort", length=4, batch=4, **F64),
    "treelstm: recursive": tree_by_tree,
    "treelstm: by level": level_by_level,
    "vae": lambda: vae.train(vae.load(None)[:64].astype(np.float64), 2, 1e-3, 0, batch=16, hidden=12, **F64),
}
SLOW = ("deepspeech2", "neural_ode: adjoint", "resnet50", "squeezenet", "transformer", "treelstm: by level")


def test_no_example_is_left_out() -> None:
    assert {name.partition(":")[0] for name in CASES} == {path.parent.name for path in EXAMPLES.glob("*/__init__.py")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_an_example_does_on_the_device_what_it_does_on_the_cpu(
    name: str, emulated_device: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    def outcome() -> tuple[Any, str]:
        st.seed(0)
        result = CASES[name]()
        return result, capsys.readouterr().out

    wanted, printed = outcome()
    for words in ("eager reverse", "lazy shuffled seed=5"):
        emulated_device.configure(words)
        before = emulated_device.counts()
        with with_backend(GPU):
            found, said = outcome()
        seen = emulated_device.counts() - before
        assert seen.copies_to_host > 0, "it ran on the device"
        tolerance = 1e-4 if name.startswith("mnist") else 1e-8
        compare_trees(found, wanted, rtol=tolerance, atol=tolerance)
        assert said == printed
