"""The values that a device reads, as against those that are there for the host's decisions and indices alone.

Tested by `tests/passes/placement/test_place.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from staged.ir.declaration import prims
from staged.ir.functions import every_function, function_table
from staged.ir.nodes import Block, Function, Label, Op, Value
from staged.ir.structure import (
    CALL,
    COMPOSITE,
    FRAME_LOAD,
    FRAME_SAVE,
    KERNEL,
    SEQUENCE_GET,
    VARIABLE_WRITE,
)
from staged.ir.types import CPU, TensorType
from staged.ir.views import Call, Frame, Loop, is_condition


def read_on_device(program: Function) -> frozenset[Value]:
    """The values that an op of a region computes with, or that become such a value on some path.

    The host reads the others: they decide which branch is taken, how many iterations a loop has, which piece of an
    array is meant. An array of which only such pieces are taken (the children of a tree's nodes, offsets) need not be
    on the device, so that no decision waits for it.
    """
    returned = [block.end.operands for block, _ in _blocks(program.block) if block.end.kind == "return"]
    return _reaching(program, [value for operands in returned for value in operands])


def computed_on_device(program: Function) -> frozenset[Value]:
    """The same without values that are results of the program alone: the host takes these wherever they are."""
    return _reaching(program, [])


def _reaching(program: Function, read: list[Value]) -> frozenset[Value]:
    """The values that become one of `read`, or one that an op of a region reads."""
    flow: dict[Value, list[Value]] = {}
    for target, sources in _flows(program):
        flow.setdefault(target, []).extend(sources)
    for function in every_function(program):
        for op in _ops(function.block):
            read += _read_there(op)
    found: set[Value] = set()
    while read:
        value = read.pop()
        if value not in found:
            found.add(value)
            read += flow.get(value, ())
    return frozenset(found)


def _ops(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        if op.declared not in (COMPOSITE, KERNEL):
            for inner in op.blocks:
                yield from _ops(inner)


def _passes(op: Op) -> bool:
    """Return whether an op makes a piece of an array, or a number of the host's numbers."""
    if op.declared.is_view:
        return True
    numbers = all(isinstance(v.type, TensorType) and not v.type.shape for v in (*op.operands, *op.results))
    return numbers and op.declared.kind == "elementwise"


def _read_there(op: Op) -> Sequence[Value]:
    """The operands that the device needs for the sake of this op alone."""
    if op.device == CPU or op.blocks and op.declared is not COMPOSITE or _passes(op) or op.declared is SEQUENCE_GET:
        return ()
    if op.declared is VARIABLE_WRITE:
        return op.operands
    if not op.results or op.declared in (CALL, FRAME_SAVE, FRAME_LOAD, prims.INDEX_CHECK, prims.DIM):
        return ()
    if op.declared.takes_host_numbers:
        return [operand for operand in op.operands if isinstance(operand.type, TensorType) and operand.type.shape]
    return op.operands


def _flows(program: Function) -> Iterator[tuple[Value, Sequence[Value]]]:
    """(value, what becomes it): what reads the first on a device needs the others there."""
    table = function_table(program)
    returned: dict[str, list[Sequence[Value]]] = {name: [] for name in table}
    saved: dict[str, list[Op]] = {}
    loaded: dict[str, list[Op]] = {}
    calls: list[Op] = []
    for function in every_function(program):
        targets: dict[Label, tuple[Value, ...]] = {}
        for op in _ops(function.block):
            label = op.attrs.get("label")
            if isinstance(label, Label):
                targets[label] = Loop(op).carried if op.declared.is_loop else op.results
        for block, owner in _blocks(function.block):
            end = block.end
            if end.kind == "return":
                returned.setdefault(function.name, []).append(end.operands)
            elif end.target is not None:
                yield from _pairs(targets[end.target], end.operands)
            elif end.kind == "yield" and owner is not None and not is_condition(owner, block):
                yield from _pairs(owner.results, end.operands)
        for op in _ops(function.block):
            if op.declared.is_loop:
                loop = Loop(op)
                for others in (loop.initial, loop.final):
                    yield from _pairs(loop.carried, others)
                yield from _pairs(loop.final, loop.carried)
                if loop.condition is not None:
                    yield from _pairs(loop.carried_in(loop.condition), loop.carried)
            elif op.declared is CALL:
                calls.append(op)
            elif op.declared is FRAME_SAVE:
                saved.setdefault(Frame(op).record, []).append(op)
            elif op.declared is FRAME_LOAD:
                loaded.setdefault(Frame(op).record, []).append(op)
            elif op.declared.is_of_sequences:
                for result in op.results:
                    yield result, op.operands[:1]
            elif op.results and _passes(op):
                for result in op.results:
                    yield result, op.operands[:1] if op.declared.is_view else op.operands
    for op in calls:
        callee = table.get(Call(op).function)
        if callee is not None:
            yield from _pairs(callee.params, op.operands)
            for results in returned[callee.name]:
                yield from _pairs(op.results, results)
    for name, ops in loaded.items():
        for load in ops:
            for save in saved.get(name, ()):
                yield from _pairs(load.results, save.operands)


def _blocks(block: Block, owner: Op | None = None) -> Iterator[tuple[Block, Op | None]]:
    yield block, owner
    for op in block.ops:
        if op.declared not in (COMPOSITE, KERNEL):
            for inner in op.blocks:
                yield from _blocks(inner, op)


def _pairs(targets: Sequence[Value], sources: Sequence[Value]) -> Iterator[tuple[Value, Sequence[Value]]]:
    for target, source in zip(targets, sources, strict=False):
        yield target, (source,)
