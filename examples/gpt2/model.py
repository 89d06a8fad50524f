"""GPT-2, with the names and layouts of its published weights."""

import math
from dataclasses import dataclass

import staged as st
from staged import nn


@dataclass(frozen=True)
class Config:
    """Sizes of a network: those of GPT-2 with 124 million parameters are the defaults."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    places: int = 1024
    vocabulary: int = 50257


SIZES = {
    "tiny": Config(2, 2, 64, 64),
    "small": Config(4, 4, 128, 128),
    "baby": Config(6, 6, 384, 256),
    "124M": Config(),
    "355M": Config(24, 16, 1024),
    "774M": Config(36, 20, 1280),
    "1558M": Config(48, 25, 1600),
}


def normal(shape, deviation, dtype):
    """A parameter drawn from N(0, deviation**2)."""
    return nn.Parameter(deviation * st.random.normal(shape, dtype=dtype))


class Conv1D(nn.Module):
    """x @ weight + bias. The weight is (inputs, outputs), as in the published files: a Linear's is its transpose."""

    def __init__(self, inputs, outputs, deviation, dtype):
        self.weight = normal((inputs, outputs), deviation, dtype)
        self.bias = nn.Parameter(st.zeros((outputs,), dtype=dtype))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Causal attention of several heads over a whole text, or from one place of it to those before."""

    def __init__(self, config, dropout, dtype):
        self.heads, self.dropout = config.heads, dropout
        self.c_attn = Conv1D(config.width, 3 * config.width, 0.02, dtype)
        # Each block adds two terms to what passes through: they begin so small that their sum is as large as one.
        self.c_proj = Conv1D(config.width, config.width, 0.02 / math.sqrt(2 * config.layers), dtype)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in st.split(self.c_attn(x), 3, axis=2))
        dropout = self.dropout if self.training else 0.0
        y = st.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))

    def step(self, x, place, cache):
        """The result at one place, x (width,), and the cache with its key and value in it."""
        keys, values = cache
        q, k, v = st.split(self.c_attn(x).reshape(3 * self.heads, 1, -1), 3)
        keys = st.set_item(keys, (slice(None), place), k[:, 0])
        values = st.set_item(values, (slice(None), place), v[:, 0])
        seen = st.arange(keys.shape[1]) <= place
        y = st.scaled_dot_product_attention(q, keys, values, seen.reshape(1, -1))
        return self.c_proj(y.reshape(-1)), (keys, values)


class MLP(nn.Module):
    """Four times as wide inside, with the GELU of GPT-2's publication."""

    def __init__(self, config, dtype):
        self.c_fc = Conv1D(config.width, 4 * config.width, 0.02, dtype)
        self.c_proj = Conv1D(4 * config.width, config.width, 0.02 / math.sqrt(2 * config.layers), dtype)

    def forward(self, x):
        return self.c_proj(st.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and the layers of each place, each added to what passes through."""

    def __init__(self, config, dropout, dtype):
        self.ln_1 = nn.LayerNorm(config.width, dtype=dtype)
        self.attn = Attention(config, dropout, dtype)
        self.ln_2 = nn.LayerNorm(config.width, dtype=dtype)
        self.mlp = MLP(config, dtype)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))

    def step(self, x, place, cache):
        """The result at one place, x (width,), and the cache with it."""
        y, cache = self.attn.step(self.ln_1(x), place, cache)
        x = x + y
        return x + self.mlp(self.ln_2(x)), cache


class GPT2(nn.Module):
    """Scores of the next token at every place of a text; the table of tokens is the matrix of the scores too.

    Source: Radford et al., Language models are unsupervised multitask learners, 2019.
    """

    def __init__(self, config, dropout=0.0, dtype=st.f32):
        self.config, self.dtype = config, dtype
        self.wte = nn.Embedding(config.vocabulary, config.width, dtype=dtype)
        self.wpe = nn.Embedding(config.places, config.width, dtype=dtype)
        for table, deviation in ((self.wte, 0.02), (self.wpe, 0.01)):
            nn.init.normal_(table.weight, std=deviation)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(config, dropout, dtype) for _ in range(config.layers)])
        self.ln_f = nn.LayerNorm(config.width, dtype=dtype)

    def forward(self, tokens):
        """Scores (batch, length, vocabulary) of what follows each of `tokens` (batch, length)."""
        x = self.drop(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def cache(self, length):
        """Keys and values of `length` places in each layer, none of them there yet."""
        shape = (self.config.heads, length, self.config.width // self.config.heads)
        return [(st.zeros(shape, dtype=self.dtype), st.zeros(shape, dtype=self.dtype)) for _ in self.h]

    def step(self, token, place, cache):
        """Scores (vocabulary,) of what follows `token` at `place`, and the cache of all places up to it."""
        x = self.wte.weight[token] + self.wpe.weight[place]
        filled = []
        for block, held in zip(self.h, cache, strict=True):
            x, held = block.step(x, place, held)
            filled.append(held)
        return self.ln_f(x) @ self.wte.weight.T, filled
