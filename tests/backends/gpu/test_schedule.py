"""Schedules of kernels on a GPU: what is chosen for which sizes, and that every element is one thread's, whatever is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as sizes

from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.gpu.geometry import launch_of
from staged.backends.gpu.mapping import Part, map_nest
from staged.backends.gpu.schedule import schedule_part
from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Load,
    Local,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
    Tile,
)
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Level, Schedule
from staged.ir.types import f32


def part_of(*body: Statement, scratch: tuple[ArrayRef, ...] = ()) -> Part:
    (part,) = map_nest(Nest("test", (), (), scratch, body, 1)).parts
    return part


def copied(rows: int, columns: int, transposed: bool = False) -> Part:
    """y[i, j] = x[i, j], or x[j, i]."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, y = (ArrayRef(name, f32, rows * columns, role) for name, role in (("x", "input"), ("y", "output")))
    at, value = Affine.of(i, columns) + Affine.of(j), Local("value", f32)
    source = Affine.of(j, rows) + Affine.of(i) if transposed else at
    return part_of(Loop(i, (Loop(j, (Load(value, x, source), Store(y, at, value))),)))


def summed(rows: int, columns: int, down: bool = False) -> Part:
    """y[i] = the sum over j of x[i, j], or of x[j, i]."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, y = ArrayRef("x", f32, rows * columns, "input"), ArrayRef("y", f32, rows, "output")
    value, total = Local("value", f32), Reduction(Local("total", f32), prims.SUM)
    at = Affine.of(j, rows) + Affine.of(i) if down else Affine.of(i, columns) + Affine.of(j)
    inner = Loop(j, (Load(value, x, at), Accumulate(total, value)), (total,))
    return part_of(Loop(i, (inner, Store(y, Affine.of(i), total.target))))


def chosen(part: Part, gpu: Gpu = CUDA_GPU) -> Schedule:
    return schedule_part(part, {array: 16 for s in _accesses(part) for array in (s.array,)}, gpu)[1]


def _accesses(part: Part) -> Iterator[Load | Store]:
    waiting = list(part.body)
    while waiting:
        s = waiting.pop()
        if isinstance(s, Loop):
            waiting += s.body
        elif isinstance(s, Load | Store):
            yield s


SCHEDULES = {
    "few elements": (copied(3, 50), "bind i, j: threads, 160 side by side"),
    "elements in packs": (
        copied(100, 64),
        "split j: by 4\nvectorise j_in_pack: 4 lanes\nbind i, j_pack: threads, 256 side by side",
    ),
    "elements, odd rows": (copied(100, 63), "bind i, j: threads, 256 side by side"),
    "transpose": (
        copied(100, 64, transposed=True),
        "split i: by 32\nsplit j: by 32\nbind i_tile, j_tile: blocks, 1 side by side\n"
        "bind i_in_tile: warps, 8 side by side\nbind j_in_tile: lanes, 32 side by side\nplace x: shared memory",
    ),
    "short rows": (summed(500, 10), "bind i: threads, 256 side by side"),
    "rows": (summed(500, 1000), "bind i: warps, 8 side by side\nshare j: lanes, 32 side by side\nvectorise j: 4 lanes"),
    "long rows": (
        summed(9, 4096),
        "bind i: blocks, 1 side by side\nshare j: threads, 1024 side by side\nvectorise j: 4 lanes",
    ),
    "very long rows": (
        summed(9, 40960),
        "bind i: blocks, 1 side by side\nshare j: threads, 1024 side by side, sums in pieces of 16 turns\nvectorise j: 4 lanes",
    ),
    "as many turns as a total takes in": (
        summed(9, 32768),
        "bind i: blocks, 1 side by side\nshare j: threads, 1024 side by side\nvectorise j: 4 lanes",
    ),
    "long columns": (
        summed(50, 1025, down=True),
        "bind i: lanes, 32 side by side\nshare j: warps, 32 side by side, sums in pieces of 16 turns",
    ),
    "columns": (summed(50, 600, down=True), "bind i: lanes, 32 side by side\nshare j: warps, 32 side by side"),
    "very many columns": (summed(1 << 16, 600, down=True), "bind i: threads, 256 side by side"),
}


@pytest.mark.parametrize("what", SCHEDULES)
def test_sizes_choose_the_schedule(what: str) -> None:
    part, expected = SCHEDULES[what]
    assert str(chosen(part)) == expected


def test_a_thread_of_its_own_has_its_long_sums_in_pieces() -> None:
    for length, is_cut in ((32, False), (33, True)):
        part, _ = schedule_part(summed(1 << 16, length, down=True), {}, CUDA_GPU)
        assert any(isinstance(s, Tile) for s in part.body) == is_cut


def test_a_turn_that_threads_share_has_its_own_long_sums_in_pieces() -> None:
    """total += x[i, j] for 1000 j and 100 k, where something after the loop over k keeps it from being shared too."""
    i, j, k = Axis("i", 9), Axis("j", 1000), Axis("k", 100)
    x, y = ArrayRef("x", f32, 9 * 1000 * 100, "input"), ArrayRef("y", f32, 9, "output")
    value, other = Local("value", f32), Local("other", f32)
    total = Reduction(Local("total", f32), prims.SUM)
    at = Affine.of(i, 100000) + Affine.of(j, 100) + Affine.of(k)
    inner = Loop(k, (Load(value, x, at), Accumulate(total, value)))
    loop = Loop(j, (inner, Load(other, x, Affine.of(j)), Accumulate(total, other)), (total,))
    found, schedule = schedule_part(part_of(Loop(i, (loop, Store(y, Affine.of(i), total.target)))), {}, CUDA_GPU)
    (share,) = schedule.shares
    shared = found.body[0]
    assert share.loop is shared
    # Eight iterations of two numbers each, since the loop over k has a total of its own.
    assert (share.count, share.piece) == (128, 0)
    assert isinstance(shared, Loop) and any(isinstance(s, Tile) for s in shared.body)


def test_the_machine_is_what_is_described() -> None:
    narrow = replace(CUDA_GPU, warp=16, block=64, largest_block=128, access_bytes=8, busy_warps=4)
    assert str(chosen(copied(100, 64), narrow)).endswith("by 2\nvectorise j_in_pack: 2 lanes\n"
                                                        "bind i, j_pack: threads, 64 side by side")  # fmt: skip
    assert "bind i: warps, 4 side by side\nshare j: lanes, 16 side by side" in str(chosen(summed(500, 1000), narrow))
    assert "share j: threads, 128 side by side" in str(chosen(summed(3, 4096), narrow))


def units(schedule: Schedule, part: Part) -> Counter[tuple[int, ...]]:
    """The runs of each item (with each iteration of a shared loop), as the directives say, by all units of the launch."""
    launch = launch_of(schedule, part.items, part.workspace_bytes, CUDA_GPU)
    done: Counter[tuple[int, ...]] = Counter()
    bound = [d for d in schedule.directives if isinstance(d, Bind)]
    if len(bound) > 1:
        across, along = schedule.splits
        for tile in range(launch.blocks):
            first = tile // along.outer.extent * across.size, tile % along.outer.extent * along.size
            for row in range(across.size):
                for column in range(along.size):
                    place = first[0] + row, first[1] + column
                    if place[0] < across.axis.extent and place[1] < along.axis.extent:
                        done[place] += 1
        return done
    for block in range(launch.blocks):
        for number in range(schedule.items.count):
            item = block * schedule.items.count + number
            if item >= schedule.items.items:
                continue
            packs = schedule.packs_of()
            for place in range(packs.lanes) if packs is not None else (0,):
                element = item if packs is None else item * packs.lanes + place
                for share in schedule.shares[:1]:
                    for unit in range(share.count):
                        for turn in range(unit, share.axes[0].extent, share.count):
                            done[element, turn] += 1
                if not schedule.shares:
                    done[(element,)] += 1
    return done


@given(sizes.integers(1, 90), sizes.integers(1, 90), sizes.booleans())
def test_every_element_is_done_once(rows: int, columns: int, transposed: bool) -> None:
    gpu = replace(CUDA_GPU, busy_items=64)
    part = copied(rows, columns, transposed)
    done = units(schedule_part(part, {}, gpu)[1], part)
    assert len(done) == rows * columns and set(done.values()) == {1}


@given(sizes.integers(1, 40), sizes.integers(1, 300), sizes.booleans())
def test_every_turn_of_a_row_is_done_once(rows: int, columns: int, down: bool) -> None:
    part = summed(rows, columns, down)
    schedule = chosen(part)
    done = units(schedule, part)
    assert set(done.values()) == {1}
    assert len(done) == part.items * (columns if schedule.shares else 1)
    if schedule.items.level is not Level.THREADS:
        assert launch_of(schedule, part.items, 0, CUDA_GPU).threads % CUDA_GPU.warp == 0
