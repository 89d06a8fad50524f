"""Masked execution: inactive elements have the values of an active one.

An element for which a branch is not taken must not make it fail, loop for ever, or give an infinity whose product with
a zero cotangent is NaN. So in the branch it has the values of the first element for which the branch is taken: what is
computed for it is something that had to be computed anyway, and is thrown away afterwards.
"""

from __future__ import annotations

from staged.batching.values import emit, i64_scalar, spread_to
from staged.ir.declaration import prims
from staged.ir.nodes import Value
from staged.ir.sizes import Extent
from staged.ir.types import i32
from staged.ops.array import Array
from staged.ops.choice import select
from staged.ops.promote import cast
from staged.ops.record import RecordContext
from staged.ops.source import zeros


class Mask:
    """For which elements code runs: bools (size,), of which one is true. `first` is an element for which it does."""

    def __init__(self, context: RecordContext, size: Extent, mask: Value) -> None:
        self.context = context
        self.size = size
        self.mask = context.handle(mask)
        self.first = self.find_first()
        self.containers: set[Value] = set()
        """Sequences and frames from outside: what they hold is replaced where it is read, and masked where it is added.
        """

    def substitute(self, value: Value) -> Value:
        """A value with the leading axis, with that of `first` for masked elements."""
        if self.first is None:
            return value
        x = self.context.handle(value)
        shape = x.shape[1:]
        (row,) = emit(prims.DYNAMIC_SLICE, [x, self.first, *(i64_scalar(0) for _ in shape)], {"sizes": (1, *shape)})
        (one,) = emit(prims.RESHAPE, [row], {"shape": shape})
        if x.dtype.is_float:
            (one,) = emit(prims.STOP_GRADIENT, [one], {})
        (all_,) = emit(prims.BROADCAST_TO, [one], {"shape": x.shape, "axes": tuple(range(1, x.ndim))})
        made = self.context.value_of(select(self.over(x), x, all_))
        made.hint = value.hint
        return made

    def find_first(self) -> Array | None:
        """The first element that the code runs for; None where there are no elements at all."""
        if self.size == 0:
            return None
        (first,) = emit(prims.ARGMAX, [cast(self.mask, i32)], {"axis": 0})
        self.context.value_of(first).hint = "first"
        return first

    def choose(self, new: Value, old: Value) -> Value:
        """`new` for the elements that the code runs for, `old` for the others."""
        left, right = map(self.context.handle, (new, old))
        return self.context.value_of(select(self.over(left), left, right))

    def zeroed(self, value: Value) -> Value:
        """`value`, and 0 for masked elements."""
        x = self.context.handle(value)
        return self.context.value_of(select(self.over(x), x, zeros(x.shape, x.dtype)))

    def over(self, x: Array) -> Array:
        """The mask in the shape of x."""
        return self.mask if x.shape == self.mask.shape else spread_to(self.mask, x.shape)


class ZeroMask(Mask):
    """For code that is right at 0: masked elements have zeros, which takes no search for another element."""

    def substitute(self, value: Value) -> Value:
        return self.zeroed(value) if value.tensor.dtype.is_float else value

    def find_first(self) -> Array | None:
        return None
