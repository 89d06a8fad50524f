"""Fulfilling `vmap`: what depends on a mapped value gets a leading axis, the rest stays as it is.

vmap(x, w) {mapped=(True, False), size=8} (x, w):        y = broadcast_to(w) * x      # (8, 3)
  y = w * x            # (3,)                      =>    sum(y, axes=(1,))            # (8,)
  yield(sum(y))
"""

from __future__ import annotations

from staged.batching import assertions, branches, calls, closed_blocks, containers, loops  # noqa: F401 (enter rules)
from staged.batching.batch import Batch
from staged.batching.spread import batched_values
from staged.errors import StagingError
from staged.ir.builder import Builder
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import Op, Value
from staged.ops.context import use_context


def expand_vmap(op: Op, builder: Builder, pool: FunctionPool) -> list[Value]:
    """Emit the batched block of a `vmap` op; returns the values of its results.

    Needs plain IR inside: other transforms fulfilled, exits made values.
    Raises: StagingError, with the user's line, for what cannot be mapped.
    """
    block = op.blocks[0]
    mapped = {param for param, is_mapped in zip(block.params, op.attrs["mapped"], strict=True) if is_mapped}
    batch = Batch(builder, pool, op.attrs["size"], batched_values(block, mapped), op.where)
    batch.values.update(zip(block.params, op.operands, strict=True))
    with use_context(batch.context):
        batch.ops(block)
        results = []
        for number, value in enumerate(block.end.operands):
            if value in batch.batched and number in op.attrs.get("whole", ()):
                raise StagingError(
                    "a result with None in `out_axes` depends on what is mapped",
                    where=op.where,
                    hint="give it an axis, and choose or reduce after the `vmap`",
                )
            results.append(batch.full(value))
    return results
