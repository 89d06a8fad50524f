"""The ops of a group in a block of their own.

Tested by `tests/kernels/test_fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.ir.names import name_of
from staged.ir.nodes import Block, End, Op, Value


class Clone:
    """Copies a group's ops, and the free ops between them, into a closed block."""

    def __init__(self, is_boundary: Callable[[Value], bool]) -> None:
        self.is_boundary = is_boundary
        self.params: dict[Value, Value] = {}
        self.ops: list[Op] = []
        self.values: dict[Value, Value] = {}

    def param(self, value: Value) -> Value:
        if value not in self.params:
            self.params[value] = Value(value.type, name_of(value))
        return self.params[value]

    def value(self, value: Value) -> Value:
        if value in self.values:
            return self.values[value]
        if self.is_boundary(value):
            return self.param(value)
        assert value.producer is not None
        self.op(value.producer)
        return self.values[value]

    def op(self, op: Op) -> None:
        if op.results[0] in self.values:
            return
        copy = op.replace(operands=[self.value(operand) for operand in op.operands])
        self.ops.append(copy)
        self.values.update(zip(op.results, copy.results, strict=True))

    def block(self, ops: Sequence[Op], results: Sequence[Value]) -> Block:
        for op in ops:
            self.op(op)
        operands = tuple(self.value(value) for value in results)
        return Block(tuple(self.params.values()), self.ops, End("yield", operands))
