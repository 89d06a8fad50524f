"""Scatters as gathers: each element of the result looks for what is meant for it.

    for j: index = check(indices[j]); y[index] += x[j]        turns that may meet in an element: only one thread can do it

    a thread, or a team, for each `row`:
        for j: index = check(indices[j]); if (index == row) total += x[j]
        y[row] = base[row] + total

Every element is read and written by one thread, in the order of `j`: no atomics, the same bits every time, and nothing
to copy first. It costs a look at all indices for each element of the result, so it is for tables of moderate size.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.cublas_cudnn.mapping import Part
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
    PositionOf,
    Reduction,
    Statement,
    Store,
)
from staged.ir.types import bool_, i64

MOST_ELEMENTS = 1 << 20
"""Elements of the result up to which looking at all indices for each beats one thread for each column."""


def scatter_as_gather(part: Part, copies: Sequence[Copy]) -> Part | None:
    """The part of a scatter with threads for all of its result; None for other parts, and where it does not pay."""
    if part.scratch or len(part.body) != 1 or not isinstance(loop := part.body[0], Loop) or loop.reductions:
        return None
    stores = [s for s in loop.body if isinstance(s, Store)]
    checks = [s for s in loop.body if isinstance(s, CheckIndex)]
    if len(stores) != 1 or len(checks) != 1 or any(isinstance(s, Loop | Guarded) for s in loop.body):
        return None
    (store,), (check,) = stores, checks
    source = next((copy.source for copy in copies if copy.target is store.array), None)
    step = store.index.stride(check.target)
    if source is None or not isinstance(check.extent, int) or not step or store.array.size > MOST_ELEMENTS:
        return None
    before = next((s for s in loop.body if isinstance(s, Load) and s.array is store.array), None)
    update, rest = store.value, [s for s in loop.body if s is not store and s is not before]
    if before is not None:
        combine = next((s for s in rest if isinstance(s, Compute) and s.target is store.value), None)
        if combine is None or combine.op != "add" or combine.operands[0] is not before.target:
            return None
        rest.remove(combine)
        update = combine.operands[1]
    row = Axis("row", check.extent)

    def at_row(index: Affine) -> Affine:
        return Affine(tuple((row if name is check.target else name, s) for name, s in index.terms), index.offset)

    place = at_row(store.index)
    axes = tuple(sorted((*part.axes, row), key=lambda axis: -abs(place.stride(axis))))
    number = rest.index(check)
    head, tail = rest[: number + 1], rest[number + 1 :]
    here = (Bound(Affine(((check.target, 1), (row, -1))), 1),)
    base, value = Local(source.name, source.dtype), Local(store.array.name, store.array.dtype)
    if before is not None:
        total = Reduction(Local("total", store.array.dtype), "sum")
        inner: Sequence[Statement] = (*tail, Accumulate(total, update))
        end: list[Statement] = [Compute(value, "add", (base, total.target), {})]
    else:
        total = Reduction(Local("last", i64), "max")  # of several, the last one stands
        turn, found = Local("turn", i64), Local("found", bool_)
        inner = (PositionOf(turn, Affine.of(loop.axis)), Accumulate(total, turn))
        end = [Compute(found, "greater_equal", (total.target, Constant(0, i64)), {})]
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
        end.append(Compute(value, "select", (found, update, base), {}))
    body = (
        Loop(loop.axis, (*head, Guarded(here, tuple(inner))), (total,)),
        Load(base, source, place),
        *end,
        Store(store.array, place, value),
    )
    return Part(axes, body, ())
