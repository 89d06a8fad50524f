"""Nests of scans: running totals along an axis, a linear recurrence, the places of extremes so far.

Tested by `tests/ops/test_cumulative.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.ir.declaration import Declaration, prims
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    Begin,
    Compute,
    Constant,
    Fold,
    Load,
    Local,
    Loop,
    Merge,
    Nest,
    Operand,
    PositionOf,
    Statement,
    Store,
    Take,
    Tile,
    identity,
)
from staged.ir.sizes import largest, product
from staged.ir.types import DType, bool_, f64, i64
from staged.kernels.parts import Parts, loops, without

COLUMN_TILE = 2048
"""Columns whose running totals stay in the first-level cache while all rows pass by."""


_Step = Callable[[list[Statement], Sequence[Operand], Sequence[Operand]], Sequence[Operand]]
"""Adds the statements of one step: from the state and what it takes in to the next state."""


def _computed(body: list[Statement], hint: str, dtype: DType, op: Declaration, *operands: Operand) -> Local:
    target = Local(hint, dtype)
    body.append(Compute(target, op, operands, {}))
    return target


def _scan(name: str, p: Parts, starts: Sequence[Constant], step: _Step, result: int = 0) -> Nest:
    """A state that takes in the elements along an axis, one after another; after each, its number `result` is stored.

    The state of a contiguous row is in locals. That of columns waits in scratch while the rows pass by: neighbours are
    vectors of a CPU, and threads of a GPU.
    """
    axis, shape = p.op.attrs["axis"], p.shapes[0]
    before, n, after = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
    out = p.outputs[0]
    outer, place, inner = Axis("i", before), Axis("j", n), Axis("k", after)
    along = Affine.of(place, -1) + (n - 1) if p.op.attrs.get("reverse") else Affine.of(place)
    at = Affine.of(outer, n * after) + along * after + (Affine.of(inner) if after != 1 else 0)
    state = [Local("total", start.dtype) for start in starts]
    taken: list[Statement] = []
    values: list[Operand] = []
    for number in range(len(p.op.operands)):
        value, load = p.load(p.array(number), at)
        taken.append(load)
        wide = starts[0].dtype
        values.append(value if value.dtype is wide else _computed(taken, "x", wide, prims.CAST, value))
    if len(starts) > 1:
        position = Local("place", i64)
        taken.append(PositionOf(position, along))
        values.append(position)

    def stored(body: list[Statement], value: Operand) -> Store:
        return Store(out, at, value if value.dtype is out.dtype else _computed(body, "y", out.dtype, prims.CAST, value))

    if after == 1:
        right = [Local("x", value.dtype) for value in values]
        merge: list[Statement] = []
        results = tuple(step(merge, state, right))
        computes = tuple(s for s in merge if isinstance(s, Compute))
        fold = Fold(tuple(state), tuple(starts), Merge(tuple(state), tuple(right), computes, results))
        taken.append(Take(fold, tuple(values)))
        taken.append(stored(taken, state[result]))
        body: list[Statement] = [Begin(fold), Loop(place, tuple(taken))]
        scratch: list[ArrayRef] = []
    else:
        scratch = [ArrayRef("totals", start.dtype, largest(1, after), "scratch") for start in starts]
        column = Affine.of(inner)
        taken += [Load(local, array, column) for local, array in zip(state, scratch, strict=True)]
        after_it = step(taken, state, values)
        taken += [Store(array, column, value) for array, value in zip(scratch, after_it, strict=True)]
        taken.append(stored(taken, after_it[result]))
        begin = Loop(inner, tuple(Store(array, column, start) for array, start in zip(scratch, starts, strict=True)))
        body = [Tile(inner, COLUMN_TILE, (begin, Loop(place, (Loop(inner, tuple(taken)),))))]
    statements = tuple(without(body, outer) if before == 1 else loops([outer], body))
    first = statements[0]
    items = first.axis.extent if isinstance(first, Loop | Tile) else 1
    return Nest(name, tuple(p.inputs), tuple(p.outputs), tuple(scratch), statements, items)


def running_total(op: Declaration, start: float) -> Callable[[str, Parts], Nest]:
    """A running total. Sums of floats are carried in f64, as those of `sum` are."""

    def lower(name: str, p: Parts) -> Nest:
        dtype = _carried(p)

        def step(body: list[Statement], state: Sequence[Operand], taken: Sequence[Operand]) -> list[Operand]:
            return [_computed(body, "total", dtype, op, state[0], taken[0])]

        return _scan(name, p, [Constant(start if dtype.is_float else int(start), dtype)], step)

    return lower


def _carried(p: Parts) -> DType:
    dtype = p.outputs[0].dtype
    return f64 if dtype.is_float else dtype


def recurrence(name: str, p: Parts) -> Nest:
    """y[j] = a[j] y[j - 1] + b[j]. A factor of 0 starts again: 0 times an infinite y would be NaN."""
    dtype = _carried(p)

    def step(body: list[Statement], state: Sequence[Operand], taken: Sequence[Operand]) -> list[Operand]:
        starts = _computed(body, "starts", bool_, prims.EQUAL, taken[0], Constant(0.0, dtype))
        part = _computed(body, "part", dtype, prims.MULTIPLY, taken[0], state[0])
        total = _computed(body, "total", dtype, prims.ADD, part, taken[1])
        return [_computed(body, "total", dtype, prims.SELECT, starts, taken[1], total)]

    return _scan(name, p, [Constant(0.0, dtype)], step)


def running_place(beyond: Declaration, op: Declaration) -> Callable[[str, Parts], Nest]:
    """The place of the extreme so far: the last of ties, and of NaN."""

    def lower(name: str, p: Parts) -> Nest:
        dtype = p.array(0).dtype

        def step(body: list[Statement], state: Sequence[Operand], taken: Sequence[Operand]) -> list[Operand]:
            best, x = state[0], taken[0]
            stays = _computed(body, "stays", bool_, beyond, x, best)
            wins = _computed(body, "wins", bool_, prims.LOGICAL_NOT, stays)
            if dtype.is_float:
                is_number = _computed(body, "is_number", bool_, prims.EQUAL, best, best)
                is_nan = _computed(body, "is_nan", bool_, prims.NOT_EQUAL, x, x)
                may = _computed(body, "may", bool_, prims.LOGICAL_OR, is_number, is_nan)
                wins = _computed(body, "wins", bool_, prims.LOGICAL_AND, wins, may)
            chosen = zip(taken, state, ("best", "place"), strict=True)
            return [_computed(body, hint, new.dtype, prims.SELECT, wins, new, old) for new, old, hint in chosen]

        return _scan(name, p, [identity(op, dtype), Constant(0, i64)], step, result=1)

    return lower
