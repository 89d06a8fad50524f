"""Groups of functions that call one another: their invariant parameters, and the derivatives that calls among them
need.
"""

from __future__ import annotations

from collections.abc import Iterable

from staged.autodiff.activity import Activity, has_frames
from staged.ir.function_pool import FunctionPool
from staged.ir.functions import callees, components
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.structure import CALL, FRAME_LOAD, IF
from staged.ir.views import Call, Loop
from staged.source import Position

Group = dict[str, frozenset[int]]
"""Functions that call one another, by name, each with its invariant parameters."""

DerivativeRequests = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Per function of a group the arguments that move, and the results that have cotangents."""


def group_of(pool: FunctionPool, name: str, where: Position | None) -> Group | None:
    """The functions that call one another around `name`, each with its invariant parameters; None if it does not call
    itself.
    """
    known: dict[str, Group | None] = pool.memo.setdefault("groups", {})
    if name not in known:
        table = Function("", pool.body(name, where).block, functions=tuple(pool.functions.values()))
        for group in components(table):
            if any(member in known for member in group) or name not in group:
                continue
            alone = len(group) == 1 and name not in callees(pool.functions[name].block)
            made = None if alone else invariants({member: pool.body(member, where) for member in group})
            known.update((member, made) for member in group)
    return known[name]


def invariants(group: dict[str, Function]) -> Group:
    """Per function of a group the parameters that each call inside the group fills with such a parameter of the caller.

    Exact: the largest such sets, from all parameters downwards; a call in a loop or branch counts as any other.

    Frames are none: a call makes its own.
    """
    found = {
        name: {number for number, param in enumerate(function.params) if not has_frames(param)}
        for name, function in group.items()
    }
    news = True
    while news:
        news = False
        for name, function in group.items():
            passed = {function.params[number] for number in found[name]}
            for op in walk_ops(function.block):
                if op.declared is CALL and Call(op).function in group:
                    callee = found[Call(op).function]
                    for number, operand in enumerate(op.operands):
                        if number in callee and operand not in passed:
                            callee.discard(number)
                            news = True
    return {name: frozenset(numbers) for name, numbers in found.items()}


def requests_within(
    activity: Activity, group: Iterable[str], call: Op, active: tuple[int, ...], seeds: tuple[int, ...]
) -> DerivativeRequests:
    """The derivatives that calls inside a group require, if `call` requires these: one set per function, so that each
    is made once.

    A call that requires less passes zeros, and drops what it does not need.
    Exact: the least sets that hold what every call inside needs; too large ones would cost time, too small ones lose
    cotangents.
    """
    bodies = {name: activity.pool.body(name, call.where).block for name in group}
    moved: dict[str, set[int]] = {name: set() for name in bodies}
    read: dict[str, set[int]] = {name: set() for name in bodies}
    moved[Call(call).function].update(active)
    read[Call(call).function].update(seeds)
    before = -1
    while before != (before := sum(map(len, (*moved.values(), *read.values())))):
        for name, block in bodies.items():
            if not moved[name]:
                continue
            reached = activity.values(block, [block.params[number] for number in moved[name]])
            ends = block.end.operands if block.end.kind == "return" else ()
            useful = useful_values(block, {ends[number] for number in read[name]}, reached)
            for op in walk_ops(block):
                if op.declared is CALL and Call(op).function in bodies:
                    callee = Call(op).function
                    numbers = {number for number, operand in enumerate(op.operands) if operand in reached}
                    results = {number for number, result in enumerate(op.results) if result in useful}
                    if numbers and (results or activity.forward):
                        moved[callee] |= numbers
                        read[callee] |= results
    return {name: (tuple(sorted(moved[name])), tuple(sorted(read[name]))) for name in bodies}


def useful_values(block: Block, seeds: set[Value], active: set[Value]) -> set[Value]:
    """The active values of a block that get a cotangent if `seeds` have one: what these are computed from.

    A frame gets one wherever it is loaded.
    """
    ops = list(walk_ops(block))
    loaded = [value for op in ops if op.declared in (FRAME_LOAD, CALL) for value in op.operands if has_frames(value)]
    useful = {*seeds, *loaded} & active
    before = -1
    while before != (before := len(useful)):
        for op in reversed(ops):
            useful |= _needed_by(op, useful) & active
    return useful


def _needed_by(op: Op, useful: set[Value]) -> set[Value]:
    if op.declared.is_loop:
        body, carried, initial = Loop(op).body, Loop(op).carried, Loop(op).initial
        if body.end.kind != "yield":
            return set()
        found: set[Value] = set()
        for index, yielded in enumerate(body.end.operands):
            if op.results[index] in useful or (index < len(carried) and carried[index] in useful):
                found |= {yielded, carried[index], initial[index]} if index < len(carried) else {yielded}
        return found
    numbers = [number for number, result in enumerate(op.results) if result in useful]
    if op.declared is IF:
        ends = [branch.end.operands for branch in op.blocks if branch.end.kind == "yield"]
        return {end[number] for end in ends for number in numbers}
    return set(op.operands) if numbers else set()
