"""Train a transformer to write strings of digits backwards, or in order; all of training is one generated C program.

python -m examples.transformer.train                # backwards
python -m examples.transformer.train --task sort    # in ascending order
python -m examples.transformer.train --show         # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/transformer/train.py`

import staged as st
from examples.command_line import read_flags, run
from staged import nn, optim

DIGITS, BEGIN, MAX_STEPS = 10, 10, 10_000
TASKS = {"reverse": lambda x: st.flip(x, axis=1), "sort": lambda x: st.sort(x, axis=1)}


class Rewriter(nn.Module):
    """An encoder that reads digits, and a decoder that writes digits, each a function of all that it wrote before."""

    def __init__(self, length, width=32, heads=4, layers=1, dtype=st.f32):
        self.length = length
        self.table = nn.Embedding(DIGITS + 1, width, dtype=dtype)
        self.places = nn.Embedding(length, width, dtype=dtype)
        self.transformer = nn.Transformer(
            width, heads, layers, layers, 4 * width, dropout=0.0, batch_first=True, dtype=dtype
        )
        self.out = nn.Linear(width, DIGITS, dtype=dtype)

    def embedded(self, digits):
        """The vectors of digits (batch, length), each with that of its place."""
        return self.table(digits) + self.places.weight[: digits.shape[1]]

    def forward(self, read, written):
        """Scores (batch, length, DIGITS) of what follows each of `written` (batch, length), which starts with BEGIN."""
        y = self.transformer(self.embedded(read), self.embedded(written), tgt_is_causal=True)
        return self.out(y)

    def loss(self, read, wanted):
        """The mean of -log(probability) of each digit after the right ones before it."""
        written = st.concat([st.full((wanted.shape[0], 1), BEGIN, dtype=wanted.dtype), wanted[:, :-1]], axis=1)
        return st.cross_entropy(self(read, written).view(-1, DIGITS), wanted.reshape(-1))

    def write(self, read):
        """The digits (batch, length) that are likeliest one after the other."""
        written = st.full((read.shape[0], self.length + 1), BEGIN, dtype=st.i64)
        memory = self.transformer.encoder(self.embedded(read))
        for place in st.range(self.length):
            y = self.transformer.decoder(self.embedded(written[:, :-1]), memory, tgt_is_causal=True)
            written[:, place + 1] = st.argmax(self.out(y[:, place]), axis=1)
        return written[:, 1:]


@st.function(static=("task", "length", "batch", "dtype"))
def train(steps, lr, seed, task="reverse", length=10, batch=64, dtype=st.f32):
    """Train with Adam on strings that are drawn anew for each step; prints what it writes for some, never seen before.

    Returns the weights, the loss of each step, and the share of 256 new strings that it writes without a mistake.
    """
    st.seed(seed)
    model = Rewriter(length, dtype=dtype)
    opt = optim.Adam(model.parameters(), lr=lr)
    draws = st.random.Generator(seed)
    losses = st.zeros(MAX_STEPS, dtype=dtype)
    assert steps <= MAX_STEPS, f"at most {MAX_STEPS} steps, got {steps}"
    for step in st.range(steps):
        read = draws.integers(0, DIGITS, (batch, length))
        loss, grads = st.value_and_grad(model.loss, wrt=model)(read, TASKS[task](read))
        opt.step(grads)
        losses[step] = loss
        if (step + 1) % 250 == 0:
            print(f"step {step + 1}: loss {loss:.4f}")
    read = draws.integers(0, DIGITS, (256, length))
    written = model.write(read)
    for row in st.range(3):
        print(read[row], "->", written[row])
    right = st.mean(st.astype(st.all(written == TASKS[task](read), axis=1), dtype))
    print(f"without a mistake: {100 * right:.1f} %")
    return model.state_dict(), losses, right


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, task=tuple(TASKS), steps=1500, length=10, lr=3e-3, seed=0)
    run(flags, train, flags.steps, flags.lr, flags.seed, task=flags.task, length=flags.length)


if __name__ == "__main__":
    main()
