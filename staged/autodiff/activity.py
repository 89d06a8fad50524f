"""Activity: the values of a block that depend, differentiably, on given ones. Only these get tangents or cotangents."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from staged.autodiff.tangent_types import tangent_types
from staged.errors import GradientError
from staged.ir.declaration import prims
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import Block, Op, Value
from staged.ir.op_table import OpTable
from staged.ir.structure import CHECKPOINT, COMPOSITE
from staged.ir.types import FrameType, SequenceType
from staged.ir.views import Call
from staged.ops.composite import COMPOSITES

ActivityRule = Callable[["Activity", Op, set[Value]], None]
"""Adds to the active values those that an op makes."""

ACTIVE: OpTable[ActivityRule] = OpTable()
"""The rules of structured ops; of others, results depend on every operand."""


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

        Exact: never too few. A loop's carried values are followed until nothing changes, so that one of no iterations
        has more than it needs; through integers, bools and `stop_gradient` nothing passes.
        """
        active = {value for value in wrt if self.tangent_types.has(value.type)}
        self.visit(block, active)
        return active

    def results(self, call: Op, active: tuple[int, ...]) -> frozenset[int]:
        """The results of a `call` that are active if these of its arguments are."""
        key = (Call(call).function, active)
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

    def visit(self, block: Block, active: set[Value]) -> None:
        """Add the active values made in `block`."""
        for op in block.ops:
            rule = ACTIVE.get(op.declared)
            if rule is not None:
                rule(self, op, active)
            elif op.declared is not prims.STOP_GRADIENT and any(operand in active for operand in op.operands):
                if any(effect.kind == "write" for effect in op.effects):
                    raise GradientError(
                        "differentiated code writes a Variable where its new value is not followed",
                        where=op.where,
                        hint="return the new value and write it outside of the differentiated function",
                    )
                self.mark_results(op, active)

    def mark_results(self, op: Op, active: set[Value]) -> None:
        """Make every result active that has a derivative."""
        active.update(result for result in op.results if self.tangent_types.has(result.type))

    def mark(self, targets: Iterable[Value], sources: Iterable[Value], active: set[Value]) -> bool:
        """Make each target active whose source is; whether that is news."""
        news = [t for t, s in zip(targets, sources, strict=False) if s in active and t not in active]
        news = [target for target in news if self.tangent_types.has(target.type)]
        active.update(news)
        return bool(news)


@ACTIVE.rule(COMPOSITE, CHECKPOINT)
def active_body(activity: Activity, op: Op, active: set[Value]) -> None:
    """A closed block passes the derivative on; a composite's own rules may do so by operands that it does not use."""
    if op.declared is COMPOSITE and COMPOSITES[op.attrs["name"]].is_one_op:
        if not active.isdisjoint(op.operands):
            activity.mark_results(op, active)
        return
    (body,) = op.blocks
    activity.mark(body.params, op.operands, active)
    activity.visit(body, active)
    if body.end.kind == "yield":
        activity.mark(op.results, body.end.operands, active)


def has_frames(value: Value) -> bool:
    """Return whether a value is a frame, or a sequence of them."""
    type = value.type
    while isinstance(type, SequenceType):
        type = type.element
    return isinstance(type, FrameType)
