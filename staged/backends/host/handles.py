"""The sequences that are handles: a length, and where the elements are in the program's store (`ir/sequences.py`).

Tested by `tests/backends/native/test_functions.py` and `tests/backends/native/test_histories.py`.
"""

from __future__ import annotations

from staged.backends.host.body import FRAMES, NOTHING, SEQUENCE, BodyEmitter, placed
from staged.code.expr import (
    Argument,
    Cast,
    Expr,
    Group,
    Index,
    Infix,
    Items,
    Literal,
    Member,
    Name,
    Prefix,
    call,
    scaled,
    size_of,
)
from staged.code.types import INDEX, CType, Space, constants, pointer, scalar
from staged.ir.buffers import Stack
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import FrameType, SequenceType, TensorType, Type
from staged.ir.views import Loop


class Handles:
    """The sequences that the program's text passes on as values of type `st_sequence`."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body

    def item_type(self, type: SequenceType) -> CType:
        """The C type of what an array of elements consists of."""
        element = type.element
        if isinstance(element, SequenceType):
            return SEQUENCE
        return self.body.frame_type(element) if isinstance(element, FrameType) else scalar(element.dtype)

    def item_bytes(self, type: SequenceType) -> Expr:
        """The size of one element."""
        element = type.element
        return size_of(element.size if isinstance(element, TensorType) else 1, self.item_type(type).text)

    def new_handle(self, hint: str) -> Name:
        self.body.need("sequence")
        return self.body.changing(hint, SEQUENCE, NOTHING)

    def items(self, handle: Expr, type: SequenceType, written: bool = False) -> Expr:
        """The elements of a handle as a C array."""
        array = pointer(self.item_type(type), Space.GLOBAL, is_const=not written)
        return Group(Cast(array, Member(handle, "data", False)))

    def sequence_call(self, name: str, value: Value, *arguments: Argument) -> Expr:
        """The call of a support function for sequences (make, zeros, copy, take) that gives one like `value`."""
        return call(f"st_sequence_{name}", "host", FRAMES, *arguments)

    def begin(self, result: Value) -> None:
        """Before a loop: a handle for what it collects."""
        assert isinstance(result.type, SequenceType)
        stack = self.body.plan.sequences.get(result)
        if isinstance(stack, Stack):
            self.body.need("sequence_take")
            self.body.bases[result] = self.body.local("first", INDEX, Member(self.body.field(stack), "length"))
        else:
            handle = self.new_handle(result.hint or "history")
            count, item = result.type.bound, self.item_bytes(result.type)
            assert count is not None, "what may be of any length is on a stack"
            self.body.try_(self.sequence_call("make", result, count, item, Prefix("&", handle)))
            self.body.scalars[result] = handle

    def base(self, result: Value) -> Expr:
        return Literal("0")

    def slot(self, op: Op, result: Value, type: TensorType) -> Expr:
        assert isinstance(result.type, SequenceType)
        items = self.items(self.body.scalars[result], result.type, written=True)
        return Infix("+", items, scaled(self.body.loop_trip[op], type.size) or Literal("0"))

    def collect(self, op: Op, result: Value, value: Value) -> None:
        assert isinstance(result.type, SequenceType)
        stack = self.body.plan.sequences.get(result)
        if isinstance(stack, Stack):
            if is_tensor(value):
                source: Expr = self.body.pointer(value)
            else:
                source = Prefix("&", self.body.local("kept", self.body.c_type(value), self.body.scalar(value)))
            self.body.try_(self.body.pushed(stack, source, self.item_bytes(result.type), stack.element))
            return
        if is_tensor(value):
            self.body.keep(self.slot(op, result, value.tensor), result, value)
        else:
            items = self.items(self.body.scalars[result], result.type, written=True)
            self.body.assign(Index(items, self.body.loop_trip[op]), self.body.scalar(value))

    def finish(self, op: Op, result: Value) -> None:
        """After a loop: how long what it has collected is, and out of the stacks with it."""
        assert isinstance(result.type, SequenceType)
        stack = self.body.plan.sequences.get(result)
        if isinstance(stack, Stack):
            handle = self.new_handle(result.hint or "history")
            first, item = self.body.bases[result], self.item_bytes(result.type)
            self.body.try_(self.sequence_call("take", result, self.body.field(stack), first, item, Prefix("&", handle)))
            self.body.scalars[result] = handle
        else:
            length: Expr = self.body.loop_trip[op]
            if Loop(op).by_index:
                length = Literal(str(result.type.bound))
            self.body.assign(Member(self.body.scalars[result], "length", False), length)

    def empty(self, op: Op) -> None:
        self.body.need("sequence")
        self.body.scalars[op.result] = Items(NOTHING.items, "st_sequence")

    def get(self, op: Op) -> None:
        sequence, index = op.operands
        assert isinstance(sequence.type, SequenceType)
        self.body.where(op.where)
        value = op.result
        items, trip = self.items(self.body.scalar(sequence), sequence.type), self.body.scalar(index)
        if is_tensor(value):
            offset = scaled(trip, value.tensor.size) or Literal("0")
            start = self.body.local(value.hint, constants(value.tensor.dtype), Infix("+", items, offset))
            self.body.pointers[value] = placed(start, op.device)
        else:
            self.body.scalars[value] = self.body.local(value.hint, self.body.c_type(value), Index(items, trip))

    def emit_sequence_zeros(self, op: Op) -> None:
        """Zeros of the same lengths."""
        depth, item, _ = self.innermost(op.result.type)
        handle = self.new_handle(op.result.hint or "zeros")
        self.body.where(op.where)
        like = self.like(op.operands[0])
        self.body.try_(self.sequence_call("zeros", op.result, like, depth, item, Prefix("&", handle)))
        self.body.scalars[op.result] = handle

    def like(self, sequence: Value) -> Expr:
        """A handle with the lengths of a sequence; for a family, one that has the length alone."""
        if self.body.is_handle(sequence):
            return self.body.scalar(sequence)
        assert isinstance(sequence.type, SequenceType) and sequence.type.bound is not None
        return Items((Name("NULL"), Literal(str(sequence.type.bound))), "st_sequence")

    def emit_sequence_add(self, op: Op) -> None:
        """Add to one element, in place unless the old sequence is still used."""
        sequence, index, element = op.operands
        self.body.where(op.where)
        handle = self.taken(op, 0, sequence)
        assert isinstance(sequence.type, SequenceType)
        place = Index(self.items(handle, sequence.type, written=True), self.body.scalar(index))
        if isinstance(element.type, SequenceType):
            self.add_sequences(op, place, self.body.scalar(element), element.type)
        elif isinstance(element.type, FrameType):
            # A frame has one maker: what is there is NULL, or what is added is.
            with self.body.code.branch(Infix("!=", self.body.scalar(element), Name("NULL"))):
                self.body.assign(place, self.body.scalar(element))
        elif is_tensor(element):
            type = element.tensor
            offset = scaled(self.body.scalar(index), type.size) or Literal("0")
            target = Infix("+", self.items(handle, sequence.type, written=True), offset)
            self.add_numbers(op, target, self.body.pointer(element), type)
        else:
            self.body.assign(place, self.body.scalar(element), "+")
        self.body.scalars[op.result] = handle

    def emit_sequence_sum(self, op: Op) -> None:
        """Add element by element, into the first sequence unless its old value is still used."""
        left, right = op.operands
        self.body.where(op.where)
        handle = self.taken(op, 0, left)
        assert isinstance(left.type, SequenceType)
        self.add_sequences(op, handle, self.body.scalar(right), left.type)
        self.body.scalars[op.result] = handle

    def add_numbers(self, op: Op, target: Expr, source: Expr, type: TensorType) -> None:
        """Add an array to one element of a sequence."""
        self.body.need(f"sequence_add_{type.dtype}")
        self.body.code.do(f"st_add_{type.dtype}", target, source, self.body.count(type))

    def add_sequences(self, op: Op, target: Expr, source: Expr, type: SequenceType) -> None:
        """Add the elements of one sequence to those of another."""
        depth, _, element = self.innermost(type)
        if isinstance(element, FrameType):
            self.body.need("sequence_join")
            self.body.code.do("st_sequence_join", target, source, depth)
        else:
            self.body.need(f"sequence_add_{element.dtype}")
            self.body.code.do(f"st_sequence_add_{element.dtype}", target, source, depth, element.size)

    def taken(self, site: object, index: int, value: Value) -> Expr:
        """A handle that may be added to: a copy of its own where the plan says so."""
        given = self.body.scalar(value)
        if (site, index) not in self.body.plan.copied_handles:
            return given
        depth, item, _ = self.innermost(value.type)
        handle = self.new_handle(value.hint or "copy")
        self.body.try_(self.sequence_call("copy", value, given, depth, item, Prefix("&", handle)))
        return handle

    def innermost(self, type: Type) -> tuple[int, Expr, TensorType | FrameType]:
        """(number of enclosing sequences of the innermost ones, size of their elements in C,
        type of their elements)."""
        depth = 0
        assert isinstance(type, SequenceType)
        while isinstance(type.element, SequenceType):
            type, depth = type.element, depth + 1
        return depth, self.item_bytes(type), type.element
