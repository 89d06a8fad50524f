"""Updates in the backward loop: a layer's Variables are updated in the iteration that computes their gradients.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from staged.ir.builder import Builder
from staged.ir.nodes import Block, Function, Op, Value, VariableRef, walk_op, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.storage import root_of
from staged.ir.structure import FOR, SEQUENCE_GET, VARIABLE_READ, VARIABLE_WRITE
from staged.ir.trips import constant_of
from staged.ir.views import Loop


def update_in_loops(function: Function) -> Function:
    """for k: ...; yield d_w      for l: update w[l] by d_w[l]   ->   for k: ...; update w[k] by d_w

    The first loop computes the gradients, or what an update uses of them (they are clipped, unscaled).

    Why: no array then holds the gradients of all layers, and an update can be fused with what computes its gradient.
    Leaves: loops whose gradients are needed before (a largest norm), or whose Variables are read in between.
    Exact: each iteration of the update touches the members of its layer alone; no op that runs later now reads one of
    them, or may stop the program.
    """
    if not any(op.attrs.get("collected") for op in walk_ops(function.block)):
        return function
    return function.with_block(_Joiner(Builder()).block(function.block))


@dataclass(eq=False)
class _Pair:
    """A loop that collects gradients, and one that updates by them, with the ops that are to come before both."""

    gradients: Op
    update: Op
    early: list[Op]


class _Joiner(Copier):
    """Copies blocks, with the updates in the loops that compute their gradients."""

    def contents(self, block: Block) -> None:
        pairs = {pair.gradients: pair for pair in _pairs(block)}
        updates = {pair.update for pair in pairs.values()}
        moved = {op for pair in pairs.values() for op in pair.early}
        for op in block.ops:
            if op in pairs:
                for early in pairs[op].early:
                    self.op(early)
                self.joined(pairs[op])
            elif op not in updates and op not in moved:
                self.op(op)

    def joined(self, pair: _Pair) -> None:
        loop, update = Loop(pair.gradients), Loop(pair.update)
        with self.builder.block([p.type for p in loop.body.params], [p.hint for p in loop.body.params]) as opened:
            self.values.update(zip(loop.body.params, opened.params, strict=True))
            self.contents(loop.body)
            self.values[update.index] = opened.params[0]
            element = dict(zip(loop.collected, loop.elements, strict=True))
            for op in update.body.ops:
                if op.declared is SEQUENCE_GET and op.operands[0] in element:
                    self.values[op.result] = self.value(element[op.operands[0]])
                else:
                    self.op(op)
            self.end(loop.body)
        operands = [self.value(operand) for operand in pair.gradients.operands]
        copy = self.builder.append(pair.gradients.replace(operands=operands, blocks=[opened.block]))
        self.define(pair.gradients.results, copy.results)


def _pairs(block: Block) -> Iterable[_Pair]:
    """The pairs of a block; of one loop at most."""
    taken: set[Op] = set()
    moved: set[Op] = set()
    for number, op in enumerate(block.ops):
        if op.declared is not FOR or op in moved or not Loop(op).collecting or not _is_by_layer(op):
            continue
        for later in range(number + 1, len(block.ops)):
            pair = _pair(block.ops, number, later, moved) if block.ops[later] not in taken else None
            if pair is not None:
                taken.update((op, pair.update))
                moved.update(pair.early)
                yield pair
                break


def _pair(ops: Sequence[Op], number: int, later: int, moved: set[Op]) -> _Pair | None:
    """The pair of two ops of a block, if they are one. Ops in `moved` come before both."""
    gradients, update = ops[number], ops[later]
    collected = Loop(gradients).collected
    if not _is_update(update, len_of(gradients)) or not any(value in update.blocks[0].free for value in collected):
        return None
    between = [op for op in ops[number + 1 : later] if op not in moved]
    needed = set(update.blocks[0].free).difference(collected)
    early: list[Op] = []
    for op in reversed(between):
        if needed.intersection(op.results):
            early.insert(0, op)
            needed.update(op.operands, *(inner.free for inner in op.blocks))
    if needed.intersection(gradients.results):
        return None
    written = _targets([update], "write")
    rest = [op for op in between if op not in early]
    is_seen = any(family.outer for family in written)  # after a stop, as nothing else of the program is
    if not _may_move(early, ops[number:later]) or is_seen and any(_may_stop(op) for op in (gradients, *rest)):
        return None
    if any(_touches(op, written) for op in (*early, *rest)) or _targets([update], "read") & _targets(
        [gradients, *rest], "write"
    ):
        return None
    return _Pair(gradients, update, early) if _reads_own_members(gradients, written) else None


def _is_by_layer(op: Op) -> bool:
    """Return whether a loop collects by index: a loop that counts from zero to its end does, too."""
    loop = Loop(op)
    is_whole = [constant_of(bound) for bound in loop.bounds] == [0, len_of(op), 1] and len(loop.ends()) == 1
    return loop.by_index or is_whole


def len_of(op: Op) -> int | None:
    """The number of iterations of a loop that collects, if it is known."""
    bound: int | None = Loop(op).collected[0].type.bound  # type: ignore[union-attr]
    return bound


def _is_update(op: Op, count: int | None) -> bool:
    """Return whether an op is a loop of so many iterations that changes members of families, those of its layer."""
    if op.declared is not FOR or op.results or [constant_of(bound) for bound in Loop(op).bounds] != [0, count, 1]:
        return False
    index, written = Loop(op).index, _targets([op], "write")
    for inner in walk_ops(op.blocks[0]):
        for effect in inner.effects:
            is_access = inner.declared in (VARIABLE_READ, VARIABLE_WRITE)
            if not is_access or effect.target is None:
                return False
            if inner.operands[-1:] != (index,) and (effect.kind == "write" or effect.target in written):
                return False
    return bool(written)


def _targets(ops: Iterable[Op], kind: str) -> set[VariableRef]:
    """The Variables that ops read or write."""
    effects = (effect for op in ops for inner in walk_op(op) for effect in inner.effects)
    return {effect.target for effect in effects if effect.kind == kind and effect.target is not None}


def _may_stop(op: Op) -> bool:
    return any(effect.kind in ("io", "fail") for inner in walk_op(op) for effect in inner.effects)


def _is_ordered(op: Op) -> bool:
    return any(effect.is_ordered for inner in walk_op(op) for effect in inner.effects)


def _may_move(early: Sequence[Op], ops: Sequence[Op]) -> bool:
    """Return whether some of the ops may come before the others."""
    if any(_is_ordered(op) for op in early) or _targets(early, "write"):
        return False
    written: set[VariableRef] = set()
    for op in ops:
        if op in early and _targets([op], "read") & written:
            return False
        written |= _targets([op], "write")
    return True


def _touches(op: Op, families: set[VariableRef]) -> bool:
    """Return whether an op reads or writes families, or uses what was read of them before."""
    if (_targets([op], "read") | _targets([op], "write")) & families:
        return True
    used = {*op.operands, *(value for block in op.blocks for value in block.free)}
    return any(_is_of(value, families) for value in used)


def _reads_own_members(gradients: Op, families: set[VariableRef]) -> bool:
    """Return whether a loop uses of families nothing but the members of its iteration."""
    index = Loop(gradients).index
    if (_targets([gradients], "read") | _targets([gradients], "write")) & families:
        return False
    values = {*gradients.operands, *gradients.blocks[0].free}
    whole = {value for value in values if _is_of(value, families)}
    for op in walk_ops(gradients.blocks[0]):
        if whole.intersection(op.operands) and (op.declared is not SEQUENCE_GET or op.operands[1] is not index):
            return False
    return not whole.intersection(gradients.operands)


def _is_of(value: Value, families: set[VariableRef]) -> bool:
    """Return whether a value is what was read of families, an element of it or a view."""
    read = root_of(value).made_by(VARIABLE_READ)
    return read is not None and read.attrs["variable"] in families
