"""Loops over vectors, and their tails.

    for (int64_t j = 0; j < 96; j += 16) {            whole vectors
        *(f32v_u *)(y + j) = ...
    }
    for (int64_t j = 96; j < 100; ++j) {              what is left, one by one, or in a last vector that covers some a second time
        y[j] = ...
    }
"""

from __future__ import annotations

from staged.backends.c_family.expr import Infix, Literal, Name
from staged.backends.c_family.totals import TotalsEmitter
from staged.backends.c_family.vector_plan import feeds, may_repeat
from staged.ir.loops import Loop, Store, segments


class VectorLoops(TotalsEmitter):
    """The part of a loop emitter that writes loops over vectors."""

    def vector_loops(self, loop: Loop) -> None:
        """One vector loop, or one for each piece of the range in which what the loads' guards say does not change."""
        pieces = segments(loop)
        if len(pieces) <= 1:
            self.vector_loop(loop)
            return
        axis, whole = loop.axis, self.ranges.get(loop.axis)
        for low, high in pieces:
            self.segments[axis] = low, high
            if whole is None:
                self.ranges[axis] = str(low), str(high)
                self.vector_loop(loop)
                continue
            with self.block(""):  # what this piece has in common with the piece of a tile or of a thread
                self.ranges[axis] = self.common(loop, whole, low, high)
                with self.block("if ({} < {})".format(*self.ranges[axis])):
                    self.vector_loop(loop)
        del self.segments[axis]
        if whole is None:
            del self.ranges[axis]
        else:
            self.ranges[axis] = whole

    def common(self, loop: Loop, whole: tuple[str, str], low: int, high: int) -> tuple[str, str]:
        """Locals: from where to where the items `low` to `high` of the loop's axis are in the part of it that is written.

        The part is counted from the axis's beginning, or from where `origins` says.
        """
        origin = f" - {self.origins[loop.axis]}" if loop.axis in self.origins else ""
        first, stop = whole
        if low > 0:
            first = self.names.fresh("first")
            self.w.line(f"const int64_t {first} = {whole[0]} > {low}{origin} ? {whole[0]} : {low}{origin};")
        if high < loop.axis.extent:
            stop = self.names.fresh("stop")
            self.w.line(f"const int64_t {stop} = {whole[1]} < {high}{origin} ? {whole[1]} : {high}{origin};")
        return first, stop

    def vector_loop(self, loop: Loop) -> None:
        """Whole turns of several vectors where totals gain from it, then vectors, then what is left one by one."""
        lanes = self.schedule.lanes
        axis = loop.axis
        fed = [r for r, total in self.totals.items() if total.vector is not None and feeds(loop, r)]
        count = self.schedule.vectors_per_turn(loop) if fed else 1
        low, high = self.range_of(axis)
        i = self.scoped(axis)
        static = low.isdigit() and high.isdigit()
        extent = int(high) - int(low) if static else 0
        start, left = low, extent
        if count > 1:
            step = lanes * count
            left = extent % step
            stop = str(int(high) - left) if static else self.whole_turns(low, high, step)
            with self.block(f"for (int64_t {i} = {start}; {i} < {stop}; {i} += {step})"):
                u = self.names.fresh("u")
                self.w.line(f"#pragma GCC unroll {count}")
                with self.block(f"for (int {u} = 0; {u} < {count}; ++{u})"):
                    self.unrolled = Name(u)
                    self.axes[axis] = Infix("+", Name(i), Infix("*", Name(u), Literal(str(lanes))))
                    self.vector_body(loop)
                    self.unrolled = None
            self.axes[axis] = Name(i)
            start = stop
        if not static or left >= lanes:
            left %= lanes
            stop = str(int(high) - left) if static else self.whole_turns(low, high, lanes)
            with self.block(f"for (int64_t {i} = {start}; {i} < {stop}; {i} += {lanes})"):
                self.vector_body(loop)
            start = stop
        if left and extent >= lanes and may_repeat(loop, self.speller):
            self.axes[axis] = Literal(str(int(high) - lanes))
            self.stored_twice |= {s.array for s in loop.body if isinstance(s, Store)}
            with self.block(""):
                self.w.line(f"// the last {lanes}, {lanes - left} of them a second time")
                self.repeated = lanes - left
                self.vector_body(loop)
                self.repeated = 0
        elif not static or left:
            with self.block(f"for (int64_t {i} = {start}; {i} < {high}; ++{i})"):
                self.body(loop.body)
        self.leave(i)

    def whole_turns(self, low: str, high: str, step: int) -> str:
        """A local: where whole turns of `step` items (a power of two) from `low` end."""
        if (low, high, step) in self.ends:
            return self.ends[low, high, step]
        name = self.ends[low, high, step] = self.names.fresh(f"whole_{step}")
        value = f"{high} & -{step}" if low == "0" else f"{low} + (({high} - {low}) & -{step})"
        self.w.line(f"const int64_t {name} = {value};")
        return name

    def vector_body(self, loop: Loop) -> None:
        self.vector_axis = loop.axis
        self.body(loop.body)
        self.vector_axis = None
