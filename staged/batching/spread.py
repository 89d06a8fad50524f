"""Which values of a mapped block depend on what is mapped: those get a leading axis, all others stay as they are."""

from __future__ import annotations

from staged.ir.nodes import Block, Op, Value
from staged.ir.types import SequenceType


def batched_values(block: Block, mapped: set[Value]) -> set[Value]:
    """`mapped`, and every value in `block` and the blocks inside it that depends on them.

    A result depends on each operand, on the condition that chose it, and on the bounds of the loop that made it. A
    sequence is batched as a whole: together with every sequence that it is added to or carried as.
    """
    spread = _Spread(set(mapped))
    while True:
        before = len(spread.batched)
        spread.block(block)
        if len(spread.batched) == before:
            return spread.batched


class _Spread:
    def __init__(self, batched: set[Value]) -> None:
        self.batched = batched

    def any(self, values: tuple[Value, ...]) -> bool:
        return any(value in self.batched for value in values)

    def mark(self, values: tuple[Value, ...]) -> None:
        self.batched.update(values)

    def pass_on(self, source: Value, target: Value) -> None:
        """`target` is `source` later on; sequences are alike in both directions."""
        if source in self.batched:
            self.batched.add(target)
        elif isinstance(target.type, SequenceType) and target in self.batched:
            self.batched.add(source)

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        if op.name == "if":
            self.branches(op)
        elif op.name in ("for", "while"):
            self.loop(op)
        elif op.name.startswith("sequence_"):
            self.sequence(op)
        elif self.any(op.operands):
            self.mark(op.results)

    def branches(self, op: Op) -> None:
        for block in op.blocks:
            self.block(block)
            if block.end.kind == "yield":
                for value, result in zip(block.end.operands, op.results, strict=True):
                    self.pass_on(value, result)
        if op.operands[0] in self.batched:
            self.mark(op.results)

    def loop(self, op: Op) -> None:
        first = 3 if op.name == "for" else 0
        body = op.blocks[-1]
        carried = len(body.params) - (1 if op.name == "for" else 0)
        params = body.params[len(body.params) - carried :]
        chains = [(op.operands[first + number], params[number], op.results[number]) for number in range(carried)]
        for initial, param, result in chains:
            self.pass_on(initial, param)
            self.pass_on(param, result)
        if op.name == "while":
            for param, asked in zip(params, op.blocks[0].params, strict=True):
                self.pass_on(param, asked)
        for block in op.blocks:
            self.block(block)
        depends = self.any(op.operands[:first]) or (
            op.name == "while" and op.blocks[0].end.operands[0] in self.batched
        )
        if depends:
            # Elements go on for different numbers of iterations.
            self.mark(params)
            self.mark(op.results)
        if body.end.kind == "yield":
            for yielded, (_, param, _) in zip(body.end.operands, chains, strict=False):
                self.pass_on(yielded, param)
            for element, collected in zip(body.end.operands[carried:], op.results[carried:], strict=True):
                # The elements are the same ones, for whichever reason the sequence is batched.
                if element in self.batched:
                    self.batched.add(collected)
                elif collected in self.batched and isinstance(element.type, SequenceType):
                    self.batched.add(element)

    def sequence(self, op: Op) -> None:
        if op.name == "sequence_get":
            if self.any(op.operands):
                self.mark(op.results)
            return
        sequences = [value for value in (*op.operands, *op.results) if isinstance(value.type, SequenceType)]
        if self.any(op.operands) or self.any(op.results):
            if op.name != "sequence_empty":
                self.mark(tuple(sequences))
