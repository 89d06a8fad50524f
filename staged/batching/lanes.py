"""Any op, element by element: a loop of the program over the leading axis, where no wider op does the same."""

from __future__ import annotations

from collections.abc import Sequence

from staged.batching.values import count_of, emit, i64_scalar
from staged.ir.declaration import prims
from staged.ir.nodes import Label, Op
from staged.ir.sizes import Extent
from staged.ir.structure import FOR
from staged.ir.types import TensorType, i64
from staged.ops.array import Array
from staged.ops.context import bind_all, current_context
from staged.ops.primitive import Primitive
from staged.ops.promote import cast
from staged.ops.record import RecordContext
from staged.ops.source import zeros


def each_lane(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """The results of `op` for each element, written into arrays with the leading axis."""
    context = current_context()
    assert isinstance(context, RecordContext)
    builder = context.builder
    types = [TensorType(result.tensor.dtype, (size, *result.tensor.shape)) for result in op.results]
    initial = [context.value_of(zeros(type.shape, type.dtype)) for type in types]
    bounds = [context.value_of(bound) for bound in (i64_scalar(0), count_of(size), i64_scalar(1))]
    with builder.block([TensorType(i64), *types], ["lane"]) as body:
        lane, *carried = map(context.handle, body.params)
        given = [element(x, lane) if flag else x for x, flag in zip(operands, flags, strict=True)]
        assert isinstance(op.declared, Primitive)
        made = bind_all(op.declared, given, **op.attrs)
        written = []
        for whole, result in zip(carried, made, strict=True):
            (row,) = emit(prims.RESHAPE, [cast(result, result.dtype, False)], {"shape": (1, *result.shape)})
            written += emit(prims.DYNAMIC_UPDATE, [whole, row, lane, *(i64_scalar(0) for _ in result.shape)], {})
        builder.end("yield", [context.value_of(x) for x in written])
    loop = builder.op(
        FOR,
        [*bounds, *initial],
        types,
        attrs={"label": Label("lanes")},
        blocks=[body.block],
        where=context.locate(),
    )
    return [context.handle(result) for result in loop.results]


def element(x: Array, lane: Array) -> Array:
    """The element of `x` that belongs to a lane."""
    shape = x.shape[1:]
    (row,) = emit(prims.DYNAMIC_SLICE, [x, lane, *(i64_scalar(0) for _ in shape)], {"sizes": (1, *shape)})
    return emit(prims.RESHAPE, [row], {"shape": shape})[0]
