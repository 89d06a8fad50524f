"""Which values of a mapped block depend on what is mapped: those get a leading axis, all others stay as they are."""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value
from staged.ir.structure import CALL, FOR, IF, SEQUENCE_EMPTY, SEQUENCE_GET
from staged.ir.types import FrameType, SequenceType
from staged.ir.views import Loop


def batched_values(block: Block, mapped: set[Value]) -> set[Value]:
    """`mapped`, and every value in `block` and the blocks inside it that depends on them.

    A result depends on each operand, on the condition that chose it, and on the bounds of the loop that made it. A
    sequence or frame is batched as a whole: together with all that it is added to, carried as or chosen from.
    """
    spread = _Spread(set(mapped))
    while True:
        before = len(spread.batched)
        spread.block(block)
        if len(spread.batched) == before:
            return spread.batched


def is_container(value: Value) -> bool:
    """Whether a value is batched where it is made, and not repeated where it is used."""
    return isinstance(value.type, SequenceType | FrameType)


def counts_by_trips(op: Op, batched: set[Value]) -> bool:
    """Whether a `for` whose bounds differ counts iterations, and each element has an index of its own.

    Else it counts through the indices of all elements, each of which takes part while the index is one of its own; then
    the index is the same for all, but what an element collects need not begin with the first iteration.
    """
    loop = Loop(op)
    start, stop, step = loop.bounds
    if start not in batched:
        return False
    number = step.producer.attrs["value"] if step.producer is not None and step.producer.declared is prims.CONSTANT else None
    return stop in batched or number not in (1, -1) or loop.collecting > 0


class _Spread:
    def __init__(self, batched: set[Value]) -> None:
        self.batched = batched

    def any(self, values: tuple[Value, ...]) -> bool:
        return any(value in self.batched for value in values)

    def mark(self, values: tuple[Value, ...]) -> None:
        self.batched.update(values)

    def pass_on(self, source: Value, target: Value) -> None:
        """`target` is `source` later on; sequences and frames are alike in both directions."""
        if source in self.batched:
            self.batched.add(target)
        elif is_container(target) and target in self.batched:
            self.batched.add(source)

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        if op.declared is IF:
            self.branches(op)
        elif op.declared.is_loop:
            self.loop(op)
        elif op.declared.is_of_sequences:
            self.sequence(op)
        elif self.any(op.operands) or (op.declared is CALL and self.any(op.results)):
            self.mark(op.results)

    def branches(self, op: Op) -> None:
        for block in op.blocks:
            self.block(block)
            if block.end.kind == "yield":
                for value, result in zip(block.end.operands, op.results, strict=True):
                    self.pass_on(value, result)
        if op.operands[0] in self.batched:
            self.mark(op.results)
            for block in op.blocks:
                if block.end.kind == "yield":
                    self.mark(tuple(value for value in block.end.operands if is_container(value)))

    def loop(self, op: Op) -> None:
        loop = Loop(op)
        body, params = loop.body, loop.carried
        chains = list(zip(loop.initial, params, loop.final, strict=True))
        for initial, param, result in chains:
            self.pass_on(initial, param)
            self.pass_on(param, result)
        condition = loop.condition
        if condition is not None:
            for param, asked in zip(params, condition.params, strict=True):
                self.pass_on(param, asked)
        for block in op.blocks:
            self.block(block)
        depends = self.any(loop.bounds if condition is None else condition.end.operands)
        if depends:
            # Elements go on for different numbers of iterations.
            self.mark(params)
            self.mark(op.results)
        if op.declared is FOR and counts_by_trips(op, self.batched):
            self.mark(loop.indices)
        if body.end.kind == "yield":
            for yielded, (_, param, _) in zip(body.end.operands, chains, strict=False):
                self.pass_on(yielded, param)
            for element, collected in zip(body.end.operands[len(params) :], loop.collected, strict=True):
                # The elements are the same ones, for whichever reason the sequence is batched.
                if element in self.batched:
                    self.batched.add(collected)
                elif collected in self.batched and is_container(element):
                    self.batched.add(element)

    def sequence(self, op: Op) -> None:
        if op.declared is SEQUENCE_GET:
            if self.any(op.operands):
                self.mark(op.results)
            return
        sequences = [value for value in (*op.operands, *op.results) if isinstance(value.type, SequenceType)]
        if self.any(op.operands) or self.any(op.results):
            if op.declared is not SEQUENCE_EMPTY:
                self.mark(tuple(sequences))
