"""Fused kernels of a device: the independent loops of a nest become threads. In CUDA:

    // mlp.py:31  y = x * 2 + 1
    // fused: multiply, add
    // 1000 items, a thread each: 4 blocks of 256 threads; item i is element i
    extern "C" __global__ void __launch_bounds__(256) y_kernel(const float *__restrict__ x, float *__restrict__ y) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= 1000) {
            return;
        }
        y[i] = x[i] * 2.0f + 1.0f;
    }

Loops inside of those (a row's reduction) stay loops of one thread, or are shared by the threads of a team (`teams.py`).

Tested by `tests/backends/cublas_cudnn/test_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.backends.gpu.dialect import LAUNCH_WORDS, GpuDialect
from staged.backends.gpu.failures import RECORD
from staged.backends.gpu.geometry import Launch, Team, counted, together
from staged.backends.gpu.kernel_text import GpuKernel, WholeCopy
from staged.backends.gpu.mapping import Part
from staged.backends.gpu.nest.packs import Packs
from staged.backends.gpu.nest.statements import (
    FAILED,
    DeviceStatements,
    array_of,
    combinations,
    may_fail,
    number_axes,
    wide,
)
from staged.backends.gpu.nest.teams import TeamStatements
from staged.backends.gpu.nest.tiles import lower_tiles
from staged.backends.gpu.plan import KernelPlan, plan_kernel
from staged.backends.host.short_kernels import is_zero_fill
from staged.code.expr import Cast, Conditional, Expr, Group, Infix, Literal, Variable
from staged.code.kernel_text import Site, kernel_comments
from staged.code.named_choices import needed, with_named_choices
from staged.code.nest.loops import Loops
from staged.code.nest.lowering import ZERO, Lowering
from staged.code.nest.size_names import name_ends
from staged.code.nest.statements import size_of
from staged.code.nest.totals import Totals
from staged.code.printer import print_function
from staged.code.tree import Barrier, Declare, Function, If, Jump, Parameter, Unused
from staged.code.types import INDEX, SHORT_INDEX, VOID, Space, pointer, scalar, word
from staged.code.uses import mentioned
from staged.ir.buffers import aligned
from staged.ir.loops import ArrayRef, walk
from staged.ir.machine import Gpu
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.schedule import Level, Memory, Schedule

PLAIN = Schedule()
"""Neither vectors nor a thread team: what a single GPU thread does."""


def emit_kernel(
    op: Op,
    name: str,
    gpu: Gpu,
    dialect: GpuDialect,
    site: Site,
    options: DeviceOptions,
    alignment: Mapping[ArrayRef, int],
) -> GpuKernel:
    """The kernel for a `kernel` op, called `name`, whose arrays have these alignments in bytes."""
    return DeviceKernel(plan_kernel(op, gpu, options, alignment), dialect, site).kernel(name)


class DeviceKernel:
    """A kernel under way: its parameters, and each part in its blocks."""

    def __init__(self, plan: KernelPlan, dialect: GpuDialect, site: Site) -> None:
        self.plan = plan
        self.dialect = dialect
        self.warp = Literal(str(plan.gpu.warp))
        self.low = Lowering(plan.nest, PLAIN, site)
        self.low.index_type = SHORT_INDEX if plan.has_small_indices() else INDEX
        single = DeviceStatements(self.low, dialect, in_team=plan.team is not None)
        self.totals = Totals(self.low, dialect.spell)
        self.loops = Loops(self.low, self.totals)
        self.packs = Packs(self.low, single)
        self.scratch = Variable("scratch", pointer(word("unsigned char"), Space.GLOBAL))

    def kernel(self, name: str) -> GpuKernel:
        low, plan = self.low, self.plan
        low.names.used |= {RECORD} | self.dialect.reserved | LAUNCH_WORDS
        restricted = plan.restricted()
        sources = (*plan.nest.inputs, *plan.nest.outputs)
        given = [
            Parameter(parameter.variable, is_alone=source in restricted)
            for parameter, source in zip(low.parameters(), sources, strict=True)
        ]
        own: list[Parameter] = []
        workspace = plan.workspace_bytes()
        if workspace:
            self.scratch = low.variable("scratch", self.scratch.type)
            own.append(Parameter(self.scratch))
        can_fail = any(may_fail(s) for s in walk(plan.nest.body))
        if can_fail:
            own.append(Parameter(FAILED))
        low.parameter_names = set(low.names.used)
        launches = tuple(self.counted(*work) for work in plan.work())
        launch = together(launches)
        ends = name_ends(low, plan.nest)
        self.write_parts(launches)
        body = with_named_choices(low.dimensions(), needed(ends, low.code.body))
        low.named.clear()  # the host has no such variables
        used = mentioned(body)
        unused = [Unused((p.variable,)) for p in (*given, *own) if p.variable not in used]
        comments = (*kernel_comments(plan.op, has_ops=True), plan.mapping(launch, launches))
        code = Function(name, (*given, *own), (*unused, *body), comments, launch.threads)
        return GpuKernel(
            name,
            print_function(code, self.dialect),
            tuple((p.variable.type.before_name, p.variable.text) for p in given),
            plan.nest.items,
            may_alias=plan.may_alias(),
            snippets=frozenset(low.snippets),
            can_fail=can_fail,
            code=code,
            launch=launch,
            copies=tuple(
                WholeCopy(
                    low.arrays[copy.target],
                    None if copy.source is None else low.arrays[copy.source],
                    size_of(low, copy.target),
                )
                for copy in plan.copies
            ),
            workspace_bytes=workspace,
            zeroes=is_zero_fill(plan.op),
            aligned=plan.aligned(),
        )

    def counted(self, part: Part, schedule: Schedule, launch: Launch) -> Launch:
        """The launch of a part in terms of the sizes that the kernel is given."""
        if all(axis.is_static for axis in part.axes):
            return launch
        items = combinations(self.low, schedule.items.axes)
        # Where threads need much workspace a block has fewer than the schedule says.
        each = launch.threads if schedule.items.level is Level.THREADS else schedule.items.count
        grid = items if each == 1 else Infix("/", Infix("+", items, Literal(str(each - 1))), Literal(str(each)))
        return counted(launch, items if self.plan.tiles is None else combinations(self.low, part.axes), grid)

    # ---- parts ----

    def write_parts(self, launches: tuple[Launch, ...]) -> None:
        """Each part in its blocks."""
        plan, low = self.plan, self.low
        first: int | Expr = 0
        for number, (part, schedule, launch) in enumerate(zip(plan.parts, plan.schedules, launches, strict=True)):
            if plan.team is not None:
                self.team_part(part, schedule, launch, plan.team)
            elif plan.tiles is not None:
                lower_tiles(low, self.dialect, self.packs, part, plan.tiles)
            elif number == len(plan.parts) - 1:
                self.part(part, schedule, launch, first)
            else:
                stop = self.first_block_after(first, launch)
                with low.branch(Infix("<", self.dialect.block, Literal(str(stop)) if isinstance(stop, int) else stop)):
                    self.part(part, schedule, launch, first)
                    low.code.add(Jump("return"))
                first = stop

    def first_block_after(self, first: int | Expr, launch: Launch) -> int | Expr:
        """The number of the first block after those of a launch, which begin at `first`."""
        if isinstance(first, int) and launch.grid is None:
            return first + launch.blocks
        stop = self.low.variable("stop", word("unsigned int"))
        blocks: Expr = Literal(str(launch.blocks))
        if launch.grid is not None:
            blocks = Cast("unsigned int", Group(launch.grid))
        if first:
            blocks = Infix("+", Literal(str(first)) if isinstance(first, int) else first, blocks)
        self.low.code.add(Declare(stop, blocks))
        return stop

    def part(self, part: Part, schedule: Schedule, launch: Launch, first: int | Expr) -> None:
        """Write the code of the blocks from `first` on: an item, or several, for each thread."""
        low, code, packs = self.low, self.low.code, schedule.packs_of()
        if launch.blocks * launch.threads == 1:
            low.axes.update(dict.fromkeys(part.axes, ZERO))  # a row that is found, of one
            self.declare_workspace(part, schedule, None)
            low.body(part.body)
            return
        block = wide(low, self.dialect.block)
        if first:
            block = Infix("-", block, Literal(str(first)) if isinstance(first, int) else first)
        number = Infix("+", Infix("*", block, self.dialect.block_size), self.dialect.thread)
        hint = part.axes[0].name if len(part.axes) == 1 and packs is None else "pack" if packs is not None else "t"
        if launch.strided:
            start, item = low.variable("thread_number", low.index_type), low.variable(hint, low.index_type)
            code.add(Declare(start, number))
            self.declare_workspace(part, schedule, start)
            with low.loop(item, start, launch.limit, Literal(str(launch.blocks * launch.threads))):
                number_axes(low, part.axes, item)
                low.body(part.body)
            return
        item = low.constant(hint, low.index_type, number)
        if launch.has_tail:
            code.add(If(Infix(">=", item, launch.limit), (Jump("return"),)))
        self.declare_workspace(part, schedule, item)
        number_axes(low, schedule.items.axes, item)
        if packs is None:
            low.body(part.body)
            return
        (split,) = schedule.splits
        start_of_pack = Infix("*", Literal(str(split.size)), low.axes[split.outer])
        low.axes[split.axis] = low.constant(split.axis.name, low.index_type, start_of_pack)
        self.packs.body(part.body, split.axis, packs.lanes, packs.packs)

    def team_part(self, part: Part, schedule: Schedule, launch: Launch, team: Team) -> None:
        """Items that the threads of a team share."""
        low, code = self.low, self.low.code
        lane = low.variable("lane", low.index_type)
        with code.nested() as body:
            self.team_items(
                TeamStatements(team, self.plan, schedule, lane, self.packs, self.loops, self.totals), part, launch
            )
        if lane in mentioned(body):
            thread, warp = self.dialect.thread, self.warp
            where = {"warp": Infix("%", thread, warp), "block": thread, "column": Infix("/", thread, warp)}
            code.add(Declare(lane, where[team.kind]))
        code.body += body

    def team_items(self, shared: TeamStatements, part: Part, launch: Launch) -> None:
        low, code, team, dialect = self.low, self.low.code, shared.team, self.dialect
        self.declare_team_workspace(part, shared.schedule, team)
        if part.items == 1 and not part.axes:
            shared.item(part.body)
            return
        item = low.variable(part.axes[0].name if len(part.axes) == 1 else "t", low.index_type)
        if launch.strided:
            with low.loop(item, dialect.block, launch.limit, Literal(str(launch.blocks))):
                number_axes(low, part.axes, item)
                shared.item(part.body)
                code.add(Barrier(note="before the workspace is used again"))
            return
        number: Expr = dialect.block
        if team.kind == "warp":
            thread = Infix("+", Infix("*", wide(low, dialect.block), dialect.block_size), dialect.thread)
            number = Infix("/", thread, self.warp)
        elif team.kind == "column":
            number = Infix("+", Infix("*", wide(low, dialect.block), self.warp), Infix("%", dialect.thread, self.warp))
        ragged = launch.blocks * team.items != launch.items or launch.count is not None and team.items > 1
        if ragged and team.kind == "column":
            given = low.constant("column", low.index_type, number)
            last: Expr = Literal(str(launch.items - 1))
            if launch.count is not None:
                last = Infix("-", Cast(low.index_type.text, Group(launch.count)), Literal("1"))
            shared.is_mine = Infix("<", given, launch.limit)
            code.add(Declare(item, Conditional(shared.is_mine, given, last)))
        else:
            code.add(Declare(item, number))
            if ragged:
                code.add(If(Infix(">=", item, launch.limit), (Jump("return", "all of a warp"),)))
        number_axes(low, part.axes, item)
        shared.item(part.body)

    # ---- workspace ----

    def declare_workspace(self, part: Part, schedule: Schedule, thread: Variable | None) -> None:
        """A thread's own arrays: in its registers and local memory where they are small, else its piece of the
        workspace."""
        low = self.low
        if Memory.DEVICE in schedule.places.values():
            self.declare_in_workspace(part, thread)
            return
        for array in part.scratch:
            own = low.arrays[array] = low.variable(array.name, array_of(array.dtype))
            low.code.add(Declare(own, is_const=False, sizes=(Literal(str(max(array.size, 1))),)))

    def declare_team_workspace(self, part: Part, schedule: Schedule, team: Team) -> None:
        """A team's own arrays: in shared memory where they fit, else a block's piece of the program's workspace."""
        low = self.low
        if Memory.DEVICE in schedule.places.values():
            self.declare_in_workspace(part, Cast(INDEX.text, self.dialect.block))
            return
        for array in part.scratch:
            in_shared, size = array_of(array.dtype, Space.SHARED), Literal(str(array.size))
            if team.items == 1:
                own = low.arrays[array] = low.variable(array.name, in_shared)
                low.code.add(Declare(own, is_const=False, sizes=(Literal(str(max(array.size, 1))),)))
                continue
            own = low.arrays[array] = low.variable(array.name, pointer(scalar(array.dtype), Space.SHARED))
            rows = low.variable(f"{array.name}_rows", in_shared)
            low.code.add(Declare(rows, is_const=False, sizes=(Infix("*", Literal(str(team.items)), size),)))
            low.code.add(Declare(own, Infix("+", rows, Infix("*", Infix("/", self.dialect.thread, self.warp), size))))

    def declare_in_workspace(self, part: Part, unit: Expr | None) -> None:
        """The pieces of the workspace for a thread, or a block, of this number; None: the only one."""
        low, offset = self.low, 0
        start: Expr = self.scratch
        if unit is not None:
            start = Infix("+", start, Infix("*", unit, Literal(str(part.workspace_bytes))))
        for array in part.scratch:
            own = low.arrays[array] = low.variable(array.name, pointer(scalar(array.dtype), Space.GLOBAL))
            place = Infix("+", start, Literal(str(offset))) if offset else start
            low.code.add(Declare(own, Cast(VOID, Group(place))))
            offset += aligned(array.nbytes)
