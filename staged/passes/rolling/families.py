"""Families: what supplies the values in which pieces differ.

A row of values, one for each piece, must be one of these:

- reads of Variables: the Variables become a family, and each iteration reads its member;
- captures of a transform: they become one capture, the sequence of a family's values;
- gradients with respect to such captures: they become one result, a sequence of gradients;
- results of the pieces of an earlier chain: that loop collects them.

If only some of the pieces have such a supply, the planner splits the chain and plans the parts anew.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from staged.ir.nodes import Block, Op, Value, VariableRef
from staged.ir.structure import CHECKPOINT, JVP, VARIABLE_READ, VJP, VMAP
from staged.ir.views import Derivative
from staged.passes.rolling.pieces import Chain, Row, may_be_family

Refs = tuple[VariableRef, ...]


class Surroundings:
    """The places of the values and ops of a function."""

    def __init__(self, block: Block) -> None:
        self.owner: dict[Block, tuple[Op, Block] | None] = {block: None}
        """By block, the op that it belongs to and the block of that; None for the function's own."""
        self.block_of: dict[Op, Block] = {}
        self.place: dict[Op, int] = {}
        """By op, its place in its block."""
        self.params: dict[Value, tuple[Block, int]] = {}
        self._writes: dict[Block, dict[VariableRef, list[int]]] = {}
        self._enter(block)

    def _enter(self, block: Block) -> None:
        for number, param in enumerate(block.params):
            self.params[param] = block, number
        self.block_of.update(dict.fromkeys(block.ops, block))
        self.place.update(zip(block.ops, range(len(block.ops)), strict=True))
        for op in block.ops:
            for inner in op.blocks:
                self.owner[inner] = op, block
                self._enter(inner)

    def written(self, op: Op) -> set[VariableRef]:
        """The Variables that an op writes, in its blocks and calls too."""
        targets = {effect.target for effect in op.effects if effect.kind == "write" and effect.target is not None}
        return targets.union(*map(self.writes, op.blocks)) if op.blocks else targets

    def writes(self, block: Block) -> dict[VariableRef, list[int]]:
        """By Variable, the places of the ops of a block that write it."""
        if block not in self._writes:
            writes = self._writes[block] = {}
            for number, op in enumerate(block.ops):
                for target in self.written(op) if op.effects or op.blocks else ():
                    writes.setdefault(target, []).append(number)
        return self._writes[block]

    def is_written(self, variable: VariableRef, block: Block, begin: int, end: int) -> bool:
        """Return whether an op of `block` between two places writes a Variable."""
        places = self.writes(block).get(variable, ())
        first = bisect_left(places, begin)
        return first < len(places) and places[first] < end

    def outward(self, block: Block) -> Iterator[tuple[Block, Op | None]]:
        """The block itself, and those around it that it sees, each with its op that the way inward goes through."""
        through: Op | None = None
        while True:
            yield block, through
            owner = self.owner[block]
            if owner is None or owner[0].declared.is_closed:
                return
            through, block = owner


@dataclass(frozen=True)
class Read:
    """A row of reads of Variables, in one block."""

    refs: Refs
    """The Variables; a single one that all pieces read."""
    block: Block
    """The block of the reads."""
    at: Op | None
    """The op of that block for which they are read; None for a loop in that block, whose iterations read."""


@dataclass(frozen=True)
class Captured:
    """A row of parameters of a transform's block."""

    op: Op
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Gradients:
    """A row of results of a `vjp`: the gradients with respect to the captures `numbers`."""

    op: Op
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Yielded:
    """A row of results of a `vjp`'s primal without cotangents, such as running means."""

    op: Op
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Collected:
    """A row of results of a chain's pieces, from number `first` on; `value` is that of the first piece."""

    chain: Chain
    value: Value
    first: int


Source = Read | Captured | Gradients | Yielded | Collected


@dataclass
class Plan:
    """The chains of a function that become loops, and what supplies them."""

    chains: list[Chain]
    sources: dict[tuple[Chain, Row], Source] = field(default_factory=dict)
    merged: dict[Op, dict[tuple[int, ...], Source]] = field(default_factory=dict)
    """By transform: the rows of captures that become one each, with what supplies the sequence outside."""
    yielded: dict[Op, dict[tuple[int, ...], Collected]] = field(default_factory=dict)
    """By transform in `merged`: the rows of results that become one each, with what supplies the sequence inside."""
    families: dict[Refs, None] = field(default_factory=dict)

    def family(self, refs: Refs) -> tuple[Refs, int] | None:
        """The family that has these Variables, and the number of the first of them in it."""
        for family in self.families:
            if refs[0] in family:
                first = family.index(refs[0])
                return (family, first) if family[first : first + len(refs)] == refs else None
        return None


def is_layered(chain: Chain) -> bool:
    """Return whether the pieces of a chain have Variables or values that differ, and do more than read Variables."""
    if all(op.declared is VARIABLE_READ for op in chain.pieces[0]):
        return False
    if chain.variables:
        return True
    reads = ([value.made_by(VARIABLE_READ) for value in row] for row in chain.varying)
    return any(len({read and read.attrs["variable"] for read in row}) > 1 or None in row for row in reads)


class Planner:
    """Decides which chains of a function become loops.

    The rank of a chain is 0 if it may form families, 1 if it may only use those of other chains, None if it stays
    copies.
    """

    def __init__(self, around: Surroundings, chains: Iterable[Chain], rank: Callable[[Chain], int | None]) -> None:
        self.around = around
        self.chains = list(chains)
        self.rank = rank

    def plan(self) -> Plan:
        """The plan; chains are split until all that is left of them is supplied."""
        while True:
            plan = Plan([chain for chain in self.chains if self.rank(chain) is not None])
            breaks = self._enter_families(plan) or self._find_sources(plan) or self._find_scattered(plan)
            if not breaks:
                return plan
            self.chains = [part for chain in plan.chains for part in _split(chain, breaks.get(chain))]

    # ---- families of Variables ----

    def _enter_families(self, plan: Plan) -> dict[Chain, set[int]]:
        rows: list[tuple[int, int, Chain, Refs]] = []
        breaks: dict[Chain, set[int]] = {}
        for chain in plan.chains:
            rank = self.rank(chain) or 0
            rows += [(rank, -chain.count, chain, refs) for refs in chain.variables]
            for row in chain.varying:
                refs = self._variables_of(row)
                again = _again(refs or ())
                if again:
                    breaks.setdefault(chain, set()).update(again)
                elif refs is not None and may_be_family(refs):
                    rows.append((rank, -chain.count, chain, refs))
        known: dict[VariableRef, tuple[Refs, int]] = {}
        for rank, _, chain, refs in sorted(rows, key=lambda each: each[:2]):
            if not rank and all(ref not in known for ref in refs):
                plan.families[refs] = None
                known.update((ref, (refs, number)) for number, ref in enumerate(refs))
            elif plan.family(refs) is None:
                found = _breaks([known.get(ref, (ref, 0)) for ref in refs])
                breaks.setdefault(chain, set()).update(found or {1})
        return breaks

    def _variables_of(self, row: Row) -> Refs | None:
        """The Variables that are read for a row, here or outside of the transforms that capture it."""
        places = [self.around.params[value] for value in row if value in self.around.params]
        if len(places) == len(row):
            block = places[0][0]
            owner = self.around.owner[block]
            if owner is None or not owner[0].declared.is_closed or any(other is not block for other, _ in places):
                return None
            operands = owner[0].operands
            is_whole = all(number < len(operands) for _, number in places)
            return self._variables_of(tuple([operands[number] for _, number in places])) if is_whole else None
        reads = [value.made_by(VARIABLE_READ) for value in row]
        refs = tuple([read.attrs["variable"] for read in reads if read is not None])
        return refs if len(refs) == len(row) else None

    # ---- sources ----

    def _find_sources(self, plan: Plan) -> dict[Chain, set[int]]:
        breaks: dict[Chain, set[int]] = {}
        # First those of transforms: rows of gradients are rows of captures.
        for is_late in (False, True):
            if breaks:
                break
            for chain in plan.chains:
                for row in chain.varying:
                    if _is_late(row) is not is_late:
                        continue
                    source = self._source(plan, chain, row)
                    if source is None:
                        found = _breaks([self._sign(plan, chain, value) for value in row])
                        breaks.setdefault(chain, set()).update(found or range(1, chain.count))
                    else:
                        plan.sources[chain, row] = source
        return breaks

    def _find_scattered(self, plan: Plan) -> dict[Chain, set[int]]:
        """The chains of rank 1 of which other code than loops needs the results of each piece: they stay copies."""
        small = [chain for chain in plan.chains if self.rank(chain)]
        inside = {op for chain in plan.chains for piece in chain.pieces for op in piece}
        used: dict[Block, set[Value]] = {}
        for block in {chain.block for chain in small}:
            used[block] = set(block.end.operands)
            for op in block.ops:
                if op not in inside:
                    used[block].update(op.operands, *(inner.free for inner in op.blocks))
        return {
            chain: set(range(1, chain.count))
            for chain in small
            if (used[chain.block] & chain.numbers.keys()).difference(row[-1] for row in chain.carried.values())
        }

    def _source(self, plan: Plan, chain: Chain, row: Row) -> Source | None:
        first = row[0]
        if first.producer is None:
            return self._captured(plan, chain.block, row)
        if first.producer.declared is VARIABLE_READ:
            found = self._reads(row)
            if found is not None and found[1] is chain.block:
                return self._read_in_iterations(chain, row)
            return self._read_for(row, chain.block, chain.pieces[0][0])
        if first.producer.declared is VJP and all(value.producer is first.producer for value in row):
            outputs = first.producer.attrs["outputs"]
            made_by = self._yielded if all(value.index < outputs for value in row) else self._gradients
            return made_by(plan, first.producer, row)
        return self._collected(plan, chain.block, row)

    def _reads(self, row: Row) -> tuple[list[Op], Block] | None:
        """The reads of a row, and their block, if there is one."""
        reads = [value.made_by(VARIABLE_READ) for value in row]
        blocks = {self.around.block_of[read] if read is not None else None for read in reads}
        if None in blocks or len(blocks) > 1 or any(read is None or read.operands for read in reads):
            return None
        refs = tuple([read.attrs["variable"] for read in reads if read is not None])
        if len(set(refs)) > 1 and not may_be_family(refs):
            return None
        return [read for read in reads if read is not None], blocks.pop()  # type: ignore[return-value]

    def _read_in_iterations(self, chain: Chain, row: Row) -> Read | None:
        """A row that each iteration can read itself.

        Exact: no Variable is written between its read and the beginning of its piece.
        """
        found = self._reads(row)
        if found is None or found[1] is not chain.block:
            return None
        for read, piece in zip(found[0], chain.pieces, strict=True):
            places = sorted((self.around.place[read], self.around.place[piece[0]]))
            if self.around.is_written(read.attrs["variable"], chain.block, *places):
                return None
        refs = tuple([read.attrs["variable"] for read in found[0]])
        return Read(refs[:1] if len(set(refs)) == 1 else refs, chain.block, None)

    def _read_for(self, row: Row, block: Block, op: Op) -> Read | None:
        """A row that is read as a sequence before an op, which does not write it.

        Exact: no Variable is written between its read and the op.
        """
        found = self._reads(row)
        if found is None:
            return None
        for outer, through in self.around.outward(block):
            if outer is found[1]:
                at = through or op
                here = self.around.place[at]
                for read in found[0]:
                    variable, place = read.attrs["variable"], self.around.place[read]
                    if place > here or self.around.is_written(variable, outer, place, here + (through is not None)):
                        return None
                return Read(tuple([read.attrs["variable"] for read in found[0]]), outer, at)
        return None

    def _captured(self, plan: Plan, block: Block, row: Row) -> Captured | None:
        places = [self.around.params.get(value) for value in row]
        if any(place is None or place[0] is not block for place in places) or self.around.owner[block] is None:
            return None
        op, outer = self.around.owner[block]  # type: ignore[misc]
        numbers = tuple([place[1] for place in places if place is not None])
        if op.declared is VJP:
            wrt = {number in Derivative(op).wrt for number in numbers}
            if len(wrt) > 1:
                return None
        elif op.declared is JVP:
            if any(number in Derivative(op).wrt for number in numbers):
                return None
        elif op.declared is VMAP:
            if any(op.attrs["mapped"][number] for number in numbers):
                return None
        elif op.declared is not CHECKPOINT:
            return None
        known = plan.merged.setdefault(op, {})
        if numbers in known:
            return Captured(op, numbers)
        if any(number in other for other in known for number in numbers):
            return None
        operands = tuple([op.operands[number] for number in numbers])
        if operands[0].producer is None:
            source: Source | None = self._captured(plan, outer, operands)
        elif any(effect for effect in self.around.written(op) & set(self._variables_of(operands) or ())):
            source = None
        else:
            source = self._read_for(operands, outer, op)
        if source is None:
            return None
        known[numbers] = source
        return Captured(op, numbers)

    def _gradients(self, plan: Plan, op: Op, row: Row) -> Gradients | None:
        vjp, outputs = Derivative(op), op.attrs["outputs"]
        if any(value.index < outputs for value in row):
            return None
        numbers = tuple([vjp.wrt[value.index - outputs] for value in row])
        return Gradients(op, numbers) if numbers in plan.merged.get(op, {}) else None

    def _yielded(self, plan: Plan, op: Op, row: Row) -> Yielded | None:
        numbers = tuple([value.index for value in row])
        known = plan.yielded.setdefault(op, {})
        if numbers in known:
            return Yielded(op, numbers)
        if any(number in other for other in (*known, Derivative(op).of) for number in numbers):
            return None
        end = op.blocks[0].end
        inner = tuple([end.operands[number] for number in numbers])
        found = self._collected(plan, op.blocks[0], inner) if end.kind == "yield" else None
        if found is None or found.chain.row(found.value) != inner:
            return None
        known[numbers] = found
        plan.merged.setdefault(op, {})
        return Yielded(op, numbers)

    def _collected(self, plan: Plan, block: Block, row: Row) -> Collected | None:
        for other in plan.chains:
            if other.block is not block or row[0] not in other.numbers:
                continue
            made = other.row(row[0])
            first = made.index(row[0])
            return Collected(other, made[0], first) if made[first : first + len(row)] == row else None
        return None

    def _sign(self, plan: Plan, chain: Chain, value: Value) -> tuple[Hashable, int]:
        """The supply of one value of a row, and its number there: a supply of the row has consecutive numbers."""
        producer = value.producer
        if producer is None and value in self.around.params:
            block, number = self.around.params[value]
            owner = self.around.owner[block]
            if owner is None:
                return value, 0
            op = owner[0]
            for numbers in plan.merged.get(op, {}):
                if number in numbers:
                    return (op, numbers), numbers.index(number)
            if op.declared in (VJP, JVP):
                return (op, number in Derivative(op).wrt), -1
            return op, -1
        if producer is not None and producer.declared is VJP:
            if value.index < producer.attrs["outputs"]:
                return self._sign(plan, chain, producer.blocks[0].end.operands[value.index])
            number = Derivative(producer).wrt[value.index - producer.attrs["outputs"]]
            for numbers in plan.merged.get(producer, {}):
                if number in numbers:
                    return (producer, numbers), numbers.index(number)
            return value, 0
        for other in plan.chains:
            if value in other.numbers:
                return (other, other.numbers[value]), other.row(value).index(value)
        return (value, 0) if producer is None or producer.declared is not VARIABLE_READ else (VARIABLE_READ, -1)


def _is_late(row: Row) -> bool:
    """Return whether a row needs the captures of transforms to be known."""
    producer = row[0].producer
    return producer is not None and producer.declared is not VARIABLE_READ


def _breaks(signs: list[tuple[Hashable, int]]) -> set[int]:
    """The places in a row at which another supply begins; -1 is any number."""
    return {
        number
        for number in range(1, len(signs))
        if signs[number][0] != signs[number - 1][0]
        or (signs[number][1] != -1 and signs[number][1] != signs[number - 1][1] + 1)
    }


def _again(refs: Refs) -> set[int]:
    """The places at which a Variable comes again, if not all are one: a family has each once."""
    found: set[int] = set()
    if len(set(refs)) == 1:
        return found
    since: set[VariableRef] = set()
    for number, ref in enumerate(refs):
        if ref in since:
            found.add(number)
            since.clear()
        since.add(ref)
    return found


def _split(chain: Chain, breaks: set[int] | None) -> list[Chain]:
    if not breaks:
        return [chain]
    edges = [0, *sorted(breaks), chain.count]
    parts = [chain.part(first, last) for first, last in zip(edges, edges[1:], strict=False) if last - first > 1]
    return [part for part in parts if part is not None]
