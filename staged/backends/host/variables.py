"""Reads and writes of Variables, and of members of families.

Tested by `tests/backends/native/test_golden.py` and `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from staged.backends.host.body import BodyEmitter
from staged.backends.host.short_kernels import is_zero_fill
from staged.code.expr import Expr, Prefix
from staged.ir.nodes import Op, VariableRef
from staged.ir.storage import is_tensor
from staged.ir.types import CPU, SequenceType


class Variables:
    """Emits reads and writes: copies of arrays if the memory plan asks for them, assignments of numbers."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body

    def emit_read(self, op: Op) -> None:
        body, value = self.body, op.result
        if isinstance(value.type, SequenceType):
            return  # the ops that need an element read it
        if not is_tensor(value):
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
        assert variable.outer, f"inner scalar variable {variable.name} has no place"
        return Prefix("*", body.argument_fields[variable].at(body.args))

    def array(self, access: Op) -> Expr:
        """The first element of the array that an op reads or writes."""
        body = self.body
        variable: VariableRef = access.attrs["variable"]
        return body.member(variable, access.operands[-1]) if variable.members else body.variable_array(variable)
