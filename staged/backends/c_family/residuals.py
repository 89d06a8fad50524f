"""Residuals: what a loop keeps per iteration for its backward pass, in an array or on a growable stack.

Tested by `tests/backends/native/test_histories.py`.
"""

from __future__ import annotations

from staged.backends.c_family.body import BodyEmitter
from staged.backends.c_family.code.types import INDEX, Space, constants, pointer, scalar
from staged.backends.c_family.expr import (
    Cast,
    Expr,
    Group,
    Index,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    call,
    scaled,
    size_of,
)
from staged.ir.buffers import Buffer, Stack, sequence_storage
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import SequenceType, TensorType
from staged.ir.views import Loop


class ResidualEmitter(BodyEmitter):
    """Emits collected sequences and their reads."""

    def begin_trips(self, op: Op, index: Name | None) -> Name | None:
        """The trip counter where residuals are collected: the `index` itself, if it counts from 0 by 1."""
        collected = Loop(op).collected
        if not collected:
            return None
        if index is None:
            index = self.changing("trip", INDEX, Literal("0"))
        self.loop_trip[op] = index
        for result in collected:
            self.bases[result] = self.sequence_base(result)
        return index

    def sequence_base(self, result: Value) -> Expr:
        """The start of the elements of a collected sequence, in elements of its storage."""
        storage = self.plan.sequences[result]
        outer = self.collected_into.get(result)
        if isinstance(storage, Stack):
            self.need("stack")
            if outer is None:
                stack: Stack | None = storage
                while stack is not None:
                    self.code.do("st_stack_reset", self.field(stack))
                    stack = stack.inner
                return Literal("0")
            return self.local("first", INDEX, Member(self.field(storage), "length"))
        if outer is None:
            return Literal("0")
        outer_loop, outer_result = outer
        assert isinstance(result.type, SequenceType)
        _, count = sequence_storage(result.type)
        assert count is not None
        offset = scaled(self.loop_trip[outer_loop], count) or Literal("0")
        base = self.bases[outer_result]
        return offset if str(base) == "0" else Infix("+", base, offset)

    def begin_iteration(self, op: Op) -> None:
        """At the start of an iteration: the slots in which it makes what it keeps."""
        for result in Loop(op).collected:
            buffer = self.plan.kept.get(result)
            if buffer is not None:
                name = self.name(buffer.name)
                slot = self.slot(op, result, buffer.type)
                self.places[buffer] = self.declared(name, pointer(scalar(buffer.type.dtype), Space.GLOBAL), slot)

    def slot(self, op: Op, result: Value, type: TensorType) -> Expr:
        """The slot of this iteration's array in the sequence that is the loop's `result`."""
        base, trip = self.bases[result], self.loop_trip[op]
        position = trip if str(base) == "0" else Infix("+", base, trip)
        return Infix("+", self.field(self.plan.sequences[result]), scaled(position, type.size) or Literal("0"))

    def collect(self, op: Op, values: tuple[Value, ...]) -> None:
        """Keep this iteration's residuals."""
        if not values:
            return
        for result, value in zip(op.results[-len(values) :], values, strict=True):
            self.collect_one(op, result, value)

    def collect_one(self, op: Op, result: Value, value: Value) -> None:
        """Keep one value, in the sequence that is the loop's `result`."""
        trip = self.loop_trip[op]
        storage = self.plan.sequences[result]
        if isinstance(value.type, SequenceType) and isinstance(storage, Buffer):
            return  # the inner loop has written into its range of the same storage
        type = storage.element if isinstance(storage, Stack) else value.tensor
        base = self.bases[result]
        if isinstance(storage, Stack):
            self.need("stack")
            source = self.pointer(value) if is_tensor(value) else None
            if source is None:
                source = Prefix("&", self.local("kept", scalar(type.dtype), self.scalar(value)))
            self.try_(self.pushed(storage, source, size_of(type.size, type.dtype.c_name), type))
            return
        if is_tensor(value):
            self.keep(op, result, value)
        else:
            position = trip if str(base) == "0" else Infix("+", base, trip)
            self.assign(Index(self.field(storage), position), self.scalar(value))

    def keep(self, op: Op, result: Value, value: Value) -> None:
        """Copy an array into this iteration's slot, unless it was made there."""
        place = self.plan.kept.get(result)
        slot = self.slot(op, result, value.tensor) if place is None else self.places[place]
        origin = self.pointer(value)
        if str(slot) != str(origin):
            self.copy(slot, origin, value.tensor)

    def pushed(self, stack: Stack, source: Expr, item_bytes: Expr, type: TensorType) -> Expr:
        """The call that puts an item onto a stack: of an array with fewer rows than it may have,
        those that there are."""
        item = "host", self.field(stack), source, item_bytes
        if isinstance(self.count(type), Literal):
            return call("st_stack_push", *item)
        return call("st_stack_push_part", *item, self.nbytes(type))

    def emit_absent(self, op: Op) -> None:
        """Write nothing: the value is unused."""

    def emit_sequence_empty(self, op: Op) -> None:
        """Write nothing: the sequence is unused, so its start does not matter."""
        self.bases[op.result] = Literal("0")

    def emit_sequence_get(self, op: Op) -> None:
        sequence, index = op.operands
        storage = self.plan.sequences[sequence]
        base, trip = self.bases[sequence], self.scalar(index)
        position = trip if str(base) == "0" else Infix("+", base, trip)
        value = op.result
        if isinstance(value.type, SequenceType):
            if isinstance(storage, Stack):
                assert storage.inner is not None, "a stack of sequences holds where they start"
                starts = Group(Cast("const int64_t *", Member(self.field(storage), "data")))
                self.plan.sequences[value] = storage.inner
                self.bases[value] = self.settled(Index(starts, position), "first")
                return
            _, count = sequence_storage(value.type)
            assert count is not None
            self.plan.sequences[value] = storage
            # Bases count single elements, whatever the sequences in between hold.
            start = scaled(trip, count) or Literal("0")
            self.bases[value] = self.settled(start if str(base) == "0" else Infix("+", base, start), "first")
            return
        self.where(op.where)
        element = value.tensor
        name = self.name(value.hint or sequence.hint.removesuffix("_history"))
        data: Expr = self.field(storage)
        if isinstance(storage, Stack):
            data = Group(Cast(constants(element.dtype), Member(data, "data")))
        if is_tensor(value):
            offset = scaled(position, element.size) or Literal("0")
            self.pointers[value] = self.declared(name, constants(element.dtype), Infix("+", data, offset))
        else:
            self.scalars[value] = self.declared(name, scalar(element.dtype), Index(data, position))
