"""The examples in a GPU region, small, with data that is made here: what the sanitizers run beside the tests' programs."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from examples.char_lstm.model import CharLSTM
from examples.char_rnn import train as char
from examples.char_rnn.corpus import read
from examples.mnist import train as digits
from staged import GPU, with_backend

HIDDEN, LENGTH, CHARACTERS, SAMPLE = 50, 5, 4, 3


@st.function
def mnist(images: Any, labels: Any, test_images: Any, test_labels: Any, epochs: Any, lr: Any, seed: Any) -> Any:
    """The convolutional network with dropout and shuffled batches, an epoch of two steps, and its accuracy."""
    with with_backend(GPU, images, labels, test_images, test_labels):
        return digits.train(images, labels, test_images, test_labels, epochs, lr, seed, batch=20)


@st.function
def char_rnn(text: Any, alphabet: Any, steps: Any, report: Any, lr: Any, seed: Any) -> Any:
    """The recurrent network, and a few characters that it writes."""
    with with_backend(GPU, text, alphabet):
        sizes = {"hidden": HIDDEN, "length": LENGTH, "batch": CHARACTERS, "sample": SAMPLE}
        return char.train(text, alphabet, steps, report, lr, seed, **sizes)


@st.function
def char_lstm(text: Any, alphabet: Any, steps: Any, report: Any, lr: Any, seed: Any) -> Any:
    """The same with a long short-term memory."""
    with with_backend(GPU, text, alphabet):
        sizes = {"hidden": HIDDEN, "length": LENGTH, "batch": CHARACTERS, "sample": SAMPLE}
        return char.train(text, alphabet, steps, report, lr, seed, model=CharLSTM, **sizes)


def _digits() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    made: dict[str, Any] = {}
    for name in ("", "test_"):
        made[f"{name}images"] = rng.normal(size=(40, 1, 28, 28)).astype(np.float32)
        made[f"{name}labels"] = rng.integers(0, 10, 40)
    return made | {"epochs": 1, "lr": 0.05, "seed": 0}


def _text() -> dict[str, Any]:
    text, alphabet = read(None)
    return {"text": text, "alphabet": alphabet, "steps": 4, "report": 2, "lr": 0.1, "seed": 0}


EXAMPLES: tuple[tuple[Any, dict[str, Any]], ...] = ((mnist, _digits()), (char_rnn, _text()), (char_lstm, _text()))
