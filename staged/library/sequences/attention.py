"""Scaled dot-product attention in blocks: values and derivatives in memory that is linear in the sequence.

A composite loops over blocks of queries, and for each over blocks of keys. Of the keys seen so far it keeps the largest
score m and the sum l of exp(score - m) of each query, and the values weighted by exp(score - m); where m grows, both
are scaled by exp(old m - new m). The reverse computes the scores once more, from the logarithm of the sum of their
exponentials, m + log(l). With `causal`, blocks of keys that come after all queries of a block are left out; those that
all of its queries see come first, in a loop of their own that compares no places.

The composites take q (*N, L, E), k (*n, S, E) and v (*n, S, V), then a mask (*n, L or 1, S or 1) if `parts` has an `m`,
and a seed and a counter if it has an `r`. With an `f` follows the number of elements of N on the ranks before this one.
Axes n are those of N, or have a divisor of their extent: then each element is that of so many neighbours. Nothing is
repeated in memory.

Sources: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Rabe and Staats, Self-attention does
not need O(n^2) memory, 2021; Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from staged.ir.sizes import Extent, exact_quotient, largest, product, surely
from staged.ir.types import DType, Shape, TensorType, i32, i64, shape_text
from staged.library.draws.random import bernoulli_of, key_of
from staged.library.sequences.blocks import BLOCKS, CAUSAL_BLOCKS, index_of, parted
from staged.library.sequences.loop import named, scan, window, with_window
from staged.ops.array import Array
from staged.ops.choice import stop_gradient, where
from staged.ops.composite import composite
from staged.ops.contraction import matrix_product
from staged.ops.dimension import size_number
from staged.ops.elementwise import exp, log, maximum, minimum
from staged.ops.primitive import Sample
from staged.ops.promote import (
    as_array,
    broadcast,
    broadcast_shapes,
    cast,
    check_argument,
    check_real,
    constant,
    dtype_error,
    fixed_size,
    is_number,
    promoted,
    shape_error,
)
from staged.ops.public import Option, public
from staged.ops.reduction import peak, sum_
from staged.ops.shape import pad_axis, reshape, slice_axis
from staged.ops.source import arange, zeros, zeros_like

# ---- the plan -------------------------------------------------------------------------------------


class _Plan:
    """The way in which one attention is cut into blocks, and what its blocks read."""

    def __init__(self, q: Array, k: Array, v: Array, rest: Sequence[Array], attrs: dict[str, Any]) -> None:
        self.causal, self.scale, self.p = attrs["causal"], attrs["scale"], attrs["p"]
        parts, blocks = attrs["parts"], attrs["blocks"]
        self.dtype = q.dtype
        self.lead, self.own = q.shape[:-2], {"k": k.shape[:-2], "v": v.shape[:-2]}
        self.heads, self.rows, self.cols = product(self.lead), q.shape[-2], k.shape[-2]
        draws = "r" in parts
        self.nq, self.bq = parted(self.rows, blocks[0], 12, draws)
        self.nk, self.bk = parted(self.cols, blocks[1], 16, draws)
        self.mask = rest[0] if "m" in parts else None
        self.may_see_nothing = self.mask is not None or self.rows != self.cols and not surely(lambda: self.cols > 0)
        self.first = rest[-1] if "f" in parts else None
        self.key = (rest[:-1] if "f" in parts else rest)[-2:] if draws else None
        (self.q,) = named(scaled_q=self.flat(q, self.nq * self.bq) * self.scale)
        self.k, self.v = self.flat(k, self.nk * self.bk), self.flat(v, self.nk * self.bk)
        if self.mask is not None:
            self.own["m"] = self.mask.shape[:-2]
            self.mask_shape = self.mask.shape[-2:]
            tall = self.nq * self.bq if self.mask_shape[0] == self.rows else 1
            wide = self.nk * self.bk if self.mask_shape[1] == self.cols else 1
            self.flat_mask = self.flat(self.mask, tall, wide)

    def flat(self, x: Array, *extents: Extent) -> Array:
        """x with one leading axis, and zeros up to the given extents of the axes after it."""
        *lead, rows, cols = x.shape
        x = reshape(x, (product(lead), rows, cols))
        for axis, extent in enumerate(extents, 1):
            if (rows, cols)[axis - 1] != extent:
                x = pad_axis(x, axis, 0, extent - (rows, cols)[axis - 1], False if x.dtype.is_bool else 0)
        return x

    def unpadded(self, x: Array, like: Array) -> Array:
        """The opposite of `flat`."""
        return reshape(slice_axis(x, 1, 0, like.shape[-2]), like.shape)

    def queries(self, x: Array, n: Array, i: Array) -> Array:
        """The rows of block i of queries, or of something with a row for each query."""
        return window(x, (n, i * self.bq, 0), (self.bq, x.shape[2]))

    def with_queries(self, x: Array, new: Array, n: Array, i: Array) -> Array:
        """x with such rows in their place."""
        return named(placed=with_window(x, (n, i * self.bq, 0), new))[0]

    def keys(self, which: str, x: Array, n: Array, j: Array) -> Array:
        """The rows of block j of keys or values."""
        return window(x, (index_of(self.own[which], self.lead, n), j * self.bk, 0), (self.bk, x.shape[2]))

    def added_to_keys(self, which: str, x: Array, new: Array, n: Array, j: Array) -> Array:
        """x with such rows added, or put where no other element of the leading axes has a part in them."""
        at = (index_of(self.own[which], self.lead, n), j * self.bk, 0)
        if self.own[which] != self.lead:
            new = window(x, at, new.shape) + new
        return named(placed=with_window(x, at, new))[0]

    def mask_at(self, n: Array, i: Array, j: Array) -> tuple[tuple[Any, ...], Shape]:
        """The place of the mask of a block of scores, and its shape."""
        rows, cols = self.flat_mask.shape[1:]
        at = (index_of(self.own["m"], self.lead, n), 0 if rows == 1 else i * self.bq, 0 if cols == 1 else j * self.bk)
        return at, (1 if rows == 1 else self.bq, 1 if cols == 1 else self.bk)

    def last_key(self, i: Array, j: Array) -> Array | None:
        """The number within block j of the last key that each query of block i sees, i32; None where it sees all."""
        end = self.cols - 1
        ragged = self.nk * self.bk != self.cols
        if not self.causal:
            return cast(end - j * self.bk, i32) if ragged else None
        last = reshape(arange(self.bq, dtype=i32), (self.bq, 1)) + cast(i * self.bq, i32)
        if ragged and not surely(lambda: self.rows <= self.cols):
            last = minimum(last, end if isinstance(end, int) else cast(as_array(end), i32))
        return last - cast(j * self.bk, i32)

    def scores(self, qi: Array, kj: Array, n: Array, i: Array, j: Array, whole: bool = False) -> Array:
        """The scores of a block, -inf where a query does not see a key; of a `whole` one only a mask can hide keys."""
        (s,) = named(scores=matrix_product(qi, kj, transpose_b=True))
        if self.mask is not None:
            mask = window(self.flat_mask, *self.mask_at(n, i, j))
            s = where(mask, s, -math.inf) if mask.dtype.is_bool else s + mask
        last = None if whole else self.last_key(i, j)
        if last is not None:
            s = where(reshape(arange(self.bk, dtype=i32), (1, self.bk)) <= last, s, -math.inf)
        return s

    def finite(self, top: Array) -> Array:
        """A row's largest score, 0 if it sees no key: a mask may hide all, or there is none."""
        return where(top == -math.inf, 0.0, top) if self.may_see_nothing else top

    def dropped(self, p: Array, n: Array, i: Array, j: Array) -> Array:
        """Shares with dropout: each block draws from a stream of its own."""
        if self.key is None:
            return p
        seed, counter = self.key
        head = n if self.first is None else n + self.first
        stream = ((head * self.nq + i) * self.nk + j) + 1
        kept = bernoulli_of(seed, stream, counter, 1.0 - self.p, p.shape)
        return where(kept, p * (1.0 / (1.0 - self.p)), 0.0)

    def ends(self, i: Array) -> Any:
        """The number of blocks of keys that block i of queries sees."""
        if not self.causal or self.nk == 1:
            return self.nk
        return minimum((i * self.bq + (self.bq + self.bk - 1)) // self.bk, self.nk)

    def whole(self, i: Array) -> Any:
        """The number of first blocks of keys of which each query of block i sees all, but for a mask."""
        seen = size_number(self.cols) // size_number(self.bk)
        return minimum((i * self.bq + 1) // self.bk, seen) if self.causal else seen

    def begins(self, j: Array) -> Any:
        """The first block of queries that sees block j of keys; some may be none's."""
        return minimum((j * self.bk) // largest(self.bq, 1), self.nq) if self.causal and self.nk != 1 else 0


def _first() -> Array:
    return constant(0, TensorType(i64))


def _loop(
    index: str, count: Any, initial: Sequence[Array], body: Callable[..., Sequence[Array]], hints: Sequence[str]
) -> Sequence[Array]:
    """`scan`, without a loop of one iteration."""
    return (
        body(_first(), *initial)
        if isinstance(count, int) and count == 1
        else scan(count, initial, body, hints, index=index)
    )


def _numbers(shape: Shape, dtype: DType, value: float) -> Array:
    return broadcast(cast(as_array(value), dtype), shape)


# ---- forward --------------------------------------------------------------------------------------


def _vjp(cts: Any, results: Any, q: Array, k: Array, v: Array, *rest: Array, **attrs: Any) -> list[Any]:
    out, lse = results
    ct, ct_lse = cts
    ct = zeros_like(out) if ct is None else ct
    # d_score = share * (d_share - sum of share * d_share), and the sum is that of ct * out over the values' axis.
    (offset,) = named(offset=sum_(ct * out, -1))
    offset = reshape(offset, lse.shape)
    if ct_lse is not None:
        offset = offset - ct_lse
    known = (q, k, v, *rest, ct, lse, offset)
    found: list[Any] = [*_backward(*known, **attrs), *[None] * len(rest)]
    if "m" in attrs["parts"] and rest[0].dtype.is_float:
        (found[3],) = _mask_backward(*known, **attrs)
    return found


_PLAIN = {"causal": False, "scale": 0.5, "p": 0.0, "parts": "", "blocks": BLOCKS}
_CUT = {**_PLAIN, "causal": True, "blocks": (12, 16)}


@composite(
    "attention",
    vjp=_vjp,
    samples=[
        Sample(((2, 3, 4), (2, 5, 4), (2, 5, 3)), _PLAIN),
        Sample(((2, 13, 2), (1, 20, 2), (2, 20, 1)), _CUT),
        Sample(((2, 3, 4), (2, 5, 4), (2, 5, 3), (3, 5)), {**_PLAIN, "parts": "m"}),
    ],
)
def _attention(q: Array, k: Array, v: Array, *rest: Array, **attrs: Any) -> tuple[Array, ...]:
    """The result (*N, L, V), and the logarithms of the sums of exponentials of scores (*N, L, 1), 0 of no key."""
    plan = _Plan(q, k, v, rest, attrs)
    width = v.shape[-1]

    def one_head(n: Array, out: Array, lse: Array) -> Sequence[Array]:
        def some_queries(i: Array, out: Array, lse: Array) -> Sequence[Array]:
            qi = plan.queries(plan.q, n, i)

            def one_block() -> list[Array]:
                j = _first()
                s = plan.scores(qi, plan.keys("k", plan.k, n, j), n, i, j)
                top = stop_gradient(peak(s, (1,)))
                (shares,) = named(shares=exp(s - plan.finite(top)))
                seen = matrix_product(plan.dropped(shares, n, i, j), plan.keys("v", plan.v, n, j))
                return [top, sum_(shares, 1, keepdims=True), seen]

            def some_keys(j: Array, m: Array, total: Array, mean: Array, whole: bool = False) -> list[Array]:
                s = plan.scores(qi, plan.keys("k", plan.k, n, j), n, i, j, whole)
                # Where m cancels, so do its derivatives.
                top = stop_gradient(maximum(m, peak(s, (1,))))
                shift = plan.finite(top)
                (shares,) = named(shares=exp(s - shift))
                (kept,) = named(kept=exp(m - shift))
                seen = matrix_product(plan.dropped(shares, n, i, j), plan.keys("v", plan.v, n, j))
                return [top, total * kept + sum_(shares, 1, keepdims=True), mean * kept + seen]

            column = (plan.bq, 1)
            start: Any = [
                _numbers(column, q.dtype, -math.inf),
                zeros(column, q.dtype),
                zeros((plan.bq, width), q.dtype),
            ]

            def all_keys() -> Sequence[Array]:
                whole, end, hints = plan.whole(i), plan.ends(i), ("m", "l", "mean")
                state = scan(whole, start, partial(some_keys, whole=True), hints, index="j")
                if isinstance(whole, int) and whole == end:
                    return state
                return _loop("j", end - whole, state, lambda t, *state: some_keys(t + whole, *state), hints)

            m, total, mean = one_block() if plan.nk == 1 else all_keys()
            if plan.may_see_nothing:
                m, total = where(total == 0, 0.0, m), where(total == 0, 1.0, total)
            mean, logs = named(mean=mean / total, logs=m + log(total))
            return [plan.with_queries(out, mean, n, i), plan.with_queries(lse, logs, n, i)]

        return _loop("i", plan.nq, [out, lse], some_queries, ("out", "lse"))

    tall = (plan.heads, plan.nq * plan.bq)
    out, lse = _loop(
        "head", plan.heads, [zeros((*tall, width), q.dtype), zeros((*tall, 1), q.dtype)], one_head, ("out", "lse")
    )
    shape = (*q.shape[:-1], width)
    return reshape(slice_axis(out, 1, 0, plan.rows), shape), reshape(slice_axis(lse, 1, 0, plan.rows), (*shape[:-1], 1))


# ---- reverse --------------------------------------------------------------------------------------


class _Reverse(_Plan):
    """A plan of the reverse, which also reads the cotangent of the result, and two columns, lse and the offset."""

    def __init__(self, operands: Sequence[Array], attrs: dict[str, Any]) -> None:
        q, k, v, *rest, ct, lse, offset = operands
        super().__init__(q, k, v, rest, attrs)
        tall = self.nq * self.bq
        self.ct, self.lse, self.offset = self.flat(ct, tall), self.flat(lse, tall), self.flat(offset, tall)

    def shares(self, n: Array, i: Array, j: Array) -> Array:
        s = self.scores(self.queries(self.q, n, i), self.keys("k", self.k, n, j), n, i, j)
        return named(shares=exp(s - self.queries(self.lse, n, i)))[0]

    def d_scores(self, shares: Array, n: Array, i: Array, j: Array) -> Array:
        d_shares = matrix_product(self.queries(self.ct, n, i), self.keys("v", self.v, n, j), transpose_b=True)
        d_shares = self.dropped(d_shares, n, i, j)
        return named(d_scores=shares * (d_shares - self.queries(self.offset, n, i)))[0]


@composite("attention_backward")
def _backward(*operands: Array, **attrs: Any) -> tuple[Array, ...]:
    """The cotangents of q, k and v."""
    plan = _Reverse(operands, attrs)
    q, k, v = operands[:3]

    def one_head(n: Array, d_q: Array, d_k: Array, d_v: Array) -> Sequence[Array]:
        def some_keys(j: Array, d_q: Array, d_k: Array, d_v: Array) -> Sequence[Array]:
            first = plan.begins(j)

            def some_queries(t: Array, d_q: Array, d_kj: Array, d_vj: Array) -> list[Array]:
                i = t if isinstance(first, int) else t + first
                shares = plan.shares(n, i, j)
                d_scores = plan.d_scores(shares, n, i, j)
                weights = plan.dropped(shares, n, i, j)
                d_vj = d_vj + matrix_product(weights, plan.queries(plan.ct, n, i), transpose_a=True)
                d_kj = d_kj + matrix_product(d_scores, plan.queries(plan.q, n, i), transpose_a=True)
                d_qi = plan.queries(d_q, n, i) + matrix_product(d_scores, plan.keys("k", plan.k, n, j))
                d_qi, d_kj, d_vj = named(d_q=d_qi, d_k=d_kj, d_v=d_vj)
                return [plan.with_queries(d_q, d_qi, n, i), d_kj, d_vj]

            start = [d_q, zeros((plan.bk, k.shape[-1]), q.dtype), zeros((plan.bk, v.shape[-1]), q.dtype)]
            d_q, d_kj, d_vj = _loop("i", plan.nq - first, start, some_queries, ("d_q", "d_k", "d_v"))
            return [d_q, plan.added_to_keys("k", d_k, d_kj, n, j), plan.added_to_keys("v", d_v, d_vj, n, j)]

        return _loop("j", plan.nk, [d_q, d_k, d_v], some_keys, ("d_q", "d_k", "d_v"))

    start = [zeros(x.shape, x.dtype) for x in (plan.q, plan.k, plan.v)]
    d_q, d_k, d_v = _loop("head", plan.heads, start, one_head, ("d_q", "d_k", "d_v"))
    return plan.unpadded(d_q, q) * plan.scale, plan.unpadded(d_k, k), plan.unpadded(d_v, v)


@composite("attention_mask_backward")
def _mask_backward(*operands: Array, **attrs: Any) -> tuple[Array, ...]:
    """The cotangent of a mask of floats. It is apart from the others, which are far smaller than it may be."""
    plan = _Reverse(operands, attrs)

    def one_head(n: Array, d_mask: Array) -> Sequence[Array]:
        def some_queries(i: Array, d_mask: Array) -> Sequence[Array]:
            def some_keys(j: Array, d_mask: Array) -> list[Array]:
                new = plan.d_scores(plan.shares(n, i, j), n, i, j)
                at, shape = plan.mask_at(n, i, j)
                axes = tuple(axis for axis in (0, 1) if shape[axis] != (plan.bq, plan.bk)[axis])
                if axes:
                    new = sum_(new, axes, keepdims=True)
                return [with_window(d_mask, at, window(d_mask, at, shape) + new)]

            return _loop("j", plan.ends(i), [d_mask], some_keys, ("d_mask",))

        return _loop("i", plan.nq, [d_mask], some_queries, ("d_mask",))

    (d_mask,) = _loop("head", plan.heads, [zeros(plan.flat_mask.shape, plan.dtype)], one_head, ("d_mask",))
    rows, cols = plan.mask_shape
    return (reshape(slice_axis(slice_axis(d_mask, 1, 0, rows), 2, 0, cols), operands[3].shape),)


# ---- public ---------------------------------------------------------------------------------------


def _leading(name: str, x: Array, query: Array, groups: bool) -> None:
    """Check that the leading axes of keys or values go with those of the queries."""
    own, theirs = x.shape[:-2], query.shape[:-2]
    wide = (1,) * (len(own) - len(theirs)) + theirs
    for axis in range(-len(own), 0):
        extent, wanted = own[axis], wide[axis]
        heads = axis == -1
        shared = heads and exact_quotient(wanted, extent) is not None
        # A head of queries is not repeated for groups of them.
        goes = extent in (1, wanted) or (shared if groups and heads else wanted == 1)
        if not goes:
            if shared:
                hint = f"with `enable_gqa=True` each of {extent} heads serves {wanted // extent} of the queries"
            else:
                hint = "leading axes are equal, or 1"
            raise shape_error(f"attention: {name} {x.type} does not go with query {query.type}", query, x, hint=hint)


def _mask_for(attn_mask: Any, query: Array, lead: Shape, cols: Extent) -> Array:
    mask = as_array(attn_mask)
    if mask.dtype.is_float and mask.type.weak:
        mask = cast(mask, query.dtype)
    if not mask.dtype.is_bool and mask.dtype is not query.dtype:
        raise dtype_error(
            f"attention: attn_mask is bool, true where a query sees a key, or {query.dtype}, added to the scores; "
            f"got {mask.type}",
            mask,
            hint=f"cast it: `st.astype(attn_mask, st.bool)` or `st.{query.dtype}`",
        )
    wanted = (*lead, query.shape[-2], cols)
    shape = (1,) * (2 - mask.ndim) + mask.shape
    if len(shape) > len(wanted) or any(
        extent not in (1, whole) for extent, whole in zip(shape[::-1], wanted[::-1], strict=False)
    ):
        raise shape_error(
            f"attention: attn_mask {mask.type} does not broadcast to the scores, {shape_text(wanted)}", query, mask
        )
    return reshape(mask, shape)


@public("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Option = None,
    enable_gqa: bool = False,
    *,
    generator: Any = None,
) -> Array:
    """softmax(query @ key.T * scale + mask) @ value. torch `nn.functional.scaled_dot_product_attention`.

    Shapes: query (*N, L, E), key (*N, S, E), value (*N, S, V): (*N, L, V). Leading axes broadcast. With `enable_gqa`,
    the last leading axis of key and value, the heads, may be a divisor of the query's; nothing is repeated in memory.
    `attn_mask` broadcasts to (*N, L, S): bools, true where a query sees a key, or floats that are added to the scores.
    With `is_causal`, query i sees keys 0 .. i; with a mask too, both hold. `scale` is 1 / sqrt(E) by default.
    A query that sees no key has zeros, as in torch. With `dropout_p`, shares are dropped as by `dropout`, in every
    call: a module passes 0 outside of training.

    Memory grows with L + S, also that of gradients: scores are computed in blocks, and again in the reverse. A second
    derivative in reverse mode keeps the scores.
    Source: Vaswani et al., Attention is all you need, 2017; Dao et al., FlashAttention, 2022, for the blocks.
    """
    if scale is None or is_number(scale):
        q, k, v = promoted(query, key, value, floats=True)
    else:
        q, k, v, factor = promoted(query, key, value, scale, floats=True)
        q, scale = q * factor, 1.0
    check_real("scaled_dot_product_attention", q, k, v)
    for name, x in (("query", q), ("key", k), ("value", v)):
        if x.ndim < 2:
            raise shape_error(f"attention: {name} is (*N, length, features), got {x.type}", x)
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise shape_error(
            f"attention needs query and key of one width, and as many values as keys, got {q.type}, {k.type}, {v.type}",
            q,
            k,
            v,
        )
    check_argument(
        is_number(dropout_p) and 0 <= dropout_p <= 1,
        f"attention: dropout_p is a probability known while staging, got {dropout_p!r}",
    )
    for name, x in (("key", k), ("value", v)):
        _leading(name, x, q, bool(enable_gqa))
    last = 2 + bool(enable_gqa)
    parts_of = (x.shape[:-last] + (1,) * (last - 2) for x in (k, v) if x.ndim >= last)
    lead = broadcast_shapes(q.shape[:-2], *parts_of)
    q = broadcast(q, (*lead, *q.shape[-2:]))
    rest: list[Array] = []
    parts = ""
    if attn_mask is not None:
        rest.append(_mask_for(attn_mask, q, lead, k.shape[-2]))
        parts += "m"
    if 0 in (*lead, *q.shape[-2:-1], *v.shape[-2:]) or dropout_p == 1:
        return zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    if dropout_p:
        seed, _, counter = key_of(generator)
        rest += [seed, counter]
        parts += "r"
    usual = 1.0 / math.sqrt(fixed_size("attention", q, -1) or 1)
    return _attention(
        q,
        k,
        v,
        *rest,
        causal=bool(is_causal),
        scale=usual if scale is None else float(scale),
        p=float(dropout_p),
        parts=parts,
        blocks=CAUSAL_BLOCKS if is_causal else BLOCKS,
    )[0]
