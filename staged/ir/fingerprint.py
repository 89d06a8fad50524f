"""Code that computes the same, whatever its values are called: equal fingerprints."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from staged.ir.nodes import Block, Function, Label, Op, Value, VariableRef


class Canonical:
    """Numbers values and labels in order of first sight. `callee` gives what stands for the function that a call names."""

    def __init__(self, callee: Callable[[str], Hashable] = lambda name: name) -> None:
        self.callee = callee
        self.values: dict[Value, int] = {}
        self.labels: dict[Label, int] = {}

    def ops(self, ops: Iterable[Op]) -> Hashable:
        """What a run of ops does, up to the names of its values. Positions and hints do not count."""
        return tuple(self._op(op) for op in ops if op.name not in ("call_begin", "call_end"))

    def block(self, block: Block) -> Hashable:
        """What a block does."""
        params = self._made(block.params)
        ops = self.ops(block.ops)
        end = block.end
        return params, ops, end.kind, self._used(end.operands), end.target and self._label(end.target)

    def _op(self, op: Op) -> Hashable:
        operands = self._used(op.operands)
        # The label first: the blocks name it.
        attrs = tuple((key, self._attr(op, key, value)) for key, value in sorted(op.attrs.items()))
        blocks = tuple(self.block(block) for block in op.blocks)
        return op.name, operands, attrs, blocks, self._made(op.results), op.effects, op.device

    def _made(self, values: Iterable[Value]) -> Hashable:
        return tuple((self._number(value), value.type) for value in values)

    def _used(self, values: Iterable[Value]) -> Hashable:
        return tuple((self._number(value), value.type) for value in values)

    def _number(self, value: Value) -> int:
        return self.values.setdefault(value, len(self.values))

    def _label(self, label: Label) -> int:
        return self.labels.setdefault(label, len(self.labels))

    def _attr(self, op: Op, key: str, value: Any) -> Hashable:
        if op.name == "call" and key == "function":
            return self.callee(value)
        if isinstance(value, Label):
            return "label", self._label(value)
        if isinstance(value, VariableRef):
            return value
        if isinstance(value, tuple | list):
            return tuple(self._attr(op, "", item) for item in value)
        return type(value).__name__, repr(value)  # tells 1 from True, and -0.0 from 0.0


def function_fingerprint(name: str, table: Mapping[str, Function]) -> Hashable:
    """What a function does, with all that it calls, whatever these are called."""
    order = {name: 0}

    def callee(other: str) -> Hashable:
        return order.setdefault(other, len(order))

    bodies: list[Hashable] = []
    while len(bodies) < len(order):
        bodies.append(Canonical(callee).block(table[list(order)[len(bodies)]].block))
    return tuple(bodies)
