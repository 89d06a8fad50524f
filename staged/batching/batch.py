"""The writer of mapped code, and the tables of how it writes each op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from staged.batching.masks import Mask
from staged.batching.rules import rule_of
from staged.batching.spread import is_container
from staged.batching.values import batched_type, repeat
from staged.errors import StagingError
from staged.ir.builder import Builder, OpenBlock
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import Block, Label, Op, Value
from staged.ir.op_table import OpTable
from staged.ir.sizes import Extent
from staged.ir.structure import RAISE
from staged.ops.record import RecordContext
from staged.source import Position

Opening = AbstractContextManager[OpenBlock]


BatchRule = Callable[["Batch", Op], None]
"""Writes the batched form of an op."""

BATCHED: OpTable[BatchRule] = OpTable()
"""The rules of ops that depend on what is mapped; primitives have theirs in `rules.py`."""

CONTROL_FLOW: OpTable[BatchRule] = OpTable()
"""The rules of ops that are written anew in any case: their blocks read values from outside, or stand where a choice is
made.
"""


class Batch:
    """Writes batched code. `values` maps the values of the mapped block to their batched forms."""

    def __init__(
        self, builder: Builder, pool: FunctionPool, size: Extent, batched: set[Value], where: Position | None
    ) -> None:
        self.builder = builder
        self.pool = pool
        self.size = size
        self.batched = batched
        self.where = where
        self.values: dict[Value, Value] = {}
        self.context = RecordContext(builder, locate=lambda: self.where)
        self.masks: list[Mask] = []
        """Of the branches and loops that are being written, the outermost first."""

    # ---- values ----

    def value(self, value: Value) -> Value:
        """The batched form of a value."""
        return self.values.get(value, value)

    def full(self, value: Value) -> Value:
        """The batched form of a value, with the leading axis in any case."""
        made = self.value(value)
        return made if value in self.batched else self.repeated(made)

    def repeated(self, value: Value) -> Value:
        """A value without the leading axis, repeated along it."""
        assert not is_container(value), "sequences and frames are batched where they are made"
        return self.context.value_of(repeat(self.context.handle(value), self.size))

    def as_batched(self, value: Value, is_batched: bool) -> Value:
        """The batched form of `value`, with the leading axis if `is_batched`."""
        return self.full(value) if is_batched else self.value(value)

    def type_of(self, value: Value) -> Any:
        """The type of the batched form of a value."""
        return batched_type(value.type, self.size, self.pool) if value in self.batched else value.type

    def define(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Replace old values by new ones, which take their names."""
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
        control_flow = CONTROL_FLOW.get(op.declared)
        if control_flow is not None:
            control_flow(self, op)
        elif not any(value in self.batched for value in (*op.operands, *op.results)):
            self.copied(op, [self.value(operand) for operand in op.operands], [value.type for value in op.results])
        else:
            BATCHED.get(op.declared, batch_primitive)(self, op)

    def copied(self, op: Op, operands: Sequence[Value], types: Sequence[Any], **changes: Any) -> None:
        """The same op on these operands."""
        made = self.builder.append(op.replace(operands=operands, result_types=types, **changes))
        self.define(op.results, made.results)

    @contextmanager
    def under(self, mask: Mask, outside: Sequence[Value]) -> Iterator[None]:
        """Write code under `mask`: inside the `with`, the values `outside` are replaced by their masked substitutes."""
        before = dict(self.values)
        for value in outside:
            if value not in self.batched:
                continue
            if is_container(value):
                mask.containers.add(value)
            else:
                self.values[value] = mask.substitute(self.value(value))
        self.masks.append(mask)
        try:
            yield
        finally:
            self.masks.pop()
            for value in outside:
                if value in before:
                    self.values[value] = before[value]
                else:
                    self.values.pop(value, None)

    # ---- loops and branches open blocks ----

    def opened(self, params: Sequence[Value]) -> Opening:
        """Open a block with the batched types of these parameters; use with `define`."""
        return self.builder.block([self.type_of(param) for param in params], [param.hint for param in params])

    def label(self, op: Op) -> dict[str, Any]:
        """The attributes of a loop, with a label of its own."""
        label = op.attrs["label"]
        assert isinstance(label, Label)
        return {**op.attrs, "label": Label(label.name)}


def batch_primitive(batch: Batch, op: Op) -> None:
    """Emit the batched form of an op without blocks, by the rule of its name or kind."""
    if any(effect.kind not in ("fail", "comm") for effect in op.effects) or op.declared is RAISE:
        raise batch.refuse(
            op, f"`{op.name}` of a mapped value inside a `vmap`", "return the value, and do this after the `vmap`"
        )
    if op.declared.kind == "structured":
        raise batch.refuse(
            op,
            f"`{op.name}` of a mapped value inside a `vmap` cannot be batched",
            "call it for each element in a loop: `for row in x:`",
        )
    handles = [batch.context.handle(batch.value(operand)) for operand in op.operands]
    flags = [operand in batch.batched for operand in op.operands]
    results = rule_of(op)(op, handles, flags, batch.size)
    batch.define(op.results, [batch.context.value_of(result) for result in results])
