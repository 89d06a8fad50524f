"""Kernels that are one statement of C, and need no function: zeros in an array, a number put into one place of it."""

from __future__ import annotations

from dataclasses import dataclass

from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.sizes import Extent
from staged.ir.structure import KERNEL
from staged.ir.types import CPU
from staged.ir.zeros import is_zeros

MOST_BYTES = 1 << 20
"""Up to here threads that share a fill gain nothing."""
CLEARED_BYTES = 1 << 18
"""The bytes of a larger fill that a thread claims at once."""


def is_zero_fill(op: Op) -> bool:
    """Return whether a kernel does nothing but fill its only result with zeros."""
    return op.declared is KERNEL and len(op.results) == 1 and is_zeros(op.blocks[0].end.operands[0])


def is_fill(op: Op) -> bool:
    """Return whether a kernel of the host computes an array from nothing: an array of ones."""
    return op.declared is KERNEL and op.device == CPU and len(op.results) == 1 and not (op.operands or op.effects)


@dataclass(frozen=True, slots=True)
class ElementWrite:
    """`array[start * stride + ...] = value`: numbers of the op's operands, of starts each with its stride."""

    array: int | None
    """None for a new array of one element."""
    value: int
    starts: tuple[tuple[int, int], ...]


def element_write(op: Op) -> ElementWrite | None:
    """The element store that a kernel consists of; None for any other kernel."""
    if op.declared is not KERNEL or len(op.results) != 1 or op.effects:
        return None
    block = op.blocks[0]
    made = block.end.operands[0]
    number = made.behind(prims.RESHAPE, prims.BROADCAST_TO)
    if number in block.params and not number.tensor.shape and made.tensor.size == 1:
        return ElementWrite(None, _number(op, number), ())
    update = block.end.operands[0].made_by(prims.DYNAMIC_UPDATE)
    if update is None or update.operands[1].tensor.size != 1:
        return None
    array, value = update.operands[0], update.operands[1].behind(prims.RESHAPE, prims.BROADCAST_TO)
    if array not in block.params or value not in block.params or value.tensor.shape:
        return None
    starts: list[tuple[int, int]] = []
    stride: Extent = 1
    for start, extent in reversed(list(zip(update.operands[2:], array.tensor.shape, strict=True))):
        if extent != 1:
            if start not in block.params or not isinstance(stride, int):
                return None
            starts.append((_number(op, start), stride))
        stride *= extent
    return ElementWrite(_number(op, array), _number(op, value), tuple(reversed(starts)))


def _number(op: Op, param: Value) -> int:
    return op.blocks[0].params.index(param)
