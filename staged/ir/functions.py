"""The functions of a program: the call graph, recursion, and the effects of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from staged.ir.builder import Builder
from staged.ir.names import as_name
from staged.ir.nodes import Block, Effect, Function, Op, Value, walk_blocks, walk_ops
from staged.ir.rewrite import rewrite
from staged.ir.structure import CALL
from staged.ir.types import Type
from staged.ir.views import Call


def every_function(program: Function) -> tuple[Function, ...]:
    """The program's functions, then the program itself."""
    return (*program.functions, program)


def function_table(program: Function) -> dict[str, Function]:
    """The program's functions by the name that `call` ops use."""
    return {function.name: function for function in program.functions}


def map_functions(program: Function, change: Callable[[Function], Function]) -> Function:
    """The program with `change` applied to each of its functions and to itself."""
    return change(program).replace(functions=tuple(change(function) for function in program.functions))


def unused_name(name: str, used: set[str]) -> str:
    """`name` as an identifier, numbered where it is in `used`, to which it is added."""
    base = as_name(name).strip("_") or "function"
    fresh, number = base, 1
    while fresh in used:
        number += 1
        fresh = f"{base}_{number}"
    used.add(fresh)
    return fresh


def result_types(function: Function) -> tuple[Type, ...]:
    """The types of a function's results; empty if no path returns."""
    for block in walk_blocks(function.block):
        if block.end.kind == "return":
            return tuple(operand.type for operand in block.end.operands)
    return ()


def callees(block: Block) -> tuple[str, ...]:
    """The functions that `block` calls itself, in order of first call."""
    return tuple(dict.fromkeys(Call(op).function for op in walk_ops(block) if op.declared is CALL))


def components(program: Function) -> tuple[tuple[str, ...], ...]:
    """The program's functions in groups that call one another, callees first (Tarjan 1972, on an explicit stack)."""
    table = function_table(program)
    edges = {name: [callee for callee in callees(f.block) if callee in table] for name, f in table.items()}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[tuple[str, ...]] = []
    for root in table:
        if root in number:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(edges[root]))]
        number[root] = low[root] = len(number)
        open_.append(root)
        while work:
            name, rest = work[-1]
            callee = next(rest, None)
            if callee is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == number[name]:
                    cut = open_.index(name)
                    found.append(tuple(open_[cut:]))
                    del open_[cut:]
            elif callee not in number:
                number[callee] = low[callee] = len(number)
                open_.append(callee)
                work.append((callee, iter(edges[callee])))
            elif callee in open_:
                low[name] = min(low[name], number[callee])
    return tuple(found)


def recursive_functions(program: Function) -> frozenset[str]:
    """The functions that call themselves, directly or through others."""
    table = function_table(program)
    found: set[str] = set()
    for group in components(program):
        if len(group) > 1 or group[0] in callees(table[group[0]].block):
            found.update(group)
    return frozenset(found)


def with_call_effects(program: Function) -> Function:
    """The program with the effects of every `call` op set, and each function's Variables listed (of those the program
    lists).

    A call reads and writes what its function, and what that calls, reads and writes; 'io' and 'fail' likewise. Calls of
    recursive functions may fail: their stack is finite.
    """
    if not program.functions:
        return program
    table = function_table(program)
    recursive = recursive_functions(program)
    effects: dict[str, dict[Effect, None]] = {}
    for group in components(program):
        together: dict[Effect, None] = {}
        for name in group:
            for op in walk_ops(table[name].block):
                own = effects.get(Call(op).function, {}) if op.declared is CALL else dict.fromkeys(op.effects)
                together.update(own)
            if name in recursive:
                together[Effect("fail")] = None
        for name in group:
            effects[name] = together

    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.declared is not CALL:
            return None
        return builder.append(op.replace(effects=tuple(effects[Call(op).function]))).results

    def change(function: Function) -> Function:
        changed = rewrite(function, rule)
        touched = {effect.target for op in walk_ops(changed.block) for effect in op.effects if effect.target}
        if function is program:
            touched.update([member for variable in touched for member in variable.members])  # the caller passes these
        return changed.replace(variables=[variable for variable in program.variables if variable in touched])

    return map_functions(program, change)
