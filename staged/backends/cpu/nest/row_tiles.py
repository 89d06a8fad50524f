"""Tiles of two numbers of rows in one loop.

    for tile < 4: (st_product_f32_13x2(a + 3328*tile, ...); for r < 13: ...)
    for tile < 2: (st_product_f32_12x2(a + 3072*tile + 13312, ...); for r < 12: ...)

    ->  for tile < 6:
          rows = tile < 4 ? 13 : 12
          row = tile < 4 ? tile * 13 : tile * 12 + 4
          if (rows == 13) st_product_f32_13x2(a + 256*row, ...) else st_product_f32_12x2(a + 256*row, ...)
          for r < rows: ...

Exact: both loops do the same with their rows, statement by statement.

Tested by `tests/kernels/test_tile_calls.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from staged.code.expr import Conditional, Expr, Infix, Literal
from staged.code.nest.lowering import ZERO, Lowering
from staged.code.nest.value import Value
from staged.code.tree import If
from staged.code.types import INDEX
from staged.ir.loops import (
    Address,
    Affine,
    ArrayRef,
    Axis,
    Bound,
    CallSupport,
    Local,
    Loop,
    Nest,
    Reduction,
    Statement,
    map_indices,
    walk,
)
from staged.ir.schedule import Bind, Directive, Schedule, Vectorise
from staged.ir.sizes import Extent
from staged.ir.types import i64

Body = tuple[Statement, ...]
Loops = dict[Loop, Loop]
Callee = tuple[str, tuple[Any, ...]]
TILE, ROWS = "tile", ("r", "r_after")


@dataclass(frozen=True, slots=True, eq=False)
class RowTiles(Loop):
    """A loop over tiles: the first `count` have the most rows, each further one a row less.

    `first` is the first row of a tile, `rows` are the axes of the loops over its rows, and `smaller` are the functions
    of calls for the smaller tiles. An inline function comes with its first argument, the number of rows.
    """

    count: int = 0
    first: Local = field(default_factory=lambda: Local("row", i64))
    rows: tuple[Axis, ...] = ()
    smaller: Mapping[Statement, Callee] = field(default_factory=dict)


class RowLoops:
    """Lowers loops over tiles of two numbers of rows."""

    def __init__(self, low: Lowering) -> None:
        self.low = low
        self.call_function = low.statements[CallSupport]
        self.smaller: Mapping[Statement, Callee] = {}
        self.is_large: Expr | None = None
        low.statements |= {RowTiles: self.tiles, CallSupport: self.call}

    def tiles(self, s: RowTiles) -> None:
        low, large = self.low, s.rows[0].extent
        start, stop = low.range_of(s.axis)
        tile = low.scoped(s.axis)
        with low.loop(tile, start, stop):
            is_early = Infix("<", tile, number(s.count))
            rows = low.constant("rows", INDEX, Conditional(is_early, number(large), number(large - 1)))
            first: Expr = Infix("*", tile, number(large))
            if s.axis.extent > s.count + 1:
                late = Infix("+", Infix("*", tile, number(large - 1)), number(s.count))
                first = Conditional(is_early, first, late)
            low.values[s.first] = Value(low.constant(s.first.name, INDEX, first), i64)
            low.ranges |= dict.fromkeys(s.rows, (ZERO, rows))
            self.smaller, self.is_large = s.smaller, Infix("==", rows, number(large))
            low.body(s.body)
        low.leave(tile)

    def call(self, s: CallSupport) -> None:
        if s not in self.smaller:
            self.call_function(s)
            return
        with self.low.code.nested() as large:
            self.call_function(s)
        with self.low.code.nested() as small:
            function, rows = self.smaller[s]
            self.call_function(replace(s, function=function, arguments=(*rows, *s.arguments[len(rows) :])))
        assert self.is_large is not None
        self.low.code.add(If(self.is_large, tuple(large), tuple(small)))


def number(value: int) -> Literal:
    return Literal(str(value))


def with_row_tiles(nest: Nest, schedule: Schedule) -> tuple[Nest, Schedule]:
    """The nest with one loop over tiles in place of two that differ in the number of rows, and its schedule."""
    loops: Loops = {}
    body = _merged_in(nest.body, loops)
    items = 1 if nest.items == 1 else sum(s.axis.extent for s in body if isinstance(s, Loop))

    def changed(d: Directive) -> Directive:
        if isinstance(d, Vectorise):
            return replace(d, loops=frozenset(loops.get(loop, loop) for loop in d.loops))
        return replace(d, each=max(1, d.each * items // nest.items)) if isinstance(d, Bind) else d

    made = replace(schedule, directives=tuple(map(changed, schedule.directives)))
    return replace(nest, body=body, items=items), made


def _merged_in(body: Body, loops: Loops) -> Body:
    """The statements after merging; `loops` gets the new loops by those in whose place they are."""
    for place, s in enumerate(body[:-1]):
        if isinstance(s, Loop) and (merged := _merged(s, body[place + 1 :], loops, {})) is not None:
            return (*body[:place], merged)
    return tuple(
        Loop(s.axis, inside, s.reductions)
        if isinstance(s, Loop) and (inside := _merged_in(s.body, loops)) != s.body
        else s
        for s in body
    )


def _merged(one: Loop, others: Body, loops: Loops, counterparts: dict[object, object]) -> Loop | None:
    """The loop that does what `one` and the statements after it do, if these differ only in the number of rows.

    `counterparts` are the axes of loops around these statements, by those of the loops around `one`.
    """
    match one.body, others:
        case (Loop() as inner,), (Loop(axis, rest),) if _are_alike(one.axis, axis) and one.axis.name != TILE:
            found = _merged(inner, rest, loops, {**counterparts, one.axis: axis})
            return None if found is None else Loop(one.axis, (found,))
    rows = tuple(dict.fromkeys(s.axis for s in walk(one.body) if isinstance(s, Loop) and s.axis.name in ROWS))
    if one.axis.name != TILE or len({axis.extent for axis in rows}) != 1:
        return None
    large = rows[0].extent
    match others:
        case (Loop(Axis(name="tile") as after, inside),):
            likeness = _Likeness(one.axis, large, after, counterparts)
            others = inside
        case _:
            likeness = _Likeness(one.axis, large, None, counterparts)
    if not likeness.same(one.body, others) or not likeness.smaller:
        return None
    first = Local("row", i64)

    def from_first_row(index: Affine) -> Affine:
        terms = ((first, step // large) if name is one.axis else (name, step) for name, step in index.terms)
        return Affine(tuple(terms), index.offset)

    body = map_indices(one.body, from_first_row)
    made = dict(zip(walk(one.body), walk(body), strict=True))
    loops |= {old: new for old, new in made.items() if isinstance(old, Loop) and isinstance(new, Loop)}
    smaller = {made[call]: function for call, function in likeness.smaller.items()}
    count = one.axis.extent
    axis = Axis(TILE, count + (1 if likeness.after is None else likeness.after.extent))
    return RowTiles(axis, body, (), count, first, rows, smaller)


def without(index: Affine, *axes: Axis) -> Affine:
    """An index without the terms of these axes."""
    return Affine(tuple(term for term in index.terms if term[0] not in axes), index.offset)


def _are_alike(one: Axis, other: Axis) -> bool:
    """Return whether two loops have as many iterations. The second loop over rows of a tile may have one less."""
    fewer = one.extent - other.extent
    return (
        one.name == other.name and one.is_static and other.is_static and (fewer == 0 or fewer == 1 and one.name in ROWS)
    )


class _Likeness:
    """Compares the tiles that a loop over `tile` counts, of `large` rows, with those after them, which have a row less.

    `after` is the axis of the loop over the latter, if there are several.
    """

    def __init__(self, tile: Axis, large: int, after: Axis | None, counterparts: dict[object, object]) -> None:
        self.tile, self.large, self.after = tile, large, after
        self.counterparts = dict(counterparts)
        """The axes, locals and arrays of the tiles after, by those of the tiles before."""
        self.smaller: dict[Statement, Callee] = {}
        """The functions that the tiles after call, by the calls before."""

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two parts of statements are the same, up to the rows of their tiles."""
        if type(one) is not type(other):
            return False
        if isinstance(one, Affine):
            return self.same_index(one, other)
        if isinstance(one, Axis):
            return _are_alike(one, other) and self.counterparts.setdefault(one, other) is other
        if isinstance(one, Local):
            return self.counterparts.setdefault(one, other) is other
        if isinstance(one, ArrayRef):
            if one.role != "registers":
                return one is other
            return self.counterparts.setdefault(one, other) is other
        if isinstance(one, CallSupport):
            sizes = 1 if one.function == other.function else 0
            self.smaller[one] = other.function, other.arguments[:sizes]
            return self.same(one.arguments[sizes:], other.arguments[sizes:])
        if isinstance(one, tuple):
            return len(one) == len(other) and all(map(self.same, one, other))
        if isinstance(one, Statement | Address | Bound | Reduction):
            return all(self.same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
        return one is other or bool(one == other)

    def same_index(self, one: Affine, other: Affine) -> bool:
        step = one.stride(self.tile)
        if not isinstance(step, int):
            return False
        row, left = divmod(step, self.large)
        rest = [(name, step) for name, step in one.terms if name is not self.tile]
        terms: dict[object, Extent] = {self.counterparts.get(name, name): step for name, step in rest}
        if row and self.after is not None:
            terms[self.after] = row * (self.large - 1)
        offset = one.offset + row * self.large * self.tile.extent
        return not left and terms == dict(other.terms) and offset == other.offset
