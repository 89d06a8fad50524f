"""Train Deep Speech 2 on synthetic speech; the whole of training, and what it hears, is one generated C program.

python -m examples.deepspeech2.train           # synthetic speech
python -m examples.deepspeech2.train --show    # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/deepspeech2/train.py`

import staged as st
from examples.command_line import read_flags, run
from examples.deepspeech2.model import DeepSpeech2
from staged import optim

LETTERS = "_abcdefgh"  # the first is the blank
MAX_EPOCHS = 200


class Speech(NamedTuple):
    """Spectrograms (n, bands, times) f32, texts (n, longest) i64, padded with 1, and their lengths (n,) i64."""

    sound: np.ndarray
    texts: np.ndarray
    lengths: np.ndarray


def synthetic(count: int, seed: int, bands: int = 24, times: int = 64, longest: int = 6) -> Speech:
    """Speech that is made: a letter sounds in two bands of its own, for three to seven times, under noise."""
    rng = np.random.default_rng(seed)
    sound = 0.3 * rng.normal(size=(count, bands, times)).astype(np.float32)
    lengths = rng.integers(2, longest + 1, count)
    texts = np.ones((count, longest), np.int64)
    for row, length in enumerate(lengths):
        place = rng.integers(0, 6)
        for n in range(length):
            letter = rng.integers(1, len(LETTERS))
            texts[row, n] = letter
            until = place + rng.integers(3, 8)
            for band in (2 * letter + 1, (5 * letter) % bands):
                sound[row, band, place:until] += 1.0
            place = until + rng.integers(1, 4)
    return Speech(sound, texts, lengths)


def loss_of(model, sound, texts, lengths):
    """The mean CTC loss of the texts, each over its length."""
    scores = model(sound)
    places = st.full((sound.shape[0],), scores.shape[0], dtype=st.i64)
    return st.ctc_loss(scores, texts, places, lengths)


def heard(scores):
    """(letters, lengths): the likeliest letter of each place, without repetitions and blanks, at the front of its row.

    Shapes: scores (places, batch, letters); letters (batch, places), filled with the blank.
    """
    best = st.argmax(scores, axis=2).T
    before = st.concat([st.zeros((best.shape[0], 1), dtype=st.i64), best[:, :-1]], axis=1)
    is_new = (best != before) & (best != 0)
    place = st.cumsum(st.astype(is_new, st.i64), axis=1) - 1
    order = st.argsort(st.where(is_new, place, best.shape[1]), axis=1)
    letters = st.where(is_new, best, 0)
    return st.take_along_axis(letters, order, axis=1), st.sum(st.astype(is_new, st.i64), axis=1)


def spell(codes, row, length):
    """Print a row of letters."""
    for n in st.range(length):
        print(f"{codes[row[n]]:c}", end="")


@st.function(static=("batch", "hidden", "layers", "channels", "dtype"))
def train(speech, test, codes, epochs, lr, seed, batch=16, hidden=64, layers=2, channels=16, dtype=st.f32):
    """Train with Adam, gradients clipped at a norm of 5; prints what it hears in the first two tests after the last epoch.

    Returns the weights, the mean loss of each epoch, and the share of the tests that it hears without a mistake.
    """
    st.seed(seed)
    model = DeepSpeech2(speech.sound.shape[1], codes.shape[0], hidden, layers, channels, dtype)
    opt = optim.Adam(model.parameters(), lr=lr)
    losses = st.zeros(MAX_EPOCHS, dtype=dtype)
    assert epochs <= MAX_EPOCHS, f"at most {MAX_EPOCHS} epochs, got {epochs}"
    for epoch in st.range(epochs):
        total = 0.0
        for sound, texts, lengths in st.batches(*speech, size=batch, shuffle=True):
            loss, grads = st.value_and_grad(loss_of, wrt=model)(model, sound, texts, lengths)
            grads, _ = optim.clip_grad_norm(grads, 5.0)
            opt.step(grads)
            total += loss
        losses[epoch] = total / (speech.sound.shape[0] // batch)
        if (epoch + 1) % 5 == 0:
            print(f"epoch {epoch + 1}: loss {losses[epoch]:.4f}")
    model.eval()
    letters, found = heard(model(test.sound))
    for row in st.range(2):
        spell(codes, test.texts[row], test.lengths[row])
        print(" is heard as ", end="")
        spell(codes, letters[row], found[row])
        print()
    longest = test.texts.shape[1]
    beyond = st.arange(longest) >= test.lengths.reshape(-1, 1)
    equal = st.all((letters[:, :longest] == test.texts) | beyond, axis=1) & (found == test.lengths)
    right = st.mean(st.astype(equal, dtype))
    print(f"without a mistake: {100 * right:.1f} %")
    return model.state_dict(), losses, right


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, epochs=20, lr=3e-3, hidden=64, layers=2, seed=0)
    print("the speech is synthetic: a letter is a sound in two bands")
    codes = np.array([ord(letter) for letter in LETTERS])
    given = (synthetic(512, 0), synthetic(128, 1), codes, flags.epochs, flags.lr, flags.seed)
    run(flags, train, *given, hidden=flags.hidden, layers=flags.layers)


if __name__ == "__main__":
    main()
