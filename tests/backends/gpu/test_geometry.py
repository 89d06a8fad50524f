"""Launch geometry: legal for every size, each item to exactly one thread, tails only where needed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as sizes

from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.gpu.geometry import (
    Team,
    check_grid,
    counted,
    launch_for,
    launch_for_team,
    launch_of,
    launch_with_workspace,
    together,
)
from staged.backends.gpu.mapping import Part
from staged.backends.gpu.schedule import schedule_parts
from staged.code.expr import Expr, Infix, Literal, Name
from staged.ir.loops import Affine, ArrayRef, Axis, Constant, Store
from staged.ir.types import f32

WARP, BLOCK, MAX_BLOCKS = CUDA_GPU.warp, CUDA_GPU.block, CUDA_GPU.blocks


@given(sizes.one_of(sizes.integers(1, 4096), sizes.integers(1, MAX_BLOCKS * BLOCK)))
@example(1)
@example(WARP)
@example(BLOCK + 1)
@example(2**31)
@example(2**31 + 1)
@example(MAX_BLOCKS * BLOCK)
def test_every_item_has_one_thread_and_the_launch_is_legal(items: int) -> None:
    launch = launch_for(items, CUDA_GPU)
    assert 1 <= launch.threads <= 1024
    assert 1 <= launch.blocks <= 2**31 - 1
    threads = launch.blocks * launch.threads
    assert items <= threads < items + launch.threads
    assert launch.has_tail == (threads != items)


def test_no_items_are_no_blocks() -> None:
    assert launch_for(0, CUDA_GPU).blocks == 0


def test_more_than_a_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="more than one launch"):
        launch_for(MAX_BLOCKS * BLOCK + 1, CUDA_GPU)


@given(sizes.lists(sizes.integers(1, 5000), min_size=2, max_size=8))
def test_launches_side_by_side_have_blocks_of_one_size(items: list[int]) -> None:
    parts = []
    for count in items:
        i, out = Axis("i", count), ArrayRef("y", f32, count, "output")
        parts.append(Part((i,), (Store(out, Affine.of(i), Constant(1.0, f32)),), ()))
    _, schedules = schedule_parts(parts, {}, CUDA_GPU)
    launches = [launch_of(schedule, part.items, 0, CUDA_GPU) for part, schedule in zip(parts, schedules, strict=True)]
    assert len({launch.threads for launch in launches}) == 1
    for count, launch in zip(items, launches, strict=True):
        assert launch.items == count <= launch.blocks * launch.threads


@given(sizes.integers(1, 10**7), sizes.integers(1, CUDA_GPU.workspace_bytes))
@example(129, 419431)
def test_workspace_is_limited_and_every_item_is_done(items: int, thread_bytes: int) -> None:
    launch = launch_with_workspace(items, thread_bytes, CUDA_GPU)
    threads = launch.blocks * launch.threads
    assert launch.strided == (threads < items)
    assert threads * thread_bytes <= CUDA_GPU.workspace_bytes


N = Name("n")


def times(factor: int) -> Expr:
    """`n * factor`."""
    return Infix("*", N, Literal(str(factor)))


def blocks_of(items: Expr, threads: int) -> Expr:
    """The blocks for so many items."""
    return Infix("/", Infix("+", items, Literal(str(threads - 1))), Literal(str(threads)))


@pytest.mark.parametrize("most", [2, 31, 257, 10_000, 2**33])
def test_the_blocks_of_what_is_counted_are_those_of_so_many_items(most: int) -> None:
    """The grid as C, for every size up to the bound, is the grid that a launch of that size has."""
    at_most = launch_for(most * 5, CUDA_GPU)
    launch = counted(at_most, times(5), blocks_of(times(5), at_most.threads))
    assert launch.has_tail and str(launch.limit) == "n * 5"
    for n in {0, 1, 2, most // 2, most - 1, most}:
        found = eval(str(launch.grid).replace("/", "//"), {"n": n})
        assert found == (launch_for(n * 5, CUDA_GPU, launch.threads).blocks if n else 0)
        assert found <= launch.blocks


def test_counted_parts_share_a_grid_with_others() -> None:
    fixed = launch_for(1000, CUDA_GPU, 256)
    launch = together((fixed, counted(launch_for(400, CUDA_GPU, 256), times(4), blocks_of(times(4), 256))))
    assert (launch.items, launch.blocks, str(launch.grid)) == (1400, 6, "4 + (n * 4 + 255) / 256")
    assert together((fixed, fixed)).grid is None and together((fixed, fixed)).blocks == 8


def test_counted_items_with_workspace_have_no_more_blocks_than_there_is_workspace_for() -> None:
    launch = counted(launch_with_workspace(1 << 20, 1 << 16, CUDA_GPU), N, blocks_of(N, 256))
    assert launch.strided
    assert str(launch.grid) == f"((n + 255) / 256 < {launch.blocks} ? (n + 255) / 256 : {launch.blocks})"


@given(
    sizes.integers(1, 10**6),
    sizes.sampled_from([(32, 8), (256, 1), (8, 32)]),
    sizes.integers(0, CUDA_GPU.workspace_bytes // 4),
)
@example(9, (32, 8), 0)
@example(10**6, (256, 1), 1 << 20)
def test_every_item_has_a_team_and_a_strided_launch_teams_of_the_same_size(
    items: int, shape: tuple[int, int], block_bytes: int
) -> None:
    team = Team("warp", *shape)
    launch = launch_for_team(items, team, CUDA_GPU, block_bytes)
    assert launch.threads == team.block
    assert launch.strided or items <= launch.blocks * team.items < items + team.items
    assert launch.blocks * block_bytes <= max(CUDA_GPU.workspace_bytes, block_bytes)
    assert launch.blocks == launch_for_team(items, team, CUDA_GPU).blocks or launch.strided


def test_teams_and_launches_that_share_a_grid_are_no_more_than_a_grid_has() -> None:
    team = Team("block", 256, 1)
    assert launch_for_team(MAX_BLOCKS, team, CUDA_GPU).blocks == MAX_BLOCKS
    with pytest.raises(ValueError, match="more than one launch"):
        launch_for_team(MAX_BLOCKS + 1, team, CUDA_GPU)
    half = launch_for(MAX_BLOCKS // 2 * BLOCK, CUDA_GPU)
    check_grid((half, half), CUDA_GPU)
    with pytest.raises(ValueError, match="more than one launch"):
        check_grid((half, half, launch_for(2 * BLOCK, CUDA_GPU)), CUDA_GPU)
