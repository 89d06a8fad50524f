"""Launch geometry: how many blocks of how many threads a kernel with so many independent items gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WARP = 32
BLOCK = 256
"""Threads of a full block: enough warps to hide memory latency, few enough for every GPU's registers."""
MAX_BLOCKS = 2**31 - 1
"""The largest grid along x."""
WORKSPACE_BYTES = 64 << 20
"""Workspace that the threads of one launch may have together: where each needs much, fewer run, and take several items."""


@dataclass(frozen=True, slots=True)
class Team:
    """`threads` of a block that share an item, `items` of which a block has; see `reductions.py` for the kinds."""

    kind: str
    threads: int
    items: int

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads * self.items

    def blocks(self, items: int) -> int:
        """Blocks for so many items."""
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
    """Who does an item where it is not a thread."""

    @property
    def has_tail(self) -> bool:
        """Whether the last block has threads without an item."""
        return self.blocks * self.threads != self.items

    def __str__(self) -> str:
        if self.items == 1 and not self.how:
            return "one thread"
        blocks = f"{self.blocks} block{'s' if self.blocks != 1 else ''} of {self.threads} threads"
        each = self.how or ("several a thread" if self.strided else "a thread each")
        return f"{self.items} item{'s' if self.items != 1 else ''}, {each}: {blocks}"


def launch_for(items: int, threads: int = 0) -> Launch:
    """The launch for `items` independent items, in blocks of `threads` (0: as fits them); none is not launched at all.

    Raises: ValueError above 2^31 - 1 full blocks, more than any GPU has memory for.
    """
    if items == 0:
        return Launch(0, 0, threads or WARP)
    threads = threads or (1 if items == 1 else min(BLOCK, -(-items // WARP) * WARP))
    blocks = -(-items // threads)
    if blocks > MAX_BLOCKS:
        raise ValueError(f"{items} items are more than one launch can have")
    return Launch(items, blocks, threads)


def launch_with_workspace(items: int, thread_bytes: int) -> Launch:
    """The launch for items whose threads need `thread_bytes` of workspace each."""
    whole = launch_for(items)
    threads = max(1, min(whole.threads, WORKSPACE_BYTES // thread_bytes))
    blocks = max(1, WORKSPACE_BYTES // (thread_bytes * threads))
    if blocks * threads >= whole.blocks * whole.threads:
        return whole
    return Launch(items, blocks, threads, strided=True)


def launch_for_team(items: int, team: Team, block_bytes: int = 0) -> Launch:
    """The launch for items that teams of threads share; each block needs `block_bytes` of workspace.

    Raises: ValueError above 2^31 - 1 blocks.
    """
    blocks = team.blocks(items)
    if block_bytes and blocks > max(1, WORKSPACE_BYTES // block_bytes):
        return Launch(items, max(1, WORKSPACE_BYTES // block_bytes), team.block, strided=True, how=str(team))
    if blocks > MAX_BLOCKS:
        raise ValueError(f"{items} items are more than one launch can have")
    return Launch(items, blocks, team.block, how=str(team))


def launch_side_by_side(items: Sequence[int]) -> tuple[Launch, ...]:
    """Launches that share a grid: blocks of one size, those of the first before those of the next.

    Raises: ValueError above 2^31 - 1 blocks.
    """
    threads = max(launch_for(count).threads for count in items)
    threads = max(threads, WARP)
    launches = tuple(launch_for(count, threads) for count in items)
    if sum(launch.blocks for launch in launches) > MAX_BLOCKS:
        raise ValueError(f"{sum(items)} items are more than one launch can have")
    return launches
