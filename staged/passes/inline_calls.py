"""Programs with a device have no functions of their own but recursive ones: calls become what they do."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.functions import components, every_function, function_table, recursive_functions
from staged.ir.nodes import Function, Op, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import CALL
from staged.ir.types import CPU
from staged.ir.views import Call


def inline_calls(program: Function) -> Function:
    """In a program that has ops on a device: f(x)  ->  the ops of f, for every f that does not call itself

    Why: where values live is decided for one body at a time, and the copies between devices with it.
    Leaves: calls of recursive functions, and those of functions that return from their middle.
    """
    if all(op.device == CPU for function in every_function(program) for op in walk_ops(function.block)):
        return program
    table = function_table(program)
    recursive = recursive_functions(program)
    plain: dict[str, Function] = {}
    kept = []
    for group in components(program):
        for name in group:
            function = table[name].with_block(_Inliner(plain).block(table[name].block))
            returns_at_end = function.block.end.kind == "return" and not any(
                block.end.kind == "return" for op in walk_ops(function.block) for block in op.blocks
            )
            if name in recursive or not returns_at_end:
                kept.append(function)
            else:
                plain[name] = function
    return program.replace(block=_Inliner(plain).block(program.block), functions=tuple(kept))


class _Inliner(Copier):
    def __init__(self, plain: dict[str, Function]) -> None:
        super().__init__(Builder())
        self.plain = plain

    def op(self, op: Op) -> None:
        function = self.plain.get(Call(op).function) if op.declared is CALL else None
        if function is None:
            super().op(op)
            return
        body = Copier(self.builder)
        body.values.update(zip(function.params, (self.value(operand) for operand in op.operands), strict=True))
        body.contents(function.block)
        for result, value in zip(op.results, function.block.end.operands, strict=True):
            self.values[result] = body.value(value)
