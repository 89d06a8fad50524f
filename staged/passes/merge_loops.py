"""Merge loops and branches that compute the same: two derivatives of one loop run it once.

Values with one number are equal to the bit. The number of a result stands for the op and the numbers of its operands.
Carried values are numbered by induction over the iterations. The first assumption is that those with equal initial
values are equal. Each round separates those with different next values, until the assumption holds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Function, Label, Op, Value, walk_blocks, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import ABSENT, IF
from staged.ir.views import Loop
from staged.passes.simplify import frozen_attrs, only_checks, simplify

_MOST_COMPARED = 8
"""Loops before a loop that it is compared with: else many of equal bounds would be compared with one another."""


def merge_loops(function: Function) -> Function:
    """Two loops of a block, or two `if`s  ->  one with the results of both

    One of them computes everything that the other one computes.


    Why: each derivative of a loop records it, with the residuals that it needs itself; so does the loop's plain value.
    Leaves: unused results, for `eliminate_dead_code` to drop.
    Exact: both have the same iterations, or run the same branch, and equal numbers are equal bits. Moved ops are pure,
    or are checks that the first one has on the same path.
    """
    while groups := [group for block in walk_blocks(function.block) for group in _equal_ops(block)]:
        block = _Merger(groups).block(function.block)
        function = simplify(function.with_block(block))  # what used their results may be equal now
    return function


class _Numbers:
    """Numbers the values in loops and branches."""

    def __init__(self) -> None:
        self.of: dict[Value, int] = {}
        self.sites: dict[Op, Hashable] = {}
        """Equal for `if`s on equal conditions, and for loops of the same iterations."""
        self.known: dict[Hashable, int] = {}
        self.loops: dict[Hashable, list[list[Op]]] = {}
        """Loops with the same bounds in the blocks that are being numbered, those of the same iterations together."""
        self.fresh = count()

    def number(self, value: Value) -> int:
        """The number of a value; one from outside is equal to itself alone, unless it is a constant."""
        if value not in self.of:
            if value.made_by(prims.CONSTANT) is not None:
                self.op(value.producer)  # type: ignore[arg-type]
            else:
                self.of[value] = next(self.fresh)
        return self.of[value]

    def keyed(self, *key: Hashable) -> int:
        if key not in self.known:
            self.known[key] = next(self.fresh)
        return self.known[key]

    def op(self, op: Op) -> None:
        if op.declared is IF:
            self.branches(op)
        elif op.declared.is_loop:
            self.loop(op)
        else:
            operands, attrs = tuple(map(self.number, op.operands)), frozen_attrs(op.attrs)
            for result in op.results:
                self.of[result] = self.keyed(op.declared, operands, attrs, op.device, result.index, result.type)

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def branches(self, op: Op) -> None:
        condition = self.number(op.operands[0])
        self.sites[op] = IF, condition
        for block in op.blocks:
            self.block(block)
        for result in op.results:
            then, other = (self.number(block.end.operands[result.index]) for block in op.blocks)
            self.of[result] = then if then == other else self.keyed(IF, condition, then, other, result.type)

    def loop(self, op: Op) -> None:
        loop = Loop(op)
        attrs = {key: value for key, value in op.attrs.items() if key not in ("label", "collected")}
        key = op.declared, tuple(map(self.number, loop.bounds)), frozen_attrs(attrs), op.device
        groups = self.loops.setdefault(key, [])
        starts = self.starts(op)
        for group in groups:
            others = self.starts(group[0])
            if starts <= others or others <= starts:
                if self.are_equal([*group, op]):
                    group.append(op)
                    return
                self.are_equal(group)
        self.are_equal([op])
        groups.append([op])

    def starts(self, op: Op) -> set[int]:
        return set(map(self.number, Loop(op).initial))

    def are_equal(self, ops: Sequence[Op]) -> bool:
        """Number the carried values of loops with equal bounds, and all that they compute; return whether they have the
        same iterations. The numbers of their results are left alone if they have not.
        """
        loops = list(map(Loop, ops))
        around, index = self.loops, next(self.fresh)
        begun: dict[Hashable, int] = {}  # of these loops alone: a loop around them may begin with the same value
        classes = {
            param: begun.setdefault((self.number(initial), param.type), next(self.fresh))
            for loop in loops
            for param, initial in zip(loop.carried, loop.initial, strict=True)
        }
        while True:
            self.loops = {}
            for loop in loops:
                self.of.update(dict.fromkeys(loop.indices, index))
                for block in loop.op.blocks:
                    self.of.update(zip(loop.carried_in(block), map(classes.__getitem__, loop.carried), strict=True))
                    self.block(block)
            finer: dict[tuple[int, int], int] = {}
            goes_on = [
                (param, (classes[param], self.number(following)))
                for loop in loops
                for param, following in zip(loop.carried, loop.body.end.operands, strict=False)
            ]
            for _, key in goes_on:
                finer.setdefault(key, next(self.fresh))
            if len(finer) == len(set(classes.values())):
                break
            classes = {param: finer[key] for param, key in goes_on}
        self.loops = around
        conditions = {self.number(loop.condition.end.operands[0]) for loop in loops if loop.condition is not None}
        if len(conditions) > 1:
            return False
        of_class: dict[int, Value] = {}
        of_element: dict[int, Value] = {}
        for loop in loops:
            self.sites[loop.op] = ops[0]
            for param, result in zip(loop.carried, loop.final, strict=True):
                self.of[result] = self.keyed("ends", of_class.setdefault(classes[param], param))
            for element, result in zip(loop.elements, loop.collected, strict=True):
                first = of_element.setdefault(self.number(element), result)
                self.of[result] = self.keyed("collected", first, result.type)
        return True

    def work(self, op: Op) -> set[int]:
        """The numbers of what an op's blocks compute."""
        return {
            self.of[result]
            for block in op.blocks
            for inner in walk_ops(block)
            if not inner.blocks and not all(map(_is_constant, inner.operands))
            for result in inner.results
        }

    def checks(self, op: Op, path: tuple[Hashable, ...] = ()) -> Iterator[Hashable]:
        """The checks in an op's blocks, each with its path."""
        for number, block in enumerate(op.blocks):
            here = (*path, self.sites[op], number)
            for inner in block.ops:
                if inner.effects:
                    yield here, self.of[inner.results[0]]
                yield from self.checks(inner, here)


@dataclass
class _Group:
    """Loops or branches of a block that become one; `moved` are the ops between the first and the others that these
    need.
    """

    ops: list[Op]
    moved: list[Op] = field(default_factory=list)
    numbers: _Numbers = field(default_factory=_Numbers)

    def takes(self, op: Op, place: dict[Value, int], block: Block) -> bool:
        """Add an op of the block, if it can be merged. `place` has the index of the op of each value."""
        first = self.ops[0]
        if not _can_move(first) or not _can_move(op):
            return False
        needed = _ops_between(op, place[first.results[0]], place, block)
        if needed is None:
            return False
        moved = sorted({*self.moved, *needed}, key=lambda each: place[each.results[0]])
        numbers = _Numbers()
        for each in (*moved, *self.ops, op):
            numbers.op(each)
        if numbers.sites[op] != numbers.sites[first]:
            return False
        outside = {numbers.number(value) for each in (*moved, *self.ops, op) for value in (*_free(each), *each.results)}
        work, more = numbers.work(first) - outside, numbers.work(op) - outside
        if not (work and more) or not (work <= more or more <= work):
            return False
        if not set(numbers.checks(op)) <= set(numbers.checks(first)):
            return False
        self.ops.append(op)
        self.moved, self.numbers = moved, numbers
        return True


def _equal_ops(block: Block) -> list[_Group]:
    """The loops and branches of a block that can be merged."""
    found: dict[Hashable, list[_Group]] = {}
    place: dict[Value, int] = {}
    for number, op in enumerate(block.ops):
        place.update(dict.fromkeys(op.results, number))
        if not op.results or (op.declared is not IF and not op.declared.is_loop):
            continue
        decides = op.operands[:1] if op.declared is IF else Loop(op).bounds
        groups = found.setdefault((op.declared, op.device, decides), [])
        starts = _starts(op)
        near = [group for group in groups if starts <= _starts(group.ops[0]) or _starts(group.ops[0]) <= starts]
        if not any(group.takes(op, place, block) for group in near[-_MOST_COMPARED:]):
            groups.append(_Group([op]))
    return [group for groups in found.values() for group in groups if len(group.ops) > 1]


def _starts(op: Op) -> set[Value]:
    """The initial values of a loop, without constants."""
    return {value for value in Loop(op).initial if not _is_constant(value)} if op.declared.is_loop else set()


def _ops_between(op: Op, first: int, place: dict[Value, int], block: Block) -> set[Op] | None:
    """The ops behind number `first` of the block that `op` needs; None if one of them cannot be moved before that."""
    found: set[Op] = set()
    pending = list(_free(op))
    while pending:
        number = place.get(pending.pop(), -1)
        if number < first or block.ops[number] in found:
            continue
        producer = block.ops[number]
        if producer.blocks or producer.effects:
            return None
        found.add(producer)
        pending += producer.operands
    return found


def _can_move(op: Op) -> bool:
    """Return whether an op's blocks have no exits, and no effects except checks."""
    blocks = [inner for block in op.blocks for inner in walk_blocks(block)]
    return all(block.end.kind == "yield" for block in blocks) and all(
        inner.declared is IF or inner.declared.is_loop if inner.blocks else not inner.effects or only_checks(inner)
        for block in blocks
        for inner in block.ops
    )


def _free(op: Op) -> Iterable[Value]:
    """The values that an op and its blocks use."""
    return (*op.operands, *(value for block in op.blocks for value in block.free))


def _is_constant(value: Value) -> bool:
    return value.made_by(prims.CONSTANT, ABSENT) is not None


class _Merger(Copier):
    """Copies a function; of equal loops and branches the first one gets the ops and results of all."""

    def __init__(self, groups: Sequence[_Group]) -> None:
        super().__init__(Builder())
        self.groups = {group.ops[0]: group for group in groups}
        self.merged: set[Op] = set()
        """Ops that have been copied together with others."""
        self.numbers = _Numbers()
        self.made: dict[int, Value] = {}
        """The copies of values in merged blocks, by number, in the blocks that are open."""

    def op(self, op: Op) -> None:
        if op in self.merged:
            return
        if op not in self.groups:
            super().op(op)
            return
        group = self.groups[op]
        for each in group.moved:
            super().op(each)
        around, self.numbers, self.made = (self.numbers, self.made), group.numbers, {}
        self.merge(group.ops)
        self.numbers, self.made = around

    def merge(self, ops: Sequence[Op]) -> None:
        """One op for several."""
        self.merged.update(ops)
        for value in (value for op in ops for value in _free(op) if value not in self.values):
            number = self.numbers.of.get(value)
            if number in self.made:
                self.values[value] = self.made[number]
            else:
                assert value.producer is not None and _is_constant(value)
                super().op(value.producer)
        if ops[0].declared is IF:
            self.merge_branches(ops)
        else:
            self.merge_loops(list(map(Loop, ops)))
        self.made.update((self.numbers.of[result], self.values[result]) for op in ops for result in op.results)

    def is_at_hand(self, value: Value) -> bool:
        return value in self.values or self.numbers.of.get(value) in self.made or _is_constant(value)

    def merge_branches(self, ops: Sequence[Op]) -> None:
        blocks = []
        for branches in zip(*(op.blocks for op in ops), strict=True):
            with self.builder.block() as opened:
                self.together(branches)
                passed = [self.value(value) for branch in branches for value in branch.end.operands]
                self.builder.end("yield", passed, None, branches[0].end.where)
            blocks.append(opened.block)
        results = [result for op in ops for result in op.results]
        operands = list(map(self.value, ops[0].operands))
        types = [result.type for result in results]
        copy = self.builder.append(ops[0].replace(operands=operands, blocks=blocks, result_types=types))
        self.define(results, copy.results)

    def merge_loops(self, loops: Sequence[Loop]) -> None:
        first, of = loops[0], self.numbers.of
        carried: dict[int, tuple[Loop, int]] = {}
        for loop in loops:
            for index, param in enumerate(loop.carried):
                carried.setdefault(of[param], (loop, index))
        collecting = sum(loop.collecting for loop in loops)
        attrs = {**first.attrs_collecting(collecting), "label": Label(first.label.name)}
        blocks = []
        for parts in zip(*(loop.op.blocks for loop in loops), strict=True):
            indices = first.indices if parts[0] is first.body else ()
            params = [*indices, *(loop.carried[index] for loop, index in carried.values())]
            with self.builder.block([param.type for param in params], [param.hint for param in params]) as opened:
                by_number = dict(zip(carried, opened.params[len(indices) :], strict=True))
                for loop, part in zip(loops, parts, strict=True):
                    self.values.update(zip(part.params, opened.params[: len(indices)], strict=False))
                    self.values.update((param, by_number[of[param]]) for param in loop.carried_in(part))
                self.together(parts)
                if parts[0] is not first.body:
                    passed = list(parts[0].end.operands)
                else:
                    passed = [loop.body.end.operands[index] for loop, index in carried.values()]
                    passed += [element for loop in loops for element in loop.elements]
                self.builder.end("yield", list(map(self.value, passed)), None, parts[0].end.where)
            blocks.append(opened.block)
        collected = [result for loop in loops for result in loop.collected]
        types = [loop.carried[index].type for loop, index in carried.values()] + [each.type for each in collected]
        operands = [*first.bounds, *(loop.initial[index] for loop, index in carried.values())]
        copy = self.builder.append(
            first.op.replace(operands=list(map(self.value, operands)), attrs=attrs, blocks=blocks, result_types=types)
        )
        final = dict(zip(carried, copy.results, strict=False))
        for loop in loops:
            self.define(loop.final, [final[of[param]] for param in loop.carried])
        self.define(collected, copy.results[len(carried) :])

    def together(self, blocks: Sequence[Block]) -> None:
        """The ops of blocks that run together; ops with blocks are merged with those at the same site, as far as all
        that they need is there.
        """
        of, sites = self.numbers.of, self.numbers.sites
        around, self.made = self.made, dict(self.made)
        for position, block in enumerate(blocks):
            for op in block.ops:
                if op in self.merged:
                    continue
                # Of the first block every check is made, also in an `if` whose results are known.
                if (position or not op.blocks) and all(of[result] in self.made for result in op.results):
                    self.define(op.results, [self.made[of[result]] for result in op.results])
                    continue
                others = [
                    other
                    for later in blocks[position + 1 :]
                    for other in later.ops
                    if op in sites and sites.get(other) == sites[op] and other not in self.merged
                    if all(self.is_at_hand(value) for value in _free(other))
                ]
                if others:
                    self.merge([op, *others])
                else:
                    super().op(op)
                    self.made.update((of[result], self.values[result]) for result in op.results)
        self.made = around
