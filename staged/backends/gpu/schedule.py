"""Schedules of kernels on a GPU: which units do the items of each part, where workspace is, what is read at once.

`mapping.py` says which items are independent, that is, what is legal; here is chosen, from sizes and the machine's
description alone, so that the order of additions, and with it every bit, is the same on all devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from staged.backends.gpu.geometry import threads_for
from staged.backends.gpu.mapping import Part
from staged.backends.gpu.packs import packed
from staged.backends.gpu.teams import iterations_in_pieces, shared_by_teams
from staged.backends.gpu.tiles import in_tiles
from staged.ir.cascade import sums_in_pieces
from staged.ir.loops import ArrayRef
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Directive, Level, Memory, Place, Schedule, Split, Vectorise


def schedule_part(
    part: Part, alignment: Mapping[ArrayRef, int], gpu: Gpu, *, may_share: bool = True
) -> tuple[Part, Schedule]:
    """A part that has a launch to itself, its long sums in pieces, and its schedule.

    `alignment`: bytes that the address of each array is a multiple of.
    """
    if may_share:
        shareable = iterations_in_pieces(part)
        shared = shared_by_teams(shareable, alignment, gpu)
        if shared is not None:
            return shareable, shared
    part = with_short_sums(part)
    return part, in_tiles(part, gpu) or by_threads(part, alignment, gpu)


def schedule_parts(
    parts: Sequence[Part], alignment: Mapping[ArrayRef, int], gpu: Gpu
) -> tuple[tuple[Part, ...], tuple[Schedule, ...]]:
    """The same of parts that share a launch: a thread for each item, in blocks of one size."""
    parts = tuple(map(with_short_sums, parts))
    chosen = [by_threads(part, alignment, gpu) for part in parts]
    threads = max(gpu.warp, *(schedule.items.count for schedule in chosen))
    return parts, tuple(
        Schedule(tuple(replace(d, count=threads) if isinstance(d, Bind) else d for d in schedule.directives))
        for schedule in chosen
    )


def with_short_sums(part: Part) -> Part:
    """A part whose items are one thread's each, with the sums of a thread in pieces."""
    body, scratch = sums_in_pieces(part.body, part.scratch)
    return part if body == part.body else replace(part, body=body, scratch=scratch)


def by_threads(part: Part, alignment: Mapping[ArrayRef, int], gpu: Gpu) -> Schedule:
    """Each item, or pack of neighbouring items, is one thread's."""
    directives: list[Directive] = []
    axes, items = part.axes, part.items
    width, packs = packed(part, alignment, gpu)
    if width > 1:
        split = Split.of(axes[-1], width, "pack")
        directives += [split, Vectorise((split.inner,), width, packs=packs)]
        axes, items = (*axes[:-1], split.outer), items // width
    directives.append(Bind(axes, Level.THREADS, threads_for(items, gpu)))
    memory = Memory.REGISTERS if part.workspace_bytes <= gpu.thread_bytes else Memory.DEVICE
    directives += [Place(array, memory) for array in part.scratch]
    return Schedule(tuple(directives))
