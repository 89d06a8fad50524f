"""Code that runs for some elements only: the others go along with the values of one that it is meant for.

An element for which a branch is not taken must not make it fail, loop for ever, or give an infinity whose product with a
zero cotangent is NaN. So in the branch it has the values of the first element for which the branch is taken: what is
computed for it is something that had to be computed anyway, and is thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from staged.batching.spread import is_container
from staged.batching.values import batched_type, emit, i64_scalar, spread_to
from staged.ir.nodes import Value
from staged.ir.types import FrameType, SequenceType, TensorType, i32
from staged.ops.array import Array
from staged.ops.elementwise import select
from staged.ops.promote import cast
from staged.ops.source import zeros

if TYPE_CHECKING:
    from staged.batching.vmap import Batch


class Mask:
    """For which elements code runs: bools (size,), of which one is true. `first` is an element for which it does."""

    def __init__(self, batch: Batch, mask: Value) -> None:
        self.batch = batch
        self.mask = batch.context.handle(mask)
        self.first = self.find_first()
        self.containers: set[Value] = set()
        """Sequences and frames from outside: what they hold is replaced where it is read, and masked where it is added."""

    def substitute(self, value: Value) -> Value:
        """A value with the leading axis, with that of `first` for the elements that only go along."""
        if self.first is None:
            return value
        x = self.batch.context.handle(value)
        shape = x.shape[1:]
        (row,) = emit("dynamic_slice", [x, self.first, *(i64_scalar(0) for _ in shape)], {"sizes": (1, *shape)})
        (one,) = emit("reshape", [row], {"shape": shape})
        if x.dtype.is_float:
            (one,) = emit("stop_gradient", [one], {})
        (all_,) = emit("broadcast_to", [one], {"shape": x.shape, "axes": tuple(range(1, x.ndim))})
        made = self.batch.context.value_of(select(self.over(x), x, all_))
        made.hint = value.hint
        return made

    def find_first(self) -> Array | None:
        """The first element that the code runs for; None where there are no elements at all."""
        if self.batch.size == 0:
            return None
        (first,) = emit("argmax", [cast(self.mask, i32)], {"axis": 0})
        self.batch.context.value_of(first).hint = "first"
        return first

    def choose(self, new: Value, old: Value) -> Value:
        """`new` for the elements that the code runs for, `old` for the others."""
        left, right = map(self.batch.context.handle, (new, old))
        return self.batch.context.value_of(select(self.over(left), left, right))

    def zeroed(self, value: Value) -> Value:
        """`value`, and 0 for the elements that only go along."""
        x = self.batch.context.handle(value)
        return self.batch.context.value_of(select(self.over(x), x, zeros(x.shape, x.dtype)))

    def over(self, x: Array) -> Array:
        """The mask in the shape of x."""
        return self.mask if x.shape == self.mask.shape else spread_to(self.mask, x.shape)


class ZeroMask(Mask):
    """For code that is right at 0: elements that only go along have zeros, which takes no search for another element."""

    def substitute(self, value: Value) -> Value:
        return self.zeroed(value) if value.tensor.dtype.is_float else value

    def find_first(self) -> Array | None:
        return None


@contextmanager
def within(batch: Batch, mask: Mask, outside: Sequence[Value]) -> Iterator[None]:
    """Write code for the elements of a mask: what it reads from `outside` is replaced in the extent."""
    before = dict(batch.values)
    for value in outside:
        if value not in batch.batched:
            continue
        if is_container(value):
            mask.containers.add(value)
        else:
            batch.values[value] = mask.substitute(batch.value(value))
    batch.masks.append(mask)
    try:
        yield
    finally:
        batch.masks.pop()
        for value in outside:
            if value in before:
                batch.values[value] = before[value]
            else:
                batch.values.pop(value, None)


def placeholder(batch: Batch, result: Value) -> Value:
    """What stands for a result that no element has."""
    type = batched_type(result.type, batch.size, batch.pool)
    if isinstance(type, FrameType):
        return batch.builder.op("frame_null", [], [type], where=batch.where).result
    if isinstance(type, SequenceType):
        return batch.builder.op("sequence_empty", [], [type], where=batch.where).result
    assert isinstance(type, TensorType)
    return batch.context.value_of(zeros(type.shape, type.dtype))
