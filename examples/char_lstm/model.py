"""A long short-term memory over characters, one step at a time."""

import math

import staged as st
from examples.char_rnn.model import uniform
from staged import nn


class CharLSTM(nn.Module):
    """An LSTM with gates in PyTorch's order (input, forget, cell, output), and scores of the next character from h.

    `embed` holds one row per character: what a one-hot input times a matrix gives. Source: Hochreiter and Schmidhuber,
    Long short-term memory, 1997, with the forget gate of Gers, Schmidhuber and Cummins, 2000.
    """

    def __init__(self, vocab, hidden, dtype=st.f32):
        bound = 1.0 / math.sqrt(hidden)
        self.hidden = hidden
        self.dtype = dtype
        self.embed = uniform((vocab, 4 * hidden), bound, dtype)
        self.recur = uniform((hidden, 4 * hidden), bound, dtype)
        self.bias = uniform((4 * hidden,), bound, dtype)
        self.out = nn.Linear(hidden, vocab, dtype=dtype)

    def start(self, batch):
        """The state (h, c) before the first character."""
        zeros = st.zeros((batch, self.hidden), dtype=self.dtype)
        return zeros, zeros

    def step(self, state, x):
        """The state after characters `x` (batch,), and the scores (batch, vocab) of those that follow."""
        h, c = state
        gates = self.embed.value[x] + h @ self.recur + self.bias
        i, f, g, o = st.split(gates, 4, axis=1)
        c = st.sigmoid(f) * c + st.sigmoid(i) * st.tanh(g)
        h = st.sigmoid(o) * st.tanh(c)
        return (h, c), self.out(h)
