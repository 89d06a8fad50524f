"""Residuals: what a loop keeps per iteration for its backward pass, in an array or on a growable stack.

Tested by `tests/backends/native/test_histories.py`.
"""

from __future__ import annotations

from staged.backends.host.body import BodyEmitter, placed
from staged.code.expr import (
    Cast,
    Expr,
    Group,
    Index,
    Infix,
    Literal,
    Member,
    Prefix,
    scaled,
    size_of,
)
from staged.code.nest.value import is_zero
from staged.code.types import INDEX, constants, scalar
from staged.ir.buffers import Buffer, Stack, sequence_storage
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import SequenceType, TensorType


class Residuals:
    """The sequences that lie in an array or on a stack of their own."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body

    def base(self, result: Value) -> Expr:
        """The start of the elements of a collected sequence, in elements of its storage."""
        storage = self.body.plan.sequences[result]
        outer = self.body.collected_into.get(result)
        if isinstance(storage, Stack):
            self.body.need("stack")
            if outer is None:
                stack: Stack | None = storage
                while stack is not None:
                    self.body.code.do("st_stack_reset", self.body.field(stack))
                    stack = stack.inner
                return Literal("0")
            return self.body.local("first", INDEX, Member(self.body.field(storage), "length"))
        if outer is None:
            return Literal("0")
        outer_loop, outer_result = outer
        assert isinstance(result.type, SequenceType)
        _, count = sequence_storage(result.type)
        assert count is not None
        offset = scaled(self.body.loop_trip[outer_loop], count) or Literal("0")
        base = self.body.bases[outer_result]
        return offset if is_zero(base) else Infix("+", base, offset)

    def slot(self, op: Op, result: Value, type: TensorType) -> Expr:
        """The slot of this iteration's array in the sequence that is the loop's `result`."""
        base, trip = self.body.bases[result], self.body.loop_trip[op]
        position = trip if is_zero(base) else Infix("+", base, trip)
        return Infix(
            "+", self.body.field(self.body.plan.sequences[result]), scaled(position, type.size) or Literal("0")
        )

    def collect(self, op: Op, result: Value, value: Value) -> None:
        """Keep one value, in the sequence that is the loop's `result`."""
        trip = self.body.loop_trip[op]
        storage = self.body.plan.sequences[result]
        if isinstance(value.type, SequenceType) and isinstance(storage, Buffer):
            return  # the inner loop has written into its range of the same storage
        type = storage.element if isinstance(storage, Stack) else value.tensor
        base = self.body.bases[result]
        if isinstance(storage, Stack):
            self.body.need("stack")
            source = self.body.pointer(value) if is_tensor(value) else None
            if source is None:
                source = Prefix("&", self.body.local("kept", scalar(type.dtype), self.body.scalar(value)))
            self.body.try_(self.body.pushed(storage, source, size_of(type.size, type.dtype.c_name), type))
            return
        if is_tensor(value):
            self.body.keep(self.slot(op, result, value.tensor), result, value)
        else:
            position = trip if is_zero(base) else Infix("+", base, trip)
            self.body.assign(Index(self.body.field(storage), position), self.body.scalar(value))

    def empty(self, op: Op) -> None:
        """Write nothing: the sequence is unused, so its start does not matter."""
        self.body.bases[op.result] = Literal("0")

    def get(self, op: Op) -> None:
        sequence, index = op.operands
        storage = self.body.plan.sequences[sequence]
        base, trip = self.body.bases[sequence], self.body.scalar(index)
        position = trip if is_zero(base) else Infix("+", base, trip)
        value = op.result
        if isinstance(value.type, SequenceType):
            if isinstance(storage, Stack):
                assert storage.inner is not None, "a stack of sequences holds where they start"
                starts = Group(Cast("const int64_t *", Member(self.body.field(storage), "data")))
                self.body.plan.sequences[value] = storage.inner
                self.body.bases[value] = self.body.settled(Index(starts, position), "first")
                return
            _, count = sequence_storage(value.type)
            assert count is not None
            self.body.plan.sequences[value] = storage
            # Bases count single elements, whatever the sequences in between hold.
            start = scaled(trip, count) or Literal("0")
            self.body.bases[value] = self.body.settled(start if is_zero(base) else Infix("+", base, start), "first")
            return
        self.body.where(op.where)
        element = value.tensor
        name = self.body.name(value.hint or sequence.hint.removesuffix("_history"))
        data: Expr = self.body.field(storage)
        if isinstance(storage, Stack):
            data = Group(Cast(constants(element.dtype), Member(data, "data")))
        if is_tensor(value):
            offset = scaled(position, element.size) or Literal("0")
            start = self.body.declared(name, constants(element.dtype), Infix("+", data, offset))
            self.body.pointers[value] = placed(start, op.device)
        else:
            self.body.scalars[value] = self.body.declared(name, scalar(element.dtype), Index(data, position))
