"""Sums over ranks of which each rank needs its part only.

    shard(all_reduce(x, "sum"))   ->   reduce_scatter(x)

Ops that move elements, casts, and loops over layers may be between the two. Why: a `reduce_scatter` sends half of
the bytes, and each rank adds its part only. The gradients of rolled layers are then one message, too. Rank 0
contributes the joined arrays that are not sums over ranks, and the other ranks contribute zeros.

Tested by `tests/ranks/test_sharded_optimizers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Function, Op, Value, walk_blocks
from staged.ir.rewrite import Copier
from staged.ir.structure import SEQUENCE_GET
from staged.ir.types import DType, TensorType
from staged.ir.views import Loop
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import equal
from staged.ops.context import bind, use_context
from staged.ops.primitive import Primitive
from staged.ops.promote import cast
from staged.ops.ranks import reduce_scatter_op
from staged.ops.record import RecordContext
from staged.ops.source import zeros, zeros_like
from staged.passes.dead_code import eliminate_dead_code

_MOVES = (prims.RESHAPE, prims.PERMUTE, prims.CONCAT)
"""Ops that move elements: they commute with a sum over ranks."""


def scatter_sums(function: Function) -> Function:
    """Replace a `shard` of sums over ranks by one `reduce_scatter`, if nothing else uses the sums.

    Exact up to the order of the sums in MPI.
    """
    if not any(op.declared is prims.SHARD for block in walk_blocks(function.block) for op in block.ops):
        return function
    alive = eliminate_dead_code(function)  # else a dead op would use a sum
    copier = _Scatter(alive)
    return alive.with_block(copier.block(alive.block)) if copier.sums else function


@dataclass
class _Sum:
    """The values between a `shard` and the reductions before it."""

    shard: Op
    values: set[Value] = field(default_factory=set)
    reductions: list[Op] = field(default_factory=list)
    casts: set[tuple[DType, ...]] = field(default_factory=set)
    """The dtype of each reduction, and the dtypes to which its result is cast."""
    others: set[Value] = field(default_factory=set)
    """Replicated arrays that are joined with sums."""
    has_loops: bool = False

    def reaches(self, value: Value, homes: dict[Op, Block], casts: tuple[DType, ...] = ()) -> bool:
        """Note the reductions of which a value is made. Return False if the value cannot be a sum over ranks."""
        op = value.producer
        if value in self.values or (op is not None and _is_zero(op)):
            return True
        if op is None or op not in homes or not self.passes(op, value):
            self.others.add(value)
            return isinstance(value.type, TensorType) and value.type.dtype.is_inexact
        self.values.add(value)
        if op.declared is prims.ALL_REDUCE:
            self.reductions.append(op)
            self.casts.add((value.tensor.dtype, *casts))
            return True
        if op.declared is prims.CAST:
            return self.reaches(op.operands[0], homes, (value.tensor.dtype, *casts))
        if op.declared in _MOVES:
            return all(self.reaches(operand, homes, casts) for operand in op.operands)
        if op.declared is SEQUENCE_GET:
            return self.reaches(op.operands[0], homes, casts)
        self.has_loops = True
        inside = {inner: block for block in op.blocks for inner in block.ops}
        yielded = [given for given, target in _yielded(op) if target is value]
        return all(self.reaches(each, homes | inside, casts) for each in yielded) and self.others.isdisjoint(yielded)

    def passes(self, op: Op, value: Value) -> bool:
        """Return whether a result is a sum over ranks if the operands are."""
        if op.declared is prims.ALL_REDUCE:
            return op.attrs["by"] == "sum" and len(op.operands) == 1
        if op.declared.is_loop:
            return value in Loop(op).collected
        return op.declared in (*_MOVES, prims.CAST, SEQUENCE_GET)

    @property
    def is_possible(self) -> bool:
        """Return whether the sums may come after the casts and loops."""
        if len(self.casts) != 1:
            return False
        has_casts = max(map(len, self.casts)) > 1
        return not has_casts or not (self.has_loops or self.others)


class _Scatter(Copier):
    def __init__(self, function: Function) -> None:
        super().__init__(Builder())
        sums: list[_Sum] = []
        for block in walk_blocks(function.block):
            homes = dict.fromkeys(block.ops, block)
            for op in block.ops:
                if op.declared is prims.SHARD:
                    found = _Sum(op)
                    if found.reaches(op.operands[0], homes) and found.is_possible:
                        sums.append(found)
        self.sums = {found.shard: found for found in _without_other_uses(sums, list(_uses(function)))}
        self.partial = {op for found in self.sums.values() for op in found.reductions}
        self.between = {value for found in self.sums.values() for value in found.values}
        self.others = {value for found in self.sums.values() for value in found.others}

    def op(self, op: Op) -> None:
        if op in self.partial:
            self.define([op.result], [self.value(op.operands[0])])
        elif op in self.sums:
            ((given, *casts),) = self.sums[op].casts
            context = RecordContext(self.builder, locate=lambda: op.where, checks=False)
            with use_context(context):
                whole = op.operands[0]
                x = self.without_casts(whole, given, context) if casts else context.handle(self.value(whole))
                part = bind(reduce_scatter_op, [x], ranks=op.attrs["ranks"])
                for dtype in casts:
                    part = cast(part, dtype)
                self.define([op.result], [context.value_of(part)])
        elif not self.others.isdisjoint(op.operands) and not self.between.isdisjoint(op.results):
            changed = op.replace(operands=list(map(self.of_first, op.operands)))
            super().op(changed)
            self.values.update((old, self.value(new)) for old, new in zip(op.results, changed.results, strict=True))
        else:
            super().op(op)

    def of_first(self, value: Value) -> Value:
        """A replicated array as a sum over ranks: that of rank 0, and zeros."""
        if value not in self.others:
            return value
        context = RecordContext(self.builder, checks=False)
        with use_context(context):
            x = context.handle(self.value(value))
            return context.value_of(where(equal(bind(prims.RANK, []), 0), x, zeros_like(x)))

    def without_casts(self, value: Value, dtype: DType, context: RecordContext) -> Array:
        """The operand of the `shard` before the sums, in the dtype of the sums."""
        op = value.producer
        assert op is not None, "the sum has been visited"
        if op in self.partial:
            return context.handle(self.value(op.operands[0]))
        if op.declared is prims.CAST:
            return self.without_casts(op.operands[0], dtype, context)
        if op.declared in _MOVES:
            given = [self.without_casts(operand, dtype, context) for operand in op.operands]
            assert isinstance(op.declared, Primitive), "an op that moves elements"
            return bind(op.declared, given, **op.attrs)
        return zeros(value.tensor.shape, dtype=dtype)


def _without_other_uses(sums: list[_Sum], uses: list[tuple[Value, Op | Value | None]]) -> list[_Sum]:
    """The sums whose values are used in these sums only."""
    while True:
        values = {value for found in sums for value in found.values}
        known = (
            {found.shard for found in sums} | values | {op for value in values if (op := value.producer) is not None}
        )
        elsewhere = {value for value, user in uses if value in values and user not in known}
        kept = [found for found in sums if not found.values & elsewhere]
        if len(kept) == len(sums):
            return kept
        sums = kept


def _uses(function: Function) -> Iterator[tuple[Value, Op | Value | None]]:
    """Each use of a value: by an op, or by the result of a loop that collects it. None is any other use."""
    of_loops = {
        end
        for block in walk_blocks(function.block)
        for op in block.ops
        if op.declared.is_loop
        for _, end in Loop(op).ends()
    }
    for block in walk_blocks(function.block):
        for op in block.ops:
            for value in op.operands:
                yield value, None if op.declared.is_loop else op
            if op.declared.is_loop:
                yield from _yielded(op)
        if block.end not in of_loops:
            for value in block.end.operands:
                yield value, None


def _yielded(op: Op) -> list[tuple[Value, Value]]:
    """The values that the iterations of a loop pass on, each with the result of the loop."""
    loop = Loop(op)
    targets = [*loop.final, *loop.collected]
    return [pair for _, end in loop.ends() for pair in zip(end.operands, targets, strict=False)]


def _is_zero(op: Op) -> bool:
    if op.declared is prims.CONSTANT:
        return bool(op.attrs["value"] == 0)
    is_spread = op.declared in (prims.BROADCAST_TO, prims.CAST, prims.RESHAPE)
    return is_spread and op.operands[0].producer is not None and _is_zero(op.operands[0].producer)
