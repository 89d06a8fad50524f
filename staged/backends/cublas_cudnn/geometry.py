"""Launch geometry: how many blocks of how many threads a kernel with so many independent items gets."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
BLOCK = 256
"""Threads of a full block: enough warps to hide memory latency, few enough for every GPU's registers."""
MAX_BLOCKS = 2**31 - 1
"""The largest grid along x."""


@dataclass(frozen=True, slots=True)
class Launch:
    """`blocks` of `threads`; thread `block * threads + thread` takes that item, those past the last one take none."""

    items: int
    blocks: int
    threads: int

    @property
    def has_tail(self) -> bool:
        """Whether the last block has threads without an item."""
        return self.blocks * self.threads != self.items

    def __str__(self) -> str:
        if self.items == 1:
            return "one thread"
        blocks = f"{self.blocks} block{'s' if self.blocks != 1 else ''} of {self.threads} threads"
        return f"{self.items} items, a thread each: {blocks}"


def launch_for(items: int) -> Launch:
    """The launch for `items` independent items; none has no blocks, and is not launched at all.

    Raises: ValueError above 2^31 - 1 full blocks, more than any GPU has memory for.
    """
    if items == 0:
        return Launch(0, 0, WARP)
    threads = 1 if items == 1 else min(BLOCK, -(-items // WARP) * WARP)
    blocks = -(-items // threads)
    if blocks > MAX_BLOCKS:
        raise ValueError(f"{items} items are more than one launch can have")
    return Launch(items, blocks, threads)
