"""The choice of attentions that are calls of cuDNN: f16 and bf16, forward and reverse, each for itself.

An attention of halves is that of their f32 values, whose result is rounded; so its operands are f32 here, made of
halves. cuDNN takes these halves, adds up in f32, and keeps the logarithms of sums in f32. Its reverse wants the result,
which the op's has in its `offset`, the sum of ct * result over the values' axis:

    offset = reshape(sum(ct * out))   ->   the call reads out

What cuDNN does not take is left as it is: masks, dropout, other widths than multiples of 8 up to 128, batch axes that
broadcast, a single query of a single key. A query that sees no key is only one under a mask.

The reverse of a program whose sums have one order keeps the gradients of all scores, where cuDNN has no other way; it
is left as it is where these are too many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.cublas_cudnn.library.cudnn import MOST_ELEMENTS, MOST_IMAGES
from staged.backends.cublas_cudnn.library.reverses import source_of
from staged.backends.gpu.attention import sizes as own
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value
from staged.ir.options import DeviceOptions
from staged.ir.structure import COMPOSITE
from staged.ir.types import DType, TensorType, f32
from staged.ops.array import Array
from staged.ops.library_calls import FindWay, Way, library_call
from staged.ops.promote import cast
from staged.ops.record import RecordContext

FORWARD, BACKWARD = "attention", "attention_backward"
WIDTH_STEP, MOST_WIDTH = 8, 128
"""Features of a head: multiples of the first, up to the second. cuDNN has more on some devices."""
MOST_KEPT = 256 << 20
"""Bytes of the gradients of scores that a reverse with one order of sums may keep."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """q is (batch, heads, rows, width), k (batch, k_heads, columns, width), v (batch, v_heads, columns, v_width)."""

    batch: int
    heads: int
    rows: int
    width: int
    columns: int
    k_heads: int
    v_heads: int
    v_width: int

    @property
    def scores(self) -> int:
        """The number of scores."""
        return self.batch * self.heads * self.rows * self.columns


class Attention:
    """The ways of the attentions of a function."""

    def __init__(self, options: DeviceOptions) -> None:
        self.options = options
        self.ways: dict[str, FindWay] = {FORWARD: self.forward, BACKWARD: self.backward}

    def forward(self, op: Op, block: Block) -> Way | None:
        """(out, logarithms of the sums of exponentials of scores)."""
        taken = _taken(op, own.FORWARD)
        if taken is None:
            return None
        half, _ = taken

        def write(context: RecordContext, *operands: Array) -> Sequence[Array]:
            types = [TensorType(half, op.results[0].tensor.shape), op.results[1].tensor]
            halves = [cast(x, half) for x in operands]
            out, lse = library_call(FORWARD, halves, types, **self.attrs(op))
            context.value_of(lse).hint = "lse"
            return [cast(out, f32), lse]

        return Way(write)

    def backward(self, op: Op, block: Block) -> Way | None:
        """The cotangents of q, k and v."""
        taken = _taken(op, own.BACKWARD_QUERIES, own.BACKWARD_KEYS)
        if taken is None:
            return None
        half, sizes = taken
        ct, lse, offset = op.operands[3:]
        out = _result_behind(ct, lse, offset)
        if out is None or (self.options.deterministic and 2 * sizes.scores > MOST_KEPT):
            return None

        def write(context: RecordContext, *operands: Array) -> Sequence[Array]:
            q, k, v, ct, lse, _, out = operands
            halves = [cast(x, half) for x in (q, k, v, ct, out)]
            types = [TensorType(half, result.tensor.shape) for result in op.results]
            found = library_call(BACKWARD, [*halves, lse], types, **self.attrs(op))
            return [cast(x, f32) for x in found]

        return Way(write, also_takes=(out,))

    def attrs(self, op: Op) -> dict[str, Any]:
        """The attributes of an attention's call, from the op."""
        return {
            "causal": op.attrs["causal"],
            "scale": op.attrs["scale"],
            "deterministic": self.options.deterministic,
        }


def sizes_of(types: Sequence[TensorType]) -> Sizes | None:
    """The sizes of an attention by the types of q, k and v; None if cuDNN does not take these."""
    if not all(isinstance(extent, int) for type in types for extent in type.shape):
        return None
    leads, inner = [], []
    longest = types[0].ndim - 2
    for type in types:
        shape = [int(extent) for extent in type.shape]  # type: ignore[arg-type]
        leads.append((1,) * (longest - len(shape) + 2) + tuple(shape[:-2]))
        inner.append(shape[-2:])
    batches = [lead[:-1] for lead in leads]
    heads = [lead[-1] if lead else 1 for lead in leads]
    if batches[1] != batches[0] or batches[2] != batches[0]:
        return None
    (rows, width), (columns, _), (_, v_width) = inner
    sizes = Sizes(math.prod(batches[0]), heads[0], rows, width, columns, heads[1], heads[2], v_width)
    fits = (
        all(0 < each <= MOST_WIDTH and each % WIDTH_STEP == 0 for each in (width, v_width))
        and sizes.batch <= MOST_IMAGES
        and sizes.heads <= MOST_IMAGES
        and all(type.size < MOST_ELEMENTS for type in types)
        and (rows, columns) != (1, 1)
    )
    return sizes if fits else None


def _taken(op: Op, *kernels: str) -> tuple[DType, Sizes] | None:
    """The dtype and the sizes of an attention, or of its reverse; None if it is not cuDNN's.

    There must be kernels of these names, which run if the device's cuDNN does not have an engine.
    """
    types = [operand.tensor for operand in op.operands[:3]]
    half, sizes = _half_of(op.operands[:3]), sizes_of(types)
    if half is None or sizes is None or op.attrs["parts"]:
        return None
    has_kernels = not any(own.AttentionSizes.of(kernel, op, CUDA_GPU).why_not() for kernel in kernels)
    return (half, sizes) if has_kernels else None


def _half_of(values: Sequence[Value]) -> DType | None:
    """The one half dtype of which all these f32 values are made; None if there is none."""
    found = set()
    for value in values:
        op = source_of(value).producer
        is_cast = op is not None and op.declared is prims.CAST and value.tensor.dtype is f32
        found.add(op.operands[0].tensor.dtype if is_cast and op is not None else None)
    half = found.pop()
    return half if not found and half is not None and half.is_half else None


def _result_behind(ct: Value, lse: Value, offset: Value) -> Value | None:
    """The result of the attention that has made `lse`, which `offset` is the sum of with ct; None if it is another."""
    for declared in (prims.RESHAPE, prims.SUM):
        op = offset.producer
        if op is None or op.declared is not declared:
            return None
        offset = op.operands[0]
    op = offset.producer
    if op is None or op.declared is not prims.MULTIPLY or op.operands[0] is not ct:
        return None
    out = op.operands[1]
    made, kept = source_of(out), source_of(lse)
    forward = made.producer
    is_pair = forward is not None and forward is kept.producer and (made.index, kept.index) == (0, 1)
    is_attention = forward is not None and forward.declared is COMPOSITE and forward.attrs["name"] == FORWARD
    return out if is_pair and is_attention else None
