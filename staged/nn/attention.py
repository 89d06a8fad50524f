"""Multi-head attention with torch's parameters, layouts and masks."""

from __future__ import annotations

import math
from typing import Any

import staged as st
from staged.nn.layers import Linear
from staged.nn.module import Module
from staged.nn.parameters import Parameter, biased, check_dtype, check_probability, check_sizes


def xavier(shape: tuple[int, int], dtype: Any) -> Any:
    """A matrix drawn from U(-b, b), b = sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio, 2010."""
    bound = math.sqrt(6.0 / sum(shape))
    return Parameter(st.random.uniform(shape, low=-bound, high=bound, dtype=dtype))


def allowed(mask: Any) -> Any:
    """torch's mask of a layer, whose bools are true where a key is left out, as that of
    `st.scaled_dot_product_attention`, whose bools are true where it is seen; floats are added to scores in both.
    """
    array = st.asarray(mask)
    return st.logical_not(array) if array.dtype == st.bool_ else array


def both(a: Any, b: Any, dtype: Any) -> Any:
    """Two masks of `st.scaled_dot_product_attention` as one; None is no mask."""
    if a is None or b is None:
        return b if a is None else a
    if a.dtype == st.bool_ and b.dtype == st.bool_:
        return st.logical_and(a, b)
    zero = st.zeros((), dtype=dtype)
    a, b = (st.where(part, zero, -math.inf) if part.dtype == st.bool_ else part for part in (a, b))
    return a + b


def softmax_of_seen(scores: Any) -> Any:
    """The softmax of rows; zeros, with derivatives 0, for rows of -inf."""
    is_hidden = st.max(scores, axis=-1, keepdims=True) == -math.inf
    return st.where(is_hidden, 0.0, st.softmax(st.where(is_hidden, 0.0, scores)))


class MultiheadAttention(Module):
    """Attention of `num_heads` heads between projections of queries, keys and values, and a projection of the result.

    Shapes: query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim), or with `batch_first` (N, L, ...), or without
    N; y as query. `attn_mask` is (L, S) or (N * num_heads, L, S), `key_padding_mask` (N, S): bools, true where a key is
    left out, or floats that are added to the scores. The result is (y, weights): the shares (N, L, S), averaged over
    the heads, or (N, num_heads, L, S) with `average_attn_weights=False`, or None with `need_weights=False`, which
    computes attention in blocks and needs no memory for them. With `is_causal`, query i sees keys 0 .. i, also without
    a mask. The result of a query that sees no key is 0, and so are its weights (torch: NaN if the
    weights are needed).
    Source: Vaswani et al., Attention is all you need, 2017.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: Any = st.f32,
    ) -> None:
        check_sizes("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        check_probability("MultiheadAttention", dropout)
        if embed_dim % num_heads:
            raise st.ArgumentError(
                f"MultiheadAttention: {embed_dim} features do not divide into {num_heads} heads", where=st.here()
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self.joined = self.kdim == embed_dim == self.vdim
        if self.joined:
            self.in_proj_weight = xavier((3 * embed_dim, embed_dim), dtype)
        else:
            self.q_proj_weight = xavier((embed_dim, embed_dim), dtype)
            self.k_proj_weight = xavier((embed_dim, self.kdim), dtype)
            self.v_proj_weight = xavier((embed_dim, self.vdim), dtype)
        self.in_proj_bias = Parameter(st.zeros((3 * embed_dim,), dtype=dtype)) if bias else None
        # Glorot and Bengio's normal distribution, of torch's fans for this shape: both are embed_dim.
        deviation = math.sqrt(1.0 / embed_dim)
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k = Parameter(st.random.normal((1, 1, embed_dim), std=deviation, dtype=dtype))
            self.bias_v = Parameter(st.random.normal((1, 1, embed_dim), std=deviation, dtype=dtype))
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        if bias:
            self.out_proj.bias = Parameter(st.zeros((embed_dim,), dtype=dtype))

    def _projected(self, query: Any, key: Any, value: Any) -> list[Any]:
        """The projections, as one product where all three are of one array."""
        bias, width = self.in_proj_bias, self.embed_dim
        if self.joined and query is key and key is value:
            y = query @ st.matrix_transpose(self.in_proj_weight.value)
            return list(st.split(biased(y, None if bias is None else bias.value), 3, axis=-1))
        if self.joined:
            weights = st.split(self.in_proj_weight.value, 3, axis=0)
        else:
            weights = [self.q_proj_weight.value, self.k_proj_weight.value, self.v_proj_weight.value]
        found = [x @ st.matrix_transpose(w) for x, w in zip((query, key, value), weights, strict=True)]
        if bias is None:
            return found
        return [biased(y, bias.value[place * width : (place + 1) * width]) for place, y in enumerate(found)]

    def _mask(self, attn_mask: Any, key_padding_mask: Any, batch: int, dtype: Any) -> Any:
        """The two masks as one that broadcasts to (N, num_heads, L, S), or None."""
        if attn_mask is not None:
            attn_mask = allowed(attn_mask)
            if attn_mask.ndim == 3:
                attn_mask = st.reshape(attn_mask, (batch, self.num_heads, *attn_mask.shape[1:]))
        if key_padding_mask is not None:
            padding = allowed(key_padding_mask)
            key_padding_mask = st.reshape(padding, (*padding.shape[:-1], 1, 1, padding.shape[-1]))
        return both(attn_mask, key_padding_mask, dtype)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        """(y, weights), or (y, None)."""
        check_dtype("MultiheadAttention", query, self.out_proj.weight)
        for name, x, features in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            if len(x.shape) != len(query.shape) or len(x.shape) not in (2, 3) or x.shape[-1] != features:
                raise st.ShapeError(
                    f"MultiheadAttention takes a {name} (L, N, {features}) or (L, {features}), got {x.shape}",
                    where=st.here(),
                    hint="with `batch_first=True` it takes (N, L, features)",
                )
        alone = len(query.shape) == 2
        q, k, v = self._projected(query, key, value)
        if alone:
            q, k, v = (st.expand_dims(x, 0) for x in (q, k, v))
        elif not self.batch_first:
            q, k, v = (st.swapaxes(x, 0, 1) for x in (q, k, v))
        batch, length = q.shape[:2]
        more = 0
        if self.bias_k is not None and self.bias_v is not None:
            k = st.concat([k, st.broadcast_to(self.bias_k.value, (batch, 1, self.embed_dim))], axis=1)
            v = st.concat([v, st.broadcast_to(self.bias_v.value, (batch, 1, self.embed_dim))], axis=1)
            more += 1
        if self.add_zero_attn:
            nothing = st.zeros((batch, 1, self.embed_dim), dtype=k.dtype)
            k, v = st.concat([k, nothing], axis=1), st.concat([v, nothing], axis=1)
            more += 1
        mask = self._mask(attn_mask, key_padding_mask, batch, q.dtype)
        if more and is_causal:
            mask = both(mask, st.tril(st.ones((length, k.shape[1] - more), dtype=st.bool_)), q.dtype)
            is_causal = False
        if more and mask is not None:
            width = [(0, 0)] * (mask.ndim - 1) + [(0, more)]
            mask = st.pad(mask, width, value=True if mask.dtype == st.bool_ else 0.0)
        heads = (self.num_heads, self.embed_dim // self.num_heads)
        q, k, v = (st.swapaxes(st.reshape(x, (*x.shape[:2], *heads)), 1, 2) for x in (q, k, v))
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            y, weights = self._with_weights(q, k, v, mask, p, is_causal)
            if average_attn_weights:
                weights = st.mean(weights, axis=1)
            if alone:
                weights = weights[0]
        else:
            y = st.scaled_dot_product_attention(q, k, v, mask, p, is_causal)
        y = st.reshape(st.swapaxes(y, 1, 2), (batch, length, self.embed_dim))
        y = self.out_proj(y)
        if alone:
            return y[0], weights
        return (y if self.batch_first else st.swapaxes(y, 0, 1)), weights

    def _with_weights(self, q: Any, k: Any, v: Any, mask: Any, p: float, is_causal: bool) -> tuple[Any, Any]:
        """Attention by the plain formula, and its shares."""
        scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ st.swapaxes(k, -1, -2)
        if is_causal:
            mask = both(mask, st.tril(st.ones((q.shape[-2], k.shape[-2]), dtype=st.bool_)), q.dtype)
        if mask is not None:
            scores = st.where(mask, scores, -math.inf) if mask.dtype == st.bool_ else scores + mask
        weights = st.softmax(scores) if mask is None else softmax_of_seen(scores)
        if p:
            weights = st.dropout(weights, p)
        return weights @ v, weights
