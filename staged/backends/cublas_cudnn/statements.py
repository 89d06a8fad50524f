"""Statements of a loop nest in CUDA, as one thread runs them: arithmetic, checks, and loops that a team of threads shares."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import ExitStack
from math import prod

from staged.backends.c_family.expr import Call, Cast, Expr, Index, Infix, Literal, Name
from staged.backends.c_family.scalars import is_checked, random_call
from staged.backends.c_family.totals import Total, accumulated_dtype
from staged.backends.c_family.vectors import Vec
from staged.backends.cublas_cudnn.failures import RECORD, failure_of
from staged.backends.cublas_cudnn.pack_statements import PackStatements
from staged.backends.cublas_cudnn.reductions import parts_of, reduction_name
from staged.backends.cublas_cudnn.spelling import spell_in_cuda
from staged.backends.gpu_family.geometry import Team
from staged.backends.gpu_family.teams import chain_of, last_of, scratch_in
from staged.ir.cascade import is_float_sum
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    Bound,
    CheckIndex,
    Compute,
    Constant,
    Guarded,
    Local,
    Loop,
    Reduction,
    Statement,
    Store,
    identity,
    indices_of,
    walk,
)
from staged.ir.schedule import Schedule, Seek, Share
from staged.ir.types import Dim, f64, i64


class CudaStatements(PackStatements):
    """Writes the statements of one item."""

    sharing_schedule = Schedule()
    """How the threads of a team share the loops of the item that is being written."""
    team: Team | None = None
    """The threads that share the item that is being written."""
    team_lane = ""
    """The number of a thread in its team."""
    is_mine = ""
    """What holds where the item that a team works on is there at all; empty where it always is."""
    sharing = False
    """Whether the team is in a loop that it shares, each thread at turns of its own."""
    unseen: frozenset[ArrayRef] = frozenset()
    """Workspace that threads of the team have written, which the others need not see yet."""

    def compute(self, s: Compute) -> None:
        operands = [self.operand(operand) for operand in s.operands]
        exprs = [operand.expr for operand in operands]
        named = s.target.name != s.op
        if s.declared.kind == "random":
            expression = random_call(s.op, s.target.dtype, exprs, self.need)
        elif may_fail(s):
            self.need(f"checked_{s.op}_{s.target.dtype}")
            site = Literal(str(self.site(s.where)))
            expression = Call(f"st_checked_{s.op}_{s.target.dtype}", (Name(RECORD), site, *exprs))
            named = True
        else:
            dtypes = [operand.dtype for operand in operands]
            expression = spell_in_cuda(s.op, dtypes, s.target.dtype, exprs, s.attrs, self.need)
        self.bind(s.target, expression, False, True, named)

    def check_index(self, s: CheckIndex) -> None:
        self.need("fail")
        given = self.operand(s.index).expr
        index = self.names.fresh("index")
        extent = self.size(s.extent) if isinstance(s.extent, Dim) else s.extent
        w = self.w
        w.line(f"int64_t {index} = {given};")
        if s.meaning == "index":
            with w.block(f"if ({index} < 0)"):
                w.line(f"{index} += {extent};")
        with w.block(f"if ({index} < 0 || {index} >= {extent})"):
            w.line(f"st_fail({RECORD}, {failure_of(s.meaning)}, {self.site(s.where)}, {given}, {extent});")
            if s.extent == 0 and not self.team:
                w.line("return;")
            else:  # others of a team wait for this thread, and what is made here may say to a library how much there is
                w.line(f"{index} = 0;")
        self.values[s.target] = Vec(Name(index), i64, False)

    def position(self, target: Local, index: Affine) -> None:
        if target.dtype is not i64 or self.index_type == i64.c_name:
            super().position(target, index)
            return
        # A number of the program, which may grow: what is computed with it is not an index.
        self.bind(target, Cast(i64.c_name, self.index(index)), False, True, False)

    def condition(self, bounds: Sequence[Bound]) -> Expr:
        if len(bounds) == 1 and bounds[0].extent == 1 and sorted(step for _, step in bounds[0].index.terms) == [-1, 1]:
            (one, _), (other, _) = sorted(bounds[0].index.terms, key=lambda term: -term[1])
            return Infix("==", self.index(Affine.of(one)), self.index(Affine.of(other, 1) + -bounds[0].index.offset))
        return super().condition(bounds)

    def number_axes(self, axes: Sequence[Axis], item: str, used: Container[Axis] | None = None) -> None:
        """The loop variables of an item: quotients and remainders where several loops became one; `used`: the ones needed."""
        if len(axes) == 1:
            self.axes[axes[0]] = Name(item)
            return
        for number, axis in enumerate(axes):
            if used is not None and axis not in used:
                self.axes[axis] = Literal("0")
                continue
            stride = self.combinations(axes[number + 1 :])
            index = Name(item) if str(stride) == "1" else Infix("/", Name(item), stride)
            if number > 0:
                index = Infix("%", index, self.combinations((axis,)))
            name = self.names.fresh(axis.name)
            self.w.line(f"const {self.index_type} {name} = {index};")
            self.axes[axis] = Name(name)

    def combinations(self, axes: Sequence[Axis]) -> Expr:
        """How many combinations of turns of these axes there are."""
        fixed = prod(axis.factor for axis in axes)
        factors: list[Expr] = [self.size(axis.dim) for axis in axes if axis.dim is not None]
        if fixed != 1 or not factors:
            factors.append(Literal(str(fixed)))
        product = factors[0]
        for factor in factors[1:]:
            product = Infix("*", product, factor)
        return product

    # ---- what a team does together ----

    def store(self, s: Store) -> None:
        if s.atomic:
            place = Index(self.arrays[s.array], self.index(s.index))
            self.w.line(f"atomicAdd(&{place}, {self.operand(s.value).expr});")
            return
        if self.team is None or self.sharing:
            super().store(s)
            return
        mine = f" && {self.is_mine}" if self.is_mine else ""
        with self.w.block(f"if ({self.team_lane} == 0{mine})"):
            super().store(s)

    def team_body(self, body: tuple[Statement, ...]) -> None:
        """All that a team does for an item. What follows its last loop is one thread's: it alone reads what it overwrites."""
        count = len(body) - len(last_of(body))
        tail = body[count:]
        if any(isinstance(s, Store) for s in tail):
            body = (*body[:count], Guarded((), tail))
        self.body(body)

    def guarded(self, s: Guarded) -> None:
        if self.team is None or s.bounds:
            super().guarded(s)
            return
        mine = f" && {self.is_mine}" if self.is_mine else ""
        self.sharing = True
        with self.block(f"if ({self.team_lane} == 0{mine})"):
            self.body(s.body)
        self.sharing = False

    def loop(self, loop: Loop) -> None:
        if self.team is None or self.sharing:
            super().loop(loop)
        elif (seek := self.sharing_schedule.sought) is not None and seek.loop is loop:
            self.seek_loop(seek)
        else:
            self.shared_loop(loop, self.team)

    def seek_loop(self, seek: Seek) -> None:
        """A loop whose turns a warp looks through, a turn for each lane, to do those together that are to be done."""
        axis, (*head, wanted) = seek.loop.axis, seek.loop.body
        assert isinstance(wanted, Guarded)
        type, w = self.index_type, self.w
        start = self.names.fresh(f"first_{axis.name}")
        with self.block(f"for ({type} {start} = 0; {start} < {axis.extent}; {start} += {seek.count})"):
            is_here, turns = self.names.fresh("is_here"), self.names.fresh("turns")
            own = self.scoped(axis)
            w.line(f"const {type} {own} = {start} + {self.team_lane};")
            self.sharing = True
            if axis.extent % seek.count:
                w.line(f"bool {is_here} = false;")
                with self.block(f"if ({own} < {axis.extent})"):
                    self.body(tuple(head))
                    w.line(f"{is_here} = {self.condition(wanted.bounds)};")
            else:
                self.body(tuple(head))
                w.line(f"const bool {is_here} = {self.condition(wanted.bounds)};")
            self.sharing = False
            del self.loop_names[-1:]
            header = f"for (unsigned int {turns} = __ballot_sync(0xffffffffu, {is_here}); {turns} != 0; {turns} &= {turns} - 1)"
            with self.block(header):
                turn = self.scoped(axis)
                w.line(f"const {type} {turn} = {start} + __ffs((int){turns}) - 1;")
                self.body(wanted.body)
            del self.loop_names[-1:]

    def shared_loop(self, loop: Loop, team: Team) -> None:
        """A loop whose turns the threads of a team take in turn, and the totals of all."""
        axes, body = chain_of(loop)
        share = next(share for share in self.sharing_schedule.shares if share.loop is loop)
        passed_on = self.start_shared(loop, share)
        if self.unseen & {array for array, _ in scratch_in(body)}:
            self.barrier(team)
        shared, step = share.axes, share.count
        outer, last = axes[: len(axes) - len(shared)], self.combinations(shared)
        packs = self.sharing_schedule.packs_of(loop)
        width = packs.lanes if packs is not None else 1
        self.sharing = True
        with ExitStack() as loops:
            for axis in outer:
                name = self.scoped(axis)
                header = f"for ({self.index_type} {name} = 0; {name} < {self.turns(axis)}; ++{name})"
                loops.enter_context(self.block(header))
            first = f"{width} * {self.team_lane}" if width > 1 else self.team_lane
            piece = max(1, share.piece // width) * width * step
            if share.piece and prod(axis.extent for axis in shared) > piece:
                start, stop = loops.enter_context(self.pieces(0, last, piece))
                first, last = f"{start} + {first}", Name(stop)
            for reduction in passed_on:
                dtype, partial = reduction.target.dtype, self.names.fresh(f"partial_{reduction.target.name}")
                self.w.line(f"{dtype.c_name} {partial} = {self.number(identity('sum', dtype))};")
                self.totals[reduction] = Total(Name(partial), None, False)
            name = self.scoped(shared[0]) if len(shared) == 1 else self.names.fresh("element")
            header = f"for ({self.index_type} {name} = {first}; {name} < {last}; {name} += {width * step})"
            with self.block(header):
                if len(shared) > 1:
                    used = {axis for s in walk(body) for index in indices_of(s) for axis in index.axes}
                    self.number_axes(shared, name, used)
                if packs is not None:
                    self.packed_body(body, shared[0], width, packs.packs)
                else:
                    self.body(body)
            for reduction, total in passed_on.items():
                self.w.line(f"{total.scalar} += {self.totals[reduction].scalar};")
                self.totals[reduction] = total
        del self.loop_names[len(self.loop_names) - len(outer) - (len(shared) == 1) :]
        self.sharing = False
        self.unseen |= {array for array, is_written in scratch_in(body) if is_written}
        for reduction in loop.reductions:
            self.bring_together(reduction, loop, team, is_wide=reduction in passed_on)
            if team.kind != "warp":
                self.unseen = frozenset()  # a barrier of the block is in it
            self.finish(reduction, loop)

    def start_shared(self, loop: Loop, share: Share) -> dict[Reduction, Total]:
        """Declare the totals of a thread; those that sums pass on to, where it does so piece by piece."""
        passed_on: dict[Reduction, Total] = {}
        for reduction in loop.reductions:
            if share.piece and is_float_sum(reduction):
                name = self.names.fresh(f"{reduction.target.name}_total")
                self.w.line(f"double {name} = 0.0;")
                passed_on[reduction] = Total(Name(name), None, False)
            else:
                self.start(reduction, loop)
        return passed_on

    def barrier(self, team: Team) -> None:
        self.w.line("__syncwarp();" if team.kind == "warp" else "__syncthreads();")
        self.unseen = frozenset()

    def bring_together(self, reduction: Reduction, loop: Loop, team: Team, is_wide: bool) -> None:
        """The totals of a team's threads, f64 ones of a sum in pieces, become that of all."""
        total = self.totals[reduction]
        is_place = reduction.op in ("argmax", "argmin")
        dtype = accumulated_dtype(reduction, loop) if is_place else f64 if is_wide else reduction.target.dtype
        function = reduction_name(team.kind, reduction.op, dtype)
        self.need(function)
        size = parts_of(team.kind, team.block)
        given = [f"&{total.vector}", f"&{total.scalar}"] if is_place else [str(total.scalar)]
        for hint, c_type in [("bests", dtype.c_name), ("places", "int64_t")] if is_place else [("parts", dtype.c_name)]:
            if size:
                parts = self.names.fresh(f"{total.scalar}_{hint}")
                self.w.line(f"__shared__ {c_type} {parts}[{size}];")
                given.append(parts)
        result = "" if is_place else f"{total.scalar} = "
        call = f"st_{function}({', '.join(given)})"
        if is_wide and reduction.target.dtype is not f64:
            c_type, name = reduction.target.dtype.c_name, self.names.fresh(reduction.target.name)
            result, call = f"const {c_type} {name} = ", f"({c_type}){call}"
            self.totals[reduction] = Total(Name(name), None, False)
        self.w.line(f"{result}{call};")


def may_fail(s: Statement) -> bool:
    """Whether a statement may stop the program; a division by a number that is not 0 cannot."""
    if not isinstance(s, Compute):
        return isinstance(s, CheckIndex)
    if not is_checked(s.op, s.target.dtype):
        return False
    right = s.operands[1]
    return not isinstance(right, Constant) or (right.value < 0 if s.op == "pow" else right.value == 0)
