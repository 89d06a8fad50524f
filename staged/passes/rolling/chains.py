"""The chains of a function: runs of equal ops, cut into the pieces that pass least to each other.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staged.ir.nodes import Block, Op, Value, VariableRef, walk_op
from staged.ir.structure import VARIABLE_READ
from staged.passes.rolling.pieces import Chain, chain_of
from staged.passes.rolling.repeats import Keys, Repeat, repeats

ALWAYS = 4
"""So many equal pieces become a loop if they are not tiny."""
FEWEST_OPS = 64
"""Fewer pieces become a loop if each has so many ops: a small loop would cost more in lost fusion than it saves."""
SMALLEST = 2
"""Pieces of fewer ops stay copies: a loop would store what kernels compute on the way, such as transposed weights."""


def is_worth(count: int, size: int) -> bool:
    """Return whether so many pieces of so many ops become a loop."""
    return size >= (SMALLEST if count >= ALWAYS else FEWEST_OPS)


def chains_of(block: Block, keys: Keys) -> Iterable[Chain]:
    """The chains of a block, and those of the blocks of all other ops."""
    floating = _floating(block)
    ops = [op for op in block.ops if op not in floating]
    inside: set[Op] = set()
    for repeat in repeats([keys.number(op) for op in ops], [keys.size(op) for op in ops]):
        piece = ops[repeat.start : repeat.start + repeat.period]
        is_work = any(op.declared is not VARIABLE_READ for op in piece)  # a loop of reads would store copies
        size = sum(map(keys.size, piece))
        chain = _best_chain(block, ops, repeat) if is_work and is_worth(repeat.count, size) else None
        if chain is not None:
            inside.update(op for piece in chain.pieces for op in piece)
            yield chain
    for op in ops:
        if op not in inside and not op.declared.is_opaque:
            for inner in op.blocks:
                yield from chains_of(inner, keys)


def _best_chain(block: Block, ops: Sequence[Op], repeat: Repeat) -> Chain | None:
    """The chain whose pieces pass least to each other, of those that begin at one of the repeat's first ops."""
    period = repeat.period
    made: dict[Value, int] = {}
    uses: list[tuple[Value, int, int]] = []
    for place, op in enumerate(ops[repeat.start : repeat.start + 3 * period]):
        used = (*op.operands, *(value for inner in op.blocks for value in inner.free))
        uses += [(value, made[value], place) for value in used if value in made]
        made.update(dict.fromkeys(op.results, place))

    def passed(shift: int) -> int:
        border = shift + period
        inside = range(shift, border + period)
        return len({v for v, at, place in uses if at < border <= place and at in inside and place in inside})

    for shift in sorted(range(repeat.slack + 1), key=passed):
        starts = [repeat.start + shift + number * period for number in range(repeat.count)]
        chain = chain_of(block, [ops[start : start + period] for start in starts])
        if chain is not None:
            return chain
    return None


def _floating(block: Block) -> set[Op]:
    """The reads of Variables that belong to no piece: of those that the block writes once at most, before that."""
    writes: dict[VariableRef, list[int]] = {}
    for number, op in enumerate(block.ops):
        for each in walk_op(op):
            for effect in each.effects:
                if effect.kind == "write" and effect.target is not None:
                    writes.setdefault(effect.target, []).append(number)
    return {
        op
        for number, op in enumerate(block.ops)
        if op.declared is VARIABLE_READ and _is_before(number, writes.get(op.attrs["variable"], []))
    }


def _is_before(number: int, writes: Sequence[int]) -> bool:
    return not writes or (len(writes) == 1 and number < writes[0])
