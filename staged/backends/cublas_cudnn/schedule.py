"""Schedules of kernels on a GPU: which units do the items of each part, where workspace is, what is read at once.

`mapping.py` says which items are independent, that is, what is legal; here is chosen, from sizes and the machine's description
alone, so that the order of additions, and with it every bit, is the same on all devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from staged.backends.cublas_cudnn.geometry import threads_for
from staged.backends.cublas_cudnn.mapping import Part
from staged.backends.cublas_cudnn.packs import packed
from staged.backends.cublas_cudnn.teams import shared_by_teams
from staged.backends.cublas_cudnn.tiles import in_tiles
from staged.ir.loops import ArrayRef
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Directive, Level, Memory, Place, Schedule, Split, Vectorise


def schedule_part(
    part: Part, alignment: Mapping[ArrayRef, int], gpu: Gpu, *, may_share: bool = True
) -> Schedule:
    """The schedule of a part that has a launch to itself. `alignment`: bytes that the address of each array is a multiple of."""
    shared = shared_by_teams(part, alignment, gpu) if may_share else None
    return shared or in_tiles(part, gpu) or by_threads(part, alignment, gpu)


def schedule_parts(parts: Sequence[Part], alignment: Mapping[ArrayRef, int], gpu: Gpu) -> tuple[Schedule, ...]:
    """Those of parts that share a launch: a thread for each item, in blocks of one size."""
    chosen = [by_threads(part, alignment, gpu) for part in parts]
    threads = max(gpu.warp, *(schedule.items.count for schedule in chosen))
    return tuple(
        Schedule(tuple(replace(d, count=threads) if isinstance(d, Bind) else d for d in schedule.directives))
        for schedule in chosen
    )


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
