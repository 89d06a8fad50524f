"""The batched copy of a block: what depends on a mapped value gets a leading axis, the rest stays as it is.

vmap(x, w) {mapped=(True, False), size=8} (x, w):        y = broadcast_to(w) * x      # (8, 3)
  y = w * x            # (3,)                      =>    sum(y, axes=(1,))            # (8,)
  yield(sum(y))
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from staged.batching.branches import branches
from staged.batching.calls import call, frame
from staged.batching.loops import loop
from staged.batching.masks import Mask
from staged.batching.rules import batch_composite, batch_op
from staged.batching.spread import batched_values, is_container
from staged.batching.values import BatchContext, batched_type, repeat
from staged.errors import StagingError
from staged.ir.builder import Builder, OpenBlock
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import Block, Label, Op, Value
from staged.ir.types import Extent
from staged.ops.context import use_context
from staged.ops.promote import cast
from staged.ops.reduction import sum_
from staged.ops.source import zeros
from staged.source import Position

Opening = AbstractContextManager[OpenBlock]


def expand_vmap(op: Op, builder: Builder, pool: FunctionPool) -> list[Value]:
    """Emit the batched block of a `vmap` op; returns what stands for its results.

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


class Batch:
    """Writes batched code. `values` maps the values of the mapped block to those that stand for them."""

    def __init__(
        self, builder: Builder, pool: FunctionPool, size: Extent, batched: set[Value], where: Position | None
    ) -> None:
        self.builder = builder
        self.pool = pool
        self.size = size
        self.batched = batched
        self.where = where
        self.values: dict[Value, Value] = {}
        self.context = BatchContext(builder, lambda: self.where)
        self.masks: list[Mask] = []
        """Of the branches and loops that are being written, the outermost first."""

    # ---- values ----

    def value(self, value: Value) -> Value:
        """What stands for a value."""
        return self.values.get(value, value)

    def full(self, value: Value) -> Value:
        """What stands for a value, with the leading axis in any case."""
        made = self.value(value)
        return made if value in self.batched else self.repeated(made)

    def repeated(self, value: Value) -> Value:
        """A value without the leading axis, repeated along it."""
        assert not is_container(value), "sequences and frames are batched where they are made"
        return self.context.value_of(repeat(self.context.handle(value), self.size))

    def wanted(self, value: Value, is_batched: bool) -> Value:
        """What stands for `value`, with the leading axis if `is_batched`."""
        return self.full(value) if is_batched else self.value(value)

    def type_of(self, value: Value) -> Any:
        """The type of what stands for a value."""
        return batched_type(value.type, self.size, self.pool) if value in self.batched else value.type

    def define(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Let new values stand for old ones, by the same names."""
        for before, after in zip(old, new, strict=True):
            self.values[before] = after
            after.hint = after.hint or before.hint

    def refuse(self, op: Op, message: str, hint: str) -> StagingError:
        """The error for what cannot be mapped."""
        return StagingError(message, where=op.where or self.where, hint=hint)

    # ---- blocks and ops ----

    def ops(self, block: Block) -> None:
        """The ops of `block`, into the current block."""
        for op in block.ops:
            self.where, self.builder.device = op.where, op.device
            self.op(op)

    def op(self, op: Op) -> None:
        if op.name == "if":
            branches(self, op)
        elif op.name in ("for", "while"):
            loop(self, op)
        elif op.name == "absent":
            # Where elements differ in the branches they take, it takes part in a choice.
            type = self.type_of(op.result)
            self.define(op.results, [self.context.value_of(zeros(type.shape, type.dtype))])
        elif not any(operand in self.batched for operand in op.operands) and not any(
            result in self.batched for result in op.results
        ):
            self.copied(op, [self.value(operand) for operand in op.operands], [value.type for value in op.results])
        elif op.name == "composite":
            batch_composite(self, op)
        elif op.name in ("checkpoint", "custom_vjp"):
            self.closed(op)
        elif op.name.startswith("sequence_"):
            self.sequence(op)
        elif op.name == "call":
            call(self, op)
        elif op.name.startswith("frame_"):
            frame(self, op)
        else:
            batch_op(self, op)

    def copied(self, op: Op, operands: Sequence[Value], types: Sequence[Any], **changes: Any) -> None:
        """The same op on these operands."""
        made = self.builder.append(op.replace(operands=operands, result_types=types, **changes))
        self.define(op.results, made.results)

    def sequence(self, op: Op) -> None:
        if op.name == "sequence_get" and op.operands[1] in self.batched:
            raise self.refuse(
                op, "under `vmap` the iterations of a loop that is differentiated depend on what is mapped", _GRAD_HINT
            )
        types = [self.type_of(result) for result in op.results]
        operands = []
        for number, operand in enumerate(op.operands):
            is_index = number == 1 and op.name in ("sequence_get", "sequence_add")
            operands.append(self.value(operand) if is_index else self.full(operand))
        masks = self.masks_around(op)
        if op.name == "sequence_add":
            for mask in masks:
                operands[2] = self.zeroed(mask, operands[2], op)
                mask.containers.update(op.results)
        self.copied(op, operands, types)
        if op.name == "sequence_get":
            self.taken_out(op.results, masks)

    def masks_around(self, op: Op) -> list[Mask]:
        """The masks of the branches and loops that stand between here and where the first operand was made."""
        return [mask for mask in self.masks if op.operands and op.operands[0] in mask.containers]

    def taken_out(self, results: Sequence[Value], masks: Sequence[Mask]) -> None:
        """What was read from a sequence or frame of outside: replaced now for the elements that only go along."""
        for result in results:
            for mask in masks:
                if is_container(result):
                    mask.containers.add(result)
                else:
                    self.values[result] = mask.substitute(self.values[result])

    def zeroed(self, mask: Mask, element: Value, op: Op) -> Value:
        if is_container(element):
            raise self.refuse(
                op, "under `vmap` an inner loop is differentiated that runs for some elements only", _GRAD_HINT
            )
        return mask.zeroed(element)

    # ---- closed blocks that stay ----

    def closed(self, op: Op) -> None:
        """A `checkpoint` or `custom_vjp` whose blocks are batched in place: a derivative around asks for them."""
        mapped = [operand in self.batched for operand in op.operands]
        operands = [self.value(operand) for operand in op.operands]
        types = [batched_type(result.type, self.size, self.pool) for result in op.results]
        blocks = [self.batched_block(block, mapped) for block in op.blocks[:2]]
        if op.name == "custom_vjp":
            blocks.append(self.batched_reverse(op, mapped))
        self.copied(op, operands, types, blocks=blocks)

    def batched_block(self, block: Block, mapped: Sequence[bool]) -> Block:
        """A closed block with these parameters batched, and all that it yields."""
        inner, opened = self.inside(block, mapped)
        with opened as made:
            inner.values.update(zip(block.params, made.params, strict=True))
            with use_context(inner.context):
                inner.ops(block)
                self.builder.end("yield", [inner.full(value) for value in block.end.operands], None, block.end.where)
        return made.block

    def batched_reverse(self, op: Op, mapped: Sequence[bool]) -> Block:
        """The backward block: the cotangent of a capture without the axis is the sum over it."""
        block = op.blocks[2]
        inner, opened = self.inside(block, [True] * len(block.params))
        with opened as made:
            inner.values.update(zip(block.params, made.params, strict=True))
            with use_context(inner.context):
                inner.ops(block)
                found = []
                for number, value in zip(op.attrs["wrt"], block.end.operands, strict=True):
                    cotangent = inner.full(value)
                    found.append(cotangent if mapped[number] else inner.summed(cotangent, op.operands[number]))
                self.builder.end("yield", found, None, block.end.where)
        return made.block

    def inside(self, block: Block, mapped: Sequence[bool]) -> tuple[Batch, Opening]:
        params = {param for param, is_mapped in zip(block.params, mapped, strict=True) if is_mapped}
        inner = Batch(self.builder, self.pool, self.size, batched_values(block, params), self.where)
        types = [inner.type_of(param) for param in block.params]
        return inner, self.builder.block(types, [param.hint for param in block.params])

    def summed(self, value: Value, like: Value) -> Value:
        """The sum over the leading axis, in the type of `like`."""
        total = sum_(self.context.handle(value), 0)
        return self.context.value_of(cast(total, like.tensor.dtype, like.tensor.weak))

    # ---- loops and branches open blocks ----

    def opened(self, params: Sequence[Value]) -> Opening:
        """Open a block with the batched types of these parameters; use with `define`."""
        return self.builder.block([self.type_of(param) for param in params], [param.hint for param in params])

    def label(self, op: Op) -> dict[str, Any]:
        """The attributes of a loop, with a label of its own."""
        label = op.attrs["label"]
        assert isinstance(label, Label)
        return {**op.attrs, "label": Label(label.name)}


_GRAD_HINT = "differentiate outside of the `vmap`, or loop a number of times that is the same for all elements"
