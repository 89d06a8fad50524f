"""Building IR: blocks under construction, one inside the other.

builder = Builder()
with builder.block([f32_type]) as body:
    (x,) = body.params
    y = builder.op("neg", [x], [f32_type]).result
    builder.end("yield", [y])
body.block            # the finished, immutable block
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from staged.ir.declaration import Declaration
from staged.ir.nodes import PURE, Attrs, Block, Effect, End, EndKind, Label, Op, Value
from staged.ir.types import CPU, Device, Type
from staged.source import Position


class OpenBlock:
    """A block being built; `block` is the finished one once it has ended."""

    def __init__(self, params: Sequence[Value], parent: OpenBlock | None) -> None:
        self.params = tuple(params)
        self.ops: list[Op] = []
        self.ending: End | None = None
        self.parent = parent

    @property
    def ended(self) -> bool:
        return self.ending is not None

    @property
    def block(self) -> Block:
        assert self.ending is not None, "the block has no end yet"
        return Block(self.params, self.ops, self.ending)


class Builder:
    """Appends ops to the innermost open block. One builder per function being built."""

    def __init__(self) -> None:
        self.current: OpenBlock | None = None
        self.device: Device = CPU

    @contextmanager
    def block(self, param_types: Sequence[Type] = (), hints: Sequence[str] = ()) -> Iterator[OpenBlock]:
        """Open a block inside the current one; it must have an end when the `with` is left normally."""
        params = list(map(Value, param_types, [*hints, *[""] * (len(param_types) - len(hints))]))
        opened = OpenBlock(params, self.current)
        self.current = opened
        try:
            yield opened
            assert opened.ended, "a block was left without an end"
        finally:
            self.current = opened.parent

    def append(self, op: Op) -> Op:
        """Put a finished op at the end of the current block."""
        current = self.current
        assert current is not None, "no open block"
        assert current.ending is None, f"{op.name} comes after the end of its block"
        current.ops.append(op)
        return op

    def op(
        self,
        declared: Declaration | str,
        operands: Sequence[Value],
        result_types: Sequence[Type],
        *,
        attrs: Attrs | None = None,
        blocks: Sequence[Block] = (),
        effects: tuple[Effect, ...] = PURE,
        device: Device | None = None,
        where: Position | None = None,
    ) -> Op:
        """Make an op and append it."""
        return self.append(
            Op(
                declared,
                operands,
                result_types,
                attrs=attrs,
                blocks=blocks,
                effects=effects,
                device=device or self.device,
                where=where,
            )
        )

    def end(
        self,
        kind: EndKind,
        operands: Sequence[Value] = (),
        target: Label | None = None,
        where: Position | None = None,
    ) -> None:
        """End the current block."""
        assert self.current is not None and not self.current.ended, "the block has ended already"
        self.current.ending = End(kind, tuple(operands), target, where)
