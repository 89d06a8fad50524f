"""Values that cross between the host and a device, bit by bit: NaN and zeros of both signs, no elements, numbers in their own dtype,
loops of no iterations, branches of which one stays on the host."""

from __future__ import annotations

import numpy as np

import staged as st
from staged import GPU, with_backend

BITS = np.array([0x7FC12345, 0xFFC00001, 0x80000000, 0, 0x7F800000, 0xFF800000, 1, 0x80000001], np.uint32).view(
    np.float32
)
LARGE = 2**53 + 1  # no f64


@st.function
def crossing(x, nothing, whole, part, flag, turns, v, w):
    kept = st.flip(x)  # on the host
    carried = kept
    left = 0
    with with_backend(GPU):
        moved = st.roll(kept, 3)
        counted = st.zeros((3,), dtype=st.i64) + whole
        scaled = st.ones((2,), dtype=st.f64) * part
        chosen = st.where(flag, moved, 1.0)
        empty = st.concat([nothing, nothing]) + 1.0
        for turn in st.range(turns):
            carried = st.roll(carried, 1)
            if turn == 1:
                w.value = carried
                left = left + 1
                break
        v.value = st.flip(moved)
        number = st.sum(st.zeros((4,), dtype=st.i64) + whole)
    after = carried if turns > 1 else st.flip(carried)
    return moved, counted, scaled, chosen, empty, carried, number, after, left, st.flip(v.value), w.value


def test_bits_stay_as_they_are_on_both_sides(emulated_device):
    before = np.arange(8, dtype=np.float32)
    for turns in (0, 1, 2, 5):
        v, w = st.Variable(before), st.Variable(before)
        run = st.function(
            lambda x, nothing, whole, part, flag, turns, v=v, w=w: crossing(x, nothing, whole, part, flag, turns, v, w)
        )
        found = run(BITS, np.zeros(0, np.float32), LARGE, 0.1, turns > 0, turns)
        flipped = BITS[::-1]
        moved, carried = np.roll(flipped, 3), np.roll(flipped, min(turns, 2))
        right = (
            moved, np.full(3, LARGE), np.full(2, 0.1), moved if turns > 0 else np.ones(8, np.float32), np.zeros(0, np.float32),
            carried, np.int64(4 * LARGE), carried if turns > 1 else carried[::-1], int(turns > 1), moved,
            carried if turns > 1 else before,
        )  # fmt: skip
        for number, (got, wanted) in enumerate(zip(found, right, strict=True)):
            got, wanted = np.asarray(got), np.asarray(wanted)
            assert got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes(), (
                f"{turns} turns, {number}: {got}, not {wanted}"
            )
        assert np.asarray(v.value).tobytes() == moved[::-1].tobytes()
        assert np.asarray(w.value).tobytes() == (carried if turns > 1 else before).tobytes()
