"""Readings of attention and transformers of `st.nn`, over the readings of functions and layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.plain.chance import uniform
from tests.fuzz.plain.core import FUNCTIONS, Plain, Variable, plain, widest_of
from tests.fuzz.plain.layers import F32, Layer, LayerNorm, Linear


def _xavier(shape: tuple[int, int], dtype: Any) -> Any:
    bound = math.sqrt(6.0 / sum(shape))
    return uniform(shape, low=-bound, high=bound, dtype=dtype)


class MultiheadAttention(Layer):
    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True, *, dtype: Any = F32) -> None:
        self.heads = heads
        self.in_proj_weight = Variable(_xavier((3 * width, width), dtype))
        self.out_proj = Linear(width, width, bias, dtype=dtype)
        if bias:
            self.out_proj.bias = None

    def forward(self, query: Any, key: Any, value: Any, padding: Any = None, need_weights: bool = True) -> Any:
        dtype = plain(query).a.dtype
        parts = []
        for x, weight in zip((query, key, value), np.split(widest_of(self.in_proj_weight.a), 3), strict=True):
            y = np.swapaxes(widest_of(plain(x).a) @ weight.T, 0, 1)
            parts.append(np.swapaxes(y.reshape(*y.shape[:2], self.heads, y.shape[2] // self.heads), 1, 2))
        q, k, v = parts
        scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares = shares / shares.sum(axis=-1, keepdims=True)
        y = np.swapaxes(shares @ v, 1, 2)
        joined = Plain(np.swapaxes(y.reshape(*y.shape[:2], y.shape[2] * y.shape[3]), 0, 1).astype(dtype))
        return self.out_proj(joined), Plain(shares.mean(axis=1).astype(dtype)) if need_weights else None


class _Layer(Layer):
    crosses = False

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        *,
        norm_first: bool = False,
        dtype: Any = F32,
    ) -> None:
        self.activation, self.norm_first = activation, norm_first
        self.self_attn = MultiheadAttention(width, heads, dtype=dtype)
        if self.crosses:
            self.multihead_attn = MultiheadAttention(width, heads, dtype=dtype)
        self.linear1, self.linear2 = Linear(width, hidden, dtype=dtype), Linear(hidden, width, dtype=dtype)
        self.norms = [LayerNorm(width, dtype=dtype) for _ in range(3 if self.crosses else 2)]

    def forward(self, x: Any, memory: Any = None) -> Any:
        blocks = [lambda x: self.self_attn(x, x, x)[0]]
        if self.crosses:
            blocks.append(lambda x: self.multihead_attn(x, memory, memory)[0])
        blocks.append(lambda x: self.linear2(FUNCTIONS[self.activation](self.linear1(x))))
        for norm, block in zip(self.norms, blocks, strict=True):
            add = FUNCTIONS["add"]
            x = add(x, block(norm(x))) if self.norm_first else norm(add(x, block(x)))
        return x

    def drawn_anew(self, dtype: Any) -> None:
        attention = [self.self_attn, *([self.multihead_attn] if self.crosses else [])]
        matrices = [part for each in attention for part in ((each, "in_proj_weight"), (each.out_proj, "weight"))]
        for held, name in [*matrices, (self.linear1, "weight"), (self.linear2, "weight")]:
            setattr(held, name, Variable(_xavier(getattr(held, name).a.shape, dtype)))


class TransformerEncoderLayer(_Layer):
    pass


class TransformerDecoderLayer(_Layer):
    crosses = True


class Stack(Layer):
    def __init__(self, layer: _Layer, count: int, norm: Any = None) -> None:
        # Copies begin with equal weights, which no call here writes; `Transformer` has one layer of each kind.
        self.layers, self.norm = [layer] * count, norm

    def forward(self, x: Any, *memory: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *memory)
        return x if self.norm is None else self.norm(x)


class Transformer(Layer):
    def __init__(self, width: int, heads: int, encoders: int, decoders: int, *rest: Any, dtype: Any = F32, **more: Any) -> None:
        norms = [LayerNorm(width, dtype=dtype) for _ in range(2)]
        self.encoder = Stack(TransformerEncoderLayer(width, heads, *rest, dtype=dtype, **more), encoders, norms[0])
        self.decoder = Stack(TransformerDecoderLayer(width, heads, *rest, dtype=dtype, **more), decoders, norms[1])
        for layer in [*self.encoder.layers, *self.decoder.layers]:
            layer.drawn_anew(dtype)

    def forward(self, src: Any, tgt: Any) -> Any:
        return self.decoder(tgt, self.encoder(src))


LAYERS = {
    "MultiheadAttention": MultiheadAttention,
    "TransformerEncoderLayer": TransformerEncoderLayer,
    "TransformerEncoder": Stack,
    "TransformerDecoderLayer": TransformerDecoderLayer,
    "TransformerDecoder": Stack,
    "Transformer": Transformer,
}
