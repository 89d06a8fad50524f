"""Ops with a closed block become the ops of that block, once nothing needs them whole."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.declaration import Declaration
from staged.ir.names import FieldName, name_of, short
from staged.ir.nodes import Function, Op, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import CHECKPOINT, COMPOSITE


def inline_composites(function: Function) -> Function:
    """composite(x) {softmax: body}  ->  the ops of body, on x

    Why: a composite stays one op through autodiff (its own derivative is better than its body's), and until a library
    of the back end may have taken it whole (`call_libraries`); what is left then must not hide its ops from fusion.
    """
    return _inlined(function, COMPOSITE)


def inline_checkpoints(function: Function) -> Function:
    """checkpoint(x, d_y) {ops that recompute y, and their reverse}  ->  these ops

    Why: merging equal ops would keep all that the checkpoint is there to drop; the memory plan sees plain ops.
    Leaves: no `checkpoint`.
    """
    return _inlined(function, CHECKPOINT)


def _inlined(function: Function, kind: Declaration) -> Function:
    if not any(op.declared is kind for op in walk_ops(function.block)):
        return function
    return function.with_block(_Inliner(kind).block(function.block))


class _Inliner(Copier):
    def __init__(self, kind: Declaration) -> None:
        super().__init__(Builder())
        self.kind = kind

    def op(self, op: Op) -> None:
        if op.declared is self.kind:
            self.inline_op(op)
            made = self.value(op.results[0])
            if self.kind is COMPOSITE and not made.hint:
                made.hint = FieldName(f"{short(name_of(op.operands[0]))}_{op.attrs['name']}".lstrip("_"))
        else:
            super().op(op)
