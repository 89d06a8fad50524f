"""Reverse mode: from the ops of a block, the ops that carry cotangents from its results back to its inputs.

Straight code is reversed here: each op's vjp rule, in reverse order. Ops with blocks, calls and containers have rules
in the table `REVERSES` (`branches.py`, `loops.py`, `calls.py`, `checkpoints.py`, `containers.py`). Everything is
written in terms of the primal's values; how those reach the reverse is the business of `residuals.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from staged.autodiff.activity import Activity, has_frames
from staged.autodiff.composites import open_composites
from staged.autodiff.copiers import PrimalCopier, ReverseCopier
from staged.autodiff.cotangents import Cotangents, d_name
from staged.autodiff.inactive import has_slope, is_elementwise, is_source, kept, passes_zeros
from staged.autodiff.recursion import DerivativeRequests
from staged.autodiff.residuals import Residuals
from staged.autodiff.rules import RuleContext, declared_of, refusal
from staged.autodiff.tangent_types import tangent_types
from staged.errors import GradientError
from staged.ir.builder import Builder, OpenBlock
from staged.ir.declaration import prims
from staged.ir.function_pool import FunctionPool
from staged.ir.names import has_name
from staged.ir.nodes import Block, Op, Value, free_values
from staged.ir.op_table import OpTable
from staged.ir.structure import CALL, FRAME_LOAD, SEQUENCE_SUM
from staged.ir.types import DType, SequenceType, TensorType, f32
from staged.ops.context import use_context
from staged.source import Position, in_backward

ReverseRule = Callable[["Reverse", Op, Cotangents], None]
"""Writes the reverse of an op: takes the cotangents of its results, adds to those of its operands."""

REVERSES: OpTable[ReverseRule] = OpTable()
"""The rules of ops with blocks, of calls and of containers; all others go by the vjp that they declare."""


class Reverse:
    """Writes the reverse of a block into `builder`; only what depends on `wrt` has cotangents.

    `quiet`: the primal is being recomputed, so its effects are left out.
    """

    def __init__(self, pool: FunctionPool, block: Block, wrt: Sequence[Value], quiet: bool = False) -> None:
        self.pool = pool
        self.quiet = quiet
        self.activity = Activity(pool)
        self.active = self.activity.values(block, wrt)
        self.requests: DerivativeRequests = {}
        """In the body of a recursive function: the derivatives requested of all functions of its circle."""
        self.tangent_types = tangent_types(pool)
        self.forced: set[Op] = set()
        self.force(block)
        self.inactive: set[Value] = set()
        """Cotangents of branches that `where` did not choose; see `inactive.py`."""
        self.residuals = Residuals()
        self.builder = Builder()
        self.where: Position | None = None
        self.context = RuleContext(self.builder, locate=lambda: self.where)

    def force(self, block: Block) -> bool:
        """Collect ops whose reverse is always emitted: an op that loads a frame must return a frame of cotangents,
        possibly zeros.
        """
        found = False
        for op in block.ops:
            loads = op.declared in (FRAME_LOAD, CALL) and any(v in self.active and has_frames(v) for v in op.operands)
            if any([loads, *(self.force(inner) for inner in op.blocks)]):
                self.forced.add(op)
                found = True
        return found

    # ---- a block ----

    def block(self, block: Block, env: Cotangents) -> None:
        """The reverse of the ops of `block`; `env` has the cotangents of what it yields, and gets those of its inputs.

        Exact: in the reverse of the primal's order every use of a value has added to its cotangent before it is taken.
        An op whose results have none is left out: nothing is multiplied by zeros that would be made for it.
        """
        for op in reversed(block.ops):
            if op in self.forced or any(result in env.local for result in op.results):
                self.where, self.builder.device = in_backward(op.where), op.device
                self.op(op, env)

    def op(self, op: Op, env: Cotangents) -> None:
        """The reverse of one op: by its rule in the table, or by the vjp that it declares."""
        rule = REVERSES.get(op.declared)
        if rule is not None:
            rule(self, op, env)
        else:
            self.declared(op, env)

    def accumulate(self, env: Cotangents, value: Value, cotangent: Value) -> None:
        """Add to the cotangent of `value`, where it has one.

        Exact: a value with several uses (`f(x, x)`, a swap, an array returned twice) gets the sum. The first cotangent
        is stored unchanged, so -0.0 survives.
        """
        if value not in self.active:
            return
        before = env.get(value)
        total = cotangent if before is None else self.add(before, cotangent)
        if before in self.inactive and cotangent in self.inactive:
            self.inactive.add(total)
        if not has_name(total.hint):
            total.hint = d_name(value) or total.hint
        env.set(value, total)

    def add(self, left: Value, right: Value) -> Value:
        if isinstance(left.type, SequenceType):
            return self.builder.op(SEQUENCE_SUM, [left, right], [left.type], where=self.where).result
        if not isinstance(left.type, TensorType):
            # A frame of frames: what a call keeps is loaded once, but a reverse of a reverse may both load it and hand
            # it on.
            raise GradientError(
                "the reverse of a reverse would take what a function that calls itself keeps twice",
                where=self.where,
                hint="take one of the two derivatives in forward mode: `st.jvp` of what `st.grad` gives",
            )
        if not left.type.dtype.is_half:
            return self.builder.op(prims.ACCUMULATE, [left, right], [left.type], where=self.where).result
        # No op computes with f16 or bf16.
        total = self.add(self.cast(left, f32), self.cast(right, f32))
        return self.cast(total, left.type.dtype)

    def cast(self, x: Value, dtype: DType) -> Value:
        attrs = {"dtype": dtype, "weak": False}
        return self.builder.op(
            prims.CAST, [x], [TensorType(dtype, x.tensor.shape)], attrs=attrs, where=self.where
        ).result

    # ---- straight code ----

    def declared(self, op: Op, env: Cotangents) -> None:
        """The vjp of one primitive or composite.

        Exact: by the op's own rule, on the primal's operands and results; operands that are not active get nothing.
        """
        cotangents = [env.take(result) for result in op.results]
        if not any(operand in self.active for operand in op.operands):
            return
        name, declared, attrs = declared_of(op)
        if declared is None or declared.vjp is None:
            raise refusal(op, name, declared)
        handle = self.context.handle
        ct: Any = tuple(None if c is None else handle(c) for c in cotangents)
        result: object = tuple(map(handle, op.results))
        if len(op.results) == 1:
            (ct,), (result,) = ct, result  # type: ignore[misc]
        is_inactive = any(c in self.inactive for c in cotangents) and passes_zeros(declared)
        with use_context(self.context):
            given = declared.vjp(ct, result, *map(handle, op.operands), **attrs)
            assert len(given) == len(op.operands), f"the vjp of {name} gives {len(given)} cotangents"
            for operand, cotangent in zip(op.operands, given, strict=True):
                if cotangent is not None and operand in self.active:
                    value = self.context.value_of(cotangent)
                    if is_inactive and is_elementwise(declared) and has_slope(op, self.context.value_of(ct), value):
                        cotangent = kept(ct, cotangent)
                    value = self.context.fitted(cotangent, operand, f"the vjp of {name}")
                    if is_inactive or is_source(declared):
                        self.inactive.add(value)
                    self.accumulate(env, operand, value)

    # ---- for the rules ----

    @contextmanager
    def unfinished(self) -> Iterator[OpenBlock]:
        """Write a block that is ended later."""
        block = OpenBlock((), self.builder.current)
        self.builder.current = block
        try:
            yield block
        finally:
            self.builder.current = block.parent

    def or_zeros(self, cotangent: Value | None, value: Value, op: Op) -> Value:
        return self.tangent_types.zeros(self.builder, value, op) if cotangent is None else cotangent

    def needed(self, block: Block) -> Sequence[Value]:
        """The primal values that a finished reverse block reads, after what its inner blocks have fetched."""
        return tuple(dict.fromkeys(self.residuals.resolve(value) for value in free_values(block)))


def made_in(block: Block) -> set[Value]:
    """The values that a block makes itself, not its inner blocks."""
    return {*block.params, *(result for op in block.ops for result in op.results)}


def differentiate(
    pool: FunctionPool,
    block: Block,
    captures: Sequence[Value],
    wrt: Sequence[int],
    seeds: Mapping[int, Value],
    builder: Builder,
    op: Op,
    quiet: bool = False,
) -> tuple[list[Value], list[Value]]:
    """Emit the ops of `block` on `captures`, then its reverse; returns what it yields, and the cotangents of `wrt`.

    `seeds` are the cotangents of what it yields, by number. With `quiet` the primal's effects are left out: they have
    happened. `op` says where all this stands.
    """
    block = open_composites(block)
    reverse = Reverse(pool, block, [block.params[index] for index in wrt], quiet)
    reverse.residuals.free.update(block.params)
    env = Cotangents(made_in(block))
    scratch = reverse.builder
    scratch.device, reverse.where = op.device, in_backward(op.where)
    with scratch.block() as opened:
        if block.end.kind == "yield":
            for index, seed in seeds.items():
                reverse.accumulate(env, block.end.operands[index], seed)
            reverse.block(block, env)
        reverse.where, scratch.device = in_backward(op.where), op.device
        found = [env.get(block.params[index]) for index in wrt]
        scratch.end("yield", [reverse.or_zeros(ct, block.params[i], op) for i, ct in zip(wrt, found, strict=True)])

    primal_copier = PrimalCopier(builder, reverse.residuals, pool, quiet)
    primal = primal_copier.inline(block, captures)
    reverse_copier = ReverseCopier(builder, reverse.residuals, primal_copier.values, primal_copier.missing)
    gradients = reverse_copier.inline(opened.block, ())
    for index, gradient in zip(wrt, gradients, strict=True):
        gradient.hint = gradient.hint if has_name(gradient.hint) else d_name(captures[index]) or gradient.hint
    return primal, gradients
