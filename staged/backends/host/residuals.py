"""Residuals: what a loop keeps per iteration for its backward pass, in an array or on a growable stack.

Tested by `tests/backends/native/test_histories.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from staged.backends.host.body import BodyEmitter, placed
from staged.backends.host.loop_structs import Slot
from staged.code.expr import (
    Cast,
    Expr,
    Group,
    Index,
    Infix,
    Literal,
    Member,
    Prefix,
    Sizeof,
    Variable,
    infix_sum,
    scaled,
    size_of,
)
from staged.code.nest.value import is_zero
from staged.code.tree import Declare
from staged.code.types import INDEX, Space, constants, pointer, scalar, word
from staged.code.writer import Names, safe_comment
from staged.ir.buffers import Buffer, Stack, sequence_storage
from staged.ir.nodes import Block, Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import SequenceType, TensorType
from staged.ir.views import Loop


class Residuals:
    """The sequences that lie in an array or on a stack of their own."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body
        self.first: dict[tuple[Op | None, Stack], Expr] = {}
        """By loop and stack, the number of items on the stack before the loop."""
        self.waiting: dict[Stack, dict[Stack, Expr]] = {}
        """By stack, the fields of the next item."""
        self.items: dict[tuple[Block, Stack | str, str], Expr] = {}
        """The items of stacks, and structs of iterations, that a block uses, by their indices."""

    def base(self, result: Value) -> Expr:
        """The start of the elements of a collected sequence, in elements of its storage."""
        storage = self.body.plan.sequences[result]
        outer = self.body.collected_into.get(result)
        if isinstance(storage, Stack):
            self.body.need("stack")
            key = result.producer, storage.holder
            if outer is not None and key not in self.first:
                self.first[key] = self.body.local("first", INDEX, Member(self.body.field(storage), "length"))
            stack: Stack | None = storage if outer is None else None
            while stack is not None:
                if (result.producer, stack.holder) not in self.first:
                    self.first[result.producer, stack.holder] = Literal("0")
                    self.body.code.do("st_stack_reset", self.body.field(stack))
                stack = stack.inner
            return self.first[key]
        if outer is None:
            return Literal("0")
        outer_loop, outer_result = outer
        assert isinstance(result.type, SequenceType)
        _, count = sequence_storage(result.type)
        assert count is not None
        offset = scaled(self.body.loop_trip[outer_loop], count) or Literal("0")
        base = self.body.bases[outer_result]
        return offset if is_zero(base) else Infix("+", base, offset)

    def place_of(self, result: Value) -> Expr:
        """The C variable for the start of a sequence that is the result of an `if`; sequences on one stack share it."""
        storage = self.body.plan.sequences[result]
        if not isinstance(storage, Stack):
            return self.body.changing("first", INDEX)
        key = result.producer, storage.holder
        if key not in self.first:
            self.first[key] = self.body.changing("first", INDEX)
        return self.first[key]

    def slot(self, op: Op, result: Value, type: TensorType, further: int = 0) -> Expr:
        """The slot of this iteration's array in the sequence that is the loop's `result`, or of one further on."""
        slot = self.slot_of(result)
        if slot is not None:
            trip = self.body.loop_trip[op]
            if further:
                return slot.at(infix_sum([trip, Literal(str(further))]))
            return self.in_struct(slot, trip, Loop(op).body)
        terms = [self.body.bases[result], self.body.loop_trip[op], Literal(str(further))]
        position = infix_sum([term for term in terms if not is_zero(term)])
        return Infix(
            "+", self.body.field(self.body.plan.sequences[result]), scaled(position, type.size) or Literal("0")
        )

    def first_slot(self, result: Value, type: TensorType) -> Expr:
        """The slot of the first iteration in the sequence that is a loop's `result`."""
        storage, base = self.body.field(self.body.plan.sequences[result]), self.body.bases[result]
        return storage if is_zero(base) else Infix("+", storage, scaled(base, type.size) or Literal("0"))

    def slot_of(self, sequence: Value) -> Slot | None:
        """The field of the struct of an iteration that has an element of a sequence; None without such a struct."""
        storage = self.body.plan.sequences[sequence]
        return self.body.slots.get(storage) if isinstance(storage, Buffer) else None

    def in_struct(self, slot: Slot, position: Expr, block: Block) -> Expr:
        """The field of the struct of an iteration, to which a block has a pointer if the number is not constant."""
        if isinstance(position, Literal):
            return slot.at(position)
        key = block, slot.struct.array, str(position)
        if key not in self.items:
            struct = Prefix("&", slot.place(position))
            self.items[key] = self.body.local(slot.struct.local, slot.pointer, struct)
        return Member(self.items[key], slot.field)

    def collect(self, op: Op, result: Value, value: Value) -> None:
        """Keep one value, in the sequence that is the loop's `result`."""
        storage = self.body.plan.sequences[result]
        if isinstance(value.type, SequenceType) and isinstance(storage, Buffer):
            return  # the inner loop has written into its range of the same storage
        if isinstance(storage, Stack):
            if is_tensor(value):
                self.push(storage, self.body.pointer(value), size_of(storage.element.size, value.tensor.dtype.c_name))
            else:
                self.waiting.setdefault(storage.holder, {})[storage.part] = self.body.scalar(value)
            return
        base = self.body.bases[result]
        if is_tensor(value):
            self.body.keep(self.slot(op, result, value.tensor), result, value)
        else:
            trip = self.body.loop_trip[op]
            position = trip if is_zero(base) else Infix("+", base, trip)
            self.body.assign(Index(self.body.field(storage), position), self.body.scalar(value))

    def push(self, stack: Stack, source: Expr, size: Expr) -> None:
        self.body.try_(self.body.pushed(stack, source, size, stack.element))

    def push_numbers(self) -> None:
        """At the end of an iteration: the numbers that it keeps, an item for each stack."""
        for stack, values in self.waiting.items():
            if stack.fields:
                kept = Variable(self.body.name("kept"), word(self.body.kept_names[stack]))
                self.body.code.add(Declare(kept, is_const=False))
                for part in stack.fields:
                    self.body.assign(Member(kept, self.body.kept_names[part], arrow=False), values[part])
            else:
                kept = Variable(self.body.name("kept"), scalar(stack.element.dtype))
                self.body.code.add(Declare(kept, values[stack]))
            self.push(stack, Prefix("&", kept), Sizeof(kept.type.text))
        self.waiting.clear()

    def item(self, stack: Stack, position: Expr, block: Block) -> Expr:
        """An element of a stack of numbers, at the place of its item."""
        data = Member(self.body.field(stack), "data")
        if not stack.holder.fields:
            return Index(Group(Cast(constants(stack.element.dtype), data)), position)
        key = block, stack.holder, str(position)
        if key not in self.items:
            type = pointer(word(self.body.kept_names[stack.holder]), Space.GLOBAL, is_const=True)
            self.items[key] = self.body.local("kept", type, Infix("+", Cast(type, data), position))
        return Member(self.items[key], self.body.kept_names[stack.part])

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
                self.body.plan.sequences[value] = storage.inner
                starts = self.item(storage, position, self.body.home[value])
                self.body.bases[value] = starts if isinstance(starts, Member) else self.body.settled(starts, "first")
                return
            _, count = sequence_storage(value.type)
            assert count is not None
            self.body.plan.sequences[value] = storage
            # Bases count single elements, whatever the sequences in between hold.
            start = scaled(trip, count) or Literal("0")
            self.body.bases[value] = self.body.settled(start if is_zero(base) else Infix("+", base, start), "first")
            return
        self.body.where(op.where)
        slot = self.slot_of(sequence)
        if slot is not None:
            self.body.pointers[value] = self.in_struct(slot, position, self.body.home[value])
            return
        element = value.tensor
        name = self.body.kept_name(storage.name.removesuffix("_history"))
        if not is_tensor(value):
            if isinstance(storage, Stack):
                found = self.item(storage, position, self.body.home[value])
            else:
                found = Index(self.body.field(storage), position)
            self.body.scalars[value] = self.body.declared(name, scalar(element.dtype), found)
            return
        data: Expr = self.body.field(storage)
        if isinstance(storage, Stack):
            data = Group(Cast(constants(element.dtype), Member(data, "data")))
        offset = scaled(position, element.size) or Literal("0")
        start = self.body.declared(name, constants(element.dtype), Infix("+", data, offset))
        self.body.pointers[value] = placed(start, op.device)


def kept_names(stacks: Iterable[Stack], names: Names) -> dict[Stack, str]:
    """The C names of the structs that stacks hold, and of their fields. `names` are those of the file."""
    found: dict[Stack, str] = {}
    for stack in stacks:
        fields = Names()
        for field in stack.fields:
            found[field] = fields.fresh(field.name.removesuffix("_history") if field.inner is None else "first")
        if stack.fields:
            found[stack] = names.fresh("Kept")
    return found


def kept_text(stack: Stack, names: Mapping[Stack, str]) -> list[str]:
    """The C struct that a stack holds, line by line."""
    head = [f"// {safe_comment(f'{stack.where.short}  {stack.where.text}')}"] if stack.where else []
    fields = [f"    {field.element.dtype.c_name} {names[field]};{_note(field)}" for field in stack.fields]
    return [*head, "typedef struct {", *fields, f"}} {names[stack]};"]


def _note(field: Stack) -> str:
    return "" if field.inner is None else "  // the number of the first item that the loop inside keeps"
