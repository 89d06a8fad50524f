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
from staged.ir.sizes import Extent, Size
from staged.ir.structure import FOR, WHILE
from staged.ir.types import Shape, TensorType, i64
from staged.library.elementwise.complex_numbers import join, parts
from staged.ops.array import Array, StagedArray
from staged.ops.context import bind, current_context
from staged.ops.dynamic_slice import dynamic_slice_op, dynamic_update_op
from staged.ops.promote import as_array, cast, constant
from staged.ops.record import RecordContext
from staged.ops.shape import reshape

_INDEX = TensorType(i64)

Body = Callable[..., Sequence[Array]]


def _apart(arrays: Sequence[Array]) -> list[Array]:
    """Both parts of each complex array instead of it: a loop that changes a row of one copies nothing else."""
    return [part for x in arrays for part in (parts(x) if x.dtype.is_complex else (x,))]


def _together(found: Sequence[Array], like: Sequence[Array]) -> list[Array]:
    """The inverse of `_apart`."""
    left = iter(found)
    return [join(next(left), next(left)) if x.dtype.is_complex else next(left) for x in like]


def _part_hints(hints: Sequence[str], like: Sequence[Array]) -> list[str]:
    return [
        f"{hint}{end}"
        for hint, x in zip(hints, like, strict=True)
        for end in (("_re", "_im") if x.dtype.is_complex else ("",))
    ]


def scan(
    count: Extent | Array,
    initial: Sequence[Array],
    body: Body,
    hints: Sequence[str],
    backwards: bool = False,
    index: str = "t",
) -> tuple[Array, ...]:
    """The result of `count` iterations from `initial`: `body(t, *carried)` returns the next carried arrays, of the same
    types.

    `t` is an i64 scalar that counts up from 0, or down from `count - 1`; `hints` name the carried arrays in generated
    text, `index` names t there. `count` may be an i64 scalar of the program. The body must
    have no exits, and no effects that a caller must know.
    """
    if any(x.dtype.is_complex for x in initial):

        def in_parts(t: Array, *carried: Array) -> list[Array]:
            return _apart(body(t, *_together(carried, initial)))

        found = scan(count, _apart(initial), in_parts, _part_hints(hints, initial), backwards, index)
        return tuple(_together(found, initial))
    if isinstance(count, int) and count == 0:
        return tuple(initial)  # a body may read rows, of which there are none
    context = current_context()
    if not isinstance(context, RecordContext):
        carried = tuple(initial)
        assert not isinstance(count, Size), "sizes are known outside of programs"
        count = int(count)
        for t in range(count):
            carried = tuple(body(constant(count - 1 - t if backwards else t, _INDEX), *carried))
        return carried
    builder = context.builder
    end = index_of(count)
    start, stop, step = map(context.value_of, (constant(0, _INDEX), end, constant(1, _INDEX)))
    values = [context.value_of(array) for array in initial]
    types = [value.type for value in values]
    with builder.block([_INDEX, *types], [index, *hints]) as opened:
        number, *arrays = (context.handle(param) for param in opened.params)
        place: Array = number
        if backwards:
            place = (constant(count - 1, _INDEX) if isinstance(count, int) else end - 1) - place
        made = [context.value_of(array) for array in body(place, *arrays)]
        assert [value.type for value in made] == types, "a carried array changes its type"
        builder.end("yield", made)
    op = Op(
        FOR,
        [start, stop, step, *values],
        types,
        attrs={"label": Label(index)},
        blocks=[opened.block],
        device=builder.device,
        where=context.locate(),
    )
    for hint, result in zip(hints, op.results, strict=True):
        result.hint = hint
    return context.emit(op)


def repeat_while(
    condition: Callable[..., Array], initial: Sequence[Array], body: Body, hints: Sequence[str]
) -> tuple[Array, ...]:
    """The result of `body(*carried)`, from `initial` on, as long as `condition(*carried)` holds, a scalar bool.

    As in `scan`, the body has no exits, and no effects that a caller must know.
    """
    if any(x.dtype.is_complex for x in initial):
        found = repeat_while(
            lambda *carried: condition(*_together(carried, initial)),
            _apart(initial),
            lambda *carried: _apart(body(*_together(carried, initial))),
            _part_hints(hints, initial),
        )
        return tuple(_together(found, initial))
    context = current_context()
    carried = tuple(initial)
    if not isinstance(context, RecordContext):
        while condition(*carried):
            carried = tuple(body(*carried))
        return carried
    builder = context.builder
    values = [context.value_of(array) for array in carried]
    types = [value.type for value in values]
    blocks = []
    for run in (lambda *arrays: [condition(*arrays)], body):
        with builder.block(types, hints) as opened:
            builder.end("yield", [context.value_of(one) for one in run(*map(context.handle, opened.params))])
        blocks.append(opened.block)
    attrs = {"label": Label("sweep")}
    where = context.locate()
    op = Op(WHILE, values, types, attrs=attrs, blocks=blocks, device=builder.device, where=where)
    for hint, result in zip(hints, op.results, strict=True):
        result.hint = hint
    return context.emit(op)


def index_of(count: Extent | Array) -> Array:
    """An integer as an index of the program."""
    return constant(count, _INDEX) if isinstance(count, int) else cast(as_array(count), i64)


def row(x: Array, t: Array) -> Array:
    """x[t], for an index that is in range."""
    starts = [t, *(constant(0, _INDEX) for _ in x.shape[1:])]
    return reshape(bind(dynamic_slice_op, [x, *starts], sizes=(1, *x.shape[1:])), x.shape[1:])


def with_row(x: Array, t: Array, new: Any) -> Array:
    """`x` with `new` in place of x[t], for an index that is in range."""
    starts = [t, *(constant(0, _INDEX) for _ in x.shape[1:])]
    return bind(dynamic_update_op, [x, reshape(new, (1, *x.shape[1:])), *starts])


def _starts(starts: Sequence[Any]) -> list[Array]:
    return [start if isinstance(start, Array) else constant(start, _INDEX) for start in starts]


def window(x: Array, starts: Sequence[Any], sizes: Shape) -> Array:
    """The elements of `x` from `starts` on, which are in range: `sizes` along the last axes, one along those before."""
    before = (1,) * (x.ndim - len(sizes))
    return reshape(bind(dynamic_slice_op, [x, *_starts(starts)], sizes=(*before, *sizes)), sizes)


def with_window(x: Array, starts: Sequence[Any], new: Array) -> Array:
    """`x` with `new` in place of `window(x, starts, new.shape)`."""
    before = (1,) * (x.ndim - new.ndim)
    return bind(dynamic_update_op, [x, reshape(new, (*before, *new.shape)), *_starts(starts)])


def named(**arrays: Array) -> tuple[Array, ...]:
    """The arrays, with names for generated text where ops are recorded."""
    for name, array in arrays.items():
        if isinstance(array, StagedArray) and not array.value.hint:
            array.value.hint = name
    return tuple(arrays.values())
