"""The contents of the program's store: frames of calls, and the sequences that are handles (`ir/sequences.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staged.backends.c_family.body import SEQUENCE
from staged.backends.c_family.code.types import INDEX, CType, Space, constants, pointer, scalar, word
from staged.backends.c_family.expr import (
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
    Sizeof,
    call,
    member,
    scaled,
    size_of,
)
from staged.backends.c_family.residuals import ResidualEmitter
from staged.backends.c_family.writer import safe_comment
from staged.ir.buffers import Plan, Stack
from staged.ir.functions import components, every_function, function_table
from staged.ir.nodes import Block, FrameRecord, Function, Op, Value
from staged.ir.sequences import takes_store
from staged.ir.storage import is_absent, is_tensor, structural_ops, where_made
from staged.ir.structure import CALL, FRAME_SAVE
from staged.ir.types import CPU, FrameType, SequenceType, TensorType, Type, shape_text
from staged.ir.views import Call, Loop
from staged.source import Position

FRAMES = member("m", "frames")
"""The program's store."""
NOTHING = Items((Name("NULL"), Literal("0")))
"""A handle of no elements."""


class FrameEmitter(ResidualEmitter):
    """Emits frames and handles. `frame_fields` has, by record, the C names of a frame's fields."""

    frame_fields: Mapping[str, tuple[str, ...]]
    storing: frozenset[str]
    """The functions of the program that do."""

    # ---- types ----

    def item_type(self, type: SequenceType) -> CType:
        """The C type of what an array of elements consists of."""
        element = type.element
        if isinstance(element, SequenceType):
            return SEQUENCE
        return self.frame_type(element) if isinstance(element, FrameType) else scalar(element.dtype)

    def item_bytes(self, type: SequenceType) -> Expr:
        """The size of one element."""
        element = type.element
        return size_of(element.size if isinstance(element, TensorType) else 1, self.item_type(type).text)

    def is_handle(self, value: Value) -> bool:
        return value in self.plan.handles.values

    def new_handle(self, hint: str) -> Name:
        self.need("sequence")
        return self.changing(hint, SEQUENCE, NOTHING)

    def items(self, handle: Expr, type: SequenceType, written: bool = False) -> Expr:
        """The elements of a handle as a C array."""
        array = pointer(self.item_type(type), Space.GLOBAL, is_const=not written)
        return Group(Cast(array, Member(handle, "data", False)))

    # ---- sequences ----

    def sequence_call(self, name: str, value: Value, *arguments: Argument) -> Expr:
        """The call of a support function for sequences (make, zeros, copy, take) that gives one like `value`."""
        return call(f"st_sequence_{name}", "host", FRAMES, *arguments)

    def begin_trips(self, op: Op, index: Name | None) -> Name | None:
        results = [result for result in Loop(op).collected if self.is_handle(result)]
        if not results:
            return super().begin_trips(op, index)
        index = super().begin_trips(op, None)  # it is needed after the loop
        for result in results:
            assert isinstance(result.type, SequenceType)
            stack = self.plan.sequences.get(result)
            if isinstance(stack, Stack):
                self.need("sequence_take")
                self.bases[result] = self.local("first", INDEX, Member(self.field(stack), "length"))
            else:
                handle = self.new_handle(result.hint or "history")
                count, item = result.type.bound, self.item_bytes(result.type)
                assert count is not None, "what may be of any length is on a stack"
                self.try_(self.sequence_call("make", result, count, item, Prefix("&", handle)))
                self.scalars[result] = handle
        return index

    def sequence_base(self, result: Value) -> Expr:
        return Literal("0") if self.is_handle(result) else super().sequence_base(result)

    def slot(self, op: Op, result: Value, type: TensorType) -> Expr:
        if not self.is_handle(result):
            return super().slot(op, result, type)
        assert isinstance(result.type, SequenceType)
        items = self.items(self.scalars[result], result.type, written=True)
        return Infix("+", items, scaled(self.loop_trip[op], type.size) or Literal("0"))

    def collect_one(self, op: Op, result: Value, value: Value) -> None:
        if not self.is_handle(result):
            super().collect_one(op, result, value)
            return
        assert isinstance(result.type, SequenceType)
        stack = self.plan.sequences.get(result)
        if isinstance(stack, Stack):
            if is_tensor(value):
                source: Expr = self.pointer(value)
            else:
                source = Prefix("&", self.local("kept", self.c_type(value), self.scalar(value)))
            self.try_(self.pushed(stack, source, self.item_bytes(result.type), stack.element))
            return
        if is_tensor(value):
            self.keep(op, result, value)
        else:
            items = self.items(self.scalars[result], result.type, written=True)
            self.assign(Index(items, self.loop_trip[op]), self.scalar(value))

    def finish_handles(self, op: Op) -> None:
        """After a loop: how long what it has collected is, and out of the stacks with it."""
        for result in Loop(op).collected:
            if not self.is_handle(result):
                continue
            assert isinstance(result.type, SequenceType)
            stack = self.plan.sequences.get(result)
            if isinstance(stack, Stack):
                handle = self.new_handle(result.hint or "history")
                first, item = self.bases[result], self.item_bytes(result.type)
                self.try_(self.sequence_call("take", result, self.field(stack), first, item, Prefix("&", handle)))
                self.scalars[result] = handle
            else:
                self.assign(Member(self.scalars[result], "length", False), self.loop_trip[op])

    def emit_sequence_empty(self, op: Op) -> None:
        if self.is_handle(op.result):
            self.need("sequence")
            self.scalars[op.result] = Items((Name("NULL"), Literal("0")), "st_sequence")
        else:
            super().emit_sequence_empty(op)

    def emit_sequence_get(self, op: Op) -> None:
        sequence, index = op.operands
        if not self.is_handle(sequence):
            super().emit_sequence_get(op)
            return
        assert isinstance(sequence.type, SequenceType)
        self.where(op.where)
        value = op.result
        items, trip = self.items(self.scalar(sequence), sequence.type), self.scalar(index)
        if is_tensor(value):
            offset = scaled(trip, value.tensor.size) or Literal("0")
            self.pointers[value] = self.local(value.hint, constants(value.tensor.dtype), Infix("+", items, offset))
        else:
            self.scalars[value] = self.local(value.hint, self.c_type(value), Index(items, trip))

    def emit_sequence_zeros(self, op: Op) -> None:
        """Zeros of the same lengths."""
        depth, item, _ = self.innermost(op.result.type)
        handle = self.new_handle(op.result.hint or "zeros")
        self.where(op.where)
        like = self.scalar(op.operands[0])
        self.try_(self.sequence_call("zeros", op.result, like, depth, item, Prefix("&", handle)))
        self.scalars[op.result] = handle

    def emit_sequence_add(self, op: Op) -> None:
        """Add to one element, in place unless the old sequence is still used."""
        sequence, index, element = op.operands
        self.where(op.where)
        handle = self.taken(op, 0, sequence)
        assert isinstance(sequence.type, SequenceType)
        place = Index(self.items(handle, sequence.type, written=True), self.scalar(index))
        if isinstance(element.type, SequenceType):
            self.add_sequences(op, place, self.scalar(element), element.type)
        elif isinstance(element.type, FrameType):
            # A frame has one maker: what is there is NULL, or what is added is.
            with self.code.branch(Infix("!=", self.scalar(element), Name("NULL"))):
                self.assign(place, self.scalar(element))
        elif is_tensor(element):
            type = element.tensor
            offset = scaled(self.scalar(index), type.size) or Literal("0")
            target = Infix("+", self.items(handle, sequence.type, written=True), offset)
            self.add_numbers(op, target, self.pointer(element), type)
        else:
            self.assign(place, self.scalar(element), "+")
        self.scalars[op.result] = handle

    def emit_sequence_sum(self, op: Op) -> None:
        """Add element by element, into the first sequence unless its old value is still used."""
        left, right = op.operands
        self.where(op.where)
        handle = self.taken(op, 0, left)
        assert isinstance(left.type, SequenceType)
        self.add_sequences(op, handle, self.scalar(right), left.type)
        self.scalars[op.result] = handle

    def add_numbers(self, op: Op, target: Expr, source: Expr, type: TensorType) -> None:
        """Add an array to one element of a sequence."""
        self.need(f"sequence_add_{type.dtype}")
        self.code.do(f"st_add_{type.dtype}", target, source, self.count(type))

    def add_sequences(self, op: Op, target: Expr, source: Expr, type: SequenceType) -> None:
        """Add the elements of one sequence to those of another."""
        depth, _, element = self.innermost(type)
        if isinstance(element, FrameType):
            self.need("sequence_join")
            self.code.do("st_sequence_join", target, source, depth)
        else:
            self.need(f"sequence_add_{element.dtype}")
            self.code.do(f"st_sequence_add_{element.dtype}", target, source, depth, element.size)

    def taken(self, site: object, index: int, value: Value) -> Expr:
        """A handle that may be added to: a copy of its own where the plan says so."""
        given = self.scalar(value)
        if (site, index) not in self.plan.copied_handles:
            return given
        depth, item, _ = self.innermost(value.type)
        handle = self.new_handle(value.hint or "copy")
        self.try_(self.sequence_call("copy", value, given, depth, item, Prefix("&", handle)))
        return handle

    def innermost(self, type: Type) -> tuple[int, Expr, TensorType | FrameType]:
        """(number of enclosing sequences of the innermost ones, size of their elements in C,
        type of their elements)."""
        depth = 0
        assert isinstance(type, SequenceType)
        while isinstance(type.element, SequenceType):
            type, depth = type.element, depth + 1
        return depth, self.item_bytes(type), type.element

    # ---- frames ----

    def begin_frames(self, block: Block) -> None:
        """At a function's start: the frames in which it makes what they hold."""
        for op in block.ops:
            if any((op, number) in self.plan.fields for number in range(len(op.operands))):
                frame = self.push_frame(op)
                for number in range(len(op.operands)):
                    if (op, number) in self.plan.fields:
                        self.places[self.plan.fields[op, number]] = self.saved_field(op, number, frame)

    def push_frame(self, op: Op) -> Expr:
        """Take a record from the store."""
        self.need("frames")
        type = op.result.type
        assert isinstance(type, FrameType)
        return self.new_frame(op, call("st_frames_push", "host", FRAMES, Sizeof(self.frame_names[type.name])))

    def new_frame(self, op: Op, made: Expr) -> Expr:
        """Declare a record, which a call makes or fails to."""
        type = op.result.type
        assert isinstance(type, FrameType)
        record = pointer(word(self.frame_names[type.name]), Space.GLOBAL)
        name = self.scalars[op.result] = self.local(op.result.hint or "frame", record, made)
        self.leave_if(Infix("==", name, Name("NULL")))
        return name

    def saved_field(self, op: Op, number: int, frame: Expr) -> Expr:
        """The field of a saved frame for the operand of a number."""
        type = op.result.type
        assert isinstance(type, FrameType)
        return Member(frame, self.frame_fields[type.name][number])

    def emit_frame_save(self, op: Op) -> None:
        """Store the values that the frame does not hold yet."""
        self.where(op.where)
        frame = self.scalars[op.result] if op.result in self.scalars else self.push_frame(op)
        for number, value in enumerate(op.operands):
            place = self.saved_field(op, number, frame)
            if (op, number) in self.plan.fields or is_absent(value):
                continue
            if is_tensor(value):
                self.copy(place, self.pointer(value), value.tensor)
            else:
                self.assign(place, self.scalar(value))

    def emit_frame_load(self, op: Op) -> None:
        """The fields are read where they are needed."""
        (frame,) = op.operands
        type = frame.type
        assert isinstance(type, FrameType)
        handle = self.scalar(frame)
        for field, value in zip(self.frame_fields[type.name], op.results, strict=True):
            place = Member(handle, field)
            if is_tensor(value):
                self.pointers[value] = place
            else:
                self.scalars[value] = place

    def emit_frame_null(self, op: Op) -> None:
        self.scalars[op.result] = Name("NULL")

    # ---- giving back ----

    def takes_store(self, block: Block) -> bool:
        """Return whether anything in `block` takes memory of the store."""
        return any(
            takes_store(op, self.plan.handles) or (op.declared is CALL and Call(op).function in self.storing)
            for op in structural_ops(block)
        )

    def keep_store(self, hint: str) -> Name:
        """Note how much of the store is in use; returns the mark."""
        self.need("frames")
        return self.local(hint, INDEX, call("st_frames_mark", FRAMES))

    def release_store(self, mark: Name) -> None:
        self.code.do("st_frames_release", FRAMES, mark)


def storing_functions(program: Function, plans: Mapping[str, Plan]) -> frozenset[str]:
    """The functions of a program that take memory of the store, themselves or through what they call."""
    found: set[str] = set()
    table = function_table(program)
    for group in components(program):
        ops = [(op, plans[name].handles) for name in group for op in structural_ops(table[name].block)]
        if any(takes_store(op, handles) or (op.declared is CALL and Call(op).function in found) for op, handles in ops):
            found.update(group)
    return frozenset(found)


def field_origins(program: Function) -> dict[str, list[Position | None]]:
    """By record, the lines of the user that make what its fields hold."""
    found: dict[str, list[Position | None]] = {}
    for function in every_function(program):
        for op in structural_ops(function.block):
            if op.declared is FRAME_SAVE:
                assert isinstance(op.result.type, FrameType)
                found.setdefault(op.result.type.name, [where_made(value) for value in op.operands])
    return found


def frame_text(
    record: FrameRecord,
    c_name: str,
    fields: tuple[str, ...],
    frames: Mapping[str, str],
    origins: Sequence[Position | None],
) -> list[str]:
    """The C struct of a frame, line by line."""
    lines = [f"struct {c_name} {{"]
    for number, ((_, type), field, where) in enumerate(zip(record.fields, fields, origins, strict=True)):
        note = f"  {where.short}  {where.text}" if where else ""
        if isinstance(type, FrameType):
            declaration = f"const {frames[type.name]} *{field};"
        elif isinstance(type, SequenceType):
            declaration, note = f"st_sequence {field};", f"  {type}{note}"
        elif record.device(number) != CPU:
            declaration = f"{type.dtype.c_name} *{field};"
            note = f"  {shape_text(type.shape)} on the device{note}"
        elif type.shape:
            declaration = f"{type.dtype.c_name} {field}[{max(type.size, 1)}];"
            note = f"  {shape_text(type.shape)}{note}"
        else:
            declaration = f"{type.dtype.c_name} {field};"
        lines.append(f"    {declaration}" + (f"  // {safe_comment(note.strip())}" if note else ""))
    if not fields:
        lines.append("    char none;  // the call keeps nothing: what it was given says it all")
    return [*lines, "};"]
