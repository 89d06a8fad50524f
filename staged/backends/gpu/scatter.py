"""Scatters as gathers: each element of the result looks for what is meant for it. Or, where a program allows it, by
atomics.

    for j: index = check(indices[j]); y[index] += x[j] iterations that may meet in an element: only one thread can do it

    a thread, or a team, for each `row`:
        for j: index = check(indices[j]); if (index == row) total += x[j]
        y[row] = base[row] + total

Every element is read and written by one thread, in the order of `j`: no atomics, the same bits every time, and nothing
to copy first. It costs a look at all indices for each element of the result, so it is for tables of moderate size.
Where whole rows are added, the look is one for each row:

    a warp for each `row`, its lanes for every 32nd column:
        y[row] = base[row]
        32 lanes look at 32 indices; for each of those j whose index is row, in order: y[row] += x[j]

    a thread for each `j`: index = check(indices[j]); atomicAdd(&y[index], x[j])

looks at each index once, and adds in whatever order the threads come by: other last bits in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from staged.backends.gpu.mapping import Part
from staged.ir.declaration import Declaration, prims, reduction_by
from staged.ir.loops import (
    Accumulate,
    Affine,
    Axis,
    Bound,
    CheckIndex,
    Compute,
    Constant,
    Copy,
    Guarded,
    Load,
    Local,
    Loop,
    Operand,
    PositionOf,
    Reduction,
    Statement,
    Store,
    indices_of,
)
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Level, Schedule, Seek, Share
from staged.ir.sizes import at_bounds
from staged.ir.types import DType, bool_, f32, f64, i64

MOST_ELEMENTS = 1 << 20
"""Elements of the result up to which looking at all indices for each beats one thread for each column."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """The iterations of `loop`: each finds an index, and stores `update` there, or combines it with what is there."""

    loop: Loop
    check: CheckIndex
    store: Store
    before: Load | None
    """The read of what is there; None where `update` replaces it."""
    update: Operand
    by: Declaration
    """The op that combines: add, multiply, maximum, minimum."""
    rest: tuple[Statement, ...]
    """The statements that make place and update."""


def scatter_of(part: Part) -> Scatter | None:
    """The scatter that each item of a part makes; None for other parts.

    Exact: the loop is over indices alone. Of one index there is no loop, and the one that is there may be over the
    result.
    """
    if part.scratch or len(part.body) != 1 or not isinstance(loop := part.body[0], Loop) or loop.reductions:
        return None
    stores = [s for s in loop.body if isinstance(s, Store)]
    checks = [s for s in loop.body if isinstance(s, CheckIndex)]
    if len(stores) != 1 or len(checks) != 1 or any(isinstance(s, Loop | Guarded) for s in loop.body):
        return None
    (store,), (check,) = stores, checks
    if store.index.moves(loop.axis):
        return None
    before = next((s for s in loop.body if isinstance(s, Load) and s.array is store.array), None)
    update, by, rest = store.value, prims.ADD, [s for s in loop.body if s is not store and s is not before]
    if before is not None:
        combine = next((s for s in rest if isinstance(s, Compute) and s.target is store.value), None)
        if combine is None or reduction_by(combine.op) is None or combine.operands[0] is not before.target:
            return None
        rest.remove(combine)
        update, by = combine.operands[1], combine.op
    return Scatter(loop, check, store, before, update, by, tuple(rest))


def scatter_with_atomics(part: Part) -> Part | None:
    """The part of a scatter that adds floats with a thread for each of them; None for other parts."""
    s = scatter_of(part)
    if s is None or s.before is None or s.by is not prims.ADD or s.store.array.dtype not in (f32, f64):
        return None
    # Neighbouring threads at neighbouring elements.
    has_rows = any(s.store.index.stride(axis) == 1 for axis in part.axes)
    axes = (s.loop.axis, *part.axes) if has_rows else (*part.axes, s.loop.axis)
    return Part(axes, (*s.rest, Store(s.store.array, s.store.index, s.update, atomic=True)), ())


def scatter_by_search(part: Part, copies: Sequence[Copy], gpu: Gpu) -> tuple[Part, Schedule] | None:
    """The part of a scatter of rows, with a warp for each row of its result, and its schedule; None for other parts.

    Exact: in the order of places; each lane looks at an index of its own, which must not differ by column.
    """
    scatter = scatter_of(part)
    if scatter is None or not gpu.has_warps:
        return None
    store, check, loop = scatter.store, scatter.check, scatter.loop
    copied = next((copy for copy in copies if copy.target is store.array), None)
    if copied is None or not isinstance(check.extent, int):
        return None
    columns = next((axis for axis in part.axes if store.index.stride(axis) == 1), None)
    if columns is None or columns.extent < gpu.warp or any(not axis.is_static for axis in (*part.axes, loop.axis)):
        return None
    number = scatter.rest.index(check)
    head, tail = scatter.rest[: number + 1], scatter.rest[number + 1 :]
    made = {s.target for s in head if isinstance(s, Load | Compute | CheckIndex | PositionOf)}
    varies = any(index.stride(columns) for s in head for index in indices_of(s))
    if varies or scatter.update in made or made & _locals_in(tail):
        return None  # each lane looks at an iteration of its own, and then all of them do that of one
    row = Axis("row", check.extent)
    place = _at(store.index, check.target, row)
    begin: tuple[Statement, ...]
    if copied.source is None:
        begin = (Store(store.array, place, Constant(0.0 if store.array.dtype.is_float else 0, store.array.dtype)),)
    else:
        base = Local(copied.source.name, copied.source.dtype)
        begin = (Load(base, copied.source, place), Store(store.array, place, base))
    add: tuple[Statement, ...] = ()
    value = scatter.update
    if scatter.before is not None:
        name = "total" if scatter.by is prims.ADD else "combined"
        before, total = Local(store.array.name, store.array.dtype), Local(name, store.array.dtype)
        add = (Load(before, store.array, place), Compute(total, scatter.by, (before, value), {}))
        value = total
    filled = Loop(columns, begin)
    added = Loop(columns, (*tail, *add, Store(store.array, place, value)))
    here = (Bound(Affine(((check.target, 1), (row, -1))), 1),)
    sought = Loop(loop.axis, (*head, Guarded(here, (added,))))
    axes = (*(axis for axis in part.axes if axis is not columns), row)
    items = prod(axis.extent for axis in axes)
    return Part(axes, (filled, sought), ()), Schedule((
        Bind(axes, Level.WARPS, min(gpu.block // gpu.warp, items)),
        Share(filled, (columns,), Level.LANES, gpu.warp),
        Seek(sought, gpu.warp),
        Share(added, (columns,), Level.LANES, gpu.warp),
    ))  # fmt: skip


def _locals_in(statements: Sequence[Statement]) -> set[Operand]:
    """The numbers that statements use."""
    found: set[Operand] = set()
    for s in statements:
        found.update(name for index in indices_of(s) for name, _ in index.terms if isinstance(name, Local))
        found.update(s.operands if isinstance(s, Compute) else ())
    return found


def _at(index: Affine, found: Local, row: Axis) -> Affine:
    """An index with `row` in the place of the row that was found."""
    return Affine(tuple((row if name is found else name, stride) for name, stride in index.terms), index.offset)


def _changes(update: Operand, dtype: DType, met: Reduction) -> tuple[Statement, ...]:
    """Take into `met` whether an update changes a sum: -0.0 changes none. Its reciprocal tells it from 0.0."""
    inverse = Local("inverse", dtype)
    is_positive, is_other, counts = (Local(name, bool_) for name in ("is_positive", "is_other", "counts"))
    return (
        Compute(inverse, prims.DIVIDE, (Constant(1.0, dtype), update), {}),
        Compute(is_positive, prims.GREATER, (inverse, Constant(0.0, dtype)), {}),
        Compute(is_other, prims.NOT_EQUAL, (update, Constant(0.0, dtype)), {}),
        Compute(counts, prims.LOGICAL_OR, (is_other, is_positive), {}),
        Accumulate(met, counts),
    )


def scatter_as_gather(part: Part, copies: Sequence[Copy]) -> Part | None:
    """The part of a scatter with threads for all of its result; None for other parts, and where it does not pay.

    Exact: of equal places the last stands; sums are base + (0.0 + u1 + u2 ...), where the host adds each to the base,
    and so are products;
    an element that no place means, or that nothing but -0.0 is added to, keeps its bits.
    """
    scatter = scatter_of(part)
    if scatter is None:
        return None
    loop, check, store, before, update = scatter.loop, scatter.check, scatter.store, scatter.before, scatter.update
    rest = list(scatter.rest)
    copied = next((copy for copy in copies if copy.target is store.array), None)
    step = store.index.stride(check.target)
    if copied is None or step == 0 or store.array.size > MOST_ELEMENTS:
        return None
    row = Axis("row", check.extent)

    place = _at(store.index, check.target, row)
    axes = tuple(sorted((*part.axes, row), key=lambda axis: -abs(at_bounds(place.stride(axis)))))
    number = rest.index(check)
    head, tail = rest[: number + 1], rest[number + 1 :]
    here = (Bound(Affine(((check.target, 1), (row, -1))), 1),)
    dtype = store.array.dtype
    value: Operand
    result = Local(store.array.name, dtype)
    base: Operand = Constant(0.0 if dtype.is_float else 0, dtype)
    read_base: tuple[Statement, ...] = ()
    if copied.source is not None:
        base = Local(copied.source.name, dtype)
        read_base = (Load(base, copied.source, place),)
    if before is not None:
        op = reduction_by(scatter.by)
        assert op is not None, "updates are combined by what makes a reduction"
        total = Reduction(Local("total", store.array.dtype), op)
        totals = [total]
        inner: Sequence[Statement] = (*tail, Accumulate(total, update))
        is_sum = scatter.by is prims.ADD
        has_base = bool(read_base) or not is_sum
        end: list[Statement] = [Compute(result, scatter.by, (base, total.target), {})] if has_base else []
        value = result if has_base else total.target
        if is_sum and read_base and dtype.is_float:  # -0.0 + 0.0 is 0.0: what nothing is added to stays as it is
            met, whole = Reduction(Local("met", bool_), prims.ANY), Local("total", dtype)
            totals.append(met)
            inner = (*inner, *_changes(update, dtype, met))
            end = [
                Compute(whole, prims.ADD, (base, total.target), {}),
                Compute(result, prims.SELECT, (met.target, whole, base), {}),
            ]
    else:
        total = Reduction(Local("last", i64), prims.MAX)  # of several, the last one stands
        totals = [total]
        iteration, found = Local("turn", i64), Local("found", bool_)
        inner = (PositionOf(iteration, Affine.of(loop.axis)), Accumulate(total, iteration))
        end = [Compute(found, prims.GREATER_EQUAL, (total.target, Constant(0, i64)), {})]
        chosen: Statement
        for s in tail:
            if not isinstance(s, Load):
                return None
            index = Affine(
                tuple((total.target if n is loop.axis else n, by) for n, by in s.index.terms), s.index.offset
            )
            inside = Bound(Affine.of(total.target), loop.axis.extent)
            chosen = Load(
                s.target, s.array, index, (inside,), Constant(0.0 if s.array.dtype.is_float else 0, s.array.dtype)
            )
            end.append(chosen)
        end.append(Compute(result, prims.SELECT, (found, update, base), {}))
        value = result
    body = (
        Loop(loop.axis, (*head, Guarded(here, tuple(inner))), tuple(totals)),
        *read_base,
        *end,
        Store(store.array, place, value),
    )
    return Part(axes, body, ())
