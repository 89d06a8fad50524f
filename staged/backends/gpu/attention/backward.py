"""The gradients of attention by two kernels, without atomics: each sum is one lane's, in one order.

    share = exp(query . key - lse)             the scores once more, from the logarithm of their sum of exponentials
    d_score = share * (d_out . value - offset)

    d_query_kernel   blocks of queries go through tiles of keys:    d_query += d_score * key
    d_key_kernel     blocks of keys go through tiles of queries:    d_key += d_score * query,  d_value += share * d_out
                     of all heads that the keys serve, one after the other

Source: Dao et al., FlashAttention, 2022.

Tested by `tests/backends/cublas_cudnn/test_attention_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from staged.backends.gpu.attention.parts import BLOCK, DEPTH, KEYS, QUERIES, ROWS, TILE, WIDTH, AttentionCode
from staged.backends.gpu.attention.sizes import BACKWARD_KEYS, BACKWARD_QUERIES, AttentionSizes, groups_of
from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.terms import Term, chosen
from staged.code.expr import Group
from staged.code.types import SHORT_INDEX
from staged.ir.machine import Gpu
from staged.ir.nodes import Op
from staged.library.sequences.blocks import index_of


class _Reverse(AttentionCode):
    """A kernel of the reverse: q, k, v, a mask or none, a seed and a counter or none, the cotangent, lse and offset."""

    def __init__(self, sizes: AttentionSizes, op: Op, dialect: GpuDialect) -> None:
        super().__init__(sizes, op, dialect)
        self.q, self.k, self.v = (self.operand(name, number) for number, name in enumerate("qkv"))
        self.declare_mask()
        self.d_out, self.lse, self.offset = (
            self.operand(name, len(op.operands) - 3 + number) for number, name in enumerate(("d_out", "lse", "offset"))
        )

    def parts_of_query_head(self, head: Any) -> None:
        """The parts of the operands that belong to a head of the queries."""
        self.head_q = self.of_head("head_q", self.q, head, QUERIES, WIDTH)
        self.head_d_out = self.of_head("head_d_out", self.d_out, head, QUERIES, DEPTH)
        self.head_lse = self.of_head("head_lse", self.lse, head, QUERIES)
        self.head_offset = self.of_head("head_offset", self.offset, head, QUERIES)
        self.head_mask = self.mask_of(head)

    def number_of(self, name: str, column: Term, query: Term, is_ragged: bool) -> Term:
        """The logarithm, or the offset, of a query; 0 beyond the last."""
        value = self.read(column, query)
        return self.number(name, chosen(query < QUERIES if is_ragged else None, value, self.literal(0.0)))

    def share(self, score: Term, query: Term, key: Term, lse: Term) -> Term:
        """The share of a key in a query's result, 0 where it does not see it."""
        seen, score = self.score(score, query, key, self.head_mask)
        return self.number("share", chosen(seen, self.maths("exp", score - lse), self.literal(0.0)))


def d_query_kernel(op: Op, name: str, gpu: Gpu, dialect: GpuDialect) -> GpuKernel:
    """The kernel of the gradient by the queries."""
    sizes = AttentionSizes.of(BACKWARD_QUERIES, op, gpu)
    a = _Reverse(sizes, op, dialect)
    d_q = a.result("d_q")
    columns = sizes.columns(sizes.width)
    queries = a.shared("queries", BLOCK, sizes.padded(sizes.width))
    d_outs = a.shared("d_outs", BLOCK, sizes.padded(sizes.depth))
    keys = a.shared("keys", TILE, sizes.pitch(sizes.width, True))
    values = a.shared("values", TILE, sizes.pitch(sizes.depth, True))
    d_scores = a.shared("d_scores", BLOCK, sizes.tile)
    a.place()
    a.parts_of_query_head(a.head)
    head_k = a.of_head("head_k", a.k, index_of(sizes.k_lead, sizes.lead, a.head), KEYS, WIDTH)
    head_v = a.of_head("head_v", a.v, index_of(sizes.v_lead, sizes.lead, a.head), KEYS, DEPTH)
    a.load(queries, a.head_q, BLOCK, sizes.padded(sizes.width), WIDTH, a.start, QUERIES, a.scale)
    a.load(d_outs, a.head_d_out, BLOCK, sizes.padded(sizes.depth), DEPTH, a.start, QUERIES)
    total = a.registers("d_query", ROWS, columns)
    a.clear((total, columns))

    with a.tiles("begin", 0, KEYS, a.start + BLOCK if a.causal else None) as begin:
        a.barrier("the last tile has been read")
        a.load(keys, head_k, TILE, sizes.pitch(sizes.width, True), WIDTH, begin, KEYS)
        a.load(values, head_v, TILE, sizes.pitch(sizes.depth, True), DEPTH, begin, KEYS)
        a.barrier()
        scores, d_shares = a.registers("scores", ROWS), a.registers("d_shares", ROWS)
        a.clear((scores, 0), (d_shares, 0))
        a.dots(queries, keys, sizes.width, scores, ("query", "key"))
        a.dots(d_outs, values, sizes.depth, d_shares, ("d_out_row", "value"))
        with a.each_row() as r:
            query = a.constant("query", SHORT_INDEX, a.start + a.first + r)
            key = a.constant("key", SHORT_INDEX, begin + a.lane)
            is_ragged = bool(sizes.queries % sizes.block)
            share = a.share(scores[r], query, key, a.number_of("query_lse", a.head_lse, query, is_ragged))
            d_share = a.number("d_share", a.dropped(d_shares[r], a.is_kept(a.head, query, key)))
            offset = a.number_of("query_offset", a.head_offset, query, is_ragged)
            a.assign(d_scores[a.first + r][a.lane], share * Group((d_share - offset).expr))
        a.barrier(is_warp=True)
        a.add_up(total, d_scores, keys, columns, ("d_score", "key"))

    with a.each_row() as r:
        query = a.constant("query", SHORT_INDEX, a.start + a.first + r)
        with a.rows_there(query, QUERIES):
            head_d_q = a.of_head("head_d_q", d_q, a.head, QUERIES, WIDTH)
            a.store(head_d_q, query, WIDTH, lambda c: total[r][c] * a.literal(a.scale))
    return a.kernel(name, f"attention: the gradient by {sizes.queries} queries, in tiles of {sizes.keys} keys")


def d_key_kernel(op: Op, name: str, gpu: Gpu, dialect: GpuDialect) -> GpuKernel:
    """The kernel of the gradients by keys and values."""
    sizes = AttentionSizes.of(BACKWARD_KEYS, op, gpu)
    a = _Reverse(sizes, op, dialect)
    d_k, d_v = a.result("d_k"), a.result("d_v")
    wide, deep = sizes.columns(sizes.width), sizes.columns(sizes.depth)
    keys = a.shared("keys", BLOCK, sizes.padded(sizes.width))
    values = a.shared("values", BLOCK, sizes.padded(sizes.depth))
    queries = a.shared("queries", TILE, sizes.pitch(sizes.width, True))
    d_outs = a.shared("d_outs", TILE, sizes.pitch(sizes.depth, True))
    shares = a.shared("shares", BLOCK, sizes.tile)
    d_scores = a.shared("d_scores", BLOCK, sizes.tile)
    a.place()
    head_k = a.of_head("head_k", a.k, a.head, KEYS, WIDTH)
    head_v = a.of_head("head_v", a.v, a.head, KEYS, DEPTH)
    a.load(keys, head_k, BLOCK, sizes.padded(sizes.width), WIDTH, a.start, KEYS)
    a.load(values, head_v, BLOCK, sizes.padded(sizes.depth), DEPTH, a.start, KEYS)
    d_key, d_value = a.registers("d_key", ROWS, wide), a.registers("d_value", ROWS, deep)
    a.clear((d_key, wide), (d_value, deep))

    with _query_heads(a) as head:
        a.parts_of_query_head(head)
        # Queries before all keys of the block see none of them.
        first = a.start // TILE * TILE if a.causal else 0
        with a.tiles("begin", first, QUERIES, None) as begin:
            a.barrier("the last tile has been read")
            a.load(queries, a.head_q, TILE, sizes.pitch(sizes.width, True), WIDTH, begin, QUERIES, a.scale)
            a.load(d_outs, a.head_d_out, TILE, sizes.pitch(sizes.depth, True), DEPTH, begin, QUERIES)
            a.barrier()
            query = a.constant("query", SHORT_INDEX, begin + a.lane)
            is_ragged = bool(sizes.queries % sizes.tile)
            lse = a.number_of("query_lse", a.head_lse, query, is_ragged)
            offset = a.number_of("query_offset", a.head_offset, query, is_ragged)
            scores, d_shares = a.registers("scores", ROWS), a.registers("d_shares", ROWS)
            a.clear((scores, 0), (d_shares, 0))
            a.dots(keys, queries, sizes.width, scores, ("key", "query_row"))
            a.dots(values, d_outs, sizes.depth, d_shares, ("value", "d_out_row"))
            with a.each_row() as r:
                key = a.constant("key", SHORT_INDEX, a.start + a.first + r)
                share = a.share(scores[r], query, key, lse)
                is_kept = a.is_kept(head, query, key)
                d_share = a.number("d_share", a.dropped(d_shares[r], is_kept))
                a.assign(shares[a.first + r][a.lane], a.dropped(share, is_kept))
                a.assign(d_scores[a.first + r][a.lane], share * Group((d_share - offset).expr))
            a.barrier(is_warp=True)
            a.add_up(d_value, shares, d_outs, deep, ("share", "d_out_row"))
            a.add_up(d_key, d_scores, queries, wide, ("d_score", "query_row"))

    with a.each_row() as r:
        key = a.constant("key", SHORT_INDEX, a.start + a.first + r)
        with a.rows_there(key, KEYS):
            a.store(a.of_head("head_d_k", d_k, a.head, KEYS, WIDTH), key, WIDTH, lambda c: d_key[r][c])
            a.store(a.of_head("head_d_v", d_v, a.head, KEYS, DEPTH), key, DEPTH, lambda c: d_value[r][c])
    return a.kernel(name, f"attention: gradients by {sizes.keys} keys and values, in tiles of {sizes.queries} queries")


@contextmanager
def _query_heads(a: _Reverse) -> Iterator[Term]:
    """The heads of queries that the keys of `a.head` serve, one after the other."""
    groups = groups_of(a.sizes.k_lead, a.sizes.lead)
    with ExitStack() as loops:
        head: Any = 0
        own, whole = 1, 1
        for number, each in reversed(list(enumerate(groups))):
            at: Any = a.head if own == 1 else a.head / own
            at = at % each.own if number and each.own > 1 else at
            if each.own == 1:
                at = 0
            if each.group > 1:
                name = "member" if len(groups) == 1 else f"member_{number}"
                member = loops.enter_context(a.loop(name, 0, each.group))
                at = member if isinstance(at, int) else at * each.group + member
            if not isinstance(at, int):
                at = at if whole == 1 else Term(Group(at.expr)) * whole
                head = head + at
            own, whole = own * each.own, whole * each.own * each.group
        yield head if head is a.head else a.constant("head", SHORT_INDEX, head if isinstance(head, Term) else a.head)
