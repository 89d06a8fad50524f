"""Training steps of the benchmarks' rows on the GPU: ours and PyTorch's, in the same run, from the same weights.

Each framework is a process of its own (`benchmarks.worker --device gpu`): a warm loop of steps, batches and weights on the
device, and the loss after a few steps, which has to be everybody's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from benchmarks.__main__ import cell_of
from benchmarks.report import Cell, mark_wrong_results, seconds, time_cell, time_of
from tests.gpu_check.report import Result
from tests.gpu_check.setting import Setting

FRAMEWORKS = {
    "mlp_mnist": ("torch-eager", "torch-compile", "torch-graphs"),
    "cnn_mnist": ("torch-eager", "torch-compile", "torch-graphs"),
    "char_lstm": ("torch-eager", "torch-cells", "torch-compile"),
    "treelstm": ("torch-eager",),
}
"""By row, the peers. torch-graphs compiles with mode="reduce-overhead", which replays CUDA graphs."""
WORKER_LIMIT = 110
"""Seconds for one framework, compiling included: four of them are below a part's limit."""


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
    """What the worker says of one framework; a rehearsal has PyTorch on the processor."""
    on_gpu = framework == "staged" or not setting.rehearsed
    times = (1.0, 3.0) if not setting.rehearsed else (0.05, 0.1)
    options = argparse.Namespace(peers_python=sys.executable, min_time=times[0], patience=times[1])
    options.device, options.limit = "gpu" if on_gpu else "cpu", WORKER_LIMIT if not setting.rehearsed else 600
    threads = min(8, os.cpu_count() or 1)
    return cell_of(framework, row, threads, options, str(setting.folder / "cache"))


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
    if ours is None:
        why = "a loss that is not PyTorch's" if cells[0].get("wrong") else rows[1][1]
        return Result("failed", why, table=rows, details=cells[0].get("said", []))
    return Result("passed", "; ".join([f"{seconds(ours)} a step", *ratios]), table=rows)
