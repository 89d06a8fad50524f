"""Kernels that do alike work next to each other share a launch: an optimiser's updates of all parameters are a few
kernels.

    w1 = update(w1, d_w1); b1 = update(b1, d_b1); w2 = update(w2, d_w2)   ->   one launch, some of its blocks for each

Why: starting a kernel takes as long as updating some hundred thousand elements. What is joined was fused from the same
ops, one element for each thread; the later ones move up to the first, with what they read if that is no work, or a
product: the gradient of one parameter need not wait for the update of another. Fills are joined in a row alone: what
they fill would otherwise be in use for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from staged.backends.gpu.mapping import map_nest
from staged.backends.gpu.schedule import schedule_part
from staged.backends.host.short_kernels import is_zero_fill
from staged.ir.builder import Builder
from staged.ir.functions import map_functions
from staged.ir.loops import Compute, Load, Nest, PositionOf, Store
from staged.ir.machine import Gpu
from staged.ir.nodes import Block, End, Function, Op, Value
from staged.ir.rewrite import Copier
from staged.ir.schedule import Level
from staged.ir.storage import is_tensor, root_of, view_of
from staged.ir.structure import CONTRACTION, KERNEL, VARIABLE_READ
from staged.ir.types import CPU

MOST_MEMBERS = 64
MOST_PARAMETERS = 256
"""The most parameters of one kernel: CUDA allows 4096 bytes of arguments."""


def join_launches(function: Function, gpu: Gpu) -> Function:
    """`function`, and what it calls, with alike, independent kernels of one element per thread as one `kernel` op each.

    A joined op's nest holds the arrays of all; its attr `joined` has the nests one by one.

    Exact: members need nothing of one another, nor of what stands between; no operand of one is another's place; no
    op with effects moves.
    """
    return map_functions(function, lambda each: each.with_block(_Joiner(Builder(), gpu).block(each.block)))


class _Joiner(Copier):
    def __init__(self, builder: Builder, gpu: Gpu) -> None:
        super().__init__(builder)
        self.gpu = gpu

    def contents(self, block: Block) -> None:
        for step in _Plan(self.gpu).steps_of(block):
            for op in step.before:
                self.op(op)
            if len(step.ops) == 1:
                self.op(step.ops[0])
            else:
                self.join(step.ops)

    def join(self, ops: Sequence[Op]) -> None:
        blocks = [self.block(op.blocks[0]) for op in ops]
        nests: list[Nest] = [op.attrs["nest"] for op in ops]
        name = f"{nests[0].name}_and_{len(ops) - 1}_more"
        nest = Nest(
            name,
            tuple(source for each in nests for source in each.inputs),
            tuple(output for each in nests for output in each.outputs),
            (),
            tuple(s for each in nests for s in each.body),
            1,
            tuple(_in_place(ops)),
        )
        body = Block(
            [param for block in blocks for param in block.params],
            [op for block in blocks for op in block.ops],
            End("yield", tuple(value for block in blocks for value in block.end.operands)),
        )
        old = [result for op in ops for result in op.results]
        attrs = {**ops[0].attrs, "name": name, "nest": nest, "joined": tuple(nests)}
        operands = [self.value(operand) for op in ops for operand in op.operands]
        types = [result.type for result in old]
        made = Op(KERNEL, operands, types, attrs=attrs, blocks=[body], device=ops[0].device, where=ops[0].where)
        self.builder.append(made)
        for before, after in zip(old, made.results, strict=True):
            self.values[before] = after
            after.hint = before.hint


def _in_place(ops: Sequence[Op]) -> list[tuple[int, int]]:
    """The (result, operand) pairs of the members that stand: no other member reads the operand, perhaps later."""
    found = []
    results = operands = 0
    for op in ops:
        others = {
            root_of(operand) for other in ops if other is not op for operand in other.operands if is_tensor(operand)
        }
        for result, operand in op.attrs["nest"].in_place:
            if root_of(op.operands[operand]) not in others:
                found.append((results + result, operands + operand))
        results += len(op.results)
        operands += len(op.operands)
    return found


# ---- what is joined -----------------------------------------------------------------------------


@dataclass
class _Step:
    """An op, or several that become one, and what has moved up in front of them."""

    ops: list[Op]
    before: list[Op] = field(default_factory=list)


class _Plan:
    """The ops of one block in their new order."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.steps: list[_Step] = []
        self.made_at: dict[Value, int] = {}
        self.moved: set[Op] = set()
        self.open: dict[object, int] = {}
        """By what makes kernels alike: the step that further ones may join."""

    def steps_of(self, block: Block) -> list[_Step]:
        """The steps of a block, in order."""
        for op in block.ops:
            if op.blocks and not op.declared.is_opaque:
                self.open.clear()  # nothing moves across loops and branches
            key = _kind_of(op, self.gpu)
            at = self.open.get(key) if key is not None else None
            if at is not None and self.joins(op, at):
                for result in op.results:
                    self.made_at[result] = at
                continue
            if op.declared.is_opaque and op.device != CPU and not _is_fill(op):
                self.open = {kind: step for kind, step in self.open.items() if not _is_fill(self.steps[step].ops[0])}
            if key is not None:
                self.open[key] = len(self.steps)
            for result in op.results:
                self.made_at[result] = len(self.steps)
            self.steps.append(_Step([op]))
        return [step for step in self.steps if step.ops[0] not in self.moved]

    def joins(self, op: Op, at: int) -> bool:
        """Let `op` join a step, if all that it needs is there by then, or can be."""
        step = self.steps[at]
        count = sum(len(member.operands) + len(member.results) for member in (*step.ops, op))
        if len(step.ops) == MOST_MEMBERS or count > MOST_PARAMETERS:
            return False
        needed: list[Op] = []
        if not all(self.can_be_there(operand, at, needed) for operand in op.operands):
            return False
        for moving in needed:
            step.before.append(moving)
            self.moved.add(moving)
            for result in moving.results:
                self.made_at[result] = at - 1  # before the step's own ops
        step.ops.append(op)
        return True

    def can_be_there(self, value: Value, at: int, needed: list[Op]) -> bool:
        """Return whether a value is known before a step, or its op can move there;
        `needed` collects such ops in order."""
        made = self.made_at.get(value, -1)
        op = value.producer
        if made < at or op in needed:
            return True
        if op is None or made == at or (op.blocks and op.declared is not CONTRACTION) or not self.is_movable(op, at):
            return False
        if not all(self.can_be_there(operand, at, needed) for operand in op.operands):
            return False
        needed.append(op)
        return True

    def is_movable(self, op: Op, at: int) -> bool:
        """Return whether an op means the same before the step, and is no work or a product: a view, a number, a
        Variable not written since.
        """
        if op.declared is VARIABLE_READ:
            read = {effect.target for effect in op.effects} | {op.attrs["variable"]}
            between = (o for step in self.steps[at : self.made_at[op.result]] for o in step.ops)
            return not any(effect.kind == "write" and effect.target in read for o in between for effect in o.effects)
        if op.effects:
            return False
        if op.declared is CONTRACTION:
            return op.device != CPU
        return (
            view_of(op.results[0]) is not None
            if is_tensor(op.results[0])
            else op.device == CPU and op.declared is not KERNEL
        )


def _is_fill(op: Op) -> bool:
    """Return whether a kernel reads nothing."""
    return op.declared is KERNEL and not op.operands


def _kind_of(op: Op, gpu: Gpu) -> object:
    """The property that kernels in one launch share; None for kernels that share none."""
    if op.declared is not KERNEL or op.device == CPU or op.effects or is_zero_fill(op):
        return None
    nest: Nest = op.attrs["nest"]
    if nest.counts or not all(is_tensor(result) for result in op.results):
        return None
    spread = map_nest(nest)
    if spread.copies or len(spread.parts) != 1 or not spread.parts[0].items:
        return None
    (part,) = spread.parts
    if part.scratch or not all(isinstance(s, Load | Store | Compute | PositionOf) for s in part.body):
        return None
    if schedule_part(part, {}, gpu)[1].items.level is not Level.THREADS:
        return None
    return op.device, op.attrs.get("fused"), len(op.operands), len(op.results)
