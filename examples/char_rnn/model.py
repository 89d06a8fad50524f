"""A recurrent network over characters, one step at a time."""

import math

import staged as st
from staged import nn


def uniform(shape, bound, dtype):
    """A parameter drawn from U(-bound, bound)."""
    return st.Variable(st.random.uniform(shape, low=-bound, high=bound, dtype=dtype))


class CharRNN(nn.Module):
    """h' = tanh(embed[x] + h @ recur + bias), and scores of the next character from h'.

    `embed` holds one row per character: what a one-hot input times a matrix gives. Source: Elman, Finding structure in
    time, 1990; the sizes of Lantern's evaluation (Wang et al., ICFP 2019) are vocab 26, hidden 50.
    """

    def __init__(self, vocab, hidden, dtype=st.f32):
        bound = 1.0 / math.sqrt(hidden)
        self.hidden = hidden
        self.dtype = dtype
        self.embed = uniform((vocab, hidden), bound, dtype)
        self.recur = uniform((hidden, hidden), bound, dtype)
        self.bias = uniform((hidden,), bound, dtype)
        self.out = nn.Linear(hidden, vocab, dtype=dtype)

    def start(self, batch):
        """The state before the first character."""
        return st.zeros((batch, self.hidden), dtype=self.dtype)

    def step(self, state, x):
        """The state after characters `x` (batch,), and the scores (batch, vocab) of those that follow."""
        h = st.tanh(self.embed.value[x] + state @ self.recur + self.bias)
        return h, self.out(h)
