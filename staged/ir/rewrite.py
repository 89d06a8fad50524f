"""Copying and rewriting IR.

`copy_block` is the one place that copies ops with their values mapped; passes are rules (`Op -> Op | None`, or a
function that emits a replacement) that `rewrite` applies bottom-up in program order. The engine walks, the rule only
decides.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence

from staged.ir.builder import Builder
from staged.ir.names import rank
from staged.ir.nodes import Block, Function, Label, Op, Value
from staged.ir.structure import COMPOSITE
from staged.ir.types import Type
from staged.source import Position

Mapping = MutableMapping[Value, Value]

# Given an op whose operands and blocks are already rewritten, a rule either returns None (keep it) or emits what
# replaces it through the builder and returns the values that stand for its results.
Rule = Callable[[Op, Builder], Sequence[Value] | None]


class Copier:
    """Copies blocks into a builder, mapping values and labels; `rule` may replace ops on the way.

    With `moves` what is copied is not used again: bodies of composites that use nothing from around them are not
    copied.
    """

    def __init__(self, builder: Builder, rule: Rule | None = None, moves: bool = False) -> None:
        self.builder = builder
        self.rule = rule
        self.moves = moves
        self.values: dict[Value, Value] = {}
        self.labels: dict[Label, Label] = {}

    def value(self, value: Value) -> Value:
        """The copy of `value` (itself where nothing replaced it)."""
        return self.values.get(value, value)

    def type(self, type: Type) -> Type:
        """The type of the copy of a value; a pass that changes types says so here."""
        return type

    def position_of(self, op: Op) -> Position | None:
        """The position of the copy of an op."""
        return op.where

    def params(self, block: Block) -> None:
        """Called at the start of the copy of a block, when its parameters are known."""

    def op(self, op: Op) -> None:
        """Copy one op into the current block."""
        operands = list(map(self.value, op.operands))
        attrs = op.attrs
        label = attrs.get("label") if attrs else None
        if isinstance(label, Label):
            fresh = Label(label.name)
            self.labels[label] = fresh
            attrs = {**attrs, "label": fresh}
        blocks: Sequence[Block] = op.blocks
        if blocks and not (self.moves and op.declared is COMPOSITE and not any(block.free for block in blocks)):
            blocks = [self.block(block) for block in blocks]
        copy = Op(
            op.declared,
            operands,
            [self.type(result.type) for result in op.results],
            attrs=attrs,
            blocks=blocks,
            effects=op.effects,
            device=op.device,
            where=self.position_of(op),
        )
        for old, new in zip(op.results, copy.results, strict=True):
            new.hint = old.hint  # a rule may want it
        replaced = self.rule(copy, self.builder) if self.rule else None
        if replaced is not None:
            self.define(op.results, replaced)
            return
        self.builder.append(copy)
        self.values.update(zip(op.results, copy.results, strict=True))

    def define(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Replace old values by new ones, which take the old names unless they have their own."""
        for before, after in zip(old, new, strict=True):
            self.values[before] = after
            if rank(before.hint) > rank(after.hint):
                after.hint = before.hint

    def inline_op(self, op: Op, block: Block | None = None) -> None:
        """Copy the ops of a closed block of `op` (the first, if none is named) in place of it."""
        given = self.inline(block or op.blocks[0], [self.value(operand) for operand in op.operands])
        self.define(op.results, given)

    def block(self, block: Block) -> Block:
        """A copy of a nested block, with fresh parameters."""
        types = [self.type(param.type) for param in block.params]
        with self.builder.block(types, [param.hint for param in block.params]) as opened:
            self.values.update(zip(block.params, opened.params, strict=True))
            self.params(block)
            self.contents(block)
            self.end(block)
        return opened.block

    def contents(self, block: Block) -> None:
        """The ops of `block`, into the current block."""
        for op in block.ops:
            self.op(op)

    def end(self, block: Block) -> None:
        """The end of `block`, as the end of the current block."""
        end = block.end
        target = self.labels.get(end.target, end.target) if end.target is not None else None
        self.builder.end(end.kind, [self.value(operand) for operand in end.operands], target, end.where)

    def inline(self, block: Block, arguments: Sequence[Value]) -> list[Value]:
        """Copy the ops of a block that ends in `yield` into the current block; returns the yielded values."""
        assert block.end.kind == "yield", "only a block that yields can be inlined"
        self.values.update(zip(block.params, arguments, strict=True))
        self.contents(block)
        return [self.value(operand) for operand in block.end.operands]


def copy_block(block: Block) -> Block:
    """A fresh copy: new ops, parameters and labels; free values are unchanged."""
    return Copier(Builder()).block(block)


def rewrite(function: Function, rule: Rule) -> Function:
    """`function` with `rule` applied to every op, inner blocks first."""
    return function.with_block(Copier(Builder(), rule).block(function.block))


def inline_block(builder: Builder, block: Block, arguments: Sequence[Value]) -> list[Value]:
    """Copy the body of a yielding block into the current block of `builder`; returns the yielded values."""
    return Copier(builder).inline(block, arguments)
