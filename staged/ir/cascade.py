"""Long sums in pieces: a total takes in few numbers before it is passed on, so that it rounds little.

    for i < 100000: total += x[i] -> for each piece of 2048 i: (for i in the piece: partial += x[i]); wide_total +=
    partial

One f32 total of n numbers has up to n roundings in the end: 33 million ones come to 16777216. Here the totals of short
pieces are f32, and what adds these up is f64, which becomes f32 once, at the end. Nothing is wider than f64: its long
sums are totals of totals of totals, with as many roundings as there are iterations on the levels together. Sums that
wait in a row of workspace (one for each column) go the same way. Pieces follow from sizes and from the width of vectors
alone, never from the number of threads.

Exact for every size, one found when the program runs included: pieces are of the loop's range, whatever it is. Only
sums of floats are cut: those of integers have no roundings, and a product rounds as often in any order. Source: Higham,
The accuracy of floating point summation, 1993, section 3, for sums in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    ArrayRef,
    Axis,
    Compute,
    Constant,
    Guarded,
    Load,
    Local,
    Loop,
    Nest,
    Operand,
    Reduction,
    Statement,
    Store,
    Tile,
    identity,
    walk,
)
from staged.ir.rows_of_sums import Row, row_additions, rows_of, sets_constant
from staged.ir.schedule import Schedule, Vectorise
from staged.ir.types import f32, f64

LONGEST, PIECE = 32, 16
"""The most numbers that a total adds directly: at the outermost level, and at inner ones."""
LONGEST_BESIDE, PIECE_BESIDE = 64, 32
"""The same of vector totals: their lanes, and the vectors beside, are added up in pairs, and each has roundings of its
own.
"""
FEWEST_BESIDE = 8
"""Totals side by side from which on that holds."""


def levels(iterations: int, longest: int, piece: int) -> tuple[int, ...]:
    """The numbers of iterations after which totals are passed on, from the innermost level out; empty if one level is
    enough.

    The outer levels divide the rest evenly, since their roundings dominate.
    """
    if iterations <= longest:
        return ()
    pieces = -(-iterations // piece)
    outer = 1 if pieces <= 8 else 2 if pieces <= 256 else 3 if pieces <= 4096 else 4
    each = 2
    while each**outer < pieces:
        each *= 2
    return (piece, *(size for level in range(1, outer) if (size := piece * each**level) < iterations))


def cascade_sums(nest: Nest, schedule: Schedule, *, widens_short: bool = False) -> tuple[Nest, Schedule]:
    """A nest with its long sums in pieces, and its schedule for the loops that it has then.

    With `widens_short`, the sum of one piece has the same form. Exact: the piece is the total.
    """
    cascade = _Cascade(schedule, nest.body, widens_short=widens_short)
    body = cascade.body(nest.body)
    if body == nest.body:
        return nest, schedule
    directives = tuple(
        replace(d, loops=frozenset(cascade.vectorised)) if isinstance(d, Vectorise) else d for d in schedule.directives
    )
    return replace(nest, body=body, scratch=(*nest.scratch, *cascade.rows)), Schedule(directives)


def sums_in_pieces(
    body: tuple[Statement, ...], scratch: tuple[ArrayRef, ...]
) -> tuple[tuple[Statement, ...], tuple[ArrayRef, ...]]:
    """The body of one thread, without vectors, with its long sums in pieces; and the workspace for these.

    Its rows of sums are in registers: totals of pieces are added to others of their own dtype.
    """
    cascade = _Cascade(Schedule(), widens_rows=False)
    return cascade.body(body), (*scratch, *cascade.rows)


def iteration_in_pieces(
    body: tuple[Statement, ...], reductions: Sequence[Reduction], scratch: tuple[ArrayRef, ...]
) -> tuple[tuple[Statement, ...], tuple[ArrayRef, ...]]:
    """The same for one iteration of a loop: none of its `reductions` adds more than `PIECE` numbers directly."""
    cascade = _Cascade(Schedule(), widens_rows=False)
    long = [r for r in reductions if is_float_sum(r) and cascade.additions(body, r) > PIECE]
    return cascade.body(cascade.with_own_totals(body, long) if long else body), (*scratch, *cascade.rows)


def additions(body: Sequence[Statement], reduction: Reduction) -> int:
    """The number of terms of a reduction, without vectors."""
    return _Cascade(Schedule()).additions(body, reduction)


def is_float_sum(reduction: Reduction) -> bool:
    """Return whether a reduction rounds, and less in pieces."""
    return reduction.op is prims.SUM and reduction.target.dtype.is_float


class _Cascade:
    """Rewrites the statements of one nest."""

    def __init__(
        self,
        schedule: Schedule,
        whole: tuple[Statement, ...] = (),
        *,
        widens_rows: bool = True,
        widens_short: bool = False,
    ) -> None:
        self.schedule = schedule
        self.whole = whole
        """The nest that is rewritten."""
        self.widens_short = widens_short
        self.widens_rows = widens_rows
        """True if rows of f32 sums go on to f64 ones."""
        self.vectorised: set[Loop] = set(schedule.vectorised)
        self.rows: list[ArrayRef] = []
        """Workspace for the totals of further levels."""
        self.rounding: dict[Statement, dict[ArrayRef, Load]] = {}
        """By loop that rounds f64 totals to f32 sums: for each row of sums the load of its totals."""

    def body(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """Statements with their long sums in pieces; the same object where there are none."""
        found: list[Statement] = []
        for s in body:
            match s:
                case Loop():
                    if found and (rounded := self.rounded(found[-1], s)):
                        found[-1:], s = [], rounded
                    made = self.loop(s)
                    if found and (both := self.zeroed(found[-1], made[0])):
                        found[-1:], made = [both], made[1:]
                    found += made
                case Tile(axis, size, inner, reductions):
                    changed = self.body(inner)
                    found.append(s if changed == inner else Tile(axis, size, changed, reductions))
                case Guarded(bounds, inner):
                    changed = self.body(inner)
                    found.append(s if changed == inner else Guarded(bounds, changed))
                case _:
                    found.append(s)
        return tuple(found)

    def loop(self, loop: Loop) -> tuple[Statement, ...]:
        """A loop, or the pieces that it goes in."""
        if rows := list(rows_of(loop)):
            is_narrow = self.widens_rows and all(row.array.dtype is f32 for row in rows)
            return self.widened_columns(loop, rows) if is_narrow else self.column_loop(loop, rows)
        loop = self.rebuilt(loop, self.body(loop.body), loop.reductions)
        sums = [r for r in loop.reductions if is_float_sum(r)]
        if not sums or all(self.is_short((loop,), r) for r in sums):
            return (loop,)
        is_narrow = all(r.target.dtype is f32 for r in sums)
        return self.widened(loop, sums) if is_narrow else (self.total_loop(loop, sums),)

    def rebuilt(self, loop: Loop, body: tuple[Statement, ...], reductions: tuple[Reduction, ...]) -> Loop:
        """The same loop with another body; it runs over vectors if the first did."""
        if body == loop.body and reductions == loop.reductions:
            return loop
        made = Loop(loop.axis, body, reductions)
        if loop in self.vectorised:
            self.vectorised.add(made)
        return made

    # ---- totals in registers ----

    def beside(self, loop: Loop) -> int:
        """The number of totals that a loop has for each of its sums."""
        if loop not in self.vectorised:
            return 1
        return self.schedule.lanes * self.schedule.vectors_per_iteration(loop)

    def additions(self, body: Sequence[Statement], reduction: Reduction) -> int:
        """The number of terms that one total of a reduction adds."""
        count = 0
        for s in body:
            match s:
                case Accumulate(into):
                    count += into is reduction
                case Loop(axis, inner):
                    if each := self.additions(inner, reduction):
                        count += -(-axis.extent // self.beside(s)) * each
                case Tile(_, _, inner) | Guarded(_, inner):
                    count += self.additions(inner, reduction)
        return count

    def most_beside(self, body: Sequence[Statement], reduction: Reduction) -> int:
        """The most totals side by side that take in numbers of a reduction."""
        feeding = (s for s in walk(tuple(body)) if isinstance(s, Loop) and self.additions(s.body, reduction))
        return max(map(self.beside, feeding), default=1)

    def limits(self, body: Sequence[Statement], reduction: Reduction) -> tuple[int, int]:
        """(most terms of one total alone, most terms of one of several pieces)."""
        is_beside = self.most_beside(body, reduction) >= FEWEST_BESIDE
        return (LONGEST_BESIDE, PIECE_BESIDE) if is_beside else (LONGEST, PIECE)

    def is_short(self, body: Sequence[Statement], reduction: Reduction) -> bool:
        longest, piece = self.limits(body, reduction)
        count = self.additions(body, reduction)
        return count <= longest and not (self.widens_short and count <= piece)

    def widened(self, loop: Loop, sums: Sequence[Reduction]) -> tuple[Statement, ...]:
        """A loop whose sums are f64 totals of f32 totals of pieces."""
        wide = {
            r: Reduction(Local(f"{r.target.name.removesuffix('_total')}_total", f64), prims.SUM)
            for r in sums
            if not self.is_short((loop,), r)
        }
        rest = tuple(r for r in loop.reductions if r not in wide)
        narrowed = (Compute(r.target, prims.CAST, (total.target,), {}) for r, total in wide.items())
        return (*self.in_pieces(loop, wide, (*wide.values(), *rest), {}), *narrowed)

    def in_pieces(
        self, loop: Loop, wide: dict[Reduction, Reduction], kept: tuple[Reduction, ...], iterations: dict[Axis, int]
    ) -> tuple[Statement, ...]:
        """A loop that adds the totals of its pieces, or of those of inner loops, to f64 totals. `kept` start before all
        of it.

        `iterations` has the sizes of the pieces around it: an inner loop whose own sum is in pieces already may add to
        this one.
        """
        own = [r for r in wide if self.additions((loop,), r)]
        if not own:
            return (loop,)
        limits = [self.limits((loop,), r) for r in own]
        longest, piece = min(longest for longest, _ in limits), min(piece for _, piece in limits)
        each, width = max(self.additions(loop.body, r) for r in own), self.beside(loop)
        if each > piece:
            return (self.rebuilt(loop, self.loops_in_pieces(loop.body, wide, iterations), kept),)
        partial = {r: _partial(r) for r in own}
        body = self.redirected(loop.body, partial)
        joins = [s for r, p in partial.items() for s in self.taken_in(p.target, wide[r])]
        count = -(-iterations.get(loop.axis, loop.axis.extent) // width) * each
        if count <= longest and not (self.widens_short and count <= piece):
            return (self.rebuilt(loop, body, (*kept, *partial.values())), *joins)
        summed = self.rebuilt(loop, body, tuple(partial.values()))
        return (Tile(loop.axis, max(1, piece // each) * width, (summed, *joins), kept),)

    def loops_in_pieces(
        self, body: tuple[Statement, ...], wide: dict[Reduction, Reduction], iterations: dict[Axis, int]
    ) -> tuple[Statement, ...]:
        """Statements whose loops add the totals of pieces to f64 totals."""
        found: list[Statement] = []
        for s in body:
            match s:
                case Loop():
                    found += self.in_pieces(s, wide, s.reductions, iterations)
                case Tile(axis, size, inner, reductions):
                    found.append(
                        Tile(axis, size, self.loops_in_pieces(inner, wide, {**iterations, axis: size}), reductions)
                    )
                case Guarded(bounds, inner):
                    found.append(Guarded(bounds, self.loops_in_pieces(inner, wide, iterations)))
                case Accumulate(r, value) if r in wide:
                    found += self.taken_in(value, wide[r])
                case _:
                    found.append(s)
        return tuple(found)

    def taken_in(self, value: Operand, total: Reduction) -> tuple[Statement, ...]:
        """Add an f32 number to an f64 total."""
        widened = Local(f"wide_{value.name}" if isinstance(value, Local) else "wide", f64, True)
        return Compute(widened, prims.CAST, (value,), {}), Accumulate(total, widened)

    def total_loop(self, loop: Loop, sums: Sequence[Reduction]) -> Loop | Tile:
        """A loop whose sums are totals of totals, where they are long."""
        sums = [r for r in sums if not self.is_short((loop,), r)]
        if not sums:
            return loop
        each = max(self.additions(loop.body, r) for r in sums)
        longest, piece = min(self.limits((loop,), r) for r in sums)
        if each > piece:  # a total for each iteration
            loop = self.rebuilt(loop, self.with_own_totals(loop.body, sums), loop.reductions)
            each, longest, piece = max(self.additions(loop.body, r) for r in sums), LONGEST, PIECE
        width = self.beside(loop)
        sizes = levels(-(-loop.axis.extent // width), longest // each, max(1, piece // each))
        if not sizes:
            return loop
        partial = {r: _partial(r) for r in sums}
        rest = tuple(r for r in loop.reductions if r not in partial)
        inner: Loop | Tile = self.rebuilt(loop, self.redirected(loop.body, partial), tuple(partial.values()))
        for size in sizes[:-1]:
            further = {r: _partial(r) for r in sums}
            passed_on = tuple(Accumulate(further[r], partial[r].target) for r in sums)
            inner = Tile(loop.axis, size * width, (inner, *passed_on), tuple(further.values()))
            partial = further
        passed_on = tuple(Accumulate(r, partial[r].target) for r in sums)
        return Tile(loop.axis, sizes[-1] * width, (inner, *passed_on), (*sums, *rest))

    def with_own_totals(self, body: tuple[Statement, ...], sums: Sequence[Reduction]) -> tuple[Statement, ...]:
        """Statements in which each loop that adds terms of a sum has its own total, added to the sum after the loop."""
        found: list[Statement] = []
        for s in body:
            match s:
                case Loop(_, inner):
                    partial = {r: _partial(r) for r in sums if self.additions(inner, r)}
                    if partial:
                        own = tuple(partial.values())
                        s = self.rebuilt(s, self.redirected(inner, partial), (*s.reductions, *own))
                        found.append(self.total_loop(s, own))
                        found += [Accumulate(r, p.target) for r, p in partial.items()]
                    else:
                        found.append(s)
                case Tile(axis, size, inner, reductions):
                    found.append(Tile(axis, size, self.with_own_totals(inner, sums), reductions))
                case Guarded(bounds, inner):
                    found.append(Guarded(bounds, self.with_own_totals(inner, sums)))
                case _:
                    found.append(s)
        return tuple(found)

    def redirected(self, body: tuple[Statement, ...], to: dict[Reduction, Reduction]) -> tuple[Statement, ...]:
        """Statements that add to other totals."""

        def change(s: Statement) -> Statement:
            match s:
                case Accumulate(reduction, value, position) if reduction in to:
                    return Accumulate(to[reduction], value, position)
            return s

        return self.changed(body, change)

    def changed(self, body: tuple[Statement, ...], change: Callable[[Statement], Statement]) -> tuple[Statement, ...]:
        """The same loops around what `change` makes of the statements in them."""
        found: list[Statement] = []
        for s in body:
            match s:
                case Loop(_, inner, reductions):
                    found.append(self.rebuilt(s, self.changed(inner, change), reductions))
                case Tile(axis, size, inner, reductions):
                    found.append(Tile(axis, size, self.changed(inner, change), reductions))
                case Guarded(bounds, inner):
                    found.append(Guarded(bounds, self.changed(inner, change)))
                case _:
                    found.append(change(s))
        return tuple(found)

    # ---- totals in rows of workspace ----

    def widened_columns(self, loop: Loop, rows: Sequence[Row]) -> tuple[Statement, ...]:
        """A loop that adds to rows of f32 sums, which f64 totals take in after every piece of it."""
        if row_additions((loop,), rows[0].array) <= LONGEST:
            return (loop,)
        wide = {row.array: ArrayRef(f"{row.array.name}_wide", f64, row.array.size, "scratch") for row in rows}
        self.rows += wide.values()
        joined: list[Statement] = []
        narrowed: list[Statement] = []
        loads: dict[ArrayRef, Load] = {}
        for row in rows:
            sums, totals, at = row.array, wide[row.array], row.index
            before, sum_, widened, after = (
                Local(f"old_{totals.name}", f64),
                Local(f"partial_{sums.name}", f32),
                Local(f"wide_partial_{sums.name}", f64, True),
                Local(f"new_{totals.name}", f64),
            )
            joined += [
                Load(before, totals, at),
                Load(sum_, sums, at),
                Compute(widened, prims.CAST, (sum_,), {}),
                Compute(after, prims.ADD, (before, widened), {}),
                Store(totals, at, after),
                Store(sums, at, _zero(row)),
            ]
            total, narrow = Local(totals.name, f64), Local(f"whole_{sums.name}", f32, True)
            loads[sums] = Load(total, totals, at)
            narrowed += [loads[sums], Compute(narrow, prims.CAST, (total,), {}), Store(sums, at, narrow)]
        begun = tuple(Store(wide[row.array], row.index, identity(prims.SUM, f64)) for row in rows)
        pieces = self.row_pieces(loop, rows, tuple(joined))
        rounding = self.over_columns(rows[0], tuple(narrowed))
        self.rounding[rounding] = loads
        return self.over_columns(rows[0], begun), *pieces, rounding

    def rounded(self, rounding: Statement, loop: Loop) -> Loop | None:
        """A loop that rounds the totals itself, in place of the loop before it, if nothing else reads the sums."""
        totals = self.rounding.get(rounding, {})
        read = [s for s in loop.body if isinstance(s, Load) and s.array in totals]
        if not read or not isinstance(rounding, Loop) or rounding.axis is not loop.axis:
            return None
        if any(s.index != totals[s.array].index or s.guards for s in read):
            return None
        accesses = [s for s in walk(self.whole) if isinstance(s, Load | Store) and s.array in totals]
        inside = [s for s in walk(loop.body) if isinstance(s, Load | Store) and s.array in totals]
        # Besides those of this loop: one that begins the sums, and two that add to them.
        if inside != read or len(accesses) != len(read) + 3 * len(totals):
            return None
        body: list[Statement] = []
        for s in loop.body:
            if isinstance(s, Load) and s.array in totals:
                load = totals[s.array]
                total = Local(load.target.name, f64)
                body += [replace(load, target=total), Compute(s.target, prims.CAST, (total,), {})]
            else:
                body.append(s)
        return self.rebuilt(loop, tuple(body), loop.reductions)

    def zeroed(self, first: Statement, second: Statement) -> Loop | None:
        """One loop for two along an axis that only set elements to constants."""
        match first, second:
            case Loop(axis, body), Loop(other, more) if axis is other and all(map(sets_constant, (*body, *more))):
                return self.rebuilt(first, (*body, *more), ())
        return None

    def row_pieces(self, loop: Loop, rows: Sequence[Row], joined: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """A loop over rows of numbers, with `joined` executed for each column after every piece."""
        each = row_additions(loop.body, rows[0].array)
        if each <= PIECE:
            return (Tile(loop.axis, PIECE // each, (loop, self.over_columns(rows[0], joined))),)
        inner: list[Statement] = []
        for s in loop.body:
            feeds = isinstance(s, Loop) and row_additions((s,), rows[0].array)
            inner += self.row_pieces(s, rows, joined) if isinstance(s, Loop) and feeds else [s]
        return (self.rebuilt(loop, tuple(inner), loop.reductions),)

    def column_loop(self, loop: Loop, rows: Sequence[Row]) -> tuple[Statement, ...]:
        """A loop that adds to rows of sums, which are rows of totals of totals where the loop is long."""
        each = row_additions(loop.body, rows[0].array)
        if loop.axis.extent * each <= LONGEST:
            return (loop,)
        begun: list[Statement] = []
        if each > PIECE:  # the loops inside are long enough for rows of their own
            partial = {row.array: self.further(row) for row in rows}
            begun += self.zeros(rows, [partial])
            joined = self.joins(rows, partial, {row.array: row.array for row in rows})
            inner: list[Statement] = []
            for s in self.with_arrays(loop.body, partial):
                feeds = row_additions((s,), partial[rows[0].array])
                inner += [*self.body((s,)), *joined] if feeds else [s]
            loop, each = self.rebuilt(loop, tuple(inner), loop.reductions), 1
        sizes = levels(loop.axis.extent, LONGEST // each, max(1, PIECE // each))
        if not sizes:
            return (*begun, loop)
        arrays = [{row.array: self.further(row) for row in rows} for _ in sizes]
        begun += self.zeros(rows, arrays)
        arrays.append({row.array: row.array for row in rows})
        s = self.rebuilt(loop, self.with_arrays(loop.body, arrays[0]), loop.reductions)
        for size, own, into in zip(sizes, arrays, arrays[1:], strict=False):
            s = Tile(loop.axis, size, (s, *self.joins(rows, own, into)))
        return (*begun, s)

    def further(self, row: Row) -> ArrayRef:
        """Workspace for one more row of totals."""
        made = ArrayRef(f"partial_{row.array.name.removesuffix('_total')}", row.array.dtype, row.array.size, "scratch")
        self.rows.append(made)
        return made

    def over_columns(self, row: Row, body: tuple[Statement, ...]) -> Loop:
        """The body for each column, in vectors if the sums are made so."""
        for column in reversed(row.columns):
            made = Loop(column.axis, body)
            if column in self.vectorised:
                self.vectorised.add(made)
            body = (made,)
        return made

    def zeros(self, rows: Sequence[Row], arrays: Sequence[dict[ArrayRef, ArrayRef]]) -> tuple[Statement, ...]:
        """Rows of totals that have taken in nothing yet."""
        stores = [Store(own[row.array], row.index, _zero(row)) for own in arrays for row in rows]
        return (self.over_columns(rows[0], tuple(stores)),)

    def joins(
        self, rows: Sequence[Row], own: dict[ArrayRef, ArrayRef], into: dict[ArrayRef, ArrayRef]
    ) -> tuple[Statement, ...]:
        """Add totals to those of the next level, and reset them."""
        body: list[Statement] = []
        for row in rows:
            dtype = row.array.dtype
            before, partial, after = Local("total", dtype), Local("partial", dtype), Local("total", dtype)
            body += [
                Load(before, into[row.array], row.index),
                Load(partial, own[row.array], row.index),
                Compute(after, prims.ADD, (before, partial), {}),
                Store(into[row.array], row.index, after),
                Store(own[row.array], row.index, _zero(row)),
            ]
        return (self.over_columns(rows[0], tuple(body)),)

    def with_arrays(self, body: tuple[Statement, ...], to: dict[ArrayRef, ArrayRef]) -> tuple[Statement, ...]:
        """Statements whose sums wait in other rows."""

        def change(s: Statement) -> Statement:
            match s:
                case Load(target, array, index) if array in to:
                    return Load(target, to[array], index)
                case Store(array, index, value) if array in to:
                    return Store(to[array], index, value)
            return s

        return self.changed(body, change)


def _zero(row: Row) -> Constant:
    return identity(prims.SUM, row.array.dtype)


def _partial(reduction: Reduction) -> Reduction:
    """A total of a part of the terms of `reduction`."""
    name = reduction.target.name.removeprefix("partial_").removesuffix("_total")
    return Reduction(Local(f"partial_{name}", reduction.target.dtype), reduction.op)
