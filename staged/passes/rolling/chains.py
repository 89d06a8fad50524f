"""The chains of a function: runs of equal ops, cut into the pieces that pass least to each other.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staged.ir.nodes import Block, Op, Value, walk_op
from staged.ir.structure import VARIABLE_READ, VARIABLE_WRITE
from staged.ir.types import TensorType, i64
from staged.passes.rolling.families import Surroundings
from staged.passes.rolling.names import numbered
from staged.passes.rolling.pieces import Chain, chain_of
from staged.passes.rolling.repeats import Keys, Name, Repeat, repeats

ALWAYS = 4
"""So many equal pieces become a loop if they are not tiny."""
FEWEST_OPS = 64
"""Fewer pieces become a loop if each has so many ops: a small loop would cost more in lost fusion than it saves."""
SMALLEST = 2
"""Pieces of fewer ops stay copies: a loop would store what kernels compute on the way, such as transposed weights."""
FEWEST_IN_FAMILIES = 4
"""Fewer pieces of so many ops become a loop too, if all Variables that differ are families of other loops."""


def can_be_early(chain: Chain) -> bool:
    """Return whether the ops among the pieces that belong to none may come before the first piece."""
    among, inside = chain.among, (inner for piece in chain.pieces for op in piece for inner in walk_op(op))
    effects = [effect for op in inside for effect in op.effects]
    writes = {effect.target for op in among for effect in op.effects if effect.kind == "write"}
    return (
        not any(operand in chain.numbers for op in among for operand in op.operands)
        and not writes.intersection(effect.target for effect in effects)
        and not (writes and any(effect.kind in ("fail", "io") for effect in effects))
    )


def is_worth(count: int, size: int) -> bool:
    """Return whether so many pieces of so many ops become a loop."""
    return size >= (SMALLEST if count >= ALWAYS else FEWEST_OPS)


def chains_of(block: Block, keys: Keys, around: Surroundings, has_device: bool) -> Iterable[Chain]:
    """The chains of a block, and those of the blocks of all other ops. In a program with a device, numbers that count
    calls of a layer stay outside of the pieces: no CUDA graph could have the loop.
    """
    floating = _floating(block, around)
    if has_device:
        floating |= _counters(block, floating)
    ops = [op for op in block.ops if op not in floating]
    inside: set[Op] = set()
    names = [numbered(op) for op in ops]
    for repeat in repeats([keys.number(op) for op in ops], [keys.size(op) for op in ops], names):
        piece = ops[repeat.start : repeat.start + repeat.period]
        size = sum(map(keys.size, piece))
        is_flat = all(op.declared.is_opaque or not op.blocks for op in piece)
        may_be_worth = is_worth(repeat.count, size) or is_flat and size >= FEWEST_IN_FAMILIES
        chain = _best_chain(block, ops, names, repeat) if may_be_worth else None
        if chain is not None:
            inside.update(op for piece in chain.pieces for op in piece)
            yield chain
    for op in ops:
        if op not in inside and not op.declared.is_opaque:
            for inner in op.blocks:
                yield from chains_of(inner, keys, around, has_device)


def _best_chain(block: Block, ops: Sequence[Op], names: Sequence[Name], repeat: Repeat) -> Chain | None:
    """The chain that begins at one of the repeat's first ops whose pieces have fewest layers by name each, and pass
    least to each other.
    """
    period = repeat.period
    layers = _layers(names[repeat.start : repeat.start + 2 * period + repeat.slack], period)
    made: dict[Value, int] = {}
    uses: list[tuple[Value, int, int]] = []
    for place, op in enumerate(ops[repeat.start : repeat.start + 3 * period]):
        used = (*op.operands, *(value for inner in op.blocks for value in inner.free))
        uses += [(value, made[value], place) for value in used if value in made]
        made.update(dict.fromkeys(op.results, place))

    def cost(shift: int) -> tuple[int, int]:
        border = shift + period
        inside = range(shift, border + period)
        passed = {v for v, at, place in uses if at < border <= place and at in inside and place in inside}
        return len(set(layers[shift:border]) - {None}), len(passed)

    for shift in sorted(range(repeat.slack + 1), key=cost):
        starts = [repeat.start + shift + number * period for number in range(repeat.count)]
        chain = chain_of(block, [ops[start : start + period] for start in starts])
        if chain is not None:
            return chain
    return None


def _layers(names: Sequence[Name], period: int) -> list[int | None]:
    """By op, the number in its name that is another one a period later: that of its layer."""
    found = []
    for (_, first), (_, later) in zip(names, names[period:], strict=False):
        differ = [number for number, other in zip(first, later, strict=False) if number != other]
        found.append(differ[0] if len(differ) == 1 else None)
    return found


def _floating(block: Block, around: Surroundings) -> set[Op]:
    """The reads of Variables that belong to no piece: of those that the block writes once at most, before that."""
    writes = around.writes(block)
    reads = [op for op in block.ops if op.declared is VARIABLE_READ]
    return {op for op in reads if _is_before(around.place[op], writes.get(op.attrs["variable"], ()))}


def _is_before(number: int, writes: Sequence[int]) -> bool:
    return not writes or (len(writes) == 1 and number < writes[0])


def _counters(block: Block, floating: set[Op]) -> set[Op]:
    """The ops on integers that count something: the other ops of the block use none of these integers."""
    found = {op for op in block.ops if not op.blocks and _is_of_integers(op)}
    while True:
        others = [op for op in block.ops if op not in found]
        used = {value for op in others for value in (*op.operands, *(free for b in op.blocks for free in b.free))}
        touched = {each.target for op in others if not op.blocks and op not in floating for each in op.effects}
        left = {
            op
            for op in found
            if used.isdisjoint((*op.operands, *op.results)) and touched.isdisjoint(each.target for each in op.effects)
        }
        if left == found:
            return found
        found = left


def _is_of_integers(op: Op) -> bool:
    values = (*op.operands, *op.results)
    is_access = op.declared in (VARIABLE_READ, VARIABLE_WRITE)
    return (is_access or not op.effects) and all(value.type == TensorType(i64) for value in values)
