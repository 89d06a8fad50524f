"""Training steps of the benchmarks' rows on the GPU: ours and PyTorch's, in the same run, from the same weights.

Each framework is a process of its own (`benchmarks.worker --device gpu`): a warm loop of steps, batches and weights on the
device, and the loss after a few steps, which has to be everybody's.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from benchmarks.__main__ import cell_of
from benchmarks.report import Cell, mark_wrong_results, seconds, time_cell, time_of
from tests.gpu_check.processes import started_by
from tests.gpu_check.report import Result
from tests.gpu_check.setting import Setting

FRAMEWORKS = {
    "mlp_mnist": ("torch-eager", "torch-compile", "torch-graphs"),
    "cnn_mnist": ("torch-eager", "torch-compile", "torch-graphs"),
    "char_lstm": ("torch-eager", "torch-cells", "torch-compile"),
    "treelstm": ("torch-eager", "torch-compile"),
}
"""By row, the peers. torch-graphs compiles with mode="reduce-overhead", which replays CUDA graphs."""
NOT_WRITTEN = {
    ("treelstm", "torch-compile"): "not written: the recursion would be compiled anew for the shape of each tree",
}
WORKER_LIMIT, SHORTEST = 100.0, 20.0
"""Seconds for one framework, compiling included, and those with fewer than which it is not begun."""
OVER = "not begun: the part's time was over"


def training(row: str) -> Callable[[Setting], Result]:
    """The part that compares a row."""

    def run(setting: Setting) -> Result:
        cells = [measured("staged", row, setting)]
        peers = FRAMEWORKS[row] if not setting.rehearsed else ("torch-eager",)
        cells += [measured(peer, row, setting) for peer in peers]
        mark_wrong_results(cells)
        return result_of(cells)

    return run


def measured(framework: str, row: str, setting: Setting) -> Cell:
    """The worker's result for one framework; a rehearsal has PyTorch on the processor."""
    if (row, framework) in NOT_WRITTEN:
        return {"framework": framework, "row": row, "absent": NOT_WRITTEN[row, framework]}
    limit = 600.0 if setting.rehearsed else min(WORKER_LIMIT, setting.left())
    if limit < SHORTEST:
        return {"framework": framework, "row": row, "failed": OVER}
    on_gpu = framework == "staged" or not setting.rehearsed
    times = (1.0, 3.0) if not setting.rehearsed else (0.05, 0.1)
    options = argparse.Namespace(peers_python=sys.executable, min_time=times[0], patience=times[1])
    options.device, options.limit = "gpu" if on_gpu else "cpu", limit
    threads = min(8, os.cpu_count() or 1)
    cell = cell_of(framework, row, threads, options, str(setting.folder / "cache"))
    for left_over in started_by(os.getpid()):  # by a worker that was ended: it would disturb the next one
        with suppress(ProcessLookupError):
            os.kill(left_over, signal.SIGKILL)
    return cell


def result_of(cells: list[Cell]) -> Result:
    """The table of a row: ours first. It fails where ours does, or differs from PyTorch's."""
    ours = time_of(cells[0])
    rows = [["framework", "a step, or an epoch of trees", "as a multiple of ours", "import to first step", "loss"]]
    ratios = []
    for cell in cells:
        words = time_cell(cell) if not {"absent", "failed"} & set(cell) else cell.get("absent") or cell["failed"]
        theirs = time_of(cell)
        ratio = f"{theirs / ours:.2f}" if ours and theirs else ""
        if ratio and cell is not cells[0]:
            ratios.append(f"{cell['framework']} takes {ratio} times as long")
        cold = seconds(cell["cold_s"]) if "cold_s" in cell else ""
        loss = f"{cell['digest'][0]:.6f}" if "digest" in cell else ""
        rows.append([cell["framework"], words, ratio, cold, loss])
    unfinished = any(cell.get("failed") == OVER for cell in cells)
    if ours is None:
        why = "a loss that is not PyTorch's" if cells[0].get("wrong") else rows[1][1]
        return Result("failed", why, table=rows, details=cells[0].get("said", []), unfinished=unfinished)
    return Result("passed", "; ".join([f"{seconds(ours)} a step", *ratios]), table=rows, unfinished=unfinished)
