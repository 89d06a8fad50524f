"""Fused kernels in CUDA: the independent loops of a nest become threads.

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
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from staged.backends.c_family.expr import Literal, Name
from staged.backends.c_family.kernel_text import Site, kernel_comments
from staged.backends.c_family.short_kernels import is_zero_fill
from staged.backends.cublas_cudnn.failures import RECORD
from staged.backends.cublas_cudnn.kernel_text import CUDA_WORDS, LAUNCH_WORDS, CudaKernel, WholeCopy, kernel_function
from staged.backends.cublas_cudnn.spelling import device_names
from staged.backends.cublas_cudnn.statements import may_fail
from staged.backends.cublas_cudnn.tile_statements import TileStatements
from staged.backends.gpu_family.geometry import Launch, Team, check_grid, counted, launch_of, together
from staged.backends.gpu_family.mapping import Part, map_nest
from staged.backends.gpu_family.packs import alignments
from staged.backends.gpu_family.permutations import permutation_by_block
from staged.backends.gpu_family.scatter import scatter_as_gather, scatter_by_search, scatter_with_atomics
from staged.backends.gpu_family.schedule import schedule_part, schedule_parts
from staged.backends.gpu_family.teams import may_overwrite
from staged.backends.gpu_family.tiles import Tiles
from staged.backends.gpu_family.windows import pooling_as_gather
from staged.ir.buffers import aligned
from staged.ir.loops import ArrayRef, Axis, Guarded, Loop, Nest, Statement, Tile, indices_of, walk
from staged.ir.machine import Gpu, Machine
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.schedule import Level, Memory, Schedule
from staged.ir.types import bound

SMALL = 1 << 30
"""Indices up to here are `int`: a GPU computes with these in one instruction, with 64 bits in several."""
PLAIN = Schedule()
"""Neither vectors nor a thread team: what a single GPU thread does."""


class CudaLoopEmitter(TileStatements):
    """Writes one nest as a `__global__` function."""

    def __init__(self, op: Op, machine: Machine, gpu: Gpu, site: Site, options: DeviceOptions) -> None:
        nest: Nest = op.attrs["nest"]
        super().__init__(nest, PLAIN, machine, site)
        self.op = op
        self.can_fail = any(may_fail(s) for s in walk(nest.body))
        spreads = [map_nest(each) for each in op.attrs.get("joined", (nest,))]
        self.copies = tuple(copy for spread in spreads for copy in spread.copies)
        self.parts = [part for spread in spreads for part in spread.parts if part.items] or [Part((), (), ())]
        self.adds_atomically = False
        own: tuple[Part, Schedule] | None = None
        windows = pooling_as_gather(op)
        if windows is not None:
            self.copies, self.parts = (), [windows]
        elif len(self.parts) == 1:
            (alone,) = self.parts
            if not options.deterministic and (added := scatter_with_atomics(alone)) is not None:
                self.adds_atomically, self.parts = True, [added]
            elif (own := scatter_by_search(alone, self.copies, gpu)) is not None:
                self.copies = ()
            elif (gather := scatter_as_gather(alone, self.copies)) is not None:
                self.copies, self.parts = (), [gather]
            else:
                own = permutation_by_block(alone, gpu)
        self.parts = [counted_first(part) for part in self.parts]
        alignment = alignments(op)
        if len(self.parts) > 1:
            parts, self.schedules = schedule_parts(self.parts, alignment, gpu)
            self.parts = list(parts)
        elif own is not None:
            self.parts, self.schedules = [own[0]], (own[1],)
        else:
            # The windows over an element are few, and neighbouring elements have the same: no team pays.
            own = schedule_part(self.parts[0], alignment, gpu, may_share=windows is None)
            self.parts, self.schedules = [own[0]], (own[1],)
        self.sharing_schedule = self.schedules[0]
        self.team = Team.of(self.schedules[0])
        self.tiles = Tiles.of(self.schedules[0])
        self.launches = tuple(
            launch_of(schedule, part.items, part.workspace_bytes, gpu)
            for part, schedule in zip(self.parts, self.schedules, strict=True)
        )
        check_grid(self.launches, gpu)
        self.index_type = "int" if self.has_small_indices() else "int64_t"

    def counted(self) -> tuple[Launch, ...]:
        """The launch of each part, in terms of the sizes that the kernel is given."""
        found = []
        for part, schedule, launch in self.work():
            if all(axis.dim is None for axis in part.axes):
                found.append(launch)
                continue
            items = str(self.combinations(schedule.items.axes))
            # Where threads need much workspace a block has fewer than the schedule asks for.
            each = launch.threads if schedule.items.level is Level.THREADS else schedule.items.count
            grid = items if each == 1 else f"({items} + {each - 1}) / {each}"
            found.append(counted(launch, items if self.tiles is None else str(self.combinations(part.axes)), grid))
        return tuple(found)

    def has_small_indices(self) -> bool:
        """Whether no index, and no number of a thread or a turn, is anywhere near 2^31: then 32 bits do."""
        if any(array.size > SMALL for array in (*self.nest.inputs, *self.nest.outputs) if isinstance(array, ArrayRef)):
            return False
        return all(
            max(part.items, launch.blocks * launch.threads, farthest(part)) <= SMALL for part, _, launch in self.work()
        )

    def wide(self, number: str) -> str:
        """An unsigned number of CUDA's as an index."""
        return number if self.index_type == "int" else f"({self.index_type}){number}"

    def workspace_of(self, part: Part, schedule: Schedule, launch: Launch) -> int:
        """Bytes of the program's workspace that a part needs."""
        if Memory.DEVICE not in schedule.places.values():
            return 0
        return part.workspace_bytes * launch.blocks * (1 if self.team is not None else launch.threads)

    def work(self) -> list[tuple[Part, Schedule, Launch]]:
        return list(zip(self.parts, self.schedules, self.launches, strict=True))

    # ---- the function ----

    def kernel(self, name: str) -> CudaKernel:
        """The kernel, called `name`."""
        self.names.used |= {RECORD} | CUDA_WORDS | LAUNCH_WORDS
        parameters = self.parameters()
        given = len(parameters)
        workspace = sum(self.workspace_of(*work) for work in self.work())
        if workspace:
            parameters.append(("unsigned char *", self.names.fresh("scratch")))
        if self.can_fail:
            parameters.append(("st_device_failure *", RECORD))
        self.parameter_names = set(self.names.used)
        self.launches = self.counted()
        launch = together(self.launches)
        self.w.depth = 1
        self.write_parts()
        written = "\n".join(self.w.lines)
        unused = [parameter for _, parameter in parameters if not re.search(rf"\b{parameter}\b", written)]
        statements = device_names("\n".join([*(f"    (void){parameter};" for parameter in unused), written]))
        comments = (*kernel_comments(self.op), self.mapping(launch))
        restricted = frozenset(self.restricted())
        return CudaKernel(
            name,
            kernel_function(name, comments, launch, parameters, restricted, statements),
            tuple(parameters[:given]),
            self.nest.items,
            may_alias=self.may_alias(),
            snippets=frozenset(self.snippets),
            can_fail=self.can_fail,
            launch=launch,
            copies=tuple(
                WholeCopy(
                    str(self.arrays[copy.target]),
                    None if copy.source is None else str(self.arrays[copy.source]),
                    self.size_of(copy.target),
                )
                for copy in self.copies
            ),
            workspace_bytes=workspace,
            comments=comments,
            statements=statements,
            own_parameters=tuple(parameters[given:]),
            zeroes=is_zero_fill(self.op),
            restricted=restricted,
        )

    def size_of(self, array: ArrayRef) -> str:
        """The bytes of an array that there are, as C."""
        count = str(array.size)
        if array.dim is not None:
            row = array.size // bound(array.dim)
            count = f"(size_t){self.size(array.dim)}" + (f" * {row}" if row != 1 else "")
        return f"{count} * sizeof({array.dtype.c_name})"

    def restricted(self) -> set[str]:
        """The parameters whose arrays nothing else in the kernel reaches: the memory plan lets only such pairs meet."""
        sources = (*self.nest.inputs, *self.nest.outputs)
        met = {source for copy in self.copies for source in (copy.target, copy.source) if copy.source is not None}
        for result, operand in self.may_alias():
            met |= {self.nest.outputs[result], *(s for s in (self.nest.inputs[operand],) if isinstance(s, ArrayRef))}
        return {str(self.arrays[source]) for source in sources if isinstance(source, ArrayRef) and source not in met}

    def may_alias(self) -> tuple[tuple[int, int], ...]:
        """The (result, operand) pairs that may share a buffer although threads keep no order."""
        if "joined" in self.op.attrs:
            return self.nest.in_place
        if len(self.parts) > 1:
            return ()
        (part,) = self.parts
        inputs = self.nest.inputs
        return tuple(
            (result, operand)
            for result, operand in self.nest.in_place
            if self.team is None
            or self.schedules[0].sought is not None  # a lane has the same columns throughout
            or isinstance(source := inputs[operand], ArrayRef)
            and may_overwrite(part, source, self.nest.outputs[result])
        )

    def mapping(self, launch: Launch) -> str:
        """How threads map to elements, in words."""
        if self.adds_atomically:
            return f"{self.layout(launch)}; they add to the result by atomics, in no order"
        return self.layout(launch)

    def layout(self, launch: Launch) -> str:
        """Which thread does what."""
        if self.team is not None:
            names = f" ({', '.join(axis.name for axis in self.parts[0].axes)})" if self.parts[0].axes else ""
            if (seek := self.schedules[0].sought) is not None:
                looking = f"its lanes look for the turns of {seek.loop.axis.name} that are meant for it"
                return f"{launch}; for an item{names} {looking}, then each does every {ordinal(self.team.threads)} column"
            turns = f"every {ordinal(self.team.threads)} turn, or pack of neighbouring turns, of its loops"
            return f"{launch}; of an item{names} each thread takes {turns}"
        if self.tiles is not None:
            return f"{launch}, which turns the tile around in shared memory"
        if launch.items <= 1:
            return "one thread does it all"
        if len(self.parts) > 1:
            each = ", ".join(each.limit for each in self.launches)
            return f"{launch}; {len(self.parts)} parts side by side, of {each} items"
        (part,) = self.parts
        names = ", ".join(axis.name for axis in part.axes)
        if (packs := self.schedules[0].packs_of()) is not None:
            return f"{launch}; an item is {packs.lanes} neighbours along {part.axes[-1].name}, read and written at once"
        if len(part.axes) == 1:
            return f"{launch}; item {names} is turn {names} of the loop"
        return f"{launch}; items ({names}) are numbered row by row"

    def write_parts(self) -> None:
        """Each part in its blocks."""
        first: int | str = 0
        for number, (part, schedule, launch) in enumerate(self.work()):
            if self.team is not None:
                declared = len(self.w.lines)
                self.team_part(part, schedule, launch, self.team)
                if not any(re.search(rf"\b{self.team_lane}\b", line) for line in self.w.lines[declared + 1 :]):
                    del self.w.lines[declared]
            elif self.tiles is not None:
                self.tile_part(part, self.tiles)
            elif number == len(self.parts) - 1:
                self.part(part, schedule, launch, first)
            else:
                stop = self.first_block_after(first, launch)
                with self.block(f"if (blockIdx.x < {stop})"):
                    self.part(part, schedule, launch, first)
                    self.w.line("return;")
                first = stop

    def first_block_after(self, first: int | str, launch: Launch) -> int | str:
        """The number of the first block after those of a launch, which begin at `first`."""
        if isinstance(first, int) and not launch.grid:
            return first + launch.blocks
        stop = self.names.fresh("stop")
        blocks = f"(unsigned int)({launch.grid})" if launch.grid else str(launch.blocks)
        self.w.line(f"const unsigned int {stop} = {f'{first} + ' if first else ''}{blocks};")
        return stop

    def part(self, part: Part, schedule: Schedule, launch: Launch, first: int | str) -> None:
        """What the blocks from `first` on do: an item, or several, for each thread."""
        if launch.blocks * launch.threads == 1:
            self.axes.update(dict.fromkeys(part.axes, Literal("0")))  # a row that is found, of one
            self.declare_workspace(part, schedule, "")
            self.body(part.body)
            return
        w, packs = self.w, schedule.packs_of()
        block = f"({self.wide('blockIdx.x')} - {first})" if first else self.wide("blockIdx.x")
        number = f"{block} * blockDim.x + threadIdx.x"
        hint = part.axes[0].name if len(part.axes) == 1 and packs is None else "pack" if packs is not None else "t"
        if launch.strided:
            start, item = self.names.fresh("thread_number"), self.names.fresh(hint)
            w.line(f"const {self.index_type} {start} = {number};")
            self.declare_workspace(part, schedule, start)
            step = launch.blocks * launch.threads
            with self.block(f"for ({self.index_type} {item} = {start}; {item} < {launch.limit}; {item} += {step})"):
                self.number_axes(part.axes, item)
                self.body(part.body)
            return
        item = self.names.fresh(hint)
        w.line(f"const {self.index_type} {item} = {number};")
        if launch.has_tail:
            with w.block(f"if ({item} >= {launch.limit})"):
                w.line("return;")
        self.declare_workspace(part, schedule, item)
        self.number_axes(schedule.items.axes, item)
        if packs is None:
            self.body(part.body)
            return
        (split,) = schedule.splits
        start = self.names.fresh(split.axis.name)
        w.line(f"const {self.index_type} {start} = {split.size} * {self.axes[split.outer]};")
        self.axes[split.axis] = Name(start)
        self.packed_body(part.body, split.axis, packs.lanes, packs.packs)

    def team_part(self, part: Part, schedule: Schedule, launch: Launch, team: Team) -> None:
        """Items that the threads of a team share."""
        w = self.w
        self.team_lane = self.names.fresh("lane")
        lane = {"warp": "threadIdx.x % 32", "block": "threadIdx.x", "column": "threadIdx.x / 32"}[team.kind]
        number = {
            "warp": f"({self.wide('blockIdx.x')} * blockDim.x + threadIdx.x) / 32",
            "block": "blockIdx.x",
            "column": f"{self.wide('blockIdx.x')} * 32 + threadIdx.x % 32",
        }[team.kind]
        w.line(f"const {self.index_type} {self.team_lane} = {lane};")
        self.declare_team_workspace(part, schedule, team)
        if part.items == 1 and not part.axes:
            self.team_body(part.body)
            return
        item = self.names.fresh(part.axes[0].name if len(part.axes) == 1 else "t")
        if launch.strided:
            with self.block(f"for ({self.index_type} {item} = blockIdx.x; {item} < {launch.limit}; {item} += {launch.blocks})"):
                self.number_axes(part.axes, item)
                self.team_body(part.body)
                w.line("__syncthreads();  // before the workspace is used again")
            return
        ragged = launch.blocks * team.items != launch.items or bool(launch.count) and team.items > 1
        if ragged and team.kind == "column":
            given = self.names.fresh("column")
            w.line(f"const {self.index_type} {given} = {number};")
            last = f"({self.index_type})({launch.count}) - 1" if launch.count else str(launch.items - 1)
            w.line(f"const {self.index_type} {item} = {given} < {launch.limit} ? {given} : {last};")
            self.is_mine = f"{given} < {launch.limit}"
        else:
            w.line(f"const {self.index_type} {item} = {number};")
            if ragged:
                with w.block(f"if ({item} >= {launch.limit})"):
                    w.line("return;  // all of a warp")
        self.number_axes(part.axes, item)
        self.team_body(part.body)

    # ---- workspace ----

    def declare_workspace(self, part: Part, schedule: Schedule, thread: str) -> None:
        """A thread's own arrays: in its registers and local memory where they are small, else its piece of the workspace."""
        if Memory.DEVICE in schedule.places.values():
            self.declare_in_workspace(part, f"scratch + {thread} * {part.workspace_bytes}" if thread else "scratch")
            return
        for array in part.scratch:
            name = self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            self.w.line(f"{array.dtype.c_name} {name}[{max(array.size, 1)}];")

    def declare_team_workspace(self, part: Part, schedule: Schedule, team: Team) -> None:
        """A team's own arrays: in shared memory where they fit, else a block's piece of the program's workspace."""
        if Memory.DEVICE in schedule.places.values():
            self.declare_in_workspace(part, f"scratch + (int64_t)blockIdx.x * {part.workspace_bytes}")
            return
        for array in part.scratch:
            c_type, name = array.dtype.c_name, self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            if team.items == 1:
                self.w.line(f"__shared__ {c_type} {name}[{max(array.size, 1)}];")
                continue
            rows = self.names.fresh(f"{array.name}_rows")
            self.w.line(f"__shared__ {c_type} {rows}[{team.items} * {array.size}];")
            self.w.line(f"{c_type} *const {name} = {rows} + threadIdx.x / 32 * {array.size};")

    def declare_in_workspace(self, part: Part, start: str) -> None:
        offset = 0
        for array in part.scratch:
            c_type, name = array.dtype.c_name, self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            place = f"{start} + {offset}" if offset else start
            self.w.line(f"{c_type} *const {name} = ({c_type} *)(void *)({place});")
            offset += aligned(array.nbytes)


def counted_first(part: Part) -> Part:
    """A part whose axes with a size that the program finds are the outer ones: strides of the others are numbers."""
    return replace(part, axes=tuple(sorted(part.axes, key=lambda axis: axis.dim is None)))


def farthest(part: Part) -> int:
    """The largest number that an index of a part, a turn of its loops, or a sum on the way to one, can come to."""
    reach = turns_of(part.body)
    for s in walk(part.body):
        for index in indices_of(s):
            terms = (abs(stride) * name.extent for name, stride in index.terms if isinstance(name, Axis))
            reach = max(reach, abs(index.offset) + sum(terms))
    return max(reach, *(array.size for array in part.scratch), 0) if part.scratch else reach


def turns_of(body: Sequence[Statement]) -> int:
    """The turns of loops inside one another, at most: threads that share them count them through."""
    return max(
        (
            (s.axis.extent if isinstance(s, Loop | Tile) else 1) * turns_of(s.body)
            for s in body
            if isinstance(s, Loop | Tile | Guarded)
        ),
        default=1,
    )


def ordinal(number: int) -> str:
    """`32nd`, `1024th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
