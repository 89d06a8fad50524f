"""Loops inside composites: one loop of the program where ops are recorded, a Python loop where they are computed.

Users write `for` statements, which the front end stages. Composites are plain functions of arrays, so they say it with
a function: `scan(count, initial, body)` is

    for t in range(count):
        initial = body(t, *initial)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.ir.nodes import Label, Op
from staged.ir.structure import FOR
from staged.ir.types import TensorType, i64
from staged.ops.array import Array, StagedArray
from staged.ops.context import bind, current_context
from staged.ops.index import dynamic_slice_op, dynamic_update_op
from staged.ops.promote import constant
from staged.ops.record import RecordContext
from staged.ops.shape import reshape

_INDEX = TensorType(i64)

Body = Callable[..., Sequence[Array]]


def scan(
    count: int, initial: Sequence[Array], body: Body, hints: Sequence[str], backwards: bool = False
) -> tuple[Array, ...]:
    """The result of `count` iterations from `initial`: `body(t, *carried)` returns the next carried arrays, of the same
    types.

    `t` is an i64 scalar that counts up from 0, or down from `count - 1`; `hints` name the carried arrays in generated
    text. The body must have no exits, and no effects that a caller must know.
    """
    if count == 0:
        return tuple(initial)  # a body may read rows, of which there are none
    context = current_context()
    if not isinstance(context, RecordContext):
        carried = tuple(initial)
        for t in range(count):
            carried = tuple(body(constant(count - 1 - t if backwards else t, _INDEX), *carried))
        return carried
    builder = context.builder
    start, stop, step = (context.value_of(constant(bound, _INDEX)) for bound in (0, count, 1))
    values = [context.value_of(array) for array in initial]
    types = [value.type for value in values]
    with builder.block([_INDEX, *types], ["t", *hints]) as opened:
        number, *arrays = (context.handle(param) for param in opened.params)
        index: Array = number
        if backwards:
            index = constant(count - 1, _INDEX) - index
        made = [context.value_of(array) for array in body(index, *arrays)]
        assert [value.type for value in made] == types, "a carried array changes its type"
        builder.end("yield", made)
    op = Op(
        FOR,
        [start, stop, step, *values],
        types,
        attrs={"label": Label("t")},
        blocks=[opened.block],
        device=builder.device,
        where=context.locate(),
    )
    for hint, result in zip(hints, op.results, strict=True):
        result.hint = hint
    return context.emit(op)


def row(x: Array, t: Array) -> Array:
    """x[t], for an index that is in range."""
    starts = [t, *(constant(0, _INDEX) for _ in x.shape[1:])]
    return reshape(bind(dynamic_slice_op, [x, *starts], sizes=(1, *x.shape[1:])), x.shape[1:])


def with_row(x: Array, t: Array, new: Any) -> Array:
    """`x` with `new` in place of x[t], for an index that is in range."""
    starts = [t, *(constant(0, _INDEX) for _ in x.shape[1:])]
    return bind(dynamic_update_op, [x, reshape(new, (1, *x.shape[1:])), *starts])


def named(**arrays: Array) -> tuple[Array, ...]:
    """The arrays, with names for generated text where ops are recorded."""
    for name, array in arrays.items():
        if isinstance(array, StagedArray) and not array.value.hint:
            array.value.hint = name
    return tuple(arrays.values())
