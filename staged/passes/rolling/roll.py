"""Rolling: writes the program with loops for the chains that the plan has.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.functions import every_function, map_functions, with_call_effects
from staged.ir.names import LibraryName, derived
from staged.ir.nodes import Block, Effect, Function, Label, Op, Value, VariableRef, walk_op, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import FOR, SEQUENCE_GET, VARIABLE_READ, VARIABLE_WRITE, VJP
from staged.ir.trips import COUNT, Integers, constant_of
from staged.ir.types import CPU, SequenceType, TensorType, i64
from staged.passes.rolling.chains import FEWEST_IN_FAMILIES, can_be_early, chains_of, is_worth
from staged.passes.rolling.families import (
    Captured,
    Collected,
    Gradients,
    Plan,
    Planner,
    Read,
    Refs,
    Source,
    Surroundings,
    Yielded,
    is_layered,
)
from staged.passes.rolling.names import common_hint, common_name, layer_name
from staged.passes.rolling.pieces import Chain, Row
from staged.passes.rolling.repeats import Keys
from staged.source import Position


def roll(program: Function) -> Function:
    """equal layers with different Variables, one after another  ->  a `for` over families of Variables

    Why: lines of C, the time of all later passes and the time to compile then do not grow with the number of layers.
    Leaves: pieces that differ in more than values and Variables. Programs with several devices. In a program with a
    device, pieces of the host, and repeated pieces that differ in numbers: no CUDA graph could have the loop.
    Exact: an iteration has the ops of a piece in its order, on the same values; random counters, prints and writes are
    in the order of the pieces.
    """
    functions = every_function(program)
    keys = Keys()
    ops = (op for function in functions for op in walk_ops(function.block))
    devices = {op.device for op in ops if op.device is not CPU} - {CPU}
    if len(devices) > 1:
        return program
    has_device = bool(devices)
    plans = {function: _plan(function, keys, has_device) for function in functions}
    if not any(plan.chains for plan in plans.values()):
        return program
    families: dict[Refs, VariableRef] = {}
    taken: dict[VariableRef, Refs] = {}
    for plan in plans.values():
        for refs in plan.families:
            if any(ref in taken for ref in refs) and refs not in families:
                return program  # two functions group the same Variables in two ways
            families.setdefault(refs, _family(refs))
            taken.update(dict.fromkeys(refs, refs))
    rolled = map_functions(program, lambda function: _Roller(plans[function], families, has_device).run(function))
    return with_call_effects(rolled.replace(variables=_variables(program, families)))


def _plan(function: Function, keys: Keys, has_device: bool) -> Plan:
    around = Surroundings(function.block)

    def rank(chain: Chain) -> int | None:
        size = sum(map(keys.size, chain.pieces[0]))
        if not is_layered(chain):
            return None
        is_repeated = chain.block is not function.block
        if has_device and (is_repeated and _has_numbers(chain) or _is_on_host(chain) or not can_be_early(chain)):
            return None
        return 0 if is_worth(chain.count, size) else 1 if size >= FEWEST_IN_FAMILIES else None

    return Planner(around, chains_of(function.block, keys, around, has_device), rank).plan()


def _is_on_host(chain: Chain) -> bool:
    """Return whether an op of the pieces runs on the host: what a loop carries would cross in each iteration."""
    return any(inner.device == CPU and inner.results for op in chain.pieces[0] for inner in walk_op(op))


def _has_numbers(chain: Chain) -> bool:
    """Return whether pieces differ in numbers or change numbers of Variables."""
    ops = (inner for op in chain.pieces[0] for inner in walk_op(op))
    written = [op.attrs["variable"].type for op in ops if op.declared is VARIABLE_WRITE]
    types = [*(row[0].tensor for row in chain.varying), *(row[0].type for row in chain.variables), *written]
    return any(not type.shape for type in types)


# ---- families -----------------------------------------------------------------------------------


def _family(refs: Refs) -> VariableRef:
    return replace(refs[0], name=common_name([ref.name for ref in refs]), identity=None, members=refs)


def _variables(program: Function, families: Mapping[Refs, VariableRef]) -> list[VariableRef]:
    """The program's Variables: the caller passes each member of a family, the program itself has the family."""
    first = {refs[0]: family for refs, family in families.items()}
    grouped = {ref for refs in families for ref in refs}
    found: list[VariableRef] = []
    for variable in program.variables:
        if variable.outer or variable not in grouped:
            found.append(variable)
        if variable in first:
            found.append(first[variable])
    return found


# ---- the rolled program -------------------------------------------------------------------------


class _Roller(Copier):
    """Copies a function. A value that is an element of a sequence now is read from it before each use."""

    def __init__(self, plan: Plan, families: Mapping[Refs, VariableRef], has_device: bool) -> None:
        super().__init__(Builder())
        self.has_device = has_device
        self.plan = plan
        self.families = families
        self.member = {ref: (family, number) for refs, family in families.items() for number, ref in enumerate(refs)}
        self.chain_at = {chain.pieces[0][0]: chain for chain in plan.chains}
        self.in_chain = {op for chain in plan.chains for piece in chain.pieces for op in piece}
        self.elements: dict[Value, tuple[Value, int]] = {}
        """By value of the traced program: the sequence that has it now, and its number there."""
        self.sequences: dict[tuple[object, ...], Value] = {}
        """By source of a row: the sequence that supplies it, if it exists already."""
        self.reads: dict[Op, list[Read]] = {}
        """By op: the families to read before it."""
        self.read_early: dict[Op, list[Op]] = {}
        """By first op of a chain: reads among its pieces, which come before the loop."""
        sources = [*plan.sources.values(), *(source for rows in plan.merged.values() for source in rows.values())]
        for source in sources:
            if isinstance(source, Read) and source.at is not None:
                self.reads.setdefault(source.at, []).append(source)
        for chain in plan.chains:
            self.read_early[chain.pieces[0][0]] = chain.among
        self.done = self.in_chain - self.chain_at.keys() - self.reads.keys()
        self.used: set[Value] = set()
        """The values that the rolled program uses one by one."""

    def run(self, function: Function) -> Function:
        """The function with its loops."""
        self.note_uses(function.block)
        return function.with_block(self.block(function.block))

    # ---- values ----

    def value(self, value: Value) -> Value:
        found = self.values.get(value)
        if found is not None:
            return found
        element = self.elements.get(value)
        return value if element is None else self.get(*element, value.hint)

    def get(self, sequence: Value, number: int | Value, hint: str = "") -> Value:
        """An element of a sequence."""
        assert isinstance(sequence.type, SequenceType)
        index = Integers(self.builder, None).constant(number) if isinstance(number, int) else number
        op = self.builder.op(SEQUENCE_GET, [sequence, index], [sequence.type.element])
        op.result.hint = hint
        return op.result

    def access(self, op: Op | None, variable: VariableRef, operands: Sequence[Value], index: Value | None) -> Op:
        """A read or write of a Variable or of a member of a family, as `op`; without `op` a read of a whole family."""
        if op is not None and op.declared is VARIABLE_WRITE:
            changes = {"attrs": {"variable": variable}, "effects": (Effect("write", variable),)}
            return self.builder.append(op.replace(operands=[*operands, index], **changes))
        return self.builder.op(
            VARIABLE_READ,
            [] if index is None else [index],
            [variable.type if op is not None else variable.sequence],
            attrs={**({} if op is None else op.attrs), "variable": variable},
            effects=(Effect("read", variable),),
            where=None if op is None else op.where,
        )

    def sequence(self, source: Source) -> tuple[Value, int]:
        """The sequence that supplies a row, and the number of the row's first value in it."""
        match source:
            case Read(refs, _, at):
                family, first = self.plan.family(refs) or (refs, 0)
                return self.sequences[at, family], first
            case Captured(op, numbers):
                return self.sequences[op, numbers], self.first_of(self.plan.merged[op][numbers])
            case Gradients(op, numbers):
                return self.sequences[op, "gradients", numbers], self.first_of(self.plan.merged[op][numbers])
            case Yielded(op, numbers):
                return self.sequences[op, "yielded", numbers], 0
            case Collected(chain, value, first):
                return self.sequences[chain, value], first

    def first_of(self, source: Source) -> int:
        """The number of a row's first value in the sequence that is captured for it."""
        if isinstance(source, Captured):
            return self.first_of(self.plan.merged[source.op][source.numbers])
        return (self.plan.family(source.refs) or ((), 0))[1] if isinstance(source, Read) else 0

    # ---- ops ----

    def note_uses(self, block: Block) -> None:
        """Note the values that ops of a block use one by one, and those that they carry into loops."""
        self.used.update(block.end.operands)
        for op in block.ops:
            chain = self.chain_at.get(op)
            if chain is not None:
                self.used.update(first for first, _ in chain.carried)
                for place in chain.pieces[0]:
                    self.used.update(_used_alike(chain, place))
            elif op not in self.in_chain:
                rows = self.plan.merged.get(op, ())
                in_rows = {number for row in rows for number in row}
                self.used.update(value for number, value in enumerate(op.operands) if number not in in_rows)
                for inner in op.blocks:
                    self.note_uses(inner)

    def contents(self, block: Block) -> None:
        """The ops of a block, without reads of members that nothing uses any more."""
        for op in block.ops:
            if op not in self.done:
                self.op(op)

    def op(self, op: Op) -> None:
        for read in self.reads.get(op, ()):
            self.read_family(read, op)
        chain = self.chain_at.get(op)
        if chain is not None:
            for early in self.read_early[op]:
                self.op(early)
                self.done.add(early)
            self.loop(chain)
        elif op in self.in_chain:
            return
        elif op.declared in (VARIABLE_READ, VARIABLE_WRITE) and op.attrs["variable"] in self.member:
            if op.results and op.result not in self.used:
                return
            self.define(op.results, self.touch(op, [self.value(operand) for operand in op.operands]).results)
        elif op in self.plan.merged:
            self.transform(op)
        else:
            super().op(op)

    def read_family(self, read: Read, op: Op) -> None:
        refs, _ = self.plan.family(read.refs) or (read.refs, 0)
        if (op, refs) not in self.sequences:
            family = self.families[refs]
            value = self.access(None, family, [], None).result
            value.hint = LibraryName(family.name.replace(".", "_"))
            self.sequences[op, refs] = value

    def touch(self, op: Op, operands: Sequence[Value]) -> Op:
        """A read or write of one member of a family."""
        family, number = self.member[op.attrs["variable"]]
        return self.access(op, family, operands, Integers(self.builder, op.where).constant(number))

    # ---- transforms ----

    def transform(self, op: Op) -> None:
        """A transform whose rows of captures are one capture each, and so are its gradients, and rows of results."""
        rows, yielded, body = self.plan.merged[op], self.plan.yielded.get(op, {}), op.blocks[0]
        kept = _merged(range(len(body.params)), rows)
        place = {each: number for number, each in enumerate(kept)}
        captures = [self.sequence(rows[each])[0] if each in rows else self.value(op.operands[each[0]]) for each in kept]
        like = [value if each in rows else body.params[each[0]] for each, value in zip(kept, captures, strict=True)]
        with self.builder.block([value.type for value in like], [value.hint for value in like]) as opened:
            for each, param in zip(kept, opened.params, strict=True):
                values = [body.params[number] for number in each]
                self.stand_for(values, param, (op, each), rows.get(each))
            self.contents(body)
            given = {each: self.sequence(row)[0] for each, row in yielded.items()}
            if given:
                ends = _merged(range(op.attrs["outputs"]), given)
                values = [given[each] if each in given else self.value(body.end.operands[each[0]]) for each in ends]
                self.builder.end("yield", values, None, body.end.where)
            else:
                self.end(body)
        outputs = op.attrs["outputs"] if op.declared is VJP else len(op.results)
        results = _merged(range(outputs), given)
        attrs = dict(op.attrs)
        if given:
            attrs["outputs"] = len(results)
            attrs["of"] = tuple([results.index((number,)) for number in attrs["of"]])
        wrt = _merged(attrs.get("wrt", ()), rows)
        if wrt:
            attrs["wrt"] = tuple([place[each] for each in wrt])
        if "mapped" in attrs:
            attrs["mapped"] = tuple([each not in rows and attrs["mapped"][each[0]] for each in kept])
        gradients = dict(zip(op.attrs["wrt"], op.results[outputs:], strict=True)) if op.declared is VJP else {}
        types = [given[each].type if each in given else op.results[each[0]].type for each in results]
        if gradients:
            types += [captures[place[each]].type if each in rows else gradients[each[0]].type for each in wrt]
        directions = [self.value(operand) for operand in op.operands[len(body.params) :]]
        made = self.builder.append(
            op.replace(operands=[*captures, *directions], attrs=attrs, blocks=[opened.block], result_types=types)
        )
        for each, result in zip(results, made.results[: len(results)], strict=True):
            values = [op.results[number] for number in each]
            result.hint = given[each].hint if each in given else ""
            self.stand_for(values, result, (op, "yielded", each), yielded.get(each))
        for each, result in zip(wrt if gradients else (), made.results[len(results) :], strict=True):
            result.hint = derived(captures[place[each]].hint, "d_")
            values = [gradients[number] for number in each]
            self.stand_for(values, result, (op, "gradients", each), rows.get(each))

    def stand_for(self, values: Sequence[Value], made: Value, key: tuple[object, ...], row: Source | None) -> None:
        """Let `made` stand for a value, or, as a sequence, for a row of values."""
        if row is None:
            self.define(values, [made])
        else:
            self.sequences[key] = made
            first = self.first_of(row)
            self.elements.update((value, (made, first + number)) for number, value in enumerate(values))

    # ---- loops ----

    def loop(self, chain: Chain) -> None:
        """A `for` in place of a chain: the body is the first piece."""
        where = chain.pieces[0][0].where
        integers = Integers(self.builder, where)
        bounds = [integers.constant(0), integers.constant(chain.count), integers.constant(1)]
        steps = {key: step for key in chain.carried if (step := self.step_of(chain, key)) is not None}
        carried = {key: row for key, row in chain.carried.items() if key not in steps}
        initial = [self.value(first) for first, _ in carried]
        left, collected = self.left(chain)
        with self.builder.block([COUNT, *(value.type for value in initial)], ["layer"]) as opened:
            body = _Body(self, chain, opened.params[0])
            body.carried = dict(zip(carried, opened.params[1:], strict=True))
            for key, step in steps.items():
                body.carried[key] = self.counted(self.value(key[0]), step, opened.params[0], where)
            for (first, passed), row in chain.carried.items():
                results = [first, *row[:-1]]  # the last one may have a name outside of the chain
                is_layers = all(isinstance(value.hint, LibraryName) for value in results)
                body.carried[first, passed].hint = common_hint(results if is_layers else row)
            for op in chain.pieces[0]:
                body.op(op)
            nexts = [body.values[passed] for _, passed in carried]
            self.builder.end("yield", [*nexts, *(body.values[value] for value in collected)], None, where)
        types = [value.type for value in initial] + [SequenceType(v.tensor, chain.count) for v in collected]
        attrs: dict[str, Any] = {"label": Label("layer")}
        if collected:
            attrs["collected"] = len(collected)
        attrs["layer"] = next(filter(None, map(layer_name, body.names)), ("", 0, ""))
        made = self.builder.op(FOR, [*bounds, *initial], types, attrs=attrs, blocks=[opened.block], where=where)
        for key, step in steps.items():
            last = chain.carried[key][-1]
            if last in left:
                self.define([last], [self.counted(self.value(key[0]), step, bounds[1], where)])
        for (_, row), result in zip(carried.items(), made.results, strict=False):
            if row[-1] in left:
                self.define([row[-1]], [result])
            else:
                result.hint = row[-1].hint
        for value, result in zip(collected, made.results[len(initial) :], strict=True):
            row = chain.row(value)
            result.hint = derived(common_hint(row), after="_history")
            self.sequences[chain, value] = result
            self.elements.update((each, (result, k)) for k, each in enumerate(row) if each not in self.values)

    def step_of(self, chain: Chain, key: tuple[Value, Value]) -> int | None:
        """The number that each piece adds to a carried integer, in a program with a device; None for other values.

        Why: a CUDA graph can have a loop that carries no number of the host, such as a counter of random numbers.
        """
        first, value = key
        if not self.has_device or not isinstance(first.type, TensorType) or first.type != TensorType(i64):
            return None
        step = 0
        while value is not first:
            added = value.made_by(prims.ADD)
            number = None if added is None else constant_of(added.operands[1])
            if added is None or number is None or added.operands[0] not in (first, *chain.numbers):
                return None
            value, step = added.operands[0], step + int(number)
        return step

    def counted(self, first: Value, step: int, count: Value, where: Position | None) -> Value:
        """A carried integer after `count` pieces, each of which adds `step`. Exact: an i64 wraps in both ways alike."""
        integers = Integers(self.builder, where)
        steps = integers.binary(prims.MULTIPLY, count, integers.constant(step))
        added = self.builder.op(prims.CAST, [steps], [first.type], attrs={"dtype": i64, "weak": False}, where=where)
        return self.builder.op(prims.ADD, [first, added.result], [first.type], where=where).result

    def left(self, chain: Chain) -> tuple[set[Value], list[Value]]:
        """The values of a chain that the block uses after it: of the last piece's carried ones, and, as values of the
        first piece, of the others, which are collected.
        """
        inside = {op for piece in chain.pieces for op in piece}
        used: set[Value] = set(chain.block.end.operands)
        for op in chain.block.ops:
            if op not in inside:
                used.update(op.operands)
                for inner in op.blocks:
                    used.update(inner.free)
        used &= chain.numbers.keys()
        last = {row[-1] for row in chain.carried.values()} & used
        return last, [chain.rows[number][0] for number in sorted({chain.numbers[value] for value in used - last})]


class _Body(Copier):
    """Copies the first piece of a chain as the body of its loop, in iteration `index`."""

    def __init__(self, roller: _Roller, chain: Chain, index: Value) -> None:
        super().__init__(roller.builder)
        self.roller = roller
        self.chain = chain
        self.index = index
        self.carried: dict[tuple[Value, Value], Value] = {}
        self.rows: dict[Row, Value] = {}
        self.places: dict[int, Value] = {0: index}
        rows = ([op.where.part for op in row if op.where is not None] for row in zip(*chain.pieces, strict=True))
        self.names = [names for names in rows if len(set(names)) > 1]
        """The names of a layer in all pieces, where they differ."""
        self.parts = {names[0]: common_name(names) for names in reversed(self.names)}
        """By name of a layer of the first piece, the name that all layers have."""
        for row in chain.varying:
            self.rows[row] = self.element(row)
            self.rows[row].hint = common_hint(row)

    def place(self, first: int) -> Value:
        """The number of this iteration's element, if the first iteration has number `first`."""
        if first not in self.places:
            integers = Integers(self.builder, self.chain.pieces[0][0].where)
            self.places[first] = integers.binary(prims.ADD, self.index, integers.constant(first))
        return self.places[first]

    def element(self, row: Row) -> Value:
        source = self.roller.plan.sources[self.chain, row]
        if isinstance(source, Read) and len(source.refs) == 1:
            return self.roller.access(row[0].producer, source.refs[0], [], None).result
        if isinstance(source, Read) and source.at is None:
            refs, first = self.roller.plan.family(source.refs) or (source.refs, 0)
            return self.roller.access(row[0].producer, self.roller.families[refs], [], self.place(first)).result
        sequence, first = self.roller.sequence(source)
        return self.roller.get(sequence, self.place(first))

    def given(self, site: Op | Block, number: int, value: Value) -> Value:
        """The operand of each iteration, for one of the first piece."""
        use = self.chain.uses.get((site, number))
        if use is None:
            return self.values[value] if value in self.values else self.roller.value(value)
        return self.carried[use] if use in self.carried else self.rows[use]

    def op(self, op: Op) -> None:
        operands = [self.given(op, number, operand) for number, operand in enumerate(op.operands)]
        variable = op.attrs.get("variable")
        row = next((refs for refs in self.chain.variables if refs[0] is variable), None)
        if row is not None:
            refs, first = self.roller.plan.family(row) or (row, 0)
            made = self.roller.access(op, self.roller.families[refs], operands, self.place(first))
            self.define(op.results, made.results)
        elif variable in self.roller.member:
            self.define(op.results, self.roller.touch(op, operands).results)
        else:
            attrs = op.attrs
            label = attrs.get("label")
            if isinstance(label, Label):
                self.labels[label] = Label(label.name)
                attrs = {**attrs, "label": self.labels[label]}
            blocks = [self.block(block) for block in op.blocks]
            where = self.position_of(op)
            copy = self.builder.append(op.replace(operands=operands, attrs=attrs, blocks=blocks, where=where))
            self.define(op.results, copy.results)
            for old, new in zip(op.results, copy.results, strict=True):
                new.hint = common_hint(self.chain.row(old))

    def position_of(self, op: Op) -> Position | None:
        """The position of an op, of all layers."""
        where = op.where
        if where is None or self.parts.get(where.part, where.part) == where.part:
            return where
        return replace(where, part=self.parts[where.part])

    def params(self, block: Block) -> None:
        for param in block.params:
            self.values[param].hint = common_hint(self.chain.row(param))

    def end(self, block: Block) -> None:
        end = block.end
        target = self.labels.get(end.target, end.target) if end.target is not None else None
        operands = [self.given(block, number, operand) for number, operand in enumerate(end.operands)]
        self.builder.end(end.kind, operands, target, end.where)


def _used_alike(chain: Chain, op: Op) -> Iterator[Value]:
    """The values that an op of the first piece uses, and the ops of the other pieces too."""
    yield from (operand for number, operand in enumerate(op.operands) if (op, number) not in chain.uses)
    for block in op.blocks:
        yield from (operand for number, operand in enumerate(block.end.operands) if (block, number) not in chain.uses)
        for inner in block.ops:
            yield from _used_alike(chain, inner)


def _merged(numbers: Iterable[int], rows: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The rows in place of their numbers, each at the place of its first number; another number is a row of one."""
    row_of = {number: row for row in rows for number in row}
    return list(dict.fromkeys(row_of.get(number, (number,)) for number in numbers))
