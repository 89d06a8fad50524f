"""The functions of a traced program: those that are called, each once, with the user's names."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from staged.ir.builder import Builder
from staged.ir.fingerprint import function_fingerprint
from staged.ir.functions import callees, map_functions, unused_name, with_call_effects
from staged.ir.nodes import Block, Function, Op, Value
from staged.ir.rewrite import rewrite
from staged.ir.structure import CALL
from staged.ir.views import Call


def reachable(functions: Mapping[str, Function], block: Block) -> dict[str, Function]:
    """The functions that `block` calls, directly or through others, in order of first call."""
    found: dict[str, Function] = {}
    pending = list(callees(block))
    while pending:
        name = pending.pop(0)
        if name not in found:
            found[name] = functions[name]
            pending += callees(functions[name].block)
    return found


def finish_functions(program: Function, functions: Mapping[str, Function]) -> Function:
    """The program with these functions listed: equal ones merged, named as the user did, the effects of calls known."""
    if not functions:
        return program
    first: dict[Hashable, str] = {}
    stands_for = {name: first.setdefault(function_fingerprint(name, functions), name) for name in functions}
    used = {program.name}
    names: dict[str, str] = {}
    for name in dict.fromkeys(stands_for.values()):
        names[name] = unused_name(functions[name].name, used)

    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.declared is not CALL:
            return None
        called = names[stands_for[Call(op).function]]
        return builder.append(op.replace(attrs={**op.attrs, "function": called})).results

    kept = [functions[name].replace(name=names[name]) for name in names]
    return with_call_effects(map_functions(program.replace(functions=kept), lambda function: rewrite(function, rule)))
