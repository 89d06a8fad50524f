"""Twins: values that one expression computes in two loops share a buffer.

    training:    h1 = relu(fc1(x))   ->  m->h1
    evaluation:  h1 = relu(fc1(x))   ->  m->h1

Why: the host calls the kernels of both loops with the same arguments, so that the loops can share a function.
Leaves: values whose lives overlap, and those that threads have for themselves.

Tested by `tests/passes/memory/test_plan.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from staged.ir.buffers import Buffer
from staged.ir.nodes import Block, Function, Value
from staged.ir.storage import is_tensor, root_of, structural_blocks, where_made
from staged.ir.types import CPU
from staged.passes.memory.liveness import Liveness
from staged.passes.memory.offsets import merged, overlap


def join_twins(
    function: Function, live: Liveness, place: dict[Value, Buffer], fixed: Collection[Buffer]
) -> set[Buffer]:
    """Give each value the buffer of its twin, except for `fixed` buffers; returns the buffers that are left over."""
    left_over: set[Buffer] = set()
    for value, twin in _twins(function, live):
        own, other = (place.get(each) for each in (value, twin))
        if own is None or other is None or own is other or not (_is_free(own, fixed) and _is_free(other, fixed)):
            continue
        if own.type == other.type and not overlap(own.intervals, other.intervals):
            own.intervals = merged(own.intervals + other.intervals)
            own.values += other.values
            place.update(dict.fromkeys(other.values, own))
            left_over.add(other)
    for value in place:
        place[value] = place.get(root_of(value), place[value])
    return left_over


def _twins(function: Function, live: Liveness) -> Iterator[tuple[Value, Value]]:
    """Pairs of values of one type that one expression of a layer computes in two blocks, neither inside the other."""
    found: dict[object, dict[Block, list[Value]]] = {}
    for block in structural_blocks(function.block):
        for value in (result for op in block.ops if op.declared.is_opaque for result in op.results):
            where = where_made(value)
            if where is not None and where.phase == "" and is_tensor(value):
                found.setdefault((where, where.part, value.type), {}).setdefault(block, []).append(value)
    for users in found.values():
        first, *others = users
        for other in others:
            are_apart = (
                live.block_end[first] < live.block_start[other] or live.block_end[other] < live.block_start[first]
            )
            if are_apart and len(users[first]) == len(users[other]):
                yield from zip(users[first], users[other], strict=True)


def _is_free(buffer: Buffer, fixed: Collection[Buffer]) -> bool:
    is_of_program = buffer.kind == "arena" and buffer.variable is None
    return is_of_program and buffer.device == CPU and buffer not in fixed
