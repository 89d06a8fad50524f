"""Train a character model; the whole of training, and the text that it writes, is one generated C program.

python -m examples.char_rnn.train                     # the Zen of Python, offline
python -m examples.char_rnn.train --data FOLDER       # FOLDER/input.txt, such as tinyshakespeare
python -m examples.char_rnn.train --letters           # Lantern's setting: the letters a to z alone
python -m examples.char_rnn.train --show              # print the generated C and stop
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/char_rnn/train.py`

import staged as st
from examples.char_rnn.corpus import read
from examples.char_rnn.model import CharRNN
from examples.command_line import add_flags, run
from staged import optim

MAX_REPORTS = 1000


def write(net, alphabet, length, temperature):
    """Print `length` characters that the model draws one after the other."""
    state, x = net.start(1), st.zeros((1,), dtype=st.i64)
    for _ in st.range(length):
        state, scores = net.step(state, x)
        # A draw from softmax(scores / temperature): the largest score under Gumbel noise. Source: Gumbel, 1954.
        noise = -st.log(-st.log(st.random.uniform(scores.shape)))
        x = st.argmax(scores / temperature + noise, axis=1)
        print(f"{alphabet[x[0]]:c}", end="")
    print()


@st.function(static=("model", "hidden", "length", "batch", "sample", "dtype"))
def train(
    text, alphabet, steps, report, lr, seed, temperature=0.7,
    model=CharRNN, hidden=50, length=20, batch=20, sample=0, dtype=st.f32,
):  # fmt: skip
    """Train on `text` (places in `alphabet`, which holds codes) with Adagrad; prints losses, and `sample` characters.

    Column b of a batch reads the b-th stretch of the text; the state is carried from one chunk of `length` characters to
    the next, gradients are not (Karpathy, The unreasonable effectiveness of recurrent neural networks, 2015).
    Returns the weights, and the mean loss per character (nats) of every `report` steps.
    """
    st.seed(seed)
    net = model(alphabet.shape[0], hidden, dtype=dtype)
    opt = optim.Adagrad(net.parameters(), lr=lr)
    rows = text.shape[0] // batch
    chunks = (rows - 1) // length
    columns = st.matrix_transpose(text[: rows * batch].reshape(batch, rows))
    losses = st.zeros(MAX_REPORTS, dtype=dtype)
    assert steps // report <= MAX_REPORTS, f"at most {MAX_REPORTS} reports, got {steps // report}"

    def loss_fn(x, y, state):
        total = 0.0
        for t in st.range(length):
            state, scores = net.step(state, x[t])
            total += st.cross_entropy(scores, y[t])
        return total / length, state

    state, recent = net.start(batch), 0.0
    for step in st.range(steps):
        begin = step % chunks * length
        x = st.dynamic_slice(columns, begin, length)
        y = st.dynamic_slice(columns, begin + 1, length)
        (loss, state), grads = st.value_and_grad(loss_fn, wrt=net, has_aux=True)(x, y, state)
        opt.step(optim.clip_grad_value(grads, 5.0))
        recent += loss
        if (step + 1) % report == 0:
            print(f"step {step + 1}: loss {recent / report:.4f} per character")
            losses[step // report] = recent / report
            recent = 0.0
            if sample > 0:
                write(net, alphabet, sample, temperature)
    return net.state_dict(), losses


def main(model: Any, doc: str, out: Path) -> None:
    """The command line; `model` is trained and its weights go to `out`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="FOLDER", help="folder with input.txt (default: the Zen of Python)")
    parser.add_argument("--letters", action="store_true", help="lower case, letters only, as in Lantern's evaluation")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--hidden", type=int, default=50)
    parser.add_argument("--length", type=int, default=20, help="characters of one training step")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=200, help="characters to write after each report")
    parser.add_argument("--temperature", type=float, default=0.7, help="how freely it writes")
    add_flags(parser)
    options = parser.parse_args()

    text, alphabet = read(options.data, options.letters)
    given = (text, alphabet, options.steps, max(1, options.steps // 5), options.lr, options.seed, options.temperature)
    sizes = {"hidden": options.hidden, "length": options.length, "batch": options.batch, "sample": options.sample}
    weights, _ = run(options, train, *given, model=model, **sizes)
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "weights.npz", **weights)
    print(f"weights: {out / 'weights.npz'}")


if __name__ == "__main__":
    main(CharRNN, __doc__, Path(__file__).parent / "out")
