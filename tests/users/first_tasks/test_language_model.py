"""An LSTM that learns a text, and samples from it inside one program.

Follows docs/guide.md#networks-and-optimisers and docs/guide.md#batches-and-randomness.
"""

import numpy as np

import staged as st
from staged import nn, optim

TEXT = "abcd" * 12
TOKENS = np.array(["abcd".index(letter) for letter in TEXT])


class Model(nn.Module):
    def __init__(self):
        self.table = nn.Embedding(4, 4)
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, tokens, state=None):
        h, state = self.lstm(self.table(tokens), state)
        return self.head(h), state


@st.function
def train(model, optimizer, tokens, steps):
    loss = 0.0
    for _ in st.range(steps):
        loss, grads = st.value_and_grad(
            lambda: st.cross_entropy(model(tokens[None, :-1])[0].reshape(-1, 4), tokens[1:]), wrt=model
        )()
        optimizer.step(grads)
    return loss


@st.function
def sample(model, first, length):
    state = (st.zeros((1, 1, 8)), st.zeros((1, 1, 8)))
    token = first
    written = st.zeros(12, dtype=st.i64)
    for i in st.range(length):
        logits, state = model(st.full((1, 1), token, dtype=st.i64), state)
        token = st.random.categorical(logits[0, 0])
        written[i] = token
    return written


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logits_by_hand(state, tokens):
    h, c, rows = np.zeros(8), np.zeros(8), []
    for token in tokens:
        x = state["table.weight"][token]
        gates = state["lstm.weight_ih_l0"] @ x + state["lstm.bias_ih_l0"]
        gates = gates + state["lstm.weight_hh_l0"] @ h + state["lstm.bias_hh_l0"]
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        rows.append(state["head.weight"] @ h + state["head.bias"])
    return np.array(rows)


def test_it_learns_the_text_and_writes_it():
    st.seed(3)
    model = Model()
    loss = train(model, optim.Adam(model.parameters(), lr=0.1), TOKENS, 100)
    assert loss < 0.02
    state = {name: np.asarray(value) for name, value in model.state_dict().items()}
    found = model(TOKENS[None, :5])[0]
    np.testing.assert_allclose(found[0], logits_by_hand(state, TOKENS[:5]), rtol=1e-4, atol=1e-4)
    written = sample(model, 0, 8)
    assert written.tolist() == [1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 0]
