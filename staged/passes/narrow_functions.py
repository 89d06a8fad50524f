"""Remove unused and duplicate parameters, unused results, and unused fields of frames."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from staged.ir.builder import Builder
from staged.ir.functions import callees, every_function, function_table, result_types
from staged.ir.nodes import Block, FrameRecord, Function, Op, Value, walk_blocks, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import CALL, FRAME_LOAD, FRAME_SAVE
from staged.ir.types import FrameType, dims_of
from staged.ir.views import Call

Port = tuple[str, int]
"""A parameter or a result: the function's name, and a number."""


def narrow_functions(program: Function) -> Function:
    """Drop unused functions, parameters, results and fields of frames, and parameters whose arguments are always those
    of another one.

    Why: a weight that reaches a recursion by two ways would have two gradients, each added to in every call; a
    cotangent that is unused costs its computation. Leaves what only those needed for `eliminate_dead_code`.
    """
    program = _reached(program)
    if not program.functions:
        return program
    program = _NarrowFrames(program).run() if program.frames else program
    return _Narrow(program).run()


def _reached(program: Function) -> Function:
    table = function_table(program)
    found: set[str] = set()
    pending = list(callees(program.block))
    while pending:
        name = pending.pop()
        if name not in found and name in table:
            found.add(name)
            pending += callees(table[name].block)
    return program.replace(functions=tuple(function for function in program.functions if function.name in found))


def calls_of(program: Function) -> Iterator[tuple[Function, Op]]:
    """Every call of the program, with the function that makes it."""
    for function in every_function(program):
        for op in walk_ops(function.block):
            if op.declared is CALL:
                yield function, op


class _Narrow:
    def __init__(self, program: Function) -> None:
        self.program = program
        self.table = function_table(program)
        self.calls = list(calls_of(program))
        self.param: dict[Value, Port] = {
            value: (function.name, number)
            for function in program.functions
            for number, value in enumerate(function.params)
        }
        self.in_place = {
            Call(op).function: {int(param): int(result) for param, result in Call(op).in_place} for _, op in self.calls
        }
        self.first = self.representatives()
        self.params: set[Port] = set()
        self.results: set[Port] = set()

    def run(self) -> Function:
        self.find_needed()
        functions = tuple(self.function(function) for function in self.program.functions)
        return self.function(self.program).replace(functions=functions, frames=self.program.frames)

    # ---- parameters that are always equal ----

    def representatives(self) -> dict[Port, int]:
        """For each parameter the first of its function that is always given the same."""
        kind: dict[Port, Hashable] = {}
        for value, (name, number) in self.param.items():
            alone = number in self.in_place.get(name, {})
            kind[name, number] = (name, number) if alone else (name, value.type)
        count = 0
        while len(set(kind.values())) != count:
            count = len(set(kind.values()))
            given: dict[Port, list[Hashable]] = {port: [kind[port]] for port in kind}
            for _, op in self.calls:
                for number, operand in enumerate(op.operands):
                    own = self.param.get(operand)
                    given[Call(op).function, number].append(operand if own is None else kind[own])
            numbers: dict[Hashable, int] = {}
            kind = {port: numbers.setdefault(tuple(seen), len(numbers)) for port, seen in given.items()}
        first: dict[Hashable, int] = {}
        return {port: first.setdefault(each, port[1]) for port, each in kind.items()}

    # ---- what is needed ----

    def find_needed(self) -> None:
        """The least parameters and results that are read by something else than calls and returns that drop them."""
        for function in self.program.functions:
            for number, param in enumerate(function.params):
                if dims_of(param.type):
                    self.params.add((function.name, number))
        before = -1
        while before != len(self.params) + len(self.results):
            before = len(self.params) + len(self.results)
            for function in every_function(self.program):
                self.survey(function)
            for name, pairs in self.in_place.items():
                for taken, given in pairs.items():
                    if (name, taken) in self.params or (name, given) in self.results:
                        self.params.add((name, taken))
                        self.results.add((name, given))

    def survey(self, function: Function) -> None:
        is_entry = function is self.program

        def read(value: Value) -> None:
            port = self.param.get(value)
            if port is not None:
                self.params.add((port[0], self.first[port]))
            call = value.made_by(CALL)
            if call is not None:
                self.results.add((Call(call).function, value.index))

        for op in walk_ops(function.block):
            for number, operand in enumerate(op.operands):
                if op.declared is not CALL:
                    read(operand)
                    continue
                name = Call(op).function
                if (name, self.first[name, number]) in self.params:
                    read(operand)
        for block in walk_blocks(function.block):
            for number, operand in enumerate(block.end.operands):
                if block.end.kind != "return" or is_entry or (function.name, number) in self.results:
                    read(operand)

    # ---- the program again ----

    def kept_params(self, name: str) -> list[int]:
        count = len(self.table[name].params)
        return [n for n in range(count) if self.first[name, n] == n and (name, n) in self.params]

    def kept_results(self, name: str) -> list[int]:
        return [n for n in range(len(result_types(self.table[name]))) if (name, n) in self.results]

    def function(self, function: Function) -> Function:
        is_entry = function is self.program
        count = len(function.params)
        kept = list(range(count)) if is_entry else self.kept_params(function.name)
        copier = _Caller(self, None if is_entry else self.kept_results(function.name))
        params = [function.params[number] for number in kept]
        with copier.builder.block([p.type for p in params], [p.hint for p in params]) as opened:
            copier.values.update(zip(params, opened.params, strict=True))
            if not is_entry:
                for number, param in enumerate(function.params):
                    same = function.params[self.first[function.name, number]]
                    copier.values.setdefault(param, copier.value(same))
            copier.contents(function.block)
            copier.end(function.block)
        if is_entry:
            return function.with_block(opened.block)
        results = self.kept_results(function.name)
        return function.replace(
            block=opened.block,
            param_paths=tuple(function.param_paths[n] for n in kept) if function.param_paths else (),
            result_paths=tuple(function.result_paths[n] for n in results) if function.result_paths else (),
        )


class _Caller(Copier):
    """Copies a body with its calls, and what it returns, narrowed."""

    def __init__(self, narrow: _Narrow, results: list[int] | None) -> None:
        super().__init__(Builder())
        self.narrow = narrow
        self.results = results

    def op(self, op: Op) -> None:
        if op.declared is not CALL:
            super().op(op)
            return
        name = Call(op).function
        params, results = self.narrow.kept_params(name), self.narrow.kept_results(name)
        pairs = self.narrow.in_place.get(name, {})
        attrs = {key: value for key, value in op.attrs.items() if key != "in_place"}
        in_place = tuple((params.index(param), results.index(pairs[param])) for param in params if param in pairs)
        if in_place:
            attrs["in_place"] = in_place
        operands = [self.value(op.operands[number]) for number in params]
        types = [op.results[number].type for number in results]
        copy = self.builder.append(op.replace(operands=operands, attrs=attrs, result_types=types))
        self.define([op.results[number] for number in results], copy.results)

    def end(self, block: Block) -> None:
        if block.end.kind != "return" or self.results is None:
            super().end(block)
            return
        given = [self.value(block.end.operands[number]) for number in self.results]
        self.builder.end("return", given, None, block.end.where)


# ---- frames -------------------------------------------------------------------------------------


class _NarrowFrames:
    """Fields that no load reads, and fields that every save gives the same value as another, leave their record."""

    def __init__(self, program: Function) -> None:
        self.program = program
        self.saves: dict[str, list[Op]] = {}
        self.read: dict[str, set[int]] = {}
        for function in every_function(program):
            loads = []
            used: set[Value] = set()
            for op in walk_ops(function.block):
                used.update(op.operands)
                if op.declared is FRAME_SAVE:
                    self.saves.setdefault(_record_of(op.result), []).append(op)
                elif op.declared is FRAME_LOAD:
                    loads.append(op)
            for block in walk_blocks(function.block):
                used.update(block.end.operands)
            for op in loads:
                numbers = {result.index for result in op.results if result in used}
                self.read.setdefault(_record_of(op.operands[0]), set()).update(numbers)

    def run(self) -> Function:
        first = {record.name: self.representatives(record) for record in self.program.frames}
        kept = {}
        for record in self.program.frames:
            wanted = {first[record.name][number] for number in self.read.get(record.name, ())}
            kept[record.name] = [number for number in range(len(record.fields)) if number in wanted]
        frames = tuple(
            FrameRecord(record.name, tuple(record.fields[number] for number in kept[record.name]))
            for record in self.program.frames
        )

        def change(function: Function) -> Function:
            return function.with_block(_FrameCopier(kept, first).block(function.block))

        functions = tuple(change(function) for function in self.program.functions)
        return change(self.program).replace(functions=functions, frames=frames)

    def representatives(self, record: FrameRecord) -> list[int]:
        saves = self.saves.get(record.name, [])
        first: dict[tuple[Value, ...], int] = {}
        return [first.setdefault(tuple(op.operands[n] for op in saves), n) for n in range(len(record.fields))]


def _record_of(value: Value) -> str:
    assert isinstance(value.type, FrameType)
    return value.type.name


class _FrameCopier(Copier):
    def __init__(self, kept: dict[str, list[int]], first: dict[str, list[int]]) -> None:
        super().__init__(Builder())
        self.kept = kept
        self.first = first

    def op(self, op: Op) -> None:
        if op.declared is FRAME_SAVE:
            kept = self.kept[_record_of(op.result)]
            operands = [self.value(op.operands[number]) for number in kept]
            copy = self.builder.append(op.replace(operands=operands))
            self.values[op.result] = copy.result
        elif op.declared is FRAME_LOAD:
            name = _record_of(op.operands[0])
            kept = self.kept[name]
            types = [op.results[number].type for number in kept]
            copy = self.builder.append(op.replace(operands=[self.value(op.operands[0])], result_types=types))
            by_field = dict(zip(kept, copy.results, strict=True))
            for number, result in enumerate(op.results):
                new = by_field.get(self.first[name][number])
                if new is not None:
                    new.hint = new.hint or result.hint
                    self.values[result] = new
        else:
            super().op(op)
