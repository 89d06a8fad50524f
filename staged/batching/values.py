"""Values with a leading axis: their types, and the handles through which the ops of the language are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staged.ir.declaration import Declaration, prims
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import FrameRecord
from staged.ir.sizes import Extent
from staged.ir.types import FrameType, SequenceType, TensorType, Type, i64
from staged.ops.array import Array
from staged.ops.context import bind, bind_all, current_context
from staged.ops.primitive import Primitive
from staged.ops.promote import constant
from staged.ops.record import RecordContext


def batched_type(type: Type, size: Extent, pool: FunctionPool) -> Type:
    """The type of a value with the leading axis; a Python number becomes an array of its own precision."""
    if isinstance(type, SequenceType):
        return SequenceType(batched_type(type.element, size, pool), type.bound)
    if isinstance(type, FrameType):
        return FrameType(_batched_record(type.name, size, pool))
    return TensorType(type.dtype, (size, *type.shape))


def _batched_record(name: str, size: Extent, pool: FunctionPool) -> str:
    """The record of the frames `name` with every field batched."""
    key = ("vmap record", name, size)
    if key not in pool.memo:
        made = pool.memo[key] = pool.fresh_frame(f"{name}_vmap")
        fields = [(field, batched_type(type, size, pool)) for field, type in pool.frames[name].fields]
        pool.add_frame(FrameRecord(made, tuple(fields)))
    found: str = pool.memo[key]
    return found


def repeat(x: Array, size: Extent) -> Array:
    """x repeated along a new leading axis."""
    axes = tuple(range(1, x.ndim + 1))
    return bind(prims.BROADCAST_TO, [x], shape=(size, *x.shape), axes=axes)


def spread_to(x: Array, shape: Sequence[Extent]) -> Array:
    """x, of shape (size,), repeated along further axes: one value per element to `shape`, which begins with size."""
    return bind(prims.BROADCAST_TO, [x], shape=tuple(shape), axes=(0,))


def spread_to_all(x: Array, like: Array) -> Array:
    """A scalar in the shape of `like`."""
    return bind(prims.BROADCAST_TO, [x], shape=like.shape, axes=())


def i64_scalar(number: int) -> Array:
    """An i64 scalar."""
    return constant(number, TensorType(i64))


def unchecked(primitive: Declaration, operands: Sequence[Array], **attrs: Any) -> Array:
    """An op whose indices are in range already: it checks nothing."""
    context = current_context()
    assert isinstance(context, RecordContext) and isinstance(primitive, Primitive)
    with context.unchecked():
        return bind(primitive, operands, **attrs)


def emit(primitive: Declaration, operands: Sequence[Array], attrs: dict[str, Any]) -> list[Array]:
    """The results of a primitive."""
    assert isinstance(primitive, Primitive)
    return list(bind_all(primitive, operands, **attrs))


def count_of(size: Extent) -> Array:
    """An extent as an i64 scalar of the program."""
    if isinstance(size, int):
        return i64_scalar(size)
    ones = bind(prims.BROADCAST_TO, [i64_scalar(1)], shape=(size,), axes=())
    return bind(prims.SUM, [ones], axes=(0,))
