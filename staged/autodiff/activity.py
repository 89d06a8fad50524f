"""Which values of a block depend, differentiably, on given ones: only these get tangents or cotangents."""

from __future__ import annotations

from collections.abc import Iterable

from staged.autodiff.rules import closed_over
from staged.autodiff.tangent_types import tangent_types
from staged.errors import GradientError
from staged.ir.declaration import prims
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import Block, Op, Value, free_values
from staged.ir.structure import CALL, CHECKPOINT, COMPOSITE, CUSTOM_VJP, FRAME_SAVE, IF, SEQUENCE_ZEROS
from staged.ir.types import FrameType, SequenceType
from staged.ir.views import Loop


class Activity:
    """Finds active values, through the functions of `pool` too.

    With `forward`, every frame is active: its tangent is a frame that is saved and loaded wherever it is.
    """

    def __init__(self, pool: FunctionPool, forward: bool = False) -> None:
        self.pool = pool
        self.tangent_types = tangent_types(pool)
        self.forward = forward
        self._known: dict[tuple[str, tuple[int, ...]], frozenset[int]] = {}
        self._assumed: dict[tuple[str, tuple[int, ...]], frozenset[int]] = {}
        self._solving = False

    def values(self, block: Block, wrt: Iterable[Value]) -> set[Value]:
        """The values made in `block` (nested blocks too) that depend differentiably on `wrt`, with `wrt` itself.

        Exact: never too few. A loop's carried values are followed until nothing changes, so that one of no turns has more than it
        needs; through integers, bools and `stop_gradient` nothing passes.
        """
        active = {value for value in wrt if self.tangent_types.has(value.type)}
        self._visit(block, active)
        return active

    def results(self, call: Op, active: tuple[int, ...]) -> frozenset[int]:
        """Which results of a `call` are active if these of its arguments are."""
        key = (call.attrs["function"], active)
        if key in self._known:
            return self._known[key]
        if self._solving:
            # Inside: what is assumed of it now; the loop below goes on until nothing changes.
            if key not in self._assumed:
                self._assumed[key] = frozenset()
                self._assumed[key] = self._found(key, call)
            return self._assumed[key]
        self._solving = True
        self._assumed = {key: frozenset()}
        before: dict[tuple[str, tuple[int, ...]], frozenset[int]] = {}
        while before != self._assumed:
            before = dict(self._assumed)
            for known in list(self._assumed):
                self._assumed[known] |= self._found(known, call)
        self._known.update(self._assumed)
        self._solving = False
        return self._known[key]

    def _found(self, key: tuple[str, tuple[int, ...]], call: Op) -> frozenset[int]:
        name, numbers = key
        block = self.pool.body(name, call.where).block
        active = self.values(block, [block.params[number] for number in numbers])
        if block.end.kind != "return":
            return frozenset()
        return frozenset(number for number, value in enumerate(block.end.operands) if value in active)

    def _visit(self, block: Block, active: set[Value]) -> None:
        for op in block.ops:
            if op.declared is IF:
                for branch in op.blocks:
                    self._visit(branch, active)
                    if branch.end.kind == "yield":
                        self._mark(op.results, branch.end.operands, active)
            elif op.declared.is_loop:
                self._loop(op, active)
            elif op.declared in (COMPOSITE, CHECKPOINT):
                (body,) = op.blocks
                self._mark(body.params, op.operands, active)
                self._visit(body, active)
                if body.end.kind == "yield":
                    self._mark(op.results, body.end.operands, active)
            elif op.declared is CALL:
                self._call(op, active)
            elif op.declared is FRAME_SAVE and self.forward:
                active.update(result for result in op.results if self.tangent_types.has(result.type))
            elif op.declared is CUSTOM_VJP:
                if any(v in active for number, v in enumerate(op.operands) if number not in op.attrs["wrt"]):
                    raise closed_over(op.attrs.get("name", "a function"), op.where)
                if any(op.operands[number] in active for number in op.attrs["wrt"]):
                    active.update(result for result in op.results if self.tangent_types.has(result.type))
            elif op.declared not in (prims.STOP_GRADIENT, SEQUENCE_ZEROS) and any(operand in active for operand in op.operands):
                if any(effect.kind == "write" for effect in op.effects):
                    raise GradientError(
                        "differentiated code writes a Variable where its new value is not followed",
                        where=op.where,
                        hint="return the new value and write it outside of the differentiated function",
                    )
                active.update(result for result in op.results if self.tangent_types.has(result.type))

    def _call(self, op: Op, active: set[Value]) -> None:
        numbers = tuple(number for number, operand in enumerate(op.operands) if operand in active)
        if numbers or (self.forward and any(has_frames(result) for result in op.results)):
            found = self.results(op, numbers)
            active.update(result for number, result in enumerate(op.results) if number in found)

    def _loop(self, op: Op, active: set[Value]) -> None:
        loop = Loop(op)
        body, carried = loop.body, loop.carried
        self._mark(carried, loop.initial, active)
        while True:
            self._visit(body, active)
            if body.end.kind != "yield" or not self._mark(carried, body.end.operands, active):
                break
        if body.end.kind == "yield":
            self._mark(loop.collected, body.end.operands[len(carried) :], active)
        self._mark(loop.final, carried, active)

    def _mark(self, targets: Iterable[Value], sources: Iterable[Value], active: set[Value]) -> bool:
        """Make each target active whose source is; whether that is news."""
        news = [t for t, s in zip(targets, sources, strict=False) if s in active and t not in active]
        news = [target for target in news if self.tangent_types.has(target.type)]
        active.update(news)
        return bool(news)


def has_frames(value: Value) -> bool:
    """Whether a value is a frame, or a sequence of them."""
    type = value.type
    while isinstance(type, SequenceType):
        type = type.element
    return isinstance(type, FrameType)


def slots_reached(op: Op, seeds: set[int], outputs: Iterable[Value], active: set[Value]) -> list[int]:
    """Which carried values of a loop get a cotangent in some iteration, if the results `seeds` have one.

    `outputs` are values of the body that have cotangents of their own (collected ones). A carried value that feeds one
    that has a cotangent has one itself in the iteration before; what nobody reads back to has none and is not carried.
    """
    body, carried = Loop(op).body, Loop(op).carried
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
