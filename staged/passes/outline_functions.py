"""Calls of staged functions that were recorded in place, at several places alike, become one function of the program.

Innermost calls first, so that an outer one is compared with the calls that it then has inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from staged.ir.builder import Builder
from staged.ir.fingerprint import Canonical
from staged.ir.functions import every_function, map_functions, unused_name, with_call_effects
from staged.ir.nodes import Block, Function, Label, Op, Value, walk_blocks, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import CALL, CALL_BEGIN, CALL_END
from staged.ir.types import CPU, dims_of

FEWEST_OPS = 24
"""Smaller bodies stay in place: a C function would cost more lines and lost fusion than the copies of it."""

_MARKERS = (CALL_BEGIN, CALL_END)


def outline_functions(program: Function) -> Function:
    """ops between equal `call_begin` ... `call_end`, at several places  ->  one function and a `call` at each place

    Why: lines of C, and the time to compile them, then do not grow with the number of call sites.
    Leaves: no markers; what stands alone, is small, runs on a device, or leaves its range stays where it was recorded.
    """
    if not any(op.declared in _MARKERS for function in every_function(program) for op in walk_ops(function.block)):
        return program
    program = _replaced(program, {}, _unmatched(program))
    used = {function.name for function in every_function(program)}
    outlined = False
    while True:
        ranges = [
            found
            for function in every_function(program)
            for block in walk_blocks(function.block)
            for found in _innermost(block)
        ]
        if not ranges:
            break
        groups: dict[Hashable, list[_Range]] = {}
        for found in ranges:
            groups.setdefault(found.key, []).append(found)
        made = [_outline(group, used) for key, group in groups.items() if key is not None and len(group) > 1]
        outlined = outlined or bool(made)
        markers = {marker for found in ranges for marker in (found.begin, found.end)}
        program = _replaced(program, {found.begin: found for found in ranges if found.function}, markers)
        program = program.replace(functions=(*program.functions, *made))
    return with_call_effects(program) if outlined else program


@dataclass(eq=False)
class _Range:
    """The ops of one call: those between `begin` and `end` in one block."""

    begin: Op
    end: Op
    ops: list[Op]
    key: Hashable | None
    """Equal for ranges that compute the same; None for one that stays in place."""
    canonical: Canonical
    used_after: set[int]
    """The values that are made in it and used after it, by their canonical number."""
    function: str = ""
    returns: list[int] = field(default_factory=list)

    def value(self, number: int) -> Value:
        return self.by_number[number]

    def __post_init__(self) -> None:
        self.by_number = {number: value for value, number in self.canonical.values.items()}
        made = {result for op in self.ops for result in op.results}
        inside = {value for op in self.ops for block in op.blocks for value in _made_in(block)}
        self.captures = [value for value in self.canonical.values if value not in made and value not in inside]


def _made_in(block: Block) -> Iterator[Value]:
    for inner in walk_blocks(block):
        yield from inner.params
        for op in inner.ops:
            yield from op.results


def _innermost(block: Block) -> Iterator[_Range]:
    """The ranges of `block` that have no other range inside."""
    begin: int | None = None
    last_use: dict[Value, int] | None = None
    for index, op in enumerate(block.ops):
        if op.declared is CALL_BEGIN:
            begin = index
        elif op.declared is CALL_END:
            if begin is not None and block.ops[begin].attrs["call"] == op.attrs["call"]:
                ops = list(block.ops[begin + 1 : index])
                if not any(
                    inner.declared in _MARKERS for one in ops for nested in one.blocks for inner in walk_ops(nested)
                ):
                    if last_use is None:
                        last_use = _last_uses(block)
                    yield _range(block.ops[begin], op, ops, index, last_use)
            begin = None


def _last_uses(block: Block) -> dict[Value, int]:
    """For each value, the last of the block's ops that uses it, itself or in its blocks; the block's end counts as an
    op.
    """
    found: dict[Value, int] = {}
    for index, op in enumerate(block.ops):
        found.update(dict.fromkeys(op.operands, index))
        for nested in op.blocks:
            for inner in walk_blocks(nested):
                found.update(dict.fromkeys(inner.end.operands, index))
                for one in inner.ops:
                    found.update(dict.fromkeys(one.operands, index))
    found.update(dict.fromkeys(block.end.operands, len(block.ops)))
    return found


def _range(begin: Op, end: Op, ops: list[Op], index: int, last_use: dict[Value, int]) -> _Range:
    canonical = Canonical()
    body = canonical.ops(ops)
    key = (begin.attrs["function"], body) if _can_be_a_function(ops) else None
    used_after = {canonical.values[result] for op in ops for result in op.results if last_use.get(result, -1) > index}
    return _Range(begin, end, ops, key, canonical, used_after)


def _can_be_a_function(ops: list[Op]) -> bool:
    """Return whether it is worth it, runs on the CPU, and is left at its end alone."""
    every = [inner for op in ops for inner in (op, *(one for block in op.blocks for one in walk_ops(block)))]
    if len(every) < FEWEST_OPS or any(op.device != CPU for op in every):
        return False
    if any(dims_of(value.type) for op in every for value in (*op.operands, *op.results)):
        return False  # a function would not know the sizes of its arguments
    labels = {op.attrs["label"] for op in every if isinstance(op.attrs.get("label"), Label)}
    ends = [inner.end for op in ops for block in op.blocks for inner in walk_blocks(block)]
    return all(end.kind != "return" and (end.target is None or end.target in labels) for end in ends)


def _outline(group: list[_Range], used: set[str]) -> Function:
    """The function for all ranges of a group, which note its name."""
    first = group[0]
    returns = sorted(set().union(*(found.used_after for found in group)))
    name = unused_name(first.begin.attrs["function"], used)
    for found in group:
        found.function, found.returns = name, returns
    captures = first.captures
    given = first.end.attrs.get("names", ())
    hints = [value.hint for value in captures]
    if len(given) == len(hints):
        hints = [name or hint for name, hint in zip(given, hints, strict=True)]
    copier = Copier(Builder())
    with copier.builder.block([value.type for value in captures], hints) as opened:
        copier.values.update(zip(captures, opened.params, strict=True))
        for op in first.ops:
            copier.op(op)
        results = [copier.value(first.value(number)) for number in returns]
        copier.builder.end("return", results, None, first.end.where)
    counted = Counter[str]()
    return Function(
        name,
        opened.block,
        param_paths=hints,
        result_paths=[_numbered(value.hint or "result", counted) for value in results],
        where=first.end.where,  # where the function was defined
    )


def _numbered(name: str, counted: Counter[str]) -> str:
    counted[name] += 1
    return name if counted[name] == 1 else f"{name}_{counted[name]}"


def _unmatched(program: Function) -> set[Op]:
    """The markers of calls that do not return to where they began (they stop the program, or leave a loop)."""
    found: set[Op] = set()
    for function in every_function(program):
        for block in walk_blocks(function.block):
            open_: list[Op] = []
            for op in block.ops:
                if op.declared is CALL_BEGIN:
                    open_.append(op)
                elif op.declared is CALL_END:
                    while open_ and open_[-1].attrs["call"] != op.attrs["call"]:
                        found.add(open_.pop())
                    if open_:
                        open_.pop()
                    else:
                        found.add(op)
            found.update(open_)
    return found


def _replaced(program: Function, calls: dict[Op, _Range], dropped: set[Op]) -> Function:
    """The program with calls for the ranges that begin at `calls`, and without the markers `dropped`."""

    def change(function: Function) -> Function:
        return function.with_block(_Replacer(calls, dropped).block(function.block))

    return map_functions(program, change) if calls or dropped else program


class _Replacer(Copier):
    def __init__(self, calls: dict[Op, _Range], dropped: set[Op]) -> None:
        super().__init__(Builder())
        self.calls = calls
        self.dropped = dropped

    def contents(self, block: Block) -> None:
        skip_to: Op | None = None
        for op in block.ops:
            if skip_to is not None:
                skip_to = None if op is skip_to else skip_to
            elif op in self.calls:
                self.call(self.calls[op])
                skip_to = self.calls[op].end
            elif op not in self.dropped:
                self.op(op)

    def call(self, found: _Range) -> None:
        values = [found.value(number) for number in found.returns]
        op = self.builder.op(
            CALL,
            [self.value(value) for value in found.captures],
            [value.type for value in values],
            attrs={"function": found.function},
            where=found.begin.where,
        )
        self.define(values, op.results)
