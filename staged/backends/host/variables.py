"""Reads and writes of Variables, and of members of families.

Tested by `tests/backends/native/test_golden.py` and `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from staged.backends.host.body import BodyEmitter
from staged.backends.host.short_kernels import is_fill, is_zero_fill
from staged.code.expr import Expr, Prefix
from staged.ir.nodes import Block, Op, Value, VariableRef, walk_op
from staged.ir.storage import is_tensor, structural_blocks
from staged.ir.structure import VARIABLE_READ, VARIABLE_WRITE
from staged.ir.types import CPU, SequenceType, TensorType


class Variables:
    """Emits reads and writes: copies of arrays if the memory plan asks for them, assignments of numbers."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body
        self.updated = {
            read for block in structural_blocks(body.function.block) for read in _updated(block, body.use_count)
        }
        """The reads of numbers at whose only use the Variable still has the number: it becomes the next one there."""

    def emit_read(self, op: Op) -> None:
        body, value = self.body, op.result
        if isinstance(value.type, SequenceType):
            return  # the ops that need an element read it
        if op in self.updated:
            body.scalars[value] = self.number(op)
        elif not is_tensor(value):
            body.where(op.where)
            if "note" in op.attrs:
                body.code.comment(op.attrs["note"])
            body.declare(value, self.number(op))
        elif op in body.plan.copied_reads:
            body.where(op.where)
            body.copy(body.pointer(value), self.array(op), value.tensor)

    def emit_write(self, op: Op) -> None:
        body, value = self.body, op.operands[0]
        if not is_tensor(value):
            body.where(op.where)
            body.update(self.number(op), body.scalar(value))
            return
        target = self.array(op)
        if target == body.pointer(value):
            return
        body.where(op.where)
        fill, type = value.producer, op.attrs["variable"].type
        if fill is not None and fill.device == CPU and is_zero_fill(fill):  # one fill may be of several Variables
            body.fill_with_zeros(target, type)
        elif fill is not None and is_fill(fill) and fill in body.kernels:
            body.text.called.append(fill)
            body.call_kernel(body, fill, [], [target])
        else:
            body.copy(target, body.pointer(value), type)

    def number(self, access: Op) -> Expr:
        """The number that an op reads or writes."""
        body = self.body
        variable: VariableRef = access.attrs["variable"]
        if variable.members:
            return body.member(variable, access.operands[-1])
        if variable in body.scalar_variables:
            return body.scalar_variables[variable]
        return Prefix("*", body.argument_fields[variable].at(body.args))

    def array(self, access: Op) -> Expr:
        """The first element of the array that an op reads or writes."""
        body = self.body
        variable: VariableRef = access.attrs["variable"]
        return body.member(variable, access.operands[-1]) if variable.members else body.variable_array(variable)


def _updated(block: Block, use_count: Mapping[Value, int]) -> Iterator[Op]:
    """The reads of numeric Variables whose only use computes what the block writes to the Variable next."""
    reads: dict[Value, Op] = {}
    for op in block.ops:
        if op.declared is VARIABLE_READ and isinstance(op.result.type, TensorType) and not is_tensor(op.result):
            reads[op.result] = op
        elif op.declared is VARIABLE_WRITE and not is_tensor(op.operands[0]):
            update = op.operands[0].producer
            used = [] if update is None or use_count[op.operands[0]] > 1 else update.operands
            for read in (reads[value] for value in used if value in reads and use_count[value] == 1):
                if (read.attrs["variable"], *read.operands) == (op.attrs["variable"], *op.operands[1:]):
                    yield read
        changed = {effect.target for inner in walk_op(op) for effect in inner.effects if effect.kind == "write"}
        if changed:
            reads = {value: read for value, read in reads.items() if read.attrs["variable"] not in changed}
