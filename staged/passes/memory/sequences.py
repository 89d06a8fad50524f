"""The storage of sequences in the memory plan: an array, a growable stack, or a handle on the program's store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from staged.ir.buffers import Buffer, Stack, sequence_storage
from staged.ir.names import element_name
from staged.ir.nodes import Function, Op, Value
from staged.ir.sequences import Handles
from staged.ir.storage import structural_blocks, structural_ops
from staged.ir.structure import (
    CALL,
    FRAME_LOAD,
    FRAME_SAVE,
    IF,
    SCOPE,
    SEQUENCE_ADD,
    SEQUENCE_EMPTY,
    SEQUENCE_GET,
    SEQUENCE_SUM,
)
from staged.ir.types import CPU, Device, SequenceType, TensorType, Type, i64
from staged.ir.views import Branch, Loop
from staged.passes.memory.liveness import Liveness


@dataclass
class SequencePlan:
    """The storage of collected sequences; an inner loop's sequence is a range of the storage of the outer one."""

    places: dict[Value, Buffer | Stack] = field(default_factory=dict)
    stacks: list[Stack] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)


def plan_sequences(
    function: Function, live: Liveness, handles: Handles, devices: Mapping[Value, Device]
) -> SequencePlan:
    """Arrays where the trip count has a bound, stacks where it has none. Handles need a stack while they grow.

    Exact: an array only where the trip count has a bound; a loop of no iterations leaves a sequence of no elements.
    """
    plan = SequencePlan()
    branches = _sequences_of_branches(function)

    def place(value: Value, where: Buffer | Stack) -> None:
        """`value` and what it is made of in branches and inner loops are kept in one storage."""
        plan.places[value] = where
        for source in branches.get(value, ()):
            place(source, where)

    def stack(type: Type, name: str, op: Op, device: Device) -> Stack:
        inner = stack(type.element, name, op, device) if isinstance(type, SequenceType) else None
        element = type if isinstance(type, TensorType) else TensorType(i64)
        name, device = (name, device) if inner is None else (f"{name}_starts", CPU)
        made = Stack(name, element, len(plan.stacks), op.where, inner, device)
        plan.stacks.append(made)
        return made

    loops = [Loop(op) for op in structural_ops(function.block) if op.declared.is_loop]
    for loop in loops:  # outer loops come first
        op = loop.op
        for result, yielded in zip(loop.collected, loop.elements, strict=True):
            assert isinstance(result.type, SequenceType)
            name = f"{element_name(yielded.hint) or element_name(result.hint) or 'value'}_history"
            if result in handles.values:
                if result.type.bound is None:
                    element = result.type.element if isinstance(result.type.element, TensorType) else TensorType(i64)
                    device = devices.get(result, CPU) if isinstance(result.type.element, TensorType) else CPU
                    plan.places[result] = Stack(name, element, len(plan.stacks), op.where, device=device)
                    plan.stacks.append(plan.places[result])  # type: ignore[arg-type]
                continue
            if result not in plan.places:
                seen_as = _outermost(result, branches)
                element, count = sequence_storage(result.type)
                if count is None:
                    place(seen_as, stack(result.type.element, name, op, devices.get(result, CPU)))
                else:
                    whole = TensorType(element.dtype, (count, *element.shape))
                    size = max(whole.nbytes, 1)
                    buffer = Buffer(
                        name, whole, "arena", size, op.device, where=op.where, purpose="residuals of a loop"
                    )
                    buffer.values = [result]
                    last = live.intervals.get(seen_as, [(0, live.finish[op])])[-1][1]
                    buffer.intervals = [(live.start[op], last)]
                    plan.buffers.append(buffer)
                    place(seen_as, buffer)
            if isinstance(yielded.type, SequenceType):
                where = plan.places[result]
                inner = where.inner if isinstance(where, Stack) else where
                assert inner is not None
                place(yielded, inner)
    _join_stacks(loops, plan, handles)
    return plan


def _join_stacks(loops: Sequence[Loop], plan: SequencePlan, handles: Handles) -> None:
    """Join the stacks of an iteration's scalars into one stack of structs; equal starts in inner stacks are one field.

    Exact: a stack of structs has the items of one loop, so all fields of an item are of one iteration.
    """
    kept: dict[Loop, list[Stack]] = {}
    filled: dict[Stack, int] = {}
    for loop in loops:
        places = [plan.places[result] for result in loop.collected if result not in handles.values]
        kept[loop] = [stack for stack in places if isinstance(stack, Stack)]
        for stack in kept[loop]:
            filled[stack] = filled.get(stack, 0) + 1
    held: set[Stack] = set()
    for loop in reversed(loops):  # inner loops first: their sequences are on one stack by then
        numbers = [
            stack for stack in kept[loop] if filled[stack] == 1 and stack.device == CPU and not stack.element.shape
        ]
        parts: dict[Stack, Stack] = {}
        for stack in numbers:
            parts.setdefault(stack if stack.inner is None else stack.inner.holder, stack)
        if len(numbers) < 2:
            continue
        holder = next(iter(parts.values()))
        if len(parts) > 1:
            holder = Stack("kept", TensorType(i64), len(plan.stacks), loop.op.where, fields=tuple(parts.values()))
            plan.stacks.append(holder)
        for stack in numbers:
            if stack is not holder:
                stack.held = holder, parts[stack if stack.inner is None else stack.inner.holder]
                held.add(stack)
    plan.stacks = [stack for stack in plan.stacks if stack not in held]


def _sequences_of_branches(function: Function) -> dict[Value, list[Value]]:
    """For a sequence that is the result of an `if`: the sequences that the branches yield for it."""
    found: dict[Value, list[Value]] = {}
    for op in structural_ops(function.block):
        for result in op.results if op.declared is IF else ():
            if isinstance(result.type, SequenceType):
                yields = [block.end.operands[result.index] for block in op.blocks if block.end.kind == "yield"]
                found[result] = [
                    value for value in yields if value.producer and value.producer.declared is not SEQUENCE_EMPTY
                ]
    return found


def _outermost(value: Value, branches: dict[Value, list[Value]]) -> Value:
    """The result of the outermost `if` that passes the sequence `value` on; itself where none does."""
    for result, sources in branches.items():
        if value in sources:
            return _outermost(result, branches)
    return value


# ---- handles that ops add to --------------------------------------------------------------------


def copied_handles(function: Function, live: Liveness, handles: Handles) -> frozenset[tuple[object, int]]:
    """The operands (of ops and ends) that are handles to be copied before something is added to them.

    Elements are added to in place. So an op that changes a sequence must be the last to need it, and the sequence must
    have no other name: arguments of the function, fields of frames and elements of other sequences are always copied.

    Exact: a handle that something reads after another adds to it is a copy; in a loop, what comes earlier in the text
    is later too.
    """
    if not handles.changed:
        return frozenset()
    _extend_elements(function, live, handles)
    known_elsewhere = set(function.params)
    for op in structural_ops(function.block):
        if op.declared in (CALL, FRAME_LOAD, SEQUENCE_GET):
            known_elsewhere.update(op.results)
        if op.declared in (CALL, FRAME_SAVE):
            known_elsewhere.update(op.operands)
        if op.declared.is_loop:
            known_elsewhere.update(Loop(op).elements)
    for block in structural_blocks(function.block):
        if block.end.kind == "return":
            known_elsewhere.update(block.end.operands)
    copied: set[tuple[object, int]] = set()
    for site, takers, position in _takers(function, live):
        seen: set[Value] = set()
        for index, value in takers:
            if value not in handles.changed:
                continue
            needed_later = any(start <= position < end for start, end in live.intervals.get(value, ()))
            if value in known_elsewhere or needed_later or value in seen:
                copied.add((site, index))
            seen.add(value)
    return frozenset(copied)


def _takers(function: Function, live: Liveness) -> Iterator[tuple[object, list[tuple[int, Value]], int]]:
    """(op or end, the operands that it takes over, position)."""
    for op in structural_ops(function.block):
        if op.declared in (SEQUENCE_ADD, SEQUENCE_SUM):
            yield op, [(0, op.operands[0])], live.start[op]
        elif op.declared.is_loop:
            loop = Loop(op)
            yield op, list(enumerate(op.operands))[len(loop.bounds) :], live.start[op]
            for block, end in loop.ends():
                yield end, list(enumerate(end.operands[: len(loop.carried)])), live.block_end[block]
        elif op.declared in (IF, SCOPE):
            for block, end in Branch(op).ends():
                yield end, list(enumerate(end.operands)), live.block_end[block]


def _extend_elements(function: Function, live: Liveness, handles: Handles) -> None:
    """A sequence is needed as long as the sequences that are its elements."""
    gets = [op for op in structural_ops(function.block) if op.declared is SEQUENCE_GET and op.result in handles.changed]
    for op in reversed(gets):
        outer = op.operands[0]
        spans = live.intervals.get(op.result, [])
        live.intervals[outer] = sorted([*live.intervals.get(outer, []), *spans])
