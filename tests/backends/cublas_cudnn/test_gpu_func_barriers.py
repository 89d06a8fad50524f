"""Kernels that the user writes whose threads do not wait for one another as they must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import staged as st
from staged import GPU, cuda, with_backend
from tests.backends.cublas_cudnn import gpu_funcs
from tests.backends.cublas_cudnn.gpu_funcs import MATRIX
from tests.backends.cublas_cudnn.harness import run_with_race_detector


def portable(function: Any) -> Any:
    return st.function(target="portable")(function)


@st.gpu_func
def uneven(out):
    t = cuda.thread_index.x
    if t < 16:
        cuda.syncthreads()
    out[t] = 1.0


def test_a_barrier_that_some_threads_do_not_reach(emulated_device: Any, misuse: None) -> None:

    def f() -> Any:
        with with_backend(GPU):
            y = uneven[1, 32](st.zeros((32,)))
        return y

    with st.eager(), pytest.raises(st.ProgramError, match="all threads of a block meet at a barrier"):
        portable(f)()
    with pytest.raises(st.ProgramError, match="start it anew; `compute-sanitizer"):
        portable(f)()
    assert "a barrier that not all threads reach" in emulated_device.last_violation()

    @st.function
    def innocent(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
        return y

    with pytest.raises(st.ProgramError, match="unspecified launch failure") as caught:
        innocent(MATRIX)
    assert "CUDA can do nothing more in this process" in str(caught.value)
    emulated_device.configure("")  # a process that is started anew
    assert innocent(MATRIX).shape == MATRIX.shape


# ---- races ----------------------------------------------------------------------------------------


@st.gpu_func
def hasty(x, out):
    """As `transpose_tiles`, but for the barrier."""
    tile = cuda.shared((8, 9), st.f32)
    tx, ty = cuda.thread_index.x, cuda.thread_index.y
    tile[ty, tx] = x[ty, tx]
    out[ty, tx] = tile[tx, ty]


def turned_hastily(x: Any) -> Any:
    with with_backend(GPU, x):
        out = hasty[1, (8, 8)](x, st.zeros((8, 8)))
    return out


def turned_in_time(x: Any) -> Any:
    with with_backend(GPU, x):
        out = gpu_funcs.transpose_tiles[1, (8, 8)](x, st.zeros((8, 8)))
    return out


@pytest.mark.parametrize(("function", "races"), [(turned_in_time, False), (turned_hastily, True)])
def test_a_missing_barrier_is_a_race(function: Any, races: bool, tmp_path: Path) -> None:
    done = run_with_race_detector(portable(function), MATRIX[:8, :8].copy(), tmp_path)
    assert "status 0" in done.stdout, done.stderr
    assert ("WARNING: ThreadSanitizer: data race" in done.stderr) == races, done.stderr
    if races:
        assert "hasty_kernel" in done.stderr
