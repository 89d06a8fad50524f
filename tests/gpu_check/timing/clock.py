"""The time of an iteration on the device, by CUDA events: a long run less a short one, so that the call does not count.

Several processes stage and compile at the same time. Only the one that holds the lock uses the device.
"""

from __future__ import annotations

import fcntl
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Run = Callable[[int], object]
"""Do so many iterations."""


@dataclass(frozen=True)
class Plan:
    """Iterations of the short run, further ones of the long run, and pairs of runs."""

    warm: int = 3
    measured: int = 20
    pairs: int = 3


FULL, SMALL = Plan(), Plan(1, 2, 1)


def time_of(run: Run, seconds: Callable[[Callable[[], object]], float], plan: Plan) -> dict[str, Any]:
    """Seconds per iteration: the median of some pairs of runs, and each of them."""
    run(plan.warm)
    pairs = []
    for _ in range(plan.pairs):
        short = seconds(lambda: run(plan.warm))
        pairs.append((seconds(lambda: run(plan.warm + plan.measured)) - short) / plan.measured)
    return {"seconds": statistics.median(pairs), "pairs": pairs}


def by_events() -> Callable[[Callable[[], object]], float]:
    """Seconds of some work on the device, by events of the CUDA runtime that our programs use."""
    from staged.runtime.cuda.interface import current_runtime
    from staged.runtime.cuda.resident import check_status
    from staged.runtime.guard import ffi

    runtime = current_runtime()

    def call(name: str, type: str, *arguments: Any) -> None:
        check_status(runtime, runtime.function(name, type)(*arguments), name)

    events = ffi.new("void *[2]")
    for number in range(2):
        call("cudaEventCreate", "int (*)(void **)", events + number)

    def record(number: int) -> None:
        # Programs have streams that do not wait for the null stream, nor it for them: the device must be idle.
        call("cudaDeviceSynchronize", "int (*)(void)")
        call("cudaEventRecord", "int (*)(void *, void *)", events[number], ffi.NULL)
        call("cudaEventSynchronize", "int (*)(void *)", events[number])

    def seconds(work: Callable[[], object]) -> float:
        record(0)
        work()
        record(1)
        elapsed = ffi.new("float *")
        call("cudaEventElapsedTime", "int (*)(float *, void *, void *)", elapsed, events[0], events[1])
        return float(elapsed[0]) * 1e-3

    return seconds


def by_torch() -> Callable[[Callable[[], object]], float]:
    """The same in PyTorch; on a machine without a GPU by the clock of the host, for rehearsals."""
    import torch

    def by_host(work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def seconds(work: Callable[[], object]) -> float:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize()
        events[0].record()
        work()
        events[1].record()
        torch.cuda.synchronize()
        return float(events[0].elapsed_time(events[1])) * 1e-3

    return seconds if torch.cuda.is_available() else by_host


@contextmanager
def locked(folder: Path, name: str, places: int = 1) -> Iterator[None]:
    """One of `places` places, which processes wait for; the operating system frees the place of a process that dies."""
    files = [os.open(folder / f"{name}.{number}.lock", os.O_RDWR | os.O_CREAT, 0o600) for number in range(places)]
    try:
        while True:
            for file in files:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield
                return
            time.sleep(0.02)
    finally:
        for file in files:
            os.close(file)
