"""The means to bring arrays to a device beside its work: pinned memory, places on the device, and events that programs wait for."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import INCLUDE, RACES, Emulator, build
from staged import GPU, with_backend
from staged.runtime import cuda
from staged.runtime.cuda.arriving import Arrivals, capacity_for
from staged.runtime.cuda.interface import current_runtime
from staged.runtime.cuda.resident import choose_device

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 5, 7)).astype(np.float32)


@pytest.fixture
def arrivals(device: Emulator) -> Iterator[Arrivals]:
    """The means to bring arrays to the first device; nothing of it is left afterwards."""
    gc.collect()
    before = device.counts()
    made = Arrivals("gpu")
    yield made
    made.close()
    gc.collect()
    left = device.counts() - before
    live = (left.live_bytes, left.live_allocations, left.live_pinned, left.live_streams, left.live_events)
    assert live == (0, 0, 0, 0, 0), device.live_objects()


def fetched(copy: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    host = np.empty_like(like)
    copy.fetch(host)
    return host


def test_copies_run_beside_a_program_s_stream(device: Emulator, arrivals: Arrivals) -> None:
    """The stream of the copies waits for no other, and the host for neither."""
    device.configure("lazy")
    before = device.counts()
    first, second = arrivals.put([X[0]]), arrivals.put([X[1]])
    assert (device.counts() - before).synchronisations == 0
    second[0].arrival.wait()
    assert (device.counts() - before).synchronisations == 1
    assert first[0].arrival.is_over()
    np.testing.assert_array_equal(fetched(first[0], X[0]), X[0])
    assert (device.counts() - before).synchronisations == 2  # the copy back; what has come is not waited for


def test_pinned_memory_is_written_again_when_its_copy_is_over(device: Emulator, arrivals: Arrivals) -> None:
    for seed in range(3):
        device.configure(f"lazy seed={seed}")
        copies = [arrivals.put([batch])[0] for batch in X]
        for batch, copy in reversed(list(zip(X, copies, strict=True))):  # the last are still on their way
            np.testing.assert_array_equal(fetched(copy, batch), batch)
        del copies, copy


def test_two_pieces_of_pinned_memory_serve_all_arrays(device: Emulator, arrivals: Arrivals) -> None:
    before = device.counts()
    for batch in (*X, np.zeros((90, 7), np.float32), *X):
        arrivals.put([batch, batch])
    seen = device.counts() - before
    assert (seen.live_pinned, seen.synchronisations) == (2, 0)  # each copy was over when its memory was wanted again


def test_a_place_has_at_most_a_quarter_more_than_its_array() -> None:
    sizes = [*range(3000), 10**6, 10**6 + 1, 2**30, 2**30 + 1, 3 * 10**9]
    for size in sizes:
        capacity = capacity_for(size)
        assert capacity >= max(size, 1) and capacity % 256 == 0
        assert capacity <= max(size * 1.25, size + 256)
    assert len({capacity_for(size) for size in range(10**6, 2 * 10**6, 1000)}) <= 9


def test_arrays_of_many_sizes_have_few_places(device: Emulator, arrivals: Arrivals) -> None:
    """Three are held at a time; places that are up to twice as large do for them."""
    before, largest = device.counts(), 400_000
    counts, held, peak = [], [], 0
    for round in range(4):
        for size in np.random.default_rng(round).integers(1, largest, size=250):
            batch = np.full(size, size, np.uint8)
            held = [*held[-2:], (arrivals.put([batch])[0], batch)]
            peak = max(peak, (device.counts() - before).live_bytes)
        for copy, batch in held:
            np.testing.assert_array_equal(fetched(copy, batch), batch)
        del copy
        counts.append((device.counts() - before).allocations)
    held.clear()
    assert counts[-1] <= 40, counts
    assert peak <= 9 * largest  # three of each power of two, and half as much again


def test_small_arrays_that_are_held_leave_the_places_of_large_ones(device: Emulator, arrivals: Arrivals) -> None:
    before, held = device.counts(), []
    for _ in range(20):
        held.append(arrivals.put([np.zeros(100, np.uint8), np.zeros(1_000_000, np.uint8)])[0])
    assert (device.counts() - before).live_bytes <= 2 * 1_250_000 + 20 * 256
    held.clear()


def test_places_of_other_sizes_make_room(device: Emulator, arrivals: Arrivals) -> None:
    device.configure(f"memory={device.counts().live_bytes + (1 << 20)}")
    arrivals.put([np.ones(40_000, np.float32)])
    arrivals.put([np.ones(150_000, np.float32)])
    (large,) = arrivals.put([np.ones(200_000, np.float32)])
    assert fetched(large, np.zeros(200_000, np.float32)).min() == 1.0
    assert current_runtime().function("cudaGetLastError", "int (*)(void)")() == 0


def test_the_thread_may_have_chosen_another_device_meanwhile(device: Emulator, arrivals: Arrivals) -> None:
    device.configure("devices=2 lazy seed=3")
    choose_device(current_runtime(), "gpu(1)")
    (copy,) = arrivals.put([X[0]])
    np.testing.assert_array_equal(fetched(copy, X[0]), X[0])
    choose_device(current_runtime(), "gpu")


# A program of C that does what the loader does: a stream of its own for the copies, and an event that the program waits for.
DRIVER = """\
#include <cuda_runtime_api.h>
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void check(cudaError_t status) {{
    if (status != cudaSuccess) {{
        printf("%s\\n", cudaGetErrorString(status));
        exit(1);
    }}
}}
int main(void) {{
    float *pinned, *place, result = 0.0f;
    cudaStream_t copies;
    cudaEvent_t arrival;
    check(cudaMallocHost((void **)&pinned, {NAME}_X_SIZE * sizeof(float)));
    check(cudaMalloc((void **)&place, {NAME}_X_SIZE * sizeof(float)));
    check(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&arrival, cudaEventDisableTiming));
    void *const arrivals[] = {{arrival, NULL}};
    st_host host;
    memset(&host, 0, sizeof host);
    {name}_args args;
    memset(&args, 0, sizeof args);
    args.x = place;
    args.result = &result;
    args.arrivals = arrivals;
    void *arena = aligned_alloc(64, {NAME}_ARENA_BYTES);
    memset(arena, 0, {NAME}_ARENA_BYTES);
    for (int turn = 0; turn < 5; ++turn) {{
        check(cudaEventSynchronize(arrival));
        for (int i = 0; i < {NAME}_X_SIZE; ++i) {{
            pinned[i] = (float)turn;
        }}
        check(cudaMemcpyAsync(place, pinned, {NAME}_X_SIZE * sizeof(float), cudaMemcpyHostToDevice, copies));
        check(cudaEventRecord(arrival, copies));
        const int status = {name}(&args, arena, &host);
        printf("%d %g\\n", status, result / {NAME}_X_SIZE);
    }}
    {name}_release(arena);
    free(arena);
    check(cudaEventDestroy(arrival));
    check(cudaStreamDestroy(copies));
    check(cudaFreeHost(pinned));
    check(cudaFree(place));
    return 0;
}}
"""


@pytest.mark.slow
def test_a_caller_in_c_tells_a_program_what_to_wait_for(tmp_path: Path) -> None:
    """Under the race detector, and with copies that are made when something waits for them."""

    @st.function
    def total(x: Any) -> Any:
        return st.sum(x)

    with with_backend(GPU):
        (x,) = st.loader([np.ones((70, 30), np.float32)])
        program = total.stage(x)
    program.export(tmp_path)
    compiler, _ = cuda.find_cxx()
    (tmp_path / "caller.cpp").write_text(DRIVER.format(name="total", NAME="TOTAL"))
    library = build(RACES)
    flags = ["-std=c++17", "-O1", "-g1", "-rdynamic", f"-I{INCLUDE}", "-fsanitize=thread", "-fPIC", "-pthread"]
    sources = ["-include", "cuda_runtime.h", "-x", "c++", "total.cu", "caller.cpp", "-x", "none", str(library)]
    command = [*compiler, *flags, *sources, f"-Wl,-rpath,{library.parent}", "-o", "caller"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    for words in ("lazy seed=1", "lazy shuffled seed=2"):
        environment = {**os.environ, "STAGED_CUDA_EMULATOR": words}
        done = subprocess.run([tmp_path / "caller"], capture_output=True, text=True, env=environment, timeout=120)
        assert (done.stdout.split(), done.stderr) == ("0 0 0 1 0 2 0 3 0 4".split(), ""), words
