"""Attention's result, and the logarithms of the sums of exponentials of its scores, by one kernel.

    for each tile of keys that the block's queries see:
        scores = queries . keys                    a lane has the scores of one key with all queries of its warp
        top = max(row_max, largest score)          kept in registers, with the sum of exponentials and the mean
        shares = exp(scores - top)                 what was summed for a smaller maximum is scaled down
        mean += shares . values                    a lane has every 32nd feature

Source: Dao et al., FlashAttention, 2022, without its tensor cores: products are exact in the operands' dtype.

Tested by `tests/backends/cublas_cudnn/test_attention_kernels.py`.
"""

from __future__ import annotations

import math

from staged.backends.gpu.attention.parts import BLOCK, DEPTH, KEYS, QUERIES, ROWS, TILE, WIDTH, AttentionCode
from staged.backends.gpu.attention.sizes import FORWARD, AttentionSizes
from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.terms import chosen
from staged.code.types import SHORT_INDEX
from staged.ir.declaration import prims
from staged.ir.machine import Gpu
from staged.ir.nodes import Op
from staged.library.sequences.blocks import index_of


def forward_kernel(op: Op, name: str, gpu: Gpu, dialect: GpuDialect) -> GpuKernel:
    """The kernel of q, k, v, a mask or none, and a seed and a counter or none: the result, and the logarithms."""
    sizes = AttentionSizes.of(FORWARD, op, gpu)
    a = AttentionCode(sizes, op, dialect)
    q, k, v = (a.operand(name, number) for number, name in enumerate("qkv"))
    a.declare_mask()
    out, lse = a.result("out"), a.result("lse")
    columns = sizes.columns(sizes.depth)
    minus_infinity = a.literal(-math.inf)

    queries = a.shared("queries", BLOCK, sizes.padded(sizes.width))
    keys = a.shared("keys", TILE, sizes.pitch(sizes.width, True))
    values = a.shared("values", TILE, sizes.pitch(sizes.depth, False))
    shares = a.shared("shares", BLOCK, sizes.tile)
    a.place()
    head_q = a.of_head("head_q", q, a.head, QUERIES, WIDTH)
    head_k = a.of_head("head_k", k, index_of(sizes.k_lead, sizes.lead, a.head), KEYS, WIDTH)
    head_v = a.of_head("head_v", v, index_of(sizes.v_lead, sizes.lead, a.head), KEYS, DEPTH)
    mask = a.mask_of(a.head)
    a.load(queries, head_q, BLOCK, sizes.padded(sizes.width), WIDTH, a.start, QUERIES, a.scale)
    row_max, row_sum = a.registers("row_max", ROWS), a.registers("row_sum", ROWS)
    mean = a.registers("mean", ROWS, columns)
    with a.each_row() as r:
        a.assign(row_max[r], minus_infinity)
    a.clear((row_sum, 0), (mean, columns))

    with a.tiles("begin", 0, KEYS, a.start + BLOCK if a.causal else None) as begin:
        a.barrier("the last tile has been read")
        a.load(keys, head_k, TILE, sizes.pitch(sizes.width, True), WIDTH, begin, KEYS)
        a.load(values, head_v, TILE, sizes.pitch(sizes.depth, False), DEPTH, begin, KEYS)
        a.barrier()
        scores = a.registers("scores", ROWS)
        a.clear((scores, 0))
        a.dots(queries, keys, sizes.width, scores, ("query", "key"))
        with a.each_row() as r:
            query = a.constant("query", SHORT_INDEX, a.start + a.first + r)
            key = a.constant("key", SHORT_INDEX, begin + a.lane)
            seen, score = a.score(scores[r], query, key, mask)
            score = a.number("score", chosen(seen, score, minus_infinity))
            most = a.number("most", a.of_warp(prims.MAX, score))
            top = a.number("top", (row_max[r] > most).otherwise(row_max[r], most))
            shift = top
            if mask is not None:
                a.code.comment("a mask may hide all keys")
                shift = a.number("shift", top.is_equal(minus_infinity).otherwise(a.literal(0.0), top))
            share = a.number("share", a.maths("exp", score - shift))
            kept = a.number("kept", a.maths("exp", row_max[r] - shift))
            a.assign(row_max[r], top)
            a.assign(row_sum[r], row_sum[r] * kept + share)
            with a.loop("c", 0, columns, unroll=columns) as c:
                a.assign(mean[r][c], kept, "*")
            a.assign(shares[a.first + r][a.lane], a.dropped(share, a.is_kept(a.head, query, key)))
        a.barrier(is_warp=True)
        a.add_up(mean, shares, values, columns, ("weight", "value"))

    with a.each_row() as r:
        query = a.constant("query", SHORT_INDEX, a.start + a.first + r)
        total = a.number("total", a.of_warp(prims.SUM, row_sum[r]))
        top = row_max[r]
        if mask is not None:
            is_blind = total.is_equal(a.literal(0.0))
            a.code.comment("a query that sees no key has zeros")
            top = a.number("top", is_blind.otherwise(a.literal(0.0), top))
            total = a.number("divisor", is_blind.otherwise(a.literal(1.0), total))
        with a.rows_there(query, QUERIES):
            head_out = a.of_head("head_out", out, a.head, QUERIES, DEPTH)
            a.store(head_out, query, DEPTH, lambda c: mean[r][c] / total)
            head_lse = a.of_head("head_lse", lse, a.head, QUERIES)
            with a.code.branch(a.lane.is_equal(0).expr):
                a.assign(head_lse[query], top + a.maths("log", total))
    heads = "heads" if sizes.heads > 1 else "head"
    what = f"attention of {sizes.queries} queries and {sizes.keys} keys, {sizes.heads} {heads}, in tiles of keys"
    return a.kernel(name, what)
