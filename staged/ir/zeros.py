"""Arrays of zeros: made, and known while staging."""

from __future__ import annotations

from math import copysign

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Attrs, Value
from staged.ir.storage import is_tensor
from staged.ir.types import Device, TensorType
from staged.source import Position


def is_zeros(value: Value) -> bool:
    """Return whether a value is an array of zeros (of the bits of zero: -0.0 is none)."""
    made = value.behind(prims.BROADCAST_TO).made_by(prims.CONSTANT)
    if made is None or not is_tensor(value):
        return False
    number = made.attrs["value"]
    return isinstance(number, bool | int | float) and number == 0 and copysign(1, number) > 0


def zeros_of(builder: Builder, type: TensorType, device: Device | None = None, where: Position | None = None) -> Value:
    """Emit zeros of a tensor type."""
    number: int | float | bool = 0.0 if type.dtype.is_float else False if type.dtype.is_bool else 0
    scalar = TensorType(type.dtype, (), type.weak)
    zero = builder.op(prims.CONSTANT, [], [scalar], attrs={"value": number}, device=device, where=where).result
    if not type.shape:
        return zero
    attrs: Attrs = {"shape": type.shape, "axes": ()}
    return builder.op(prims.BROADCAST_TO, [zero], [type], attrs=attrs, device=device, where=where).result
