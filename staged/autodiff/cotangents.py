"""Cotangents of the values in scope, while the reverse of one block is written.

A block that is differentiated sees the cotangents of the blocks around it and goes on accumulating where they stand, so
that what it adds to a value from outside is one running sum: the result of a reverse `if`, a carried value of a reverse
loop. A value without an entry has the cotangent zero, which is never made.
"""

from __future__ import annotations

from staged.autodiff.tangent_types import TangentTypes
from staged.ir.names import derived
from staged.ir.nodes import Op, Value


class Cotangents:
    """The cotangents that one block has changed, over those of the blocks around it.

    `made` are the primal values that this block makes; whatever else it touches comes from outside.
    """

    def __init__(self, made: set[Value], around: Cotangents | None = None) -> None:
        self.made = made
        self.around = around
        self.local: dict[Value, Value] = {}

    def get(self, value: Value) -> Value | None:
        """The cotangent so far; None for zero."""
        if value in self.local:
            return self.local[value]
        return None if value in self.made else self.outside(value)

    def outside(self, value: Value) -> Value | None:
        return self.around.get(value) if self.around is not None else None

    def set(self, value: Value, cotangent: Value) -> None:
        self.local[value] = cotangent

    def take(self, value: Value) -> Value | None:
        """Pop the final cotangent of a value defined in this block."""
        return self.local.pop(value, None)

    def exports(self) -> dict[Value, Value]:
        """The cotangents of values from outside that this block has changed."""
        return {value: cotangent for value, cotangent in self.local.items() if value not in self.made}


class LoopCotangents(Cotangents):
    """The cotangents of a loop's body: the sum for a value from outside is a carried parameter, added on first use.

    Exact: it begins as the sum so far, so that the additions are those of the unrolled loop, in its order; without
    iterations it is that sum.

    If each iteration reads another element of a sequence, the loop collects the cotangents instead of a sum.
    """

    def __init__(self, made: set[Value], around: Cotangents, types: TangentTypes, collects: set[Value]) -> None:
        super().__init__(made, around)
        self.tangent_types = types
        self.sums: dict[Value, Value] = {}
        self.collects = collects
        """The sequences of which each iteration reads the element at its index, and all iterations read all."""
        self.elements: dict[Value, Value] = {}
        """By such a sequence, the element that stands for its cotangents in `local`."""

    def outside(self, value: Value) -> Value:
        if value not in self.sums:
            self.sums[value] = Value(self.tangent_types.type(value.type), d_name(value))
        return self.sums[value]

    def element(self, get: Op) -> Value | None:
        """The value whose cotangent is collected for the element that `get` reads; None if it is added to a sequence.

        All reads of a sequence share it: each iteration reads one element, and no other iteration does.
        """
        sequence = get.operands[0]
        return self.elements.setdefault(sequence, get.result) if sequence in self.collects else None


def d_name(value: Value) -> str:
    """The hint of a value's cotangent."""
    return derived(value.hint, "d_")
