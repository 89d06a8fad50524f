"""Composites become their bodies, so that fusion sees one run of primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.ir.builder import Builder
from staged.ir.nodes import Function, Op, Value
from staged.ir.rewrite import Copier

Claimed = Callable[[Op], bool]


def inline_composites(function: Function, claimed: Claimed = lambda op: False) -> Function:
    """composite(x) {softmax: body}  ->  the ops of body, on x

    Why: a composite stays one op through autodiff (its own derivative is better than its body's) and placement (a back
    end may have a library call for it); what is left then must not hide its ops from fusion.
    Leaves: the composites that `claimed` says the back end takes whole.
    """
    return function.with_block(_Inliner(claimed).block(function.block))


class _Inliner(Copier):
    def __init__(self, claimed: Claimed) -> None:
        super().__init__(Builder())
        self.claimed = claimed

    def op(self, op: Op) -> None:
        if op.name != "composite" or self.claimed(op):
            super().op(op)
            return
        given: Sequence[Value] = self.inline(op.blocks[0], [self.value(operand) for operand in op.operands])
        for old, new in zip(op.results, given, strict=True):
            self.values[old] = new
            if old.hint and not new.hint:
                new.hint = old.hint
