"""The meaning of a kernel of threads: memory is undefined at first, barriers and shuffles need all threads, arguments stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import cuda


def run(kernel: Any, *args: Any, grid: Any = 1, block: Any = 4) -> Any:
    with st.eager():
        return np.asarray(kernel[grid, block](*args))


@st.gpu_func
def unwritten(out):
    parts = cuda.shared(4, st.f32)
    counts = cuda.local(2, st.i32)
    t = cuda.thread_index.x
    if t > 0:
        parts[t] = 1.0
        counts[0] = 1
    cuda.syncthreads()
    out[t] = parts[3 - t] + counts[0]


def test_memory_that_nobody_wrote_shows() -> None:
    found = run(unwritten, np.zeros(4, np.float32))
    assert np.isnan(found[3]) and found[1] == 2.0
    assert found[0] > 1e9  # its own count was never written


@st.gpu_func
def two_barriers(out):
    if cuda.thread_index.x < 2:
        cuda.syncthreads()  # one
    else:
        cuda.syncthreads()  # other
    out[0] = 1.0


@st.gpu_func
def lonely_lane(out):
    t = cuda.thread_index.x
    if t < 5:
        out[t] = cuda.shuffle(out[t], 0)  # here


@pytest.mark.parametrize(
    ("kernel", "block", "words"),
    [(two_barriers, 4, "threads of a block meet at a barrier"), (lonely_lane, 32, "lanes of a warp meet at a shuffle")],
)
def test_who_does_not_come_is_missed(kernel: Any, block: int, words: str) -> None:
    with pytest.raises(st.ProgramError, match=words) as caught:
        run(kernel, np.zeros(32, np.float32), block=block)
    assert caught.value.where is not None and "# " in caught.value.where.text


@st.gpu_func
def places(out):
    block = cuda.block_index.x + cuda.grid_size.x * (cuda.block_index.y + cuda.grid_size.y * cuda.block_index.z)
    thread = cuda.thread_index.x + cuda.block_size.x * (cuda.thread_index.y + cuda.block_size.y * cuda.thread_index.z)
    out[block, thread] = 100 * cuda.global_index.x + 10 * cuda.global_index.y + cuda.global_index.z


def test_every_thread_of_every_block_runs_once() -> None:
    given = np.full((12, 30), -1)
    found = run(places, given, grid=(3, 2, 2), block=(2, 5, 3))
    assert (given == -1).all(), "what is written is a copy"
    assert len(np.unique(found)) == found.size and found.min() == 0
    assert found.max() == 100 * 5 + 10 * 9 + 5


@st.gpu_func
def lazily(x, out):
    i = cuda.thread_index.x
    here = i < len(x) and x[i] > 0
    either = i >= len(x) or x[i] > 0
    out[i] = (x[i] if i < len(x) else -1.0) + 10 * int(here) + 100 * int(either)


def test_what_python_leaves_out_is_left_out() -> None:
    found = run(lazily, np.array([2.0, -3.0], np.float32), np.zeros(4, np.float32))
    np.testing.assert_array_equal(found, [112.0, -3.0, 99.0, 99.0])
