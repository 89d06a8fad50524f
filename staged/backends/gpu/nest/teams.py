"""Items that a team of threads shares: what each thread does of the loops,
and how their totals are brought together."""

from __future__ import annotations

from contextlib import ExitStack
from math import prod

from staged.backends.gpu.geometry import Team
from staged.backends.gpu.nest.packs import Packs
from staged.backends.gpu.nest.statements import combinations, number_axes
from staged.backends.gpu.plan import KernelPlan
from staged.backends.gpu.reductions import parts_of, reduction_name
from staged.backends.gpu.teams import chain_of, last_of, scratch_in
from staged.code.expr import Call, Cast, Expr, Infix, Junction, Literal, Prefix, Variable
from staged.code.nest.loops import Loops, pieces
from staged.code.nest.lowering import ZERO
from staged.code.nest.totals import Total, Totals, accumulated_dtype
from staged.code.tree import Assign, Barrier, Declare, Do, ForBits
from staged.code.types import CType, Space, scalar, word
from staged.ir.cascade import is_float_sum
from staged.ir.declaration import prims
from staged.ir.loops import ArrayRef, Guarded, Loop, Reduction, Statement, Store, identity, indices_of, walk
from staged.ir.schedule import Schedule, Seek, Share
from staged.ir.types import f64

BOOL, BITS = CType("bool"), word("unsigned int")


class TeamStatements:
    """Lowers what the threads of a team share; inside of a shared loop, where each is at iterations of its own, all is
    as for one thread.
    """

    def __init__(
        self,
        team: Team,
        plan: KernelPlan,
        schedule: Schedule,
        lane: Variable,
        packs: Packs,
        loops: Loops,
        totals: Totals,
    ) -> None:
        self.low = loops.low
        self.dialect = packs.single.dialect
        self.warp = plan.gpu.warp
        self.team = team
        self.schedule = schedule
        self.lane = lane
        """The number of a thread in its team."""
        self.packs = packs
        self.loops = loops
        self.totals = totals
        self.is_mine: Expr | None = None
        """The condition that the item of a team exists; None if it always does."""
        self.sharing = False
        """True if the team is in a loop that it shares, each thread at iterations of its own."""
        self.unseen: frozenset[ArrayRef] = frozenset()
        """Workspace that threads of the team have written, which the others need not see yet."""
        self.low.statements |= {Store: self.store, Guarded: self.guarded, Loop: self.loop}

    def is_first(self) -> Expr:
        """The condition that holds for one thread of a team that has an item."""
        first = Infix("==", self.lane, ZERO)
        return first if self.is_mine is None else Junction("&&", (first, self.is_mine))

    def item(self, body: tuple[Statement, ...]) -> None:
        """All that a team does for an item. What follows its last loop is one thread's:
        it alone reads what it overwrites."""
        count = len(body) - len(last_of(body))
        tail = body[count:]
        if any(isinstance(s, Store) for s in tail):
            body = (*body[:count], Guarded((), tail))
        self.low.body(body)

    def store(self, s: Store) -> None:
        if self.sharing or s.atomic:
            self.packs.store(s)
            return
        with self.low.code.branch(self.is_first()):
            self.packs.store(s)

    def guarded(self, s: Guarded) -> None:
        if s.bounds:
            self.packs.single.scalars.guarded(s)
            return
        self.sharing = True
        with self.low.branch(self.is_first()):
            self.low.body(s.body)
        self.sharing = False

    def loop(self, loop: Loop) -> None:
        if self.sharing:
            self.loops.loop(loop)
        elif (seek := self.schedule.sought) is not None and seek.loop is loop:
            self.seek(seek)
        else:
            self.share(loop)

    def seek(self, seek: Seek) -> None:
        """A loop whose iterations a warp looks through, one for each lane, to do those together that are to be done."""
        low, axis, (*head, wanted) = self.low, seek.loop.axis, seek.loop.body
        assert isinstance(wanted, Guarded)
        count, extent = Literal(str(seek.count)), Literal(str(axis.extent))
        start = low.variable(f"first_{axis.name}", low.index_type)
        with low.loop(start, ZERO, extent, count):
            is_here, found_here = low.variable("is_here", BOOL), low.variable("turns", BITS)
            own = low.scoped(axis)
            low.code.add(Declare(own, Infix("+", start, self.lane)))
            self.sharing = True
            if axis.extent % seek.count:
                low.code.add(Declare(is_here, Literal("false"), is_const=False))
                with low.branch(Infix("<", own, extent)):
                    low.body(tuple(head))
                    low.code.add(Assign(is_here, low.condition(wanted.bounds)))
            else:
                low.body(tuple(head))
                low.code.add(Declare(is_here, low.condition(wanted.bounds)))
            self.sharing = False
            del low.loop_names[-1:]
            with low.scope(), low.code.nested() as inner:
                found = low.scoped(axis)
                after = Infix("+", start, Call(self.dialect.lowest_bit, (Cast("int", found_here),)))
                low.code.add(Declare(found, Infix("-", after, Literal("1"))))
                low.body(wanted.body)
            low.code.add(ForBits(found_here, self.dialect.lanes_where(is_here), tuple(inner)))
            del low.loop_names[-1:]

    def share(self, loop: Loop) -> None:
        """A loop whose iterations the threads of a team share, and the totals of all."""
        low, (axes, body) = self.low, chain_of(loop)
        share = next(share for share in self.schedule.shares if share.loop is loop)
        passed_on = self.start(loop, share)
        if self.unseen & {array for array, _ in scratch_in(body)}:
            self.barrier()
        shared, step = share.axes, share.count
        outer, last = axes[: len(axes) - len(shared)], combinations(low, shared)
        packs = self.schedule.packs_of(loop)
        width = packs.lanes if packs is not None else 1
        self.sharing = True
        with ExitStack() as around:
            for axis in outer:
                around.enter_context(low.loop(low.scoped(axis), ZERO, low.iterations(axis)))
            first: Expr = Infix("*", Literal(str(width)), self.lane) if width > 1 else self.lane
            piece = max(1, share.piece // width) * width * step
            if share.piece and prod(axis.extent for axis in shared) > piece:
                start, last = around.enter_context(pieces(low, shared[0], ZERO, last, piece))
                first = Infix("+", start, first)
            for reduction in passed_on:
                dtype = reduction.target.dtype
                partial = low.variable(f"partial_{reduction.target.name}", scalar(dtype))
                low.code.add(Declare(partial, low.number(identity(prims.SUM, dtype)), is_const=False))
                self.totals.open[reduction] = Total(partial)
            index = low.scoped(shared[0]) if len(shared) == 1 else low.variable("element", low.index_type)
            with low.loop(index, first, last, Literal(str(width * step))):
                if len(shared) > 1:
                    used = {axis for s in walk(body) for each in indices_of(s) for axis in each.axes}
                    number_axes(low, shared, index, used)
                if packs is not None:
                    self.packs.body(body, shared[0], width, packs.packs)
                else:
                    low.body(body)
            for reduction, total in passed_on.items():
                low.code.add(Assign(total.variable, self.totals.open[reduction].variable, "+"))
                self.totals.open[reduction] = total
        del low.loop_names[len(low.loop_names) - len(outer) - (len(shared) == 1) :]
        self.sharing = False
        self.unseen |= {array for array, is_written in scratch_in(body) if is_written}
        for reduction in loop.reductions:
            self.combine(reduction, loop, is_wide=reduction in passed_on)
            if self.team.kind != "warp":
                self.unseen = frozenset()  # a barrier of the block is in it
            self.totals.finish(reduction, loop)

    def start(self, loop: Loop, share: Share) -> dict[Reduction, Total]:
        """Declare the totals of a thread; those that sums pass on to, where it does so piece by piece."""
        passed_on: dict[Reduction, Total] = {}
        for reduction in loop.reductions:
            if share.piece and is_float_sum(reduction):
                total = self.low.variable(f"{reduction.target.name}_total", scalar(f64))
                self.low.code.add(Declare(total, Literal("0.0"), is_const=False))
                passed_on[reduction] = Total(total)
            else:
                self.totals.start(reduction, loop)
        return passed_on

    def barrier(self) -> None:
        self.low.code.add(Barrier(is_warp=self.team.kind == "warp"))
        self.unseen = frozenset()

    def combine(self, reduction: Reduction, loop: Loop, is_wide: bool) -> None:
        """The totals of a team's threads, f64 ones of a sum in pieces, become that of all."""
        low, team, total = self.low, self.team, self.totals.open[reduction]
        is_place = reduction.op.is_position
        dtype = accumulated_dtype(reduction, loop) if is_place else f64 if is_wide else reduction.target.dtype
        function = reduction_name(team.kind, reduction.op, dtype)
        low.need(function)
        size = parts_of(team.kind, team.block, self.warp)
        given: list[Expr] = [total.variable]
        rooms = [("parts", scalar(dtype))]
        if is_place:
            assert total.best is not None
            given = [Prefix("&", total.best), Prefix("&", total.variable)]
            rooms = [("bests", scalar(dtype)), ("places", CType("int64_t"))]
        for hint, type in rooms:
            if size:
                parts = low.variable(f"{total.variable}_{hint}", CType(type.text, type.dtype, space=Space.SHARED))
                low.code.add(Declare(parts, is_const=False, sizes=(Literal(str(size)),)))
                given.append(parts)
        call = Call(f"st_{function}", tuple(given))
        if is_wide and reduction.target.dtype is not f64:
            target = reduction.target
            narrow = low.constant(target.name, scalar(target.dtype), Cast(target.dtype.c_name, call))
            self.totals.open[reduction] = Total(narrow)
        else:
            low.code.add(Do(call) if is_place else Assign(total.variable, call))
