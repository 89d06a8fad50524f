"""Layers of a transformer, and stacks of them, with torch's names, defaults and layouts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import staged as st
from staged.nn.attention import MultiheadAttention, xavier
from staged.nn.containers import ModuleList
from staged.nn.layers import Dropout, Linear
from staged.nn.module import Module
from staged.nn.normalization import LayerNorm
from staged.nn.parameters import check_option, check_sizes


class _Layer(Module):
    """The parts that both kinds of layers have: attention to itself, and two linear layers with an activation between.

    With `crosses`, there is attention to another sequence too, with a normalisation and a dropout of its own.
    """

    crosses = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = st.f32,
    ) -> None:
        if isinstance(activation, str):
            check_option(type(self).__name__, "activation", activation, ("relu", "gelu"))
            activation = {"relu": st.relu, "gelu": st.gelu}[activation]
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        if self.crosses:
            self.multihead_attn = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
            )
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        if self.crosses:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        if self.crosses:
            self.dropout3 = Dropout(dropout)
        self.activation = activation

    def around(self, x: Any, norm: Module, block: Callable[[Any], Any]) -> Any:
        """x and what a block adds to it, normalised before the block or after the sum."""
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def feed(self, x: Any) -> Any:
        """The linear layers."""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, and a small network at each place; each adds to its input.

    Shapes: src (L, N, d_model), or (N, L, d_model) with `batch_first`, or without N; the result as src. Masks are those
    of `MultiheadAttention`. Source: Vaswani et al., Attention is all you need, 2017.
    """

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        """Apply the layer; with `is_causal`, a place sees those up to it, also without a mask."""

        def attend(x: Any) -> Any:
            return self.dropout1(self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, True, is_causal)[0])

        x = self.around(src, self.norm1, attend)
        return self.around(x, self.norm2, lambda x: self.dropout2(self.feed(x)))


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to `memory`, and a small network at each place.

    Shapes: tgt (T, N, d_model) and memory (S, N, d_model), or with N first with `batch_first`, or without N; the result
    as tgt. Source: Vaswani et al., Attention is all you need, 2017.
    """

    crosses = True

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        """Apply the layer; masks and `is_causal` as in `TransformerEncoderLayer`."""

        def attend(x: Any) -> Any:
            return self.dropout1(self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal)[0])

        def look(x: Any) -> Any:
            seen = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, True, memory_is_causal
            )
            return self.dropout2(seen[0])

        x = self.around(tgt, self.norm1, attend)
        x = self.around(x, self.norm2, look)
        return self.around(x, self.norm3, lambda x: self.dropout3(self.feed(x)))


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after another, and a normalisation.

    The copies begin with equal weights, as in torch. `enable_nested_tensor` and `mask_check` are torch's, and have no
    effect: there are no nested tensors.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        check_sizes("TransformerEncoder", num_layers=num_layers)
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Any:
        """Apply all layers. `is_causal=None` is False: what `mask` says holds in any case."""
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, bool(is_causal))
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """`num_layers` copies of a layer, one after another, and a normalisation. The copies begin with equal weights."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        check_sizes("TransformerDecoder", num_layers=num_layers)
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        """Apply all layers."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder of `src`, and a decoder of `tgt` that looks at what the encoder made.

    Shapes: src (S, N, d_model), tgt (T, N, d_model), or with N first with `batch_first`, or without N; the result as
    tgt. Matrices start from Xavier's uniform distribution. Source: Vaswani et al., Attention is all you need, 2017.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = st.f32,
    ) -> None:
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.encoder: Module = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*sizes, dtype=dtype),
            num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype),
        )
        self.decoder: Module = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*sizes, dtype=dtype),
            num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype),
        )
        for parameter in self.parameters():
            if len(parameter.shape) == 2:
                parameter.value = xavier(parameter.shape, parameter.dtype).value
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        """Encode `src`, and decode `tgt` with it."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: Any = st.f32) -> Any:
        """A mask of floats with which a place sees those up to it: 0 there, -inf beyond. `is_causal` needs no mask."""
        return st.where(st.tril(st.ones((sz, sz), dtype=st.bool_)), st.zeros((), dtype=dtype), float("-inf"))
