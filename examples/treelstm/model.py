"""A long short-term memory over binary trees."""

import math

import staged as st
from staged import nn


def uniform(shape, bound, dtype):
    """A parameter drawn from U(-bound, bound)."""
    return st.Variable(st.random.uniform(shape, low=-bound, high=bound, dtype=dtype))


class TreeLSTM(nn.Module):
    """The binary tree LSTM: a leaf transforms its word's vector, an inner node composes its two children.

    All of it works on one node, vectors of shape (D,), and on many, (N, D). Gates in the order input, forget (left,
    right), output, update. Source: Tai, Socher and Manning, Improved semantic representations from tree-structured long
    short-term memory networks, 2015, section 3.2 with N = 2.
    """

    def __init__(self, embedding, hidden, classes, dtype=st.f32):
        leaf, inner = 1.0 / math.sqrt(embedding), 1.0 / math.sqrt(hidden)
        self.w_leaf = uniform((embedding, 3 * hidden), leaf, dtype)
        self.b_leaf = uniform((3 * hidden,), leaf, dtype)
        self.u_left = uniform((hidden, 5 * hidden), inner, dtype)
        self.u_right = uniform((hidden, 5 * hidden), inner, dtype)
        self.b_node = uniform((5 * hidden,), inner, dtype)
        self.out = nn.Linear(hidden, classes, dtype=dtype)

    def leaf(self, x):
        """(h, c) of leaves with word vectors `x`."""
        i, o, u = st.split(x @ self.w_leaf + self.b_leaf, 3, axis=-1)
        c = st.sigmoid(i) * st.tanh(u)
        return st.sigmoid(o) * st.tanh(c), c

    def node(self, left, right):
        """(h, c) of inner nodes from those of their children."""
        (h_l, c_l), (h_r, c_r) = left, right
        gates = h_l @ self.u_left + h_r @ self.u_right + self.b_node
        i, f_l, f_r, o, u = st.split(gates, 5, axis=-1)
        c = st.sigmoid(i) * st.tanh(u) + st.sigmoid(f_l) * c_l + st.sigmoid(f_r) * c_r
        return st.sigmoid(o) * st.tanh(c), c
