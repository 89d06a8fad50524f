"""Sequences: which have their own storage, and which are handles on the program's store.

The residuals of most loops are in an array, or on a stack, that the memory plan reserves for that loop. Handles are
sequences that leave the loop (into a frame, through a call, as a carried value), that are added to, and sequences of
frames. A handle is the offset of the first element in the program's store, and a count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from staged.ir.nodes import Function, Op, Value
from staged.ir.storage import structural_blocks, structural_ops
from staged.ir.structure import (
    CALL,
    FRAME_LOAD,
    FRAME_SAVE,
    IF,
    SCOPE,
    SEQUENCE_ADD,
    SEQUENCE_GET,
    SEQUENCE_SUM,
    SEQUENCE_ZEROS,
    VARIABLE_READ,
)
from staged.ir.types import FrameType, SequenceType, Type
from staged.ir.views import Loop


@dataclass(frozen=True)
class Handles:
    """The sequences of a function that are handles, and those of them that ops add to in place."""

    values: frozenset[Value] = frozenset()
    changed: frozenset[Value] = frozenset()

    def refer(self, values: Iterable[Value]) -> bool:
        """Return whether anything in the program's store is reached through one of `values`."""
        return any(isinstance(value.type, FrameType) or value in self.values for value in values)


def sequence_handles(function: Function, recursive: bool = False) -> Handles:
    """The handles of a function; of a `recursive` one also all sequences without a bound: its calls share stacks."""
    groups = _Groups()
    travels: list[Value] = list(function.params)
    added: list[Value] = []
    for block in structural_blocks(function.block):
        if block.end.kind == "return":
            travels += block.end.operands
    targets: dict[object, tuple[Value, ...]] = {}
    for op in structural_ops(function.block):
        label = op.attrs.get("label")
        if op.declared.is_loop:
            loop = Loop(op)
            groups.join(op.results, loop.initial)
            for block in op.blocks:
                groups.join(loop.carried_in(block), loop.initial)
            if loop.body.end.kind == "yield":
                groups.join(op.results, loop.body.end.operands)
            targets[label] = loop.final
            travels += loop.initial
        elif op.declared in (IF, SCOPE):
            targets[label] = op.results
            for block in op.blocks:
                if block.end.kind == "yield":
                    groups.join(op.results, block.end.operands)
        elif op.declared is SEQUENCE_GET:
            groups.join(op.results, op.operands[:1])
        elif op.declared in (SEQUENCE_ZEROS, SEQUENCE_ADD, SEQUENCE_SUM):
            # Of the values of a family only the number is asked for.
            travels += [value for value in (*op.operands, *op.results) if value.made_by(VARIABLE_READ) is None]
            if op.declared is not SEQUENCE_ZEROS:
                groups.join(op.results, op.operands[:1])
                added += op.results
        elif op.declared in (FRAME_SAVE, FRAME_LOAD, CALL):
            travels += (*op.operands, *op.results)
    for block in structural_blocks(function.block):
        if block.end.target in targets:
            groups.join(targets[block.end.target], block.end.operands)
    handles = {groups.find(value) for value in travels if isinstance(value.type, SequenceType)}
    everything = dict.fromkeys([*groups.above, *(v for v in travels if isinstance(v.type, SequenceType))])
    for value in everything:
        if holds_frames(value.type) or (recursive and not is_bounded(value.type)):
            handles.add(groups.find(value))
    changed = {groups.find(value) for value in added}
    return Handles(
        frozenset(value for value in everything if groups.find(value) in handles),
        frozenset(value for value in everything if groups.find(value) in changed),
    )


def holds_frames(type: Type) -> bool:
    """Return whether a frame is in it."""
    while isinstance(type, SequenceType):
        type = type.element
    return isinstance(type, FrameType)


def is_bounded(type: Type) -> bool:
    """Return whether all of its lengths have bounds."""
    while isinstance(type, SequenceType):
        if type.bound is None:
            return False
        type = type.element
    return True


def takes_store(op: Op, handles: Handles) -> bool:
    """Return whether an op itself allocates in the program's store."""
    if op.declared in (FRAME_SAVE, SEQUENCE_ZEROS, SEQUENCE_ADD, SEQUENCE_SUM):
        return True
    return op.declared.is_control and any(result in handles.values for result in op.results)


class _Groups:
    """Sequences that flow into one another (disjoint sets)."""

    def __init__(self) -> None:
        self.above: dict[Value, Value] = {}

    def find(self, value: Value) -> Value:
        while self.above.get(value, value) is not value:
            value = self.above[value]
        return value

    def join(self, values: Iterable[Value], others: Iterable[Value]) -> None:
        for value, other in zip(values, others, strict=False):
            for each in (value, other):
                if isinstance(each.type, SequenceType):
                    self.above.setdefault(each, each)
            if isinstance(value.type, SequenceType) and isinstance(other.type, SequenceType):
                self.above[self.find(value)] = self.find(other)
