"""Which values of a block depend, differentiably, on given ones: only these get cotangents."""

from __future__ import annotations

from collections.abc import Iterable

from staged.ir.nodes import Block, Op, Value, free_values
from staged.ir.types import SequenceType, TensorType, Type

# Ops through which no derivative passes, whatever their types.
_BARRIERS = frozenset(("stop_gradient", "constant", "sequence_zeros", "sequence_empty"))


def is_differentiable(type: Type) -> bool:
    """Whether values of this type have cotangents: floats, and sequences of them."""
    while isinstance(type, SequenceType):
        type = type.element
    return isinstance(type, TensorType) and type.dtype.is_float


def active_values(block: Block, wrt: Iterable[Value]) -> set[Value]:
    """The values made in `block` (nested blocks too) that depend differentiably on `wrt`, with `wrt` itself."""
    active = {value for value in wrt if is_differentiable(value.type)}
    _visit(block, active)
    return active


def _visit(block: Block, active: set[Value]) -> None:
    for op in block.ops:
        if op.name == "if":
            for branch in op.blocks:
                _visit(branch, active)
                if branch.end.kind == "yield":
                    _mark(op.results, branch.end.operands, active)
        elif op.name in ("for", "while"):
            _visit_loop(op, active)
        elif op.name not in _BARRIERS and any(operand in active for operand in op.operands):
            active.update(result for result in op.results if is_differentiable(result.type))


def _visit_loop(op: Op, active: set[Value]) -> None:
    body = op.blocks[-1]
    carried, initial = carried_of(op)
    _mark(carried, initial, active)
    while True:
        _visit(body, active)
        if body.end.kind != "yield" or not _mark(carried, body.end.operands, active):
            break
    if body.end.kind == "yield":
        _mark(op.results[len(carried) :], body.end.operands[len(carried) :], active)
    _mark(op.results, carried, active)


def _mark(targets: Iterable[Value], sources: Iterable[Value], active: set[Value]) -> bool:
    """Make each target active whose source is; whether that is news."""
    news = [t for t, s in zip(targets, sources, strict=False) if s in active and t not in active]
    news = [target for target in news if is_differentiable(target.type)]
    active.update(news)
    return bool(news)


def carried_of(op: Op) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The carried parameters of a loop's body, and their initial values."""
    if op.name == "for":
        return op.blocks[0].params[1:], op.operands[3:]
    return op.blocks[-1].params, op.operands


def slots_reached(op: Op, seeds: set[int], outputs: Iterable[Value], active: set[Value]) -> list[int]:
    """Which carried values of a loop get a cotangent in some iteration, if the results `seeds` have one.

    `outputs` are values of the body that have cotangents of their own (collected ones). A carried value that feeds one
    that has a cotangent has one itself in the iteration before; what nobody reads back to has none and is not carried.
    """
    body = op.blocks[-1]
    carried, _ = carried_of(op)
    slots = set(seeds)
    while True:
        useful = {body.end.operands[slot] for slot in slots} | set(outputs)
        for inner in reversed(body.ops):
            if any(result in useful for result in inner.results):
                useful.update(inner.operands)
                for block in inner.blocks:
                    useful.update(free_values(block))
        more = {slot for slot, param in enumerate(carried) if param in useful and param in active} - slots
        if not more:
            return sorted(slot for slot in slots if carried[slot] in active)
        slots |= more
