"""Launch geometry: how many blocks of how many threads a kernel gets for so many independent items and a schedule.

Exact: every item is done once, whatever the launch; items are independent, and how the threads of a team share one is
in the schedule, so that no launch changes the order of an addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from staged.backends.gpu.reductions import TeamKind
from staged.code.expr import Conditional, Expr, Group, Infix, Literal, infix_sum
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Level, Memory, Schedule

_KINDS: dict[Level, TeamKind] = {Level.WARPS: "warp", Level.BLOCKS: "block", Level.LANES: "column"}


@dataclass(frozen=True, slots=True)
class Team:
    """`threads` of a block that share an item, `items` of which a block has; see `reductions.py` for the kinds."""

    kind: TeamKind
    threads: int
    items: int

    @staticmethod
    def of(schedule: Schedule) -> Team | None:
        """The threads that share an item by this schedule; None where each thread does items of its own, or tiles."""
        if not schedule.shares:
            return None
        return Team(_KINDS[schedule.items.level], schedule.shares[0].count, schedule.items.count)

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads * self.items

    def blocks(self, items: int) -> int:
        """Blocks for so many items.

        Exact: the last one may have teams without an item, none is missing.
        """
        return -(-items // self.items)

    def __str__(self) -> str:
        return {
            "warp": "a warp each",
            "block": f"a block of {self.threads} threads each",
            "column": f"{self.threads} threads each, a block for {self.items} of them",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Launch:
    """`blocks` of `threads`; thread `block * threads + thread` takes that item, those past the last one take none.

    A `strided` launch has fewer threads than items: each goes on with the item so many threads further.
    """

    items: int
    blocks: int
    threads: int
    strided: bool = False
    how: str = ""
    """The unit that does an item, unless it is a thread."""
    count: Expr | None = None
    """The items where the program finds out how many there are; `items` and `blocks` are then the most there may be."""
    grid: Expr | None = None
    """The blocks, likewise: a number that may be 0."""

    @property
    def has_tail(self) -> bool:
        """Return whether the last block has threads without an item."""
        return self.count is not None or self.blocks * self.threads != self.items

    @property
    def limit(self) -> Expr:
        """The items as C."""
        return Literal(str(self.items)) if self.count is None else self.count

    def __str__(self) -> str:
        if self.items == 1 and not self.how:
            return "one thread"
        blocks = f"{self.blocks} block{'s' if self.blocks != 1 else ''} of {self.threads} threads"
        each = self.how or ("several a thread" if self.strided else "a thread each")
        if self.count is not None:
            return f"{self.count} items, {each}: blocks of {self.threads} threads, {self.blocks} at most"
        return f"{self.items} item{'s' if self.items != 1 else ''}, {each}: {blocks}"


def threads_for(items: int, gpu: Gpu) -> int:
    """Threads of a block where each item is one thread's: whole warps.

    Exact: any number is, up to the GPU's largest; whole warps are what costs nothing.
    """
    return 1 if items == 1 else min(gpu.block, max(1, -(-items // gpu.warp)) * gpu.warp)


def launch_for(items: int, gpu: Gpu, threads: int = 0) -> Launch:
    """The launch for `items` independent items, in blocks of `threads` (0: as fits them); none is not launched at all.

    Exact: no fewer threads than items; those past the last one take none.
    Raises: ValueError above the GPU's largest grid of full blocks: more than it has memory for.
    """
    threads = threads or threads_for(items, gpu)
    blocks = -(-items // threads)
    if blocks > gpu.blocks:
        raise ValueError(f"{items} items are more than one launch can have")
    return Launch(items, blocks, threads)


def launch_with_workspace(items: int, thread_bytes: int, gpu: Gpu) -> Launch:
    """The launch for items whose threads need `thread_bytes` of workspace each.

    Exact: no two threads share workspace, and one thread's is free for its next item: a launch of fewer threads is
    strided.
    """
    whole = launch_for(items, gpu)
    threads = max(1, min(whole.threads, gpu.workspace_bytes // thread_bytes))
    blocks = max(1, gpu.workspace_bytes // (thread_bytes * threads))
    if blocks * threads >= whole.blocks * whole.threads:
        return whole
    if blocks * threads >= items:  # in smaller blocks
        return launch_for(items, gpu, threads)
    return Launch(items, blocks, threads, strided=True)


def launch_for_team(items: int, team: Team, gpu: Gpu, block_bytes: int = 0) -> Launch:
    """The launch for items that teams of threads share; each block needs `block_bytes` of workspace.

    Exact: a team is as large in a strided launch, so that its additions are in the same order.
    Raises: ValueError above the GPU's largest grid.
    """
    blocks = team.blocks(items)
    if block_bytes and blocks > max(1, gpu.workspace_bytes // block_bytes):
        return Launch(items, max(1, gpu.workspace_bytes // block_bytes), team.block, strided=True, how=str(team))
    if blocks > gpu.blocks:
        raise ValueError(f"{items} items are more than one launch can have")
    return Launch(items, blocks, team.block, how=str(team))


def launch_of(schedule: Schedule, items: int, workspace: int, gpu: Gpu) -> Launch:
    """The launch for `items` that run by a schedule, each with so many bytes of workspace.

    Exact: items are a multiple of a pack's lanes where the schedule has packs (`packs.py`), so that none is left over.
    Raises: ValueError above the GPU's largest grid.
    """
    bound = [d for d in schedule.directives if isinstance(d, Bind)]
    if len(bound) > 1:  # blocks first, then what a block's warps and lanes do
        sizes = " x ".join(str(split.size) for split in schedule.splits)
        threads = prod(d.count for d in bound[1:])
        return Launch(items, bound[0].items, threads, how=f"a block for each tile of {sizes}")
    in_device_memory = Memory.DEVICE in schedule.places.values()
    team = Team.of(schedule)
    if team is not None:
        return launch_for_team(items, team, gpu, workspace if in_device_memory else 0)
    packs = schedule.packs_of()
    if in_device_memory:
        return launch_with_workspace(items, workspace, gpu)
    return launch_for(items // packs.lanes if packs is not None else items, gpu, schedule.items.count)


def counted(launch: Launch, count: Expr, grid: Expr) -> Launch:
    """`launch` for as many items as the program finds, in as many blocks as these need.

    Exact: `launch` is for the most items there may be; a strided one has workspace for its own blocks and no more.
    """
    if launch.strided:
        most = Literal(str(launch.blocks))
        grid = Group(Conditional(Infix("<", grid, most), grid, most))
    return replace(launch, count=count, grid=grid)


def together(launches: Sequence[Launch]) -> Launch:
    """One launch of the blocks of all.

    Exact: all have as many threads a block, and each its own blocks, whatever number of items the program finds for it.
    """
    items, blocks = sum(launch.items for launch in launches), sum(launch.blocks for launch in launches)
    if all(launch.count is None for launch in launches):
        return replace(launches[0], items=items, blocks=blocks)
    count = infix_sum([launch.limit for launch in launches])
    grid = infix_sum([launch.grid or Literal(str(launch.blocks)) for launch in launches])
    return replace(launches[0], items=items, blocks=blocks, count=count, grid=grid)


def check_grid(launches: Sequence[Launch], gpu: Gpu) -> None:
    """Raises: ValueError where launches that share a grid have more blocks than it can."""
    if sum(launch.blocks for launch in launches) > gpu.blocks:
        raise ValueError(f"{sum(launch.items for launch in launches)} items are more than one launch can have")
