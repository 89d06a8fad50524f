"""Forward mode: the ops of a block, with the tangents of their results beside them.

    y, y_dot = jvp(x, x_dot) {wrt=(0,), outputs=1} (x):        y = exp(x)
      yield(exp(x))                                       =>   y_dot = x_dot * y

Control flow carries tangents along: a branch yields them, a loop carries those of its carried values and collects those
of what it collects, a function takes and returns them. A value without a tangent has the tangent zero, which is made
only where control paths join. The tangent of a frame is a frame of tangents. Ops with effects are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from staged.autodiff.activity import Activity
from staged.autodiff.recursion import DerivativeRequests
from staged.autodiff.rules import RuleContext, declared_of, refusal
from staged.autodiff.tangent_types import tangent_types
from staged.ir.builder import Builder
from staged.ir.function_pool import FunctionPool
from staged.ir.names import derived
from staged.ir.nodes import Block, Op, Value
from staged.ir.op_table import OpTable
from staged.ir.rewrite import Copier
from staged.ir.structure import COMPOSITE
from staged.ir.views import Derivative
from staged.ops.array import Array
from staged.ops.composite import COMPOSITES
from staged.ops.context import use_context
from staged.source import Position


def expand_jvp(op: Op, builder: Builder, pool: FunctionPool) -> list[Value]:
    """Emit the ops of a `jvp`; returns its results: the outputs, then a tangent per float one.

    Exact: the primal's ops are copied as they are, so that its results keep their bits; an output that does not depend
    on `wrt` has the tangent 0.
    """
    jvp = Derivative(op)
    block, moved = jvp.primal, [jvp.primal.params[number] for number in jvp.wrt]
    forward = Forward(builder, pool, activity_of(pool).values(block, moved))
    forward.tangents.update(zip(moved, jvp.directions, strict=True))
    results = forward.inline(block, jvp.captures)
    return [
        *results,
        *(forward.or_zeros(value, op) for value in block.end.operands if forward.tangent_types.has(value.type)),
    ]


def activity_of(pool: FunctionPool) -> Activity:
    """The activity of forward mode."""
    if "forward activity" not in pool.memo:
        pool.memo["forward activity"] = Activity(pool, forward=True)
    found = pool.memo["forward activity"]
    assert isinstance(found, Activity)
    return found


ForwardRule = Callable[["Forward", Op], None]
"""Copies an op, with the tangents of its results beside it."""

FORWARDS: OpTable[ForwardRule] = OpTable()
"""The rules of ops with blocks, of calls and of containers; all others go by the jvp that they declare."""


class Forward(Copier):
    """Copies blocks, and writes tangents of the values in `active`."""

    def __init__(self, builder: Builder, pool: FunctionPool, active: set[Value]) -> None:
        super().__init__(builder)
        self.pool = pool
        self.tangent_types = tangent_types(pool)
        self.active = active
        self.tangents: dict[Value, Value] = {}
        """By the value of the code that is copied."""
        self.requests: DerivativeRequests = {}
        """In the body of a function that calls itself: which arguments move in calls among all that call one another.
        """
        self.where: Position | None = None
        self.context = RuleContext(builder, locate=lambda: self.where)

    def op(self, op: Op) -> None:
        rule = FORWARDS.get(op.declared)
        if rule is not None:
            rule(self, op)
        else:
            self.copied(op)
            self.push(op)

    def copied(self, op: Op) -> None:
        """Copy the primal op."""
        super().op(op)

    # ---- tangents ----

    def touches(self, op: Op) -> bool:
        return any(operand in self.tangents for operand in op.operands)

    def copy_tangent(self, source: Value, target: Value) -> None:
        if source in self.tangents:
            self.tangents[target] = self.tangents[source]

    def set(self, value: Value, tangent: Value) -> None:
        tangent.hint = tangent.hint or dot_name(value)
        self.tangents[value] = tangent

    def or_zeros(self, value: Value, op: Op) -> Value:
        """The tangent of a value, made of zeros if it has none.

        Exact: only control paths that join, and arguments of functions, need one.
        """
        if value in self.tangents:
            return self.tangents[value]
        return self.tangent_types.zeros(self.builder, self.value(value), op)

    def chosen(self, values: Iterable[Value]) -> list[int]:
        return [number for number, value in enumerate(values) if value in self.active]

    # ---- straight code ----

    def push(self, op: Op) -> None:
        """The tangents of the results of an op that stands in the block already.

        Exact: by the op's own jvp. An absent tangent is skipped. A zero tangent materialised at a join is multiplied,
        so 0 times an infinite slope is NaN.
        """
        if not self.touches(op):
            return
        if not any(self.tangent_types.has(result.type) for result in op.results):
            return
        name, declared, attrs = declared_of(op)
        if declared is None or declared.jvp is None:
            raise refusal(op, name, declared)
        self.where, self.builder.device = op.where, op.device
        handle = self.context.handle
        results = tuple(handle(self.value(result)) for result in op.results)
        operands = tuple(handle(self.value(operand)) for operand in op.operands)
        tangents = [handle(self.tangents[v]) if v in self.tangents else None for v in op.operands]
        with use_context(self.context):
            result = results[0] if len(results) == 1 else results
            given = declared.jvp(tangents, result, operands, **attrs)
            given = given if isinstance(given, tuple) else (given,)
            for old, tangent in zip(op.results, given, strict=True):
                if tangent is not None and self.tangent_types.has(old.type):
                    assert isinstance(tangent, Array)
                    self.set(old, self.context.fitted(tangent, self.value(old), f"the jvp of {name}"))

    # ---- for the rules of control flow ----

    def close(self, block: Block, values: Callable[[], list[Value]]) -> None:
        """End the block that `block` is copied into, with these values if it yields."""
        if block.end.kind == "yield":
            self.builder.end("yield", values(), None, block.end.where)
        else:
            self.end(block)

    def yields(self, block: Block, chosen: Sequence[int], op: Op) -> list[Value]:
        given = block.end.operands
        return [*map(self.value, given), *(self.or_zeros(given[number], op) for number in chosen)]

    def took(self, op: Op, results: Sequence[Value], primal: Sequence[Value | None], chosen: Sequence[int]) -> None:
        """Note the new results of `op`: `primal` says which result each is, None for the tangents of `chosen`."""
        tangents = iter(chosen)
        for old, new in zip(primal, results, strict=True):
            if old is None:
                self.set(op.results[next(tangents)], new)
            else:
                self.define([old], [new])


@FORWARDS.rule(COMPOSITE)
def forward_composite(forward: Forward, op: Op) -> None:
    """One that has no derivative of its own is opened where it has tangents: its body has them then."""
    if not forward.touches(op) or COMPOSITES[op.attrs["name"]].is_one_op:
        forward.copied(op)
        forward.push(op)
        return
    (body,) = op.blocks
    for param, operand in zip(body.params, op.operands, strict=True):
        forward.copy_tangent(operand, param)
    forward.inline_op(op)
    for result, yielded in zip(op.results, body.end.operands, strict=True):
        forward.copy_tangent(yielded, result)


def dot_name(value: Value) -> str:
    """The hint of a value's tangent."""
    return derived(value.hint, after="_dot")
