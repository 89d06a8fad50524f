"""The protocol: warm blocks of calls, and a guard against other work on the machine.

A block is as many calls as take about `BLOCK` seconds, so that the clock's own cost vanishes; its figure is the time
of one call. Blocks are taken in windows. On a shared machine the window in which other processes used the least
processor time counts, and the first quiet one ends the measurement; how loud that window was is reported.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

BLOCK = 0.02  # seconds
QUIET = 0.06  # cores' worth of foreign work that still counts as none


@dataclass(frozen=True)
class Timing:
    """Seconds per call: `median` and `minimum` of the blocks, `spread` between their quartiles as a share of it."""

    median: float
    minimum: float
    spread: float
    blocks: int
    calls_per_block: int
    foreign_cores: float

    @staticmethod
    def of(blocks: list[float], calls: int, foreign: float) -> Timing:
        middle = statistics.median(blocks)
        if len(blocks) > 1:
            low, _, high = statistics.quantiles(blocks, n=4, method="inclusive")
        else:
            low = high = middle
        return Timing(middle, min(blocks), (high - low) / middle, len(blocks), calls, foreign)


def measure(
    run: Callable[[int], object], *, min_time: float = 2.0, patience: float = 20.0, by_processor: bool = False
) -> Timing:
    """Time `run(calls)`, which makes that many calls and returns when their results are there.

    `min_time` seconds make a window; windows are repeated until one is quiet or `patience` seconds are over. `by_processor` takes
    processor time, all threads of the process together: for work that waits for nothing, on one core. Other work does not count
    in that, so that any window will do.
    """
    clock = time.process_time if by_processor else time.perf_counter
    run(1)
    warm = _timed(run, 1, clock)
    calls = max(1, math.ceil(BLOCK / max(warm, 1e-9)))
    deadline = time.perf_counter() + min_time / 4
    while time.perf_counter() < deadline:
        run(calls)
    best: tuple[float, list[float]] | None = None
    give_up = time.perf_counter() + patience
    while best is None or (best[0] > QUIET and time.perf_counter() < give_up):
        blocks: list[float] = []
        foreign_before, start = foreign_seconds(), time.perf_counter()
        while len(blocks) < 5 or time.perf_counter() - start < min_time:
            blocks.append(_timed(run, calls, clock) / calls)
        if by_processor:
            return Timing.of(blocks, calls, 0.0)
        foreign = max(0.0, (foreign_seconds() - foreign_before) / (time.perf_counter() - start))
        if best is None or foreign < best[0]:
            best = foreign, blocks
    return Timing.of(best[1], calls, round(best[0], 3))


def _timed(run: Callable[[int], object], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    run(calls)
    return clock() - start


def foreign_seconds() -> float:
    """Processor seconds that every other process has used since the machine started (Linux; elsewhere 0)."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
    except OSError:
        return 0.0
    # user, nice, system, then after idle and iowait: irq, softirq, steal. Guest time is part of user.
    busy = sum(ticks[:3]) + sum(ticks[5:8])
    own = os.times()
    return busy / os.sysconf("SC_CLK_TCK") - own.user - own.system
