"""Functions of the program in mapped code: a second function, which takes and gives values with the leading axis."""

from __future__ import annotations

from staged.batching.batch import BATCHED, Batch
from staged.batching.spread import SPREADS, Spread, batched_values, is_container
from staged.batching.values import batched_type
from staged.ir.builder import Builder
from staged.ir.nodes import Function, Op
from staged.ir.structure import CALL
from staged.ir.views import Call
from staged.ops.context import use_context


@SPREADS.rule(CALL)
def spread_call(spread: Spread, op: Op) -> None:
    """The results are batched together: they are those of the function's batched form."""
    if spread.any(op.operands) or spread.any(op.results):
        spread.mark(op.results)


@BATCHED.rule(CALL)
def call(batch: Batch, op: Op) -> None:
    """Emit a call of the function's batched form, which is made once per set of mapped arguments."""
    mapped = tuple(operand in batch.batched for operand in op.operands)
    types = [batched_type(result.type, batch.size, batch.pool) for result in op.results]
    operands = [batch.value(operand) for operand in op.operands]
    batch.copied(op, operands, types, attrs={**op.attrs, "function": _batched_function(batch, op, mapped)})


def _batched_function(batch: Batch, op: Op, mapped: tuple[bool, ...]) -> str:
    pool, original = batch.pool, Call(op).function
    key = ("vmap", original, mapped, batch.size)
    if key in pool.memo:
        known: str = pool.memo[key]
        return known
    function = pool.body(original, op.where)
    name = pool.memo[key] = pool.fresh(f"{original}_vmap")
    block = function.block
    assert block.end.is_of_function, "exits are normalised in functions that transforms reach"
    start = {param for param, is_mapped in zip(block.params, mapped, strict=True) if is_mapped}
    # All that it returns is batched; sequences and frames have to be so from where they are made.
    start |= {value for value in block.end.operands if is_container(value)}
    inner = Batch(Builder(), pool, batch.size, batched_values(block, start), op.where)
    with inner.opened(block.params) as opened:
        inner.define(block.params, opened.params)
        with use_context(inner.context):
            inner.ops(block)
            given = [inner.full(value) for value in block.end.operands]
            inner.builder.end(block.end.kind, given, None, block.end.where)
    pool.add(
        Function(
            name,
            opened.block,
            variables=function.variables,
            param_paths=function.param_paths,
            result_paths=function.result_paths,
            where=function.where,
        )
    )
    return name
