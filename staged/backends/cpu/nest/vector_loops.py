"""Loops over vectors, and their tails.

    for (int64_t j = 0; j < 100; j += 16) {     the last vector has as many items as are left
        st_store_f32v(y + j, 100 - j, ...);
    }

    for (int64_t j = 0; j < 100; j += 16) {     or covers some items a second time
        const int64_t at = j < 84 ? j : 84;
        *(f32v_u *)(y + at) = ...
    }

    for (int64_t j = 0; j < 96; j += 16) {      or is left out: the last items are computed one by one
        total_v[0] += ...
    }
    for (int64_t j = 96; j < 100; ++j) {
        total += ...
    }

    if (whole_16 < N) {                         or, of a size that the program finds, is masked
        const int64_t left = N - whole_16;
        const i32v is_item = (i32v){0, 1, ...} < (int32_t)left;
        total_v[0] += (f32v)(is_item & (i32v)...);
    }

Tested by `tests/backends/host/test_vector_plan.py` and `tests/kernels/test_schedule.py`.
"""

from __future__ import annotations

from contextlib import nullcontext

from staged.backends.cpu.nest.copies import Copies, is_run, is_transposition
from staged.backends.cpu.nest.vector_plan import feeds, masks_last, may_be_part, may_repeat
from staged.backends.cpu.nest.vector_statements import VectorStatements
from staged.backends.cpu.nest.vector_totals import VectorTotals
from staged.code.expr import Cast, Conditional, Expr, Infix, Literal
from staged.code.nest.loops import Loops
from staged.code.nest.lowering import ZERO, Range
from staged.code.tree import Comment
from staged.code.types import INDEX, SHORT_INDEX
from staged.ir.loops import Accumulate, ArrayRef, Loop, Statement, Store, segments
from staged.ir.sizes import Extent


class VectorLoops:
    """Lowers the loops that a schedule vectorises, and leaves the others to `loops`."""

    def __init__(self, loops: Loops, vectors: VectorStatements, totals: VectorTotals, copies: Copies) -> None:
        self.low = loops.low
        self.loops = loops
        self.vectors = vectors
        self.totals = totals
        self.copies = copies
        self.stored_twice: set[ArrayRef] = set()
        """The arrays of which a loop computes elements twice: such a result must not overwrite an operand."""
        self.low.statements[Loop] = self.loop

    def loop(self, loop: Loop) -> None:
        if is_transposition(loop, self.low.schedule):
            self.copies.transpose(loop)
            return
        if is_run(loop, self.low.schedule):
            self.copies.run(loop)
            return
        if loop not in self.low.schedule.vectorised or loop.axis.extent == 1 and loop.axis not in self.low.ranges:
            self.loops.loop(loop)
            return
        for reduction in loop.reductions:
            self.totals.start(reduction, loop)
        self.pieces(loop)
        for reduction in loop.reductions:
            self.totals.finish(reduction, loop)

    def pieces(self, loop: Loop) -> None:
        """One vector loop, or one for each piece of the range in which what the loads' guards say does not change."""
        low, axis = self.low, loop.axis
        pieces = segments(loop)
        if len(pieces) <= 1:
            self.vector_loop(loop)
            return
        whole = low.ranges.get(axis)
        for first, stop in pieces:
            low.segments[axis] = first, stop
            if whole is None:
                low.ranges[axis] = low.size(first), low.size(stop)
                self.vector_loop(loop)
                continue
            with low.block():  # what this piece has in common with the piece of a tile or of a thread
                low.ranges[axis] = self.common(loop, whole, first, stop)
                with low.branch(Infix("<", *low.ranges[axis])):
                    self.vector_loop(loop)
        del low.segments[axis]
        if whole is None:
            del low.ranges[axis]
        else:
            low.ranges[axis] = whole

    def common(self, loop: Loop, whole: Range, first: Extent, stop: Extent) -> Range:
        """From where to where the items `first` to `stop` of the loop's axis are in the part of it that is written.

        The part is counted from the axis's beginning, or from where `origins` says.
        """
        low = self.low

        def own(item: Extent) -> Expr:
            origin, place = low.origins.get(loop.axis), low.size(item)
            return place if origin is None else Infix("-", place, origin)

        start, end = whole
        if first != 0:
            later = Conditional(Infix(">", start, own(first)), start, own(first))
            start = low.constant("first", INDEX, later)
        if stop != loop.axis.size:
            earlier = Conditional(Infix("<", end, own(stop)), end, own(stop))
            end = low.constant("stop", INDEX, earlier)
        return start, end

    def vector_loop(self, loop: Loop) -> None:
        """Whole iterations of several vectors where totals gain from it, then vectors, then what is left one by one."""
        low, axis, lanes = self.low, loop.axis, self.vectors.lanes
        count = low.schedule.vectors_per_iteration(loop) if self.feeds_vectors(loop) else 1
        begin, end = low.range_of(axis)
        first, stop = number_in(begin), number_in(end)
        extent = stop - first if first is not None and stop is not None else None
        i = low.scoped(axis)
        start, left = begin, extent
        if count > 1:
            step = lanes * count
            is_guarded = low.schedule.is_guarded
            left, whole = (0, end) if is_guarded else self.whole_iterations(begin, end, extent, step)
            is_once = first == 0 and number_in(whole) == step
            with nullcontext() if is_once else low.loop(i, start, whole, Literal(str(step))):
                u = low.variable("u", SHORT_INDEX)
                with low.loop(u, ZERO, Literal(str(count)), unroll=count):
                    self.totals.unrolled = u
                    item = Infix("*", u, Literal(str(lanes)))
                    place = item if is_once else Infix("+", i, item)
                    low.axes[axis] = low.on_axis(axis, place)
                    with low.branch(Infix("<", place, end)) if is_guarded else nullcontext():
                        self.body(loop)
                    self.totals.unrolled = None
            low.axes[axis] = low.on_axis(axis, i)
            start = whole
        rest = 0 if extent is None or extent < lanes else extent % lanes
        # Computed again, a result may not overwrite an operand: the copy costs more than the loop over the rest.
        is_wide = extent is None and low.least.get(axis, 0) >= lanes
        pays = (is_wide or rest > 1) and not low.nest.in_place
        repeats = (rest > 0 or pays) and may_repeat(loop, self.vectors.speller, pays)
        if repeats:
            self.stored_twice |= {s.array for s in loop.body if isinstance(s, Store)}
        if repeats and count == 1 and not any(is_sum(s) for s in loop.body):
            last = Infix("-", end, Literal(str(lanes))) if stop is None else Literal(str(stop - lanes))
            with low.loop(i, start, end, Literal(str(lanes))):
                at = low.constant("at", INDEX, Conditional(Infix("<", i, last), i, last))
                low.axes[axis] = low.on_axis(axis, at)
                self.body(loop)
            low.leave(i)
            return
        if (left is None or left > lanes and left % lanes) and may_be_part(loop):
            with low.loop(i, start, end, Literal(str(lanes))):
                self.vectors.left = Infix("-", end, i)
                self.body(loop)
                self.vectors.left = None
            low.leave(i)
            return
        if left is None and masks_last(loop):
            _, whole = self.whole_iterations(begin, end, None, lanes)
            with low.loop(i, start, whole, Literal(str(lanes))):
                self.body(loop)
            with low.branch(Infix("<", whole, end)):
                low.axes[axis] = low.on_axis(axis, whole)
                self.vectors.left = low.constant("left", INDEX, Infix("-", end, whole))
                if any(isinstance(s, Accumulate) for s in loop.body):
                    narrow = Cast(f"int{self.vectors.types.mask_bits}_t", self.vectors.left)
                    self.totals.items = self.totals.lanes("is_item", "<", narrow)
                self.body(loop)
                self.vectors.left = self.totals.items = None
            low.leave(i)
            return
        if left is None or left >= lanes:
            left, whole = self.whole_iterations(begin, end, left, lanes)
            vectors = axis.extent // lanes
            unroll = vectors * (vectors > 1 and axis in low.schedule.written_out)
            with low.loop(i, start, whole, Literal(str(lanes)), unroll):
                self.body(loop)
            start = whole
        if repeats:
            assert stop is not None and left is not None
            low.axes[axis] = Literal(str(stop - lanes))
            with low.block():
                low.code.add(Comment(f"the last {lanes}, {lanes - left} of them a second time"))
                self.totals.repeated = lanes - left
                self.body(loop)
                self.totals.repeated = 0
        elif left is None or left:
            with low.loop(i, start, end):
                low.body(loop.body)
        low.leave(i)

    def feeds_vectors(self, loop: Loop) -> bool:
        """Return whether some total takes in the vectors of a loop."""
        return any(total.vectors is not None and feeds(loop, r) for r, total in self.totals.open.items())

    def whole_iterations(self, start: Expr, end: Expr, extent: int | None, step: int) -> tuple[int | None, Expr]:
        """(items left after whole iterations of `step`, a power of two, and the end of those).

        `extent`: the items that there are; None where the program finds that, which then has a local for the end.
        """
        low = self.low
        if extent is not None:
            left, stop = extent % step, number_in(end)
            assert stop is not None
            return left, Literal(str(stop - left))
        if (start, end, step) not in low.ends:
            mask = Literal(f"-{step}")
            if number_in(start) == 0:
                last: Expr = Infix("&", end, mask)
            else:
                last = Infix("+", start, Infix("&", Infix("-", end, start), mask))
            low.ends[start, end, step] = low.constant(f"whole_{step}", INDEX, last)
        return None, low.ends[start, end, step]

    def body(self, loop: Loop) -> None:
        """The body on vectors."""
        self.vectors.axis = loop.axis
        self.low.body(loop.body)
        self.vectors.axis = None


def is_sum(s: Statement) -> bool:
    """Return whether a statement adds to a total. Its lanes must count once."""
    return isinstance(s, Accumulate) and not s.reduction.op.is_extreme


def number_in(expr: Expr) -> int | None:
    """The number that an expression is; None for others."""
    return int(expr.text) if isinstance(expr, Literal) and expr.text.isdigit() else None
