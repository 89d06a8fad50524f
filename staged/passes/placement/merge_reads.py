"""Reads of a Variable that nothing writes between are one read, so that the host copies the value once.

Tested by `tests/passes/placement/test_host_values.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from staged.ir.builder import Builder
from staged.ir.nodes import Block, Function, Op, Value, VariableRef, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import VARIABLE_READ


def merge_reads(function: Function) -> Function:
    """a = read v; b = read v  ->  a = read v; b is a

    Why: each read that is printed or decides would be a copy to the host.
    Exact: an op that may write the Variable, also in a block or a function, ends the life of the earlier read.
    """
    reads = [op.attrs["variable"] for op in walk_ops(function.block) if op.declared is VARIABLE_READ]
    if len(reads) == len(set(reads)):
        return function
    return function.with_block(_Merger(Builder()).block(function.block))


class _Merger(Copier):
    """Copies a function without its needless reads."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.known: dict[VariableRef, dict[tuple[Value, ...], Value]] = {}
        """By Variable, and number of a member of a family: the value here, if each way to this position has read it."""

    def block(self, block: Block) -> Block:
        outer, self.known = self.known, {variable: dict(read) for variable, read in self.known.items()}
        made = super().block(block)
        self.known = outer
        return made

    def op(self, op: Op) -> None:
        if op.declared is not VARIABLE_READ:
            for variable in _written(op):
                self.known.pop(variable, None)
            super().op(op)
            return
        known = self.known.setdefault(op.attrs["variable"], {})
        if op.operands in known:
            self.define(op.results, [known[op.operands]])
        else:
            super().op(op)
            known[op.operands] = self.value(op.result)


def _written(op: Op) -> Iterator[VariableRef]:
    for each in (op, *(inner for block in op.blocks for inner in walk_ops(block))):
        for effect in each.effects:
            if effect.kind == "write" and effect.target is not None:
                yield effect.target
