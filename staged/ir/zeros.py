"""Which values are zeros, known while staging."""

from __future__ import annotations

from math import copysign

from staged.ir.declaration import prims
from staged.ir.nodes import Value
from staged.ir.storage import is_tensor


def is_zeros(value: Value) -> bool:
    """Whether a value is an array of zeros (of the bits of zero: -0.0 is none)."""
    producer = value.producer
    while producer is not None and producer.declared is prims.BROADCAST_TO:
        producer = producer.operands[0].producer
    if producer is None or producer.declared is not prims.CONSTANT or not is_tensor(value):
        return False
    number = producer.attrs["value"]
    return isinstance(number, bool | int | float) and number == 0 and copysign(1, number) > 0
