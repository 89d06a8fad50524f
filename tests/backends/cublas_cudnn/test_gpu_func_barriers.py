"""Kernels that the user writes whose threads do not wait for one another as they must."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import staged as st
from staged import GPU, cuda, with_backend
from staged.runtime import cuda as runtime
from staged.runtime.cuda_emulator import INCLUDE
from tests.backends.cublas_cudnn import gpu_funcs
from tests.backends.cublas_cudnn.gpu_funcs import MATRIX


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


DRIVER = """\
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {{
    float x[64] = {{0}}, result[64];
    st_host host;
    memset(&host, 0, sizeof host);
    {name}_args args;
    memset(&args, 0, sizeof args);
    args.x = x;
    args.result = result;
    void *arena = aligned_alloc(64, {NAME}_ARENA_BYTES);
    memset(arena, 0, {NAME}_ARENA_BYTES);
    printf("status %d\\n", {name}(&args, arena, &host));
    {name}_release(arena);
    free(arena);
    return 0;
}}
"""


@pytest.mark.parametrize(("function", "races"), [(turned_in_time, False), (turned_hastily, True)])
def test_a_missing_barrier_is_a_race(function: Any, races: bool, tmp_path: Path) -> None:
    library = runtime.emulated.race_detector()
    compiler, _ = runtime.building.find_cxx()
    artifact = portable(function).stage(MATRIX[:8, :8].copy())._artifact
    name = artifact.name
    (tmp_path / f"{name}.cu").write_text(artifact.source)
    (tmp_path / f"{name}.h").write_text(artifact.header)
    (tmp_path / f"{name}_support.h").write_text(artifact.support)
    (tmp_path / "main.cpp").write_text(DRIVER.format(name=name, NAME=name.upper()))
    flags = ["-std=c++17", "-O1", "-g1", "-rdynamic", f"-I{INCLUDE}", f"-I{tmp_path}", "-fsanitize=thread", "-fPIC"]
    sources = ["-x", "c++", str(tmp_path / f"{name}.cu"), str(tmp_path / "main.cpp"), "-x", "none", str(library)]
    command = [*compiler, *flags, "-include", "cuda_runtime.h", *sources, f"-Wl,-rpath,{library.parent}", "-pthread"]
    built = subprocess.run([*command, "-o", str(tmp_path / name)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(tmp_path / name)], capture_output=True, text=True, env=dict(os.environ), timeout=120)
    assert "status 0" in done.stdout, done.stderr
    assert ("WARNING: ThreadSanitizer: data race" in done.stderr) == races, done.stderr
    if races:
        assert "hasty_kernel" in done.stderr
