"""Early exits in differentiated code become values, so that reverse mode sees blocks that yield, and nothing else.

    while True:                     stop = False
        a = f(a)                    while not stop:
        if a > 3: break      =>         a = f(a)
        a = g(a)                        if a > 3: stop = True
                                        else: a = g(a)

What follows an `if` that may leave moves into the branch that stays; where both may stay, a flag says which did. A loop
that is left carries a flag, too; `for` becomes `while`. A `scope` dissolves. `raise` stays: nothing comes back from it.

Only the blocks of transforms are touched, and the functions that are called in them: elsewhere the emitted program says
`break` where the user wrote it. A function that is called outside of transforms too gets a twin for their blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.functions import callees, function_table
from staged.ir.nodes import Block, End, EndKind, Function, Label, Op, Value, walk_blocks
from staged.ir.rewrite import Copier
from staged.ir.structure import CALL, IF, SCOPE, WHILE
from staged.ir.trips import Integers, trip_bound
from staged.ir.types import TensorType, Type, bool_
from staged.ir.views import Call, Loop
from staged.ir.zeros import zeros_of

FLAG = TensorType(bool_)


def normalize_exits(program: Function) -> Function:
    """The program whose transforms' blocks hold no `break`, `continue` or `scope`, nor do functions called in them,
    which return at their end (see the module's docstring).

    Why: reverse mode runs a block backwards; a way out of the middle has to be a recorded decision for that.
    Leaves: constant flags and `if`s on them, for `simplify`.
    """
    inside, outside = _reached(program)
    table = function_table(program)
    # What is called from both sides keeps its exits outside, if it has any, or calls what has.
    changed = {name for name in inside if _has_exits(table[name].block)}
    more = True
    while more:
        found = {name for name in inside if any(callee in changed for callee in callees(table[name].block))} & outside
        more = not found <= changed
        changed |= found
    names = {program.name, *table}
    twins: dict[str, str] = {}
    for name in (name for name in table if name in changed & outside):
        wish = f"{name}_straight"
        twins[name] = wish
        while twins[name] in names:
            twins[name] += "_"
        names.add(twins[name])

    functions: list[Function] = []
    for name, function in table.items():
        if name not in inside or name in twins:
            functions.append(function.with_block(_Outside(Builder(), twins).block(function.block)))
        if name in inside:
            block = _Inside(Builder(), twins).function(function.block)
            functions.append(function.replace(name=twins.get(name, name), block=block))
    return program.replace(block=_Outside(Builder(), twins).block(program.block), functions=functions)


class _Outside(Copier):
    """Code outside of transforms is copied as it is."""

    def __init__(self, builder: Builder, twins: Mapping[str, str]) -> None:
        super().__init__(builder)
        self.twins = twins

    def op(self, op: Op) -> None:
        if not op.declared.is_transform:
            super().op(op)
            return
        blocks = [_normal_block(self.builder, block, self.twins) for block in op.blocks]
        copy = self.builder.append(op.replace(operands=[self.value(v) for v in op.operands], blocks=blocks))
        self.values.update(zip(op.results, copy.results, strict=True))


def _normal_block(builder: Builder, block: Block, twins: Mapping[str, str]) -> Block:
    inside = _Inside(builder, twins)
    with builder.block([p.type for p in block.params], [p.hint for p in block.params]) as opened:
        inside.values.update(zip(block.params, opened.params, strict=True))
        yields = _Yields(tuple(value.type for value in block.end.operands))
        given = inside.contents_of(block, yields, lambda end: inside.finish(yields, end))
        if given is not None:
            builder.end("yield", given, None, block.end.where)
    return opened.block


@dataclass(frozen=True)
class _Exit:
    """A way out of a block to a label around it, with the types of what it passes on."""

    label: Label
    kind: EndKind
    types: tuple[Type, ...]


@dataclass(frozen=True)
class _Yields:
    """The values that the block being written yields: those of its usual end, then per exit a flag and the exit's
    values.

    `here` is the label of the loop or scope whose body this is; exits to it continue there. `stops` if it is a loop
    that is left early: it then yields one more flag for that.
    """

    normal: tuple[Type, ...]
    exits: tuple[_Exit, ...] = ()
    here: Label | None = None
    stops: bool = False

    @property
    def types(self) -> list[Type]:
        types = [*self.normal, *([FLAG] if self.stops else [])]
        for way in self.exits:
            types += [FLAG, *way.types]
        return types

    @property
    def first_flag(self) -> int:
        return len(self.normal) + self.stops


Given = list[Value] | None
"""The values that a block yields; None where the block has ended by raising."""


class _Inside(Copier):
    """Copies differentiated code, turning exits into values; calls are of the `twins`, where there are."""

    def __init__(self, builder: Builder, twins: Mapping[str, str]) -> None:
        super().__init__(builder)
        self.twins = twins

    def function(self, block: Block) -> Block:
        """The body of a function: a `return` in its middle is an exit out of all of it."""
        returned = _returned(block)
        if returned is None:
            return self.block(block)  # it stops the program on every path
        label = Label("return")
        with self.builder.block([p.type for p in block.params], [p.hint for p in block.params]) as opened:
            self.values.update(zip(block.params, opened.params, strict=True))
            yields = _Yields(tuple(value.type for value in returned), (), label)
            given = self.contents_of(_with_label(block, label), yields, lambda end: self.finish(yields, end))
            if given is not None:
                for value, old in zip(given, returned, strict=True):
                    value.hint = value.hint or old.hint
                self.builder.end("return", given, None, block.end.where)
        return opened.block

    # ---- blocks ----

    def contents_of(self, block: Block, yields: _Yields, then: Callable[[End], Given], first: int = 0) -> Given:
        """The ops of `block` from number `first`, into the current block; `then` is asked to go on from its end."""
        for number in range(first, len(block.ops)):
            op = block.ops[number]
            if op.declared is SCOPE or exits_of(op):

                def rest(number: int = number) -> Given:
                    return self.contents_of(block, yields, then, number + 1)

                return self.leaving(op, yields, rest)
            self.op(op)
        return then(block.end)

    def op(self, op: Op) -> None:
        """Copy an op that control does not leave; exits inside it end inside it."""
        if op.declared.is_loop:
            self.loop(op, ())
        elif op.declared.is_transform:
            blocks = [_normal_block(self.builder, block, self.twins) for block in op.blocks]
            copy = self.builder.append(op.replace(operands=[self.value(v) for v in op.operands], blocks=blocks))
            self.values.update(zip(op.results, copy.results, strict=True))
        elif op.declared is CALL:
            attrs = {**op.attrs, "function": self.twins.get(Call(op).function, Call(op).function)}
            copy = self.builder.append(op.replace(operands=[self.value(v) for v in op.operands], attrs=attrs))
            self.values.update(zip(op.results, copy.results, strict=True))
        else:
            super().op(op)

    def block(self, block: Block) -> Block:
        with self.builder.block([p.type for p in block.params], [p.hint for p in block.params]) as opened:
            self.values.update(zip(block.params, opened.params, strict=True))
            yields = _Yields(tuple(value.type for value in block.end.operands))
            given = self.contents_of(block, yields, lambda end: self.finish(yields, end))
            self.end_with(block, given)
        return opened.block

    def finish(self, yields: _Yields, end: End) -> Given:
        """The values of `yields` for a block that ends in `end`."""
        if end.kind == "raise":
            self.builder.end("raise", [self.value(operand) for operand in end.operands], None, end.where)
            return None
        assert end.kind != "return", "a differentiated block has no `return`: it yields"
        given = [self.value(operand) for operand in end.operands]
        if end.kind == "yield" or end.target is yields.here:
            stop = [self.flag(end.kind == "break")] if yields.stops else []
            return [*given, *stop, *self.exits(yields, None, ())]
        stop = [self.flag(True)] if yields.stops else []
        return [*self.absent(yields.normal), *stop, *self.exits(yields, end, given)]

    def exits(self, yields: _Yields, end: End | None, given: Sequence[Value]) -> list[Value]:
        """Per exit of the block its flag and what it passes on: those of `end` if that is the one taken."""
        values: list[Value] = []
        known = end is None or any(way.label is end.target and way.kind == end.kind for way in yields.exits)
        assert known, "an exit out of a block that does not expect it"
        for way in yields.exits:
            taken = end is not None and way.label is end.target and way.kind == end.kind
            values += [self.flag(taken), *(given if taken else self.absent(way.types))]
        return values

    # ---- ops that control may leave ----

    def leaving(self, op: Op, yields: _Yields, rest: Callable[[], Given]) -> Given:
        """An `if`, loop or scope with exits to labels around it, then `rest`."""
        if op.declared is IF:
            return self.leaving_if(op, yields, rest)
        ways = tuple(exits_of(op))
        if op.declared is SCOPE:
            inner = _Yields(tuple(result.type for result in op.results), ways, op.attrs["label"])
            given = self.contents_of(op.blocks[0], inner, lambda end: self.finish(inner, end))
            if given is None:
                return None
            results, flags = given[: inner.first_flag], given[inner.first_flag :]
        else:
            results, flags = self.loop(op, ways)
        self.values.update(zip(op.results, results, strict=True))
        return self.pass_on(ways, flags, yields, rest, op)

    def leaving_if(self, op: Op, yields: _Yields, rest: Callable[[], Given]) -> Given:
        staying = [block for block in op.blocks if block.end.kind == "yield"]
        condition = self.value(op.operands[0])

        def go_on(end: End) -> Given:
            if end.kind != "yield":
                return self.finish(yields, end)
            self.values.update(zip(op.results, map(self.value, end.operands), strict=True))
            return rest()

        if len(staying) < 2:
            return self.branch(condition, op, yields, [(block, go_on) for block in op.blocks])
        # Both branches may go on: `rest` is written once, after them, for the case that no exit was taken.
        ways = tuple(exits_of(op))
        inner = _Yields(tuple(result.type for result in op.results), ways)
        given = self.branch(condition, op, inner, [(block, lambda end: self.finish(inner, end)) for block in op.blocks])
        if given is None:
            return None
        for old, new in zip(op.results, given, strict=False):
            self.values[old] = new
        return self.pass_on(ways, given[inner.first_flag :], yields, rest, op)

    def branch(
        self, condition: Value, op: Op, yields: _Yields, branches: Sequence[tuple[Block, Callable[[End], Given]]]
    ) -> Given:
        """An `if` whose branches give the values of `yields`."""
        blocks = []
        for block, then in branches:
            with self.builder.block() as opened:
                self.end_with(block, self.contents_of(block, yields, then))
            blocks.append(opened.block)
        return self.decide(condition, blocks, yields, op)

    def decide(self, condition: Value, blocks: Sequence[Block], yields: _Yields, op: Op) -> Given:
        made = self.builder.op(IF, [condition], yields.types, blocks=blocks, device=op.device, where=op.where)
        if all(block.end.kind == "raise" for block in blocks):
            self.builder.end("raise", (), None, op.where)
            return None
        for index, result in enumerate(made.results):
            for block in blocks:
                if block.end.kind == "yield" and not result.hint:
                    result.hint = block.end.operands[index].hint
        return list(made.results)

    def pass_on(
        self, ways: Sequence[_Exit], given: list[Value], yields: _Yields, rest: Callable[[], Given], op: Op
    ) -> Given:
        """After an op that may have been left by `ways`: leave this block alike, or go on with `rest`."""
        if not ways:
            return rest()
        way, *others = ways
        flag, passed, given = given[0], given[1 : 1 + len(way.types)], given[1 + len(way.types) :]
        with self.builder.block() as left:
            end = End(way.kind, tuple(passed), way.label, op.where)
            values = self.finish(yields, end)
            assert values is not None
            self.builder.end("yield", values, None, op.where)
        with self.builder.block() as stayed:
            remaining = self.pass_on(others, given, yields, rest, op)
            if remaining is not None:
                self.builder.end("yield", remaining, None, op.where)
        return self.decide(flag, [left.block, stayed.block], yields, op)

    # ---- loops ----

    def loop(self, op: Op, ways: tuple[_Exit, ...]) -> tuple[list[Value], list[Value]]:
        """A loop without exits inside it; returns its results, and the flags and values of `ways` out of it."""
        loop = Loop(op)
        if ways or _breaks(loop.body, loop.label):
            assert not loop.collecting, "a rolled loop has no exits"
            return self.loop_that_stops(op, ways)
        yields = _Yields(loop.yields(loop.body), (), loop.label)
        operands = [self.value(operand) for operand in op.operands]
        conditions = [] if loop.condition is None else [self.block(loop.condition)]
        params = loop.body.params
        with self.builder.block([param.type for param in params], [param.hint for param in params]) as opened:
            self.values.update(zip(params, opened.params, strict=True))
            self.end_with(loop.body, self.contents_of(loop.body, yields, lambda end: self.finish(yields, end)))
        attrs = {**op.attrs, "label": Label(loop.label.name)}
        copy = self.builder.append(op.replace(operands=operands, blocks=[*conditions, opened.block], attrs=attrs))
        self.values.update(zip(op.results, copy.results, strict=True))
        return list(copy.results), []

    def loop_that_stops(self, op: Op, ways: tuple[_Exit, ...]) -> tuple[list[Value], list[Value]]:
        """A loop that is left early becomes a `while` that carries a flag, the exits, and of a `for` the number of the
        iteration.
        """
        loop = Loop(op)
        body, carried = loop.body, loop.carried
        yields = _Yields(tuple(param.type for param in carried), ways, loop.label, stops=True)
        integers = Integers(self.builder, op.where)
        bounded = op.replace(operands=[self.value(operand) for operand in op.operands])  # by the bounds as they are now
        trips = integers.trips(bounded) if loop.is_for else None
        initial = [*Loop(bounded).initial, self.flag(False), *self.exits(yields, None, ())]
        initial += [integers.constant(0)] if loop.is_for else []
        types = [value.type for value in initial]
        hints = [*(param.hint for param in carried), "stop"]
        condition = self.condition_that_stops(op, types, hints, trips)
        with self.builder.block(types, hints) as opened:
            count = opened.params[-1]
            self.values.update(zip(carried, opened.params, strict=False))
            if loop.is_for:
                index = integers.index(bounded, count)
                index.hint = index.hint or loop.index.hint
                self.values[loop.index] = index
            given = self.contents_of(body, yields, lambda end: self.finish(yields, end))
            if given is not None and loop.is_for:
                given.append(integers.binary(prims.ADD, count, integers.constant(1)))
            self.end_with(body, given)
        attrs = {**op.attrs, "label": Label(loop.label.name)}
        bound = trip_bound(op)
        if bound is not None:
            attrs["bound"] = bound
        blocks = [condition, opened.block]
        made = self.builder.op(WHILE, initial, types, attrs=attrs, blocks=blocks, device=op.device, where=op.where)
        self.define(op.results, made.results[: len(op.results)])
        results = list(made.results)
        return results[: len(carried)], results[len(carried) + 1 : len(results) - loop.is_for]

    def condition_that_stops(self, op: Op, types: Sequence[Type], hints: Sequence[str], trips: Value | None) -> Block:
        """Return whether the loop has not been left, and has another iteration: of a `for`, one of its `trips`."""
        loop = Loop(op)
        with self.builder.block(types, hints) as condition:
            with self.builder.block() as running:
                if trips is not None:
                    # Comparing two counters, which are weak, gives a weak bool.
                    weak = TensorType(bool_, (), weak=True)
                    more = self.builder.op(prims.LESS, [condition.params[-1], trips], [weak], where=op.where).result
                else:
                    first = loop.condition
                    assert first is not None
                    self.values.update(zip(first.params, condition.params, strict=False))
                    question = _Yields((first.end.operands[0].type,))
                    answer = self.contents_of(first, question, lambda end: self.finish(question, end))
                    assert answer is not None, "a loop condition yields"
                    (more,) = answer
                self.builder.end("yield", [more])
            with self.builder.block() as stopped:
                no = self.builder.op(prims.CONSTANT, [], [more.type], attrs={"value": False}, where=op.where).result
                self.builder.end("yield", [no])
            branches = [stopped.block, running.block]
            stop = condition.params[len(loop.carried)]
            going = self.builder.op(IF, [stop], [more.type], blocks=branches, where=op.where)
            self.builder.end("yield", [going.result])
        return condition.block

    def end_with(self, block: Block, given: Given) -> None:
        """End the current block as `block` ends: with what it gives, unless it has ended already."""
        if given is not None:
            self.builder.end("yield", given, None, block.end.where)

    # ---- small values ----

    def flag(self, value: bool) -> Value:
        return self.builder.op(prims.CONSTANT, [], [FLAG], attrs={"value": value}).result

    def absent(self, types: Sequence[Type]) -> list[Value]:
        """Zeros for the values that a path does not give; they are unused."""
        values = []
        for type in types:
            assert isinstance(type, TensorType)
            values.append(zeros_of(self.builder, type))
        return values


# ---- where control may go -----------------------------------------------------------------------


def exits_of(op: Op) -> list[_Exit]:
    """The exits inside `op` to labels around it, each once, in program order."""
    found: dict[tuple[Label, str], _Exit] = {}
    for block in op.blocks:
        _collect(block, frozenset([op.attrs.get("label")]), found)
    return list(found.values())


def _collect(block: Block, inner: frozenset[Label | None], found: dict[tuple[Label, str], _Exit]) -> None:
    for op in block.ops:
        if op.declared.is_transform:
            continue
        for nested in op.blocks:
            _collect(nested, inner | {op.attrs.get("label")}, found)
    end = block.end
    if end.is_of_loop and end.target is not None and end.target not in inner:
        types = tuple(operand.type for operand in end.operands)
        found.setdefault((end.target, end.kind), _Exit(end.target, end.kind, types))


def _breaks(block: Block, label: Label) -> bool:
    """Return whether a body leaves the loop `label` early."""
    found: dict[tuple[Label, str], _Exit] = {}
    _collect(block, frozenset(), found)
    return (label, "break") in found


# ---- functions ----------------------------------------------------------------------------------


def _reached(program: Function) -> tuple[set[str], set[str]]:
    """The functions that run inside of transforms, and those that run outside of them."""
    table = function_table(program)
    inside: set[str] = set()
    outside: set[str] = set()
    pending = [(name, within) for name, within in _calls(program.block, False)]
    while pending:
        name, within = pending.pop()
        seen = inside if within else outside
        if name not in seen:
            seen.add(name)
            pending += _calls(table[name].block, within)
    return inside, outside


def _calls(block: Block, within: bool) -> list[tuple[str, bool]]:
    """The functions that a block calls, each with whether a transform is around the call."""
    found = []
    for op in block.ops:
        if op.declared is CALL:
            found.append((Call(op).function, within))
        for inner in op.blocks:
            found += _calls(inner, within or op.declared.is_transform)
    return found


def _has_exits(block: Block) -> bool:
    return any(
        inner is not block and (inner.end.is_of_loop or inner.end.kind == "return") for inner in walk_blocks(block)
    )


def _returned(block: Block) -> tuple[Value, ...] | None:
    """The operands of some `return` of a function's body."""
    return next((inner.end.operands for inner in walk_blocks(block) if inner.end.kind == "return"), None)


def _with_label(block: Block, label: Label) -> Block:
    """The same ops in a body whose `return`s are exits to `label`."""

    def end(old: End) -> End:
        return End("break", old.operands, label, old.where) if old.kind == "return" else old

    class Relabel(Copier):
        def end(self, block: Block) -> None:
            turned = end(block.end)
            target = self.labels.get(turned.target, turned.target) if turned.target is not None else None
            self.builder.end(turned.kind, [self.value(value) for value in turned.operands], target, turned.where)

    relabel = Relabel(Builder())
    with relabel.builder.block() as opened:
        relabel.contents(block)
        relabel.end(block)
    return opened.block
