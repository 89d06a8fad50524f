"""The rows of `benchmarks.examples`: the examples' own programs, and the data that peers read too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from examples.gpt2.model import Config

GPT2_CONFIG = Config(layers=4, heads=4, width=128, places=128, vocabulary=65)
GPT2_SIZES: dict[str, Any] = {"batch": 12, "length": 64, "clip": 1.0}
RESNET: dict[str, Any] = {"blocks": (1, 1, 1, 1), "width": 16}
IMAGES, SPEECH = 128, 128


@dataclass(frozen=True)
class Row:
    """A program that trains: `program()` is (staged function, its arguments for so many units of steps, its static arguments).

    A unit has `steps` steps, `many` units are measured, `what` says which sizes, and `peers` have the same. With `calls` a unit
    is a call of the program.
    """

    what: str
    program: Callable[[], tuple[Any, Callable[[int], tuple[Any, ...]], dict[str, Any]]]
    many: int
    steps: int = 1
    peers: tuple[str, ...] = ("torch-eager", "torch-compile")
    calls: bool = False


def random_tokens() -> np.ndarray:
    """The text of GPT-2."""
    return np.random.default_rng(0).integers(0, GPT2_CONFIG.vocabulary, 10_000)


def images() -> tuple[np.ndarray, np.ndarray]:
    """Synthetic images of 32 x 32, and labels."""
    from examples.images import waves

    return waves(IMAGES, 32, 0)


def speech() -> Any:
    """Synthetic speech of the example's sizes."""
    from examples.deepspeech2.train import synthetic

    return synthetic(SPEECH, 0)


def _gpt2() -> Any:
    from examples.gpt2.model import GPT2
    from examples.gpt2.train import Training, train

    training, text = Training(GPT2(GPT2_CONFIG), 1e-3, 10_000), random_tokens()
    return train, lambda steps: (training, text, 0, steps, 100_000), GPT2_SIZES


def _vae() -> Any:
    from examples.vae.train import load, train

    pictures = load(None)
    return train, lambda epochs: (pictures, epochs, 1e-3, 0), {}


def _pinn() -> Any:
    from examples.pinn.train import train

    return train, lambda steps: (steps, 3e-3, 0), {"report": 10_000}


def _transformer() -> Any:
    from examples.transformer.train import train

    return train, lambda steps: (steps, 3e-3, 0), {}


def _deepspeech2() -> Any:
    from examples.deepspeech2.train import LETTERS, synthetic, train

    codes, test = np.array([ord(letter) for letter in LETTERS]), synthetic(8, 1)
    return train, lambda epochs: (speech(), test, codes, epochs, 3e-3, 0), {}


def _classifying(model: Any) -> Any:
    from examples.images import waves
    from examples.squeezenet.train import train

    # One small batch of tests an epoch, which the peers leave out.
    test = tuple(part[:32] for part in waves(32, 32, 1))
    return train, lambda epochs: (*images(), *test, epochs, 1e-3, 0), {"model": model}


def _squeezenet() -> Any:
    from examples.squeezenet.model import SqueezeNet

    return _classifying(SqueezeNet)


def _small_resnet(size: int, classes: int, dtype: Any) -> Any:
    from examples.resnet50.model import ResNet

    return ResNet(size, classes, dtype=dtype, **RESNET)


def _resnet50() -> Any:
    return _classifying(_small_resnet)


def _reinforce() -> Any:
    from examples.reinforce.train import train

    # At a rate of 0 the policy stays the first one, so that all updates have episodes of one length.
    return train, lambda updates: (updates, 0.0, 0), {"report": 10_000}


def _neural_ode() -> Any:
    from examples.neural_ode.train import spiral, train

    path = spiral()
    return train, lambda steps: (*path, steps, 1e-3, 0), {}


def _gaussian_process() -> Any:
    from examples.gaussian_process.regress import START, fit, measurements

    measured = measurements()
    return fit, lambda fits: (*measured, START), {}


def _kalman_mpc() -> Any:
    from examples.kalman_mpc.control import control, start

    return control, lambda calls: start(), {}


ROWS = {  # torch.compile refuses the forward derivatives of `pinn`
    "gpt2": Row("4 layers, width 128, 12 texts of 64 tokens", _gpt2, 8),
    "vae": Row("784-400-20-400-784, 64 images", _vae, 2, 28),
    "pinn": Row("256 points, 3 layers of 32, f64", _pinn, 150, peers=("torch-eager",)),
    "transformer": Row("width 32, 64 strings of 10 digits", _transformer, 60),
    "deepspeech2": Row("2 LSTMs of 64 both ways, 16 spectrograms of 24 x 64", _deepspeech2, 1, 8),
    "squeezenet": Row("32 images of 32 x 32", _squeezenet, 1, 4),
    "resnet50": Row("1 block of each kind, width 16; 32 images of 32 x 32", _resnet50, 1, 4),
    "reinforce": Row("an update by 16 carts until the last has fallen", _reinforce, 100),
    "neural_ode": Row("2-50-2, 16 paths of 10 points, f64", _neural_ode, 50),
    "gaussian_process": Row("a fit of 3 scales to 40 points, f64", _gaussian_process, 40, calls=True),
    "kalman_mpc": Row("a call of filter and planner, f64", _kalman_mpc, 2000, calls=True),
}
