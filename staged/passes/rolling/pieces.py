"""Pieces: the ops of one layer each, compared value by value.

Pieces are equal if they differ in nothing but the values and the Variables that they use. For each operand, one of
these holds in every piece:

- it is a result of an op of the piece;
- it is the same value in all pieces, from before them;
- it is an initial value in the first piece, and a result of the piece before in each other one (`carried`);
- each piece has another value from outside (`varying`).

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from staged.ir.declaration import prims
from staged.ir.nodes import Block, Label, Op, Value, VariableRef
from staged.ir.types import TensorType, dims_of

Row = tuple[Value, ...]
"""The values that the pieces have at one place, one for each piece."""
Place = tuple[Op | Block, int]
"""An operand of an op, or of the end of a block, in the first piece."""


@dataclass(eq=False)
class Chain:
    """Equal pieces, one after another in a block."""

    block: Block
    pieces: tuple[tuple[Op, ...], ...]
    rows: list[Row] = field(default_factory=list)
    """The results of the pieces' ops, by number."""
    numbers: dict[Value, int] = field(default_factory=dict)
    """By result of an op of a piece, the number of its row."""
    carried: dict[tuple[Value, Value], Row] = field(default_factory=dict)
    """By (initial value, the value of the first piece that the second one uses): that value in each piece."""
    varying: dict[Row, None] = field(default_factory=dict)
    variables: dict[tuple[VariableRef, ...], None] = field(default_factory=dict)
    uses: dict[Place, tuple[Value, Value] | Row] = field(default_factory=dict)
    """The operands of the first piece that are carried (a key of `carried`), or varying."""

    @property
    def count(self) -> int:
        return len(self.pieces)

    @property
    def among(self) -> list[Op]:
        """The ops from the first to the last piece that belong to none."""
        inside, ops = {op for piece in self.pieces for op in piece}, self.block.ops
        first, last = ops.index(self.pieces[0][0]), ops.index(self.pieces[-1][-1])
        return [op for op in ops[first:last] if op not in inside]

    def row(self, value: Value) -> Row:
        """The value of each piece that corresponds to `value`."""
        return self.rows[self.numbers[value]]

    def part(self, first: int, last: int) -> Chain | None:
        """The chain of some of the pieces."""
        return chain_of(self.block, self.pieces[first:last])


def chain_of(block: Block, pieces: Sequence[Sequence[Op]]) -> Chain | None:
    """The chain of pieces of `block` whose ops look alike (`Keys`); None if they cannot be iterations of a loop."""
    chain = Chain(block, tuple(map(tuple, pieces)))
    chain.rows = list(zip(*map(_made_by, pieces), strict=True))
    chain.numbers = {value: number for number, row in enumerate(chain.rows) for value in row}
    has_own_sizes = any(row[0].made_by(prims.DIM) is not None for row in chain.rows)
    if has_own_sizes or not _Comparison(chain).ops(chain.pieces):
        return None
    return chain


def _made_by(ops: Sequence[Op]) -> list[Value]:
    """The results of ops, those of inner blocks included."""
    made: list[Value] = []
    for op in ops:
        for block in op.blocks:
            made += block.params
            made += _made_by(block.ops)
        made += op.results
    return made


class _Comparison:
    """Compares the pieces of a chain, and notes what it finds. Methods return whether the pieces are equal."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.labels: dict[Label, tuple[Label, ...]] = {}
        """By label of the first piece: that of each piece."""

    def ops(self, rows: Sequence[Sequence[Op]]) -> bool:
        return all(map(self.op, zip(*rows, strict=True)))

    def op(self, ops: tuple[Op, ...]) -> bool:
        first = ops[0]
        if first.operands and not self.values([op.operands for op in ops], first):
            return False
        if first.attrs and not self.attrs(ops):
            return False
        return all(map(self.blocks, zip(*[op.blocks for op in ops], strict=True)))

    def blocks(self, blocks: tuple[Block, ...]) -> bool:
        ends = [block.end for block in blocks]
        kind, target = ends[0].kind, ends[0].target
        if kind == "return" or any(end.kind != kind for end in ends):
            return False
        if target is not None and self.labels.get(target) != tuple([end.target for end in ends]):
            return False
        return self.ops([block.ops for block in blocks]) and self.values([end.operands for end in ends], blocks[0])

    def values(self, operands: Sequence[tuple[Value, ...]], site: Op | Block) -> bool:
        rows = zip(*operands, strict=True)
        return all(self.value(row, (site, number)) for number, row in enumerate(rows))

    def value(self, row: Row, place: Place) -> bool:
        chain, first = self.chain, row[0]
        made = chain.numbers.get(first)
        if made is not None:
            return chain.rows[made] == row
        if row.count(first) == len(row):
            return True
        passed = chain.numbers.get(row[1])
        if passed is not None:
            given = chain.rows[passed]
            if given[:-1] != row[1:] or first.type != given[0].type:
                return False
            key = first, given[0]
            chain.carried[key] = given
            chain.uses[place] = key
            return True
        is_tensor = isinstance(first.type, TensorType) and not dims_of(first.type)
        if len(set(row)) < len(row) or not is_tensor or any(value.type != first.type for value in row):
            return False
        if any(value in chain.numbers for value in row):
            return False  # made by a piece further away
        chain.varying[row] = None
        chain.uses[place] = row
        return True

    def attrs(self, ops: tuple[Op, ...]) -> bool:
        attrs = ops[0].attrs
        if "label" in attrs:
            self.labels[attrs["label"]] = tuple([op.attrs["label"] for op in ops])
        if "variable" in attrs:
            return self.variables(tuple([op.attrs["variable"] for op in ops]))
        return all(op.effects == ops[0].effects for op in ops)

    def variables(self, row: tuple[VariableRef, ...]) -> bool:
        if row.count(row[0]) == len(row):
            return True
        if not may_be_family(row):
            return False
        self.chain.variables[row] = None
        return True


def may_be_family(row: tuple[VariableRef, ...]) -> bool:
    """Return whether Variables differ in nothing but what they hold, and each comes once."""
    first = row[0]
    facts = [(ref.type, ref.outer, ref.device, ref.purpose, ref.part, ref.is_complex, ref.local) for ref in row]
    is_plain = not first.part and not first.members and not first.type.dtype.is_complex
    return is_plain and facts.count(facts[0]) == len(row) == len(set(row))
