"""The copies that are finally emitted: the primal with the extra results that its reverse needs, and the reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.autodiff.residuals import ExtraResults, Residuals
from staged.errors import GradientError
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.function_pool import FunctionPool
from staged.ir.functions import callees
from staged.ir.nodes import FAIL, PURE, Function, Op, Value, walk_ops
from staged.ir.op_table import OpTable
from staged.ir.rewrite import Copier
from staged.ir.structure import ABSENT, CALL, FRAME_NULL, IF, SEQUENCE_EMPTY
from staged.ir.trips import COUNT
from staged.ir.types import FrameType, SequenceType, dims_of
from staged.ir.views import Call
from staged.ir.zeros import zeros_of
from staged.source import Position, in_backward

ExtendedRule = Callable[["PrimalCopier", Op, ExtraResults], None]
"""Copies an op of the primal with the extra results that its reverse needs."""

EXTENDED: OpTable[ExtendedRule] = OpTable()
"""The rules of the ops that can have extra results."""


class PrimalCopier(Copier):
    """Copies the primal, with the extra results that its reverse needs.

    Exact: every op of the primal is copied in its order, so that results keep their bits and effects happen once; extra
    results are yielded beside the others, of a branch that does not make them as `absent`, which its reverse does not
    read. `quiet`: the primal is being recomputed, so its effects are left out: it has printed and checked when it ran
    itself.
    """

    def __init__(self, builder: Builder, residuals: Residuals, pool: FunctionPool, quiet: bool = False) -> None:
        super().__init__(builder)
        self.extras = residuals.extras
        self.pool = pool
        self.quiet = quiet
        self.missing: dict[Value, Op] = {}
        """Values that are not recomputed, since they come from outside of the program (a clock), and the op that reads
        there.
        """

    def value(self, value: Value) -> Value:
        if value in self.missing:
            raise read_again(self.missing[value])
        return super().value(value)

    def position_of(self, op: Op) -> Position | None:
        return in_backward(op.where) if self.quiet else op.where

    def op(self, op: Op) -> None:
        if self.quiet and self.leave_out(op):
            return
        extra = self.extras.get(op)
        if extra is not None:
            EXTENDED[op.declared](self, op, extra)
        elif self.quiet:
            self.again(op)
        else:
            super().op(op)

    def extended(self, op: Op, operands: Sequence[Value], results: Sequence[Value], **changes: Any) -> None:
        """Append `op` with other operands and results, each for one of `results`: those of `op`, and stand-ins of the
        reverse.
        """
        copy = self.builder.append(op.replace(operands=operands, result_types=[v.type for v in results], **changes))
        self.define(results, copy.results)

    # ---- once is enough ----

    def leave_out(self, op: Op) -> bool:
        """Leave out an op with effects, if this is one; of a check, as an `if` of which one branch raises, only the
        other is left.

        Exact: the primal has run before, with the same values, and has not stopped; what reads from outside of the
        program (a clock) is refused where it is needed.
        """
        if op.declared is CALL:
            return False
        if not op.blocks:
            origin = next((self.missing[operand] for operand in op.operands if operand in self.missing), None)
            if origin is None and any(effect.kind == "io" for effect in op.effects):
                origin = op
            if origin is not None or (op.effects and not op.results):
                self.missing.update((result, origin or op) for result in op.results)
                return True
        if op.declared is IF and any(block.end.kind == "raise" for block in op.blocks):
            for block in op.blocks:
                if block.end.kind == "yield":
                    self.values.update(zip(op.results, self.inline(block, ()), strict=True))
                    for inner, outside in self.extras[op].values if op in self.extras else ():
                        self.values[outside] = self.value(inner)
                    return True
        return False

    def again(self, op: Op) -> None:
        """Copy what the primal has done before: a call without its effects, a check that holds already."""
        operands = [self.value(operand) for operand in op.operands]
        if op.declared is CALL:
            self.extended(op, operands, op.results, attrs={**op.attrs, "function": quiet_function(self.pool, op)})
        elif op.effects == FAIL and not op.blocks:
            self.extended(op, operands, op.results, effects=PURE)
        else:
            super().op(op)

    # ---- for the rules ----

    def absent(self, value: Value, op: Op) -> Value:
        """An unused value of the other branch's type; of no elements, where that branch says how many there are."""
        for attrs in [size.attrs for block in op.blocks for size in block.ops if size.declared is prims.DIM]:
            if attrs["dim"] in dims_of(value.type):
                nothing = self.builder.op(prims.CONSTANT, [], [COUNT], attrs={"value": 0}, where=op.where).result
                self.builder.op(prims.DIM, [nothing], [COUNT], attrs=attrs, where=op.where)
        if isinstance(value.type, SequenceType):
            return self.builder.op(SEQUENCE_EMPTY, [], [value.type], device=op.device, where=op.where).result
        if isinstance(value.type, FrameType):
            return self.builder.op(FRAME_NULL, [], [value.type], device=op.device, where=op.where).result
        if value.tensor.shape and not dims_of(value.type):
            return self.builder.op(ABSENT, [], [value.type], device=op.device, where=op.where).result
        return zeros_of(self.builder, value.tensor, op.device, op.where)


class ReverseCopier(Copier):
    """Copies the reverse into place: primal values become their stand-ins, then their copies.

    Exact: a stand-in has the bits of the value, by the iteration or the call that it was made in.
    """

    def __init__(
        self, builder: Builder, residuals: Residuals, values: dict[Value, Value], missing: dict[Value, Op]
    ) -> None:
        super().__init__(builder)
        self.residuals = residuals
        self.values = dict(values)
        self.missing = missing

    def value(self, value: Value) -> Value:
        resolved = self.residuals.resolve(value)
        if resolved in self.missing:
            raise read_again(self.missing[resolved])
        return super().value(resolved)


def read_again(op: Op) -> GradientError:
    """The error for code that is recomputed and depends on what is read from outside of the program."""
    return GradientError(
        f"a `checkpoint` computes with what `{op.name}` reads, which would be another value when it is made again",
        where=op.where,
        hint="read it outside of the checkpointed function, and pass it in",
    )


def is_loud(pool: FunctionPool, call: Op) -> bool:
    """Return whether the function that is called prints, or has another effect that others see, itself or through
    others.
    """
    name = Call(call).function
    reached, pending = {name}, [name]
    while pending:
        block = pool.body(pending.pop(), call.where).block
        for op in walk_ops(block):
            if any(effect.kind == "io" for effect in op.effects) and op.declared is not CALL:
                return True
        more = [callee for callee in callees(block) if callee not in reached]
        reached.update(more)
        pending += more
    return False


def quiet_function(pool: FunctionPool, call: Op) -> str:
    """The function that gives the results of the called one without its effects; itself if it has none."""
    name = Call(call).function
    if ("quiet", name) not in pool.memo:
        if not is_loud(pool, call):
            pool.memo["quiet", name] = name
            return str(name)
        made = pool.memo["quiet", name] = pool.fresh(f"{name}_quiet")
        function = pool.body(name, call.where)
        copier = PrimalCopier(Builder(), Residuals(), pool, quiet=True)
        block = copier.block(function.block)
        pool.add(
            Function(made, block, variables=function.variables, param_paths=function.param_paths, where=function.where)
        )
    return str(pool.memo["quiet", name])
