"""Building programs whose functions call one another, on top of `tests.ir_programs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.ir.functions import with_call_effects
from staged.ir.nodes import FrameRecord, Function, VariableRef, walk_ops
from staged.ir.types import Type
from staged.ir.verifier import verify
from staged.ops.array import Array
from staged.ops.context import use_context
from tests.ir_programs import Leave, Program


class Functions(Program):
    """Records one function, with calls, Variables and frames."""

    def call(self, name: str, arguments: Sequence[Any], types: Sequence[Type], **attrs: Any) -> list[Array]:
        op = self.builder.op("call", self.values(arguments), types, attrs={"function": name, **attrs})
        return self.handles(op.results)

    def give(self, *results: Any) -> Leave:
        """Return early: what a block function returns to end its block with `return`."""
        return Leave("return", None, results)


def define(name: str, types: Sequence[Type], body: Callable[..., Sequence[Any]], **fields: Any) -> Function:
    """A function whose body is `body(program, *parameters)`; parameters are called as in `body`."""
    program = Functions()
    hints = body.__code__.co_varnames[1 : 1 + len(types)]
    with use_context(program.context):
        with program.builder.block(types, hints) as opened:
            results = body(program, *program.handles(opened.params))
            if isinstance(results, Leave):
                program.builder.end(results.kind, program.values(results.values))
            else:
                program.builder.end("return", program.values(results))
    return Function(name, opened.block, **fields)


def assemble(entry: Function, *functions: Function, frames: Sequence[FrameRecord] = ()) -> Function:
    """The program `entry` with the functions that it calls, and the effects of all calls."""
    variables: dict[VariableRef, None] = {}
    for each in (entry, *functions):
        for op in walk_ops(each.block):
            variables.update((effect.target, None) for effect in op.effects if effect.target is not None)
    program = entry.replace(functions=functions, frames=frames, variables=tuple(variables))
    # Functions list their Variables before their calls have effects.
    program = program.replace(
        functions=[f.replace(variables=tuple(variables)) for f in functions], variables=tuple(variables)
    )
    program = with_call_effects(program).replace(variables=tuple(variables))
    verify(program)
    return program
