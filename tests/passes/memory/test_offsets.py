"""The places of buffers, at the border of their lives: one position in common, none, no bytes."""

from __future__ import annotations

from staged.ir.buffers import ALIGNMENT, Buffer
from staged.ir.types import TensorType, u8
from staged.passes.memory.offsets import assign_offsets, assign_unions, merged, overlap, peak


def buffer(name: str, nbytes: int, *lives: tuple[int, int]) -> Buffer:
    made = Buffer(name, TensorType(u8, (nbytes,)), "arena", nbytes)
    made.intervals = list(lives)
    return made


def test_buffers_that_meet_in_one_position_do_not_share() -> None:
    first, meets, after = buffer("first", 64, (1, 5)), buffer("meets", 64, (5, 9)), buffer("after", 64, (6, 9))
    assign_offsets([first, meets, after])
    assert first.offset == after.offset == 0 and meets.offset >= 64
    assign_offsets([after, meets, first])
    assert first.offset == after.offset == 0 and meets.offset >= 64
    assert overlap(first.intervals, meets.intervals) and overlap(meets.intervals, first.intervals)
    assert [[each.name for each in slot] for slot in assign_unions([first, meets, after])] == [
        ["first", "after"],
        ["meets"],
    ]


def test_a_life_in_pieces_leaves_room_between_them() -> None:
    pieces, between, across = buffer("p", 64, (1, 2), (8, 9)), buffer("b", 64, (3, 7)), buffer("a", 64, (3, 8))
    assign_offsets([pieces, between, across])
    assert pieces.offset == between.offset == 0 and across.offset >= 64
    assert not overlap(pieces.intervals, between.intervals) and overlap(pieces.intervals, across.intervals)


def test_the_largest_is_placed_first_at_an_aligned_place_and_nothing_takes_no_room() -> None:
    small, large, nothing = buffer("s", 1, (1, 3)), buffer("l", ALIGNMENT + 1, (1, 3)), buffer("n", 0, (1, 3))
    assert assign_offsets([small, nothing, large]) == 3 * ALIGNMENT
    assert large.offset == 0 and small.offset == 2 * ALIGNMENT
    assert peak([small, large, nothing]) == ALIGNMENT + 2
    assert assign_offsets([]) == peak([]) == 0


def test_a_position_counts_once_and_neighbours_stay_apart() -> None:
    assert merged([(4, 6), (1, 4), (8, 9), (2, 3)]) == [(1, 6), (8, 9)]
    assert peak([buffer("a", 8, (1, 4)), buffer("b", 16, (4, 5)), buffer("c", 4, (5, 6))]) == 24
