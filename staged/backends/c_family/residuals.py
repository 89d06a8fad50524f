"""Residuals: what a loop keeps per iteration for its backward pass, in an array or on a growable stack.

Tested by `tests/backends/native/test_histories.py`.
"""

from __future__ import annotations

from staged.backends.c_family.body import BodyEmitter
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
    scaled,
)
from staged.ir.buffers import Buffer, Stack, sequence_storage
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import SequenceType, TensorType
from staged.ir.views import Loop


class ResidualEmitter(BodyEmitter):
    """Emits collected sequences and their reads."""

    def begin_trips(self, op: Op, index: str) -> str:
        """The name of the trip counter where residuals are collected: the index itself if it counts from 0 by 1."""
        collected = Loop(op).collected
        if not collected:
            return ""
        if not index:
            index = self.name("trip")
            self.w.line(f"int64_t {index} = 0;")
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
                    self.w.line(f"st_stack_reset({self.field(stack)});")
                    stack = stack.inner
                return Literal("0")
            name = self.name("first")
            self.w.line(f"const int64_t {name} = {self.field(storage)}->length;")
            return Name(name)
        if outer is None:
            return Literal("0")
        outer_loop, outer_result = outer
        assert isinstance(result.type, SequenceType)
        _, count = sequence_storage(result.type)
        assert count is not None
        offset = scaled(Name(self.loop_trip[outer_loop]), count) or Literal("0")
        base = self.bases[outer_result]
        return offset if str(base) == "0" else Infix("+", base, offset)

    def begin_iteration(self, op: Op) -> None:
        """At the start of an iteration: the slots in which it makes what it keeps."""
        for result in Loop(op).collected:
            buffer = self.plan.kept.get(result)
            if buffer is not None:
                name = self.name(buffer.name)
                slot = self.slot(op, result, buffer.type)
                self.w.line(f"{buffer.type.dtype.c_name} *const {name} = {slot};")
                self.places[buffer] = Name(name)

    def slot(self, op: Op, result: Value, type: TensorType) -> Expr:
        """The slot of this iteration's array in the sequence that is the loop's `result`."""
        base, trip = self.bases[result], Name(self.loop_trip[op])
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
        trip = Name(self.loop_trip[op])
        storage = self.plan.sequences[result]
        if isinstance(value.type, SequenceType) and isinstance(storage, Buffer):
            return  # the inner loop has written into its range of the same storage
        type = storage.element if isinstance(storage, Stack) else value.tensor
        base = self.bases[result]
        if isinstance(storage, Stack):
            self.need("stack")
            source = self.pointer(value) if is_tensor(value) else None
            if source is None:
                name = self.name("kept")
                self.w.line(f"const {type.dtype.c_name} {name} = {self.scalar(value)};")
                source = Prefix("&", Name(name))
            count = f"{type.size} * " if type.size != 1 else ""
            push = self.pushed(storage, source, f"{count}sizeof({type.dtype.c_name})", type)
            with self.w.block(f"if ({push} != ST_OK)"):
                self.w.line("return host->error_kind;")
            return
        if is_tensor(value):
            self.keep(op, result, value)
        else:
            position = trip if str(base) == "0" else Infix("+", base, trip)
            self.w.line(f"{Index(self.field(storage), position)} = {self.scalar(value)};")

    def keep(self, op: Op, result: Value, value: Value) -> None:
        """Copy an array into this iteration's slot, unless it was made there."""
        place = self.plan.kept.get(result)
        slot = self.slot(op, result, value.tensor) if place is None else self.places[place]
        origin = self.pointer(value)
        if str(slot) != str(origin):
            self.copy(slot, origin, value.tensor)

    def pushed(self, stack: Stack, source: Expr, item_bytes: str, type: TensorType) -> str:
        """The call that puts an item onto a stack: of an array with fewer rows than it may have,
        those that there are."""
        item = f"host, {self.field(stack)}, {source}, {item_bytes}"
        if self.count(type) == str(type.size):
            return f"st_stack_push({item})"
        return f"st_stack_push_part({item}, {self.count(type)} * sizeof({type.dtype.c_name}))"

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
        c_type = element.dtype.c_name
        data: Expr = self.field(storage)
        if isinstance(storage, Stack):
            data = Group(Cast(f"const {c_type} *", Member(data, "data")))
        if is_tensor(value):
            offset = scaled(position, element.size) or Literal("0")
            self.w.line(f"const {c_type} *const {name} = {Infix('+', data, offset)};")
            self.pointers[value] = Name(name)
        else:
            self.w.line(f"const {c_type} {name} = {Index(data, position)};")
            self.scalars[value] = Name(name)
