"""The plan of a nest's kernel: the parts that run side by side, their schedules and launches.

Tested by `tests/backends/gpu/test_schedule.py` and `tests/backends/cublas_cudnn/test_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from staged.backends.gpu.geometry import Launch, Team, check_grid, launch_of
from staged.backends.gpu.mapping import Part, map_nest
from staged.backends.gpu.permutations import permutation_by_block
from staged.backends.gpu.scatter import scatter_as_gather, scatter_by_search, scatter_with_atomics
from staged.backends.gpu.schedule import schedule_part, schedule_parts
from staged.backends.gpu.sorting import sort_by_block
from staged.backends.gpu.teams import may_overwrite
from staged.backends.gpu.tiles import Tiles
from staged.backends.gpu.windows import pooling_as_gather
from staged.ir.loops import ArrayRef, Axis, Copy, Guarded, Loop, Nest, Statement, Tile, indices_of, walk
from staged.ir.machine import Gpu
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.schedule import Memory, Schedule
from staged.ir.sizes import at_bounds

SMALL = 1 << 30
"""Indices up to here are `int`: a GPU computes with these in one instruction, with 64 bits in several."""


@dataclass(frozen=True)
class KernelPlan:
    """The parts of a kernel, each with its schedule and its launch, and the whole arrays to copy first."""

    op: Op
    gpu: Gpu
    copies: tuple[Copy, ...]
    parts: tuple[Part, ...]
    schedules: tuple[Schedule, ...]
    launches: tuple[Launch, ...]
    adds_atomically: bool

    @property
    def nest(self) -> Nest:
        nest: Nest = self.op.attrs["nest"]
        return nest

    @property
    def team(self) -> Team | None:
        """The threads that share an item."""
        return Team.of(self.schedules[0])

    @property
    def tiles(self) -> Tiles | None:
        """The tiles through which transposed operands are read."""
        return Tiles.of(self.schedules[0])

    def work(self) -> Iterator[tuple[Part, Schedule, Launch]]:
        return zip(self.parts, self.schedules, self.launches, strict=True)

    def has_small_indices(self) -> bool:
        """Return whether no index, and no number of a thread or an iteration, is anywhere near 2^31:
        then 32 bits do."""
        if any(array.size > SMALL for array in (*self.nest.inputs, *self.nest.outputs) if isinstance(array, ArrayRef)):
            return False
        return all(
            max(part.items, launch.blocks * launch.threads, farthest(part)) <= SMALL for part, _, launch in self.work()
        )

    def workspace_bytes(self) -> int:
        """Bytes of the program's workspace that the kernel needs."""
        return sum(
            part.workspace_bytes * launch.blocks * (1 if self.team is not None else launch.threads)
            for part, schedule, launch in self.work()
            if Memory.DEVICE in schedule.places.values()
        )

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

    def aligned(self) -> frozenset[int]:
        """The numbers of the operands, then results, of which a thread reads or writes several elements at once."""
        packed = {access.array for schedule in self.schedules for access in schedule.packed()}
        sources = (*self.nest.inputs, *self.nest.outputs)
        return frozenset(number for number, source in enumerate(sources) if source in packed)

    def restricted(self) -> set[ArrayRef]:
        """The arrays that nothing else in the kernel reaches: the memory plan lets only such pairs meet."""
        sources = (*self.nest.inputs, *self.nest.outputs)
        met = {source for copy in self.copies for source in (copy.target, copy.source) if copy.source is not None}
        for result, operand in self.may_alias():
            met |= {self.nest.outputs[result], *(s for s in (self.nest.inputs[operand],) if isinstance(s, ArrayRef))}
        return {source for source in sources if isinstance(source, ArrayRef) and source not in met}

    # ---- in words ----

    def mapping(self, launch: Launch, launches: Sequence[Launch]) -> str:
        """The mapping of threads to elements, in words."""
        if self.adds_atomically:
            return f"{self.layout(launch, launches)}; they add to the result by atomics, in no order"
        return self.layout(launch, launches)

    def layout(self, launch: Launch, launches: Sequence[Launch]) -> str:
        """The work of each thread, in words; `launches` are those of the parts."""
        if self.team is not None:
            names = f" ({', '.join(axis.name for axis in self.parts[0].axes)})" if self.parts[0].axes else ""
            if (seek := self.schedules[0].sought) is not None:
                looking = f"its lanes look for the turns of {seek.loop.axis.name} that are meant for it"
                return (
                    f"{launch}; for an item{names} {looking}, then each does every {ordinal(self.team.threads)} column"
                )
            steps = f"every {ordinal(self.team.threads)} turn, or pack of neighbouring turns, of its loops"
            return f"{launch}; of an item{names} each thread takes {steps}"
        if self.tiles is not None:
            return f"{launch}, which turns the tile around in shared memory"
        if launch.items <= 1:
            return "one thread does it all"
        if len(self.parts) > 1:
            each = ", ".join(str(each.limit) for each in launches)
            return f"{launch}; {len(self.parts)} parts side by side, of {each} items"
        (part,) = self.parts
        names = ", ".join(axis.name for axis in part.axes)
        if (packs := self.schedules[0].packs_of()) is not None:
            return f"{launch}; an item is {packs.lanes} neighbours along {part.axes[-1].name}, read and written at once"
        if len(part.axes) == 1:
            return f"{launch}; item {names} is turn {names} of the loop"
        return f"{launch}; items ({names}) are numbered row by row"


def plan_kernel(op: Op, gpu: Gpu, options: DeviceOptions, alignment: Mapping[ArrayRef, int]) -> KernelPlan:
    """The plan of a `kernel` op's nest. `alignment`: bytes that the address of each array is a multiple of."""
    spreads = [map_nest(each) for each in op.attrs.get("joined", (op.attrs["nest"],))]
    copies = tuple(copy for spread in spreads for copy in spread.copies)
    parts = [part for spread in spreads for part in spread.parts if part.items] or [Part((), (), ())]
    adds_atomically = False
    own: tuple[Part, Schedule] | None = None
    windows = pooling_as_gather(op)
    if windows is not None:
        copies, parts = (), [windows]
    elif len(parts) == 1:
        (alone,) = parts
        if not options.deterministic and (added := scatter_with_atomics(alone)) is not None:
            adds_atomically, parts = True, [added]
        elif (own := scatter_by_search(alone, copies, gpu)) is not None:
            copies = ()
        elif (gather := scatter_as_gather(alone, copies)) is not None:
            copies, parts = (), [gather]
        else:
            own = permutation_by_block(alone, gpu) or sort_by_block(alone, gpu)
    parts = [counted_first(part) for part in parts]
    if len(parts) > 1:
        several, schedules = schedule_parts(parts, alignment, gpu)
        parts = list(several)
    else:
        # The windows over an element are few, and neighbouring elements have the same: no team pays.
        part, schedule = own or schedule_part(parts[0], alignment, gpu, may_share=windows is None)
        parts, schedules = [part], (schedule,)
    launches = tuple(
        launch_of(schedule, part.items, part.workspace_bytes, gpu)
        for part, schedule in zip(parts, schedules, strict=True)
    )
    check_grid(launches, gpu)
    return KernelPlan(op, gpu, copies, tuple(parts), tuple(schedules), launches, adds_atomically)


def counted_first(part: Part) -> Part:
    """A part whose axes with a size that the program finds are the outer ones: strides of the others are numbers."""
    return replace(part, axes=tuple(sorted(part.axes, key=lambda axis: axis.is_static)))


def farthest(part: Part) -> int:
    """The largest number that an index of a part, an iteration of its loops, or a sum on the way to one,
    can come to."""
    reach = iterations_of(part.body)
    for s in walk(part.body):
        for index in indices_of(s):
            terms = (abs(at_bounds(stride)) * name.extent for name, stride in index.terms if isinstance(name, Axis))
            reach = max(reach, abs(at_bounds(index.offset)) + sum(terms))
    return max(reach, *(array.size for array in part.scratch), 0) if part.scratch else reach


def iterations_of(body: Sequence[Statement]) -> int:
    """The iterations of loops inside one another, at most: threads that share them count them through."""
    return max(
        (
            (s.axis.extent if isinstance(s, Loop | Tile) else 1) * iterations_of(s.body)
            for s in body
            if isinstance(s, Loop | Tile | Guarded)
        ),
        default=1,
    )


def ordinal(number: int) -> str:
    """`32nd`, `1024th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
