"""Sampling with the keys and values of earlier places kept: Variables of bounded length and a position, in one program."""

import numpy as np

import staged as st
from staged import nn

VOCABULARY, WIDTH, HEADS, LENGTH = 11, 8, 2, 9


class Model(nn.Module):
    """One layer of attention, over a whole sequence or over one place of it with a cache."""

    def __init__(self) -> None:
        self.table = nn.Embedding(VOCABULARY, WIDTH, dtype=st.f64)
        self.places = nn.Embedding(LENGTH, WIDTH, dtype=st.f64)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, dtype=st.f64)
        self.out = nn.Linear(WIDTH, VOCABULARY, dtype=st.f64)
        self.register_buffer("keys", st.zeros((HEADS, LENGTH, WIDTH // HEADS), dtype=st.f64))
        self.register_buffer("values", st.zeros((HEADS, LENGTH, WIDTH // HEADS), dtype=st.f64))

    def heads(self, x):
        parts = st.split(self.qkv(x), 3, axis=1)
        return [st.swapaxes(st.reshape(part, (x.shape[0], HEADS, -1)), 0, 1) for part in parts]

    def joined(self, y):
        return self.out(st.reshape(st.swapaxes(y, 0, 1), (-1, WIDTH)))

    def forward(self, codes):
        q, k, v = self.heads(self.table(codes) + self.places(st.arange(LENGTH)))
        return self.joined(st.scaled_dot_product_attention(q, k, v, is_causal=True))

    def step(self, code, place):
        q, k, v = self.heads(st.reshape(self.table(code) + self.places(place), (1, WIDTH)))
        self.keys.value = st.set_item(self.keys.value, (slice(None), place), k[:, 0])
        self.values.value = st.set_item(self.values.value, (slice(None), place), v[:, 0])
        seen = st.reshape(st.arange(LENGTH) <= place, (1, LENGTH))
        return self.joined(st.scaled_dot_product_attention(q, self.keys.value, self.values.value, seen))[0]


def test_sampling_with_a_cache_is_sampling_without() -> None:
    st.seed(3)
    model = Model()

    @st.function
    def with_cache(first):
        codes = st.zeros((LENGTH,), dtype=st.i64)
        codes = st.set_item(codes, 0, first)
        scores = st.zeros((LENGTH, VOCABULARY), dtype=st.f64)
        for place in st.range(LENGTH - 1):
            logits = model.step(codes[place], place)
            scores[place] = logits
            codes[place + 1] = st.argmax(logits)
        return codes, scores

    @st.function
    def without(first):
        codes = st.zeros((LENGTH,), dtype=st.i64)
        codes = st.set_item(codes, 0, first)
        scores = st.zeros((LENGTH, VOCABULARY), dtype=st.f64)
        for place in st.range(LENGTH - 1):
            logits = model(codes)[place]
            scores[place] = logits
            codes[place + 1] = st.argmax(logits)
        return codes, scores

    for first in (2, 7):
        mine, theirs = with_cache(first), without(first)
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-12, atol=1e-13)
    assert len(set(np.asarray(mine[0]).tolist())) > 1
