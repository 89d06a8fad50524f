"""Offsets of buffers in their arena: those whose lives do not overlap share memory."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from staged.ir.buffers import ALIGNMENT, Buffer, aligned
from staged.passes.memory.liveness import Interval


def assign_offsets(buffers: list[Buffer], alignment: int = ALIGNMENT) -> int:
    """Give each buffer an aligned offset so that those alive at the same time do not overlap; returns the arena's size
    in bytes.

    Greedy by size: the largest first, each at the lowest offset that is free for all of its life. (Pisarchyk and Lee,
    Efficient Memory Management for Deep Neural Net Inference, 2020.) Variables, which live as long as the program, come
    first and one after another.

    Exact: lives are closed intervals: buffers that meet in one position do not share.
    """
    placed: list[tuple[int, int, int, int, int, list[Interval]]] = []
    """(start, end, number, first position, last position, life) of the buffers that have an offset, by their starts."""
    total = 0
    for number, buffer in enumerate(
        sorted(buffers, key=lambda b: (b.variable is None, -b.nbytes * (b.variable is None)))
    ):
        first, last = buffer.intervals[0][0], buffer.intervals[-1][1]
        size = aligned(buffer.nbytes, alignment)
        offset = 0
        for start, end, _, begin, stop, intervals in placed:
            if offset + size <= start:
                break
            if end > offset and begin <= last and first <= stop and overlap(buffer.intervals, intervals):
                offset = end
        buffer.offset = offset
        total = max(total, offset + size)
        insort(placed, (offset, offset + size, number, first, last, buffer.intervals))
    return total


def assign_unions(buffers: list[Buffer]) -> list[list[Buffer]]:
    """Partition buffers into groups with disjoint lifetimes, largest first; each group becomes one C union."""
    unions: list[list[Buffer]] = []
    for buffer in sorted(buffers, key=lambda b: -b.nbytes):
        for union in unions:
            if not any(overlap(buffer.intervals, other.intervals) for other in union):
                union.append(buffer)
                break
        else:
            unions.append([buffer])
    return unions


def overlap(a: list[Interval], b: list[Interval]) -> bool:
    """Return whether two lives have a position in common."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][1] < b[j][0]:
            i += 1
        elif b[j][1] < a[i][0]:
            j += 1
        else:
            return True
    return False


def merged(intervals: list[Interval]) -> list[Interval]:
    """Sorted, disjoint intervals that cover the same positions."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def peak(buffers: Iterable[Buffer]) -> int:
    """The largest number of bytes alive at once, over all positions."""
    events: list[tuple[int, int]] = []
    for buffer in buffers:
        if buffer.kind == "arena":
            for start, end in buffer.intervals:
                events += [(start, buffer.nbytes), (end + 1, -buffer.nbytes)]
    alive = most = 0
    for _, change in sorted(events):
        alive += change
        most = max(most, alive)
    return most
