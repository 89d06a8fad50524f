"""The frames of calls: records that a function leaves in the program's store for its reverse.

Tested by `tests/backends/native/test_functions.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from staged.backends.host.body import BodyEmitter, placed
from staged.code.expr import (
    Expr,
    Infix,
    Member,
    Name,
)
from staged.code.types import Space, pointer, word
from staged.code.writer import Names, with_comment
from staged.ir.buffers import Plan
from staged.ir.functions import components, every_function, function_table
from staged.ir.nodes import Block, FrameRecord, Function, Op
from staged.ir.sequences import takes_store
from staged.ir.storage import is_absent, is_tensor, structural_ops, where_made
from staged.ir.structure import CALL, FRAME_SAVE
from staged.ir.types import CPU, FrameType, SequenceType, TensorType, shape_text
from staged.ir.views import Call
from staged.source import Position


class Frames:
    """Emits frames."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body

    def begin(self, block: Block) -> None:
        """At a function's start: the frames in which it makes what they hold."""
        for op in block.ops:
            if any((op, number) in self.body.plan.fields for number in range(len(op.operands))):
                frame = self.push_frame(op)
                for number in range(len(op.operands)):
                    if (op, number) in self.body.plan.fields:
                        buffer = self.body.plan.fields[op, number]
                        self.body.places[buffer] = placed(self.saved_field(op, number, frame), buffer.device)

    def push_frame(self, op: Op) -> Expr:
        """Take a record from the store."""
        self.body.need("frames")
        type = op.result.type
        assert isinstance(type, FrameType)
        record = self.body.frame_names[type.name]
        made, to = self.body.new_frame(record), pointer(word(record), Space.GLOBAL)
        name = self.body.scalars[op.result] = self.body.local(op.result.hint or "frame", to, made)
        self.body.leave_if(Infix("==", name, Name("NULL")))
        return name

    def saved_field(self, op: Op, number: int, frame: Expr) -> Expr:
        """The field of a saved frame for the operand of a number."""
        type = op.result.type
        assert isinstance(type, FrameType)
        record = self.body.records[type.name]
        field = Member(frame, self.body.frame_fields[type.name][number])
        is_array = isinstance(record.fields[number][1], TensorType)
        return placed(field, record.device(number)) if is_array else field

    def emit_frame_save(self, op: Op) -> None:
        """Store the values that the frame does not hold yet."""
        self.body.where(op.where)
        frame = self.body.scalars[op.result] if op.result in self.body.scalars else self.push_frame(op)
        for number, value in enumerate(op.operands):
            place = self.saved_field(op, number, frame)
            if (op, number) in self.body.plan.fields or is_absent(value):
                continue
            if is_tensor(value):
                self.body.copy(place, self.body.pointer(value), value.tensor)
            else:
                self.body.assign(place, self.body.scalar(value))

    def emit_frame_load(self, op: Op) -> None:
        """The fields are read where they are needed."""
        (frame,) = op.operands
        type = frame.type
        assert isinstance(type, FrameType)
        handle = self.body.scalar(frame)
        devices = itertools.chain(op.attrs.get("devices", ()), itertools.repeat(CPU))
        for field, value, device in zip(self.body.frame_fields[type.name], op.results, devices, strict=False):
            place = Member(handle, field)
            if is_tensor(value):
                self.body.pointers[value] = placed(place, device)
            else:
                self.body.scalars[value] = place

    def emit_frame_null(self, op: Op) -> None:
        self.body.scalars[op.result] = Name("NULL")


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
        lines.append("    " + with_comment(declaration, note.strip(), 1))
    if not fields:
        lines.append("    char none;  // the call keeps nothing: what it was given says it all")
    return [*lines, "};"]


def field_names(record: FrameRecord, taken: Iterable[str] = ()) -> tuple[str, ...]:
    """The C names of a frame's fields, none of them `taken`."""
    names = Names()
    names.used.update(taken)
    return tuple(names.fresh(name) for name, _ in record.fields)
