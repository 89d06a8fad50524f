"""Composites become their bodies, so that fusion sees one run of primitives."""

from __future__ import annotations

from collections.abc import Sequence

from staged.ir.builder import Builder
from staged.ir.nodes import Function, Op, Value
from staged.ir.rewrite import Copier


def inline_composites(function: Function) -> Function:
    """composite(x) {softmax: body}  ->  the ops of body, on x

    Why: a composite stays one op through autodiff (its own derivative is better than its body's), and until a library of
    the back end may have taken it whole (`call_libraries`); what is left then must not hide its ops from fusion.
    """
    return function.with_block(_Inliner(Builder()).block(function.block))


class _Inliner(Copier):
    def op(self, op: Op) -> None:
        if op.name != "composite":
            super().op(op)
            return
        given: Sequence[Value] = self.inline(op.blocks[0], [self.value(operand) for operand in op.operands])
        for old, new in zip(op.results, given, strict=True):
            self.values[old] = new
            if old.hint and not new.hint:
                new.hint = old.hint
