"""`python -m tests.gpu_check.timing FRAMEWORK FOLDER ROW ... [--small] [--prepare]`: measures rows, one after the other.

A row is "kernel softmax f32", "step gpt2 bf16" or "copy". A line of FOLDER's journal is written when a row begins, and one
with its time when it ends.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from tests.gpu_check import programs
from tests.gpu_check.timing import clock, kernels, steps

COPIED = 1 << 30
COMPILERS = {"torch-eager": None, "torch-compile": "default", "torch-graphs": "reduce-overhead"}
"""PyTorch's modes by framework."""
LARGE = 2
"""Processes that compile a large network at the same time: each has its arrays on the device meanwhile."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_check.timing", description=__doc__)
    parser.add_argument("framework", choices=("staged", *COMPILERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", nargs="+", metavar="ROW")
    parser.add_argument("--journal", default="journal.jsonl")
    parser.add_argument("--small", action="store_true", help="sizes of a rehearsal")
    parser.add_argument("--prepare", action="store_true", help="note our programs, run nothing")
    options = parser.parse_args()
    file = os.open(options.folder / options.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(**entry: Any) -> None:
        os.write(file, (json.dumps(entry) + "\n").encode())

    measure = ours if options.framework == "staged" else torchs
    for row in options.rows:
        note(begins=row, framework=options.framework)
        try:
            found = measure(row, options)
        except Exception as failure:  # the other rows can still be measured
            found = {"failed": f"{type(failure).__name__}: {failure}"[:2000]}
        note(row=row, framework=options.framework, **found)
        gc.collect()
    return 0


def parsed(row: str) -> tuple[str, str, str]:
    """(kind, name, precision) of a row."""
    kind, _, rest = row.partition(" ")
    name, _, precision = rest.rpartition(" ")
    return kind, name, precision


def ours(row: str, options: argparse.Namespace) -> dict[str, Any]:
    """The time of our program: staged and compiled while other processes measure."""
    import numpy as np

    plan = clock.SMALL if options.small else clock.FULL
    kind, name, precision = parsed(row)
    if row == "copy":
        if options.prepare:
            return {}
        with clock.locked(options.folder, "device"):
            return kernels.copy_bandwidth(COPIED if not options.small else 1 << 16, clock.by_events(), plan)
    if kind == "kernel":
        function, arguments = kernels.ours(kernels.KERNELS[name], precision, options.small)
    else:
        function, arguments = steps.ours(steps.NETWORKS[name], precision, options.small)
    program = function.stage(*arguments, 1)
    if options.prepare:
        programs.note(program._artifact)
        return {}
    program.compile()
    with clock.locked(options.folder, "device"):
        seconds = clock.by_events()
        value = np.asarray(program(*arguments, plan.warm), np.float64).ravel()
        found = clock.time_of(lambda turns: program(*arguments, turns), seconds, plan)
        return {**found, "value": value.tolist(), "calls": calls_of(program.source), "notes": list(map(str, program.notes))}


def calls_of(source: str) -> dict[str, int]:
    """The call sites of kernels, of libraries, of copies and of graphs in a program."""
    return {
        "kernels": len(re.findall(r"CUDA_CHECK\(\d+, launch_", source)),
        "library calls": len(re.findall(r"if \(\w+\(gpu, host, \d+,", source)),
        "copies": len(re.findall(r"CUDA_CHECK\(\d+, cudaMemcpyAsync\(", source)),
        "graphs": len(re.findall(r"^    Graph \w+;", source, re.MULTILINE)),
    }


def torchs(row: str, options: argparse.Namespace) -> dict[str, Any]:
    """The time of PyTorch. What it compiles, it compiles while other processes measure."""
    import torch

    plan = clock.SMALL if options.small else clock.FULL
    mode = COMPILERS[options.framework]
    if not torch.cuda.is_available() and not options.small:
        return {"failed": "PyTorch has no GPU here"}
    torch._dynamo.reset()

    def compiled(function: Callable[..., Any]) -> Any:
        return function if mode is None else torch.compile(function, mode=mode)

    kind, name, precision = parsed(row)
    with ExitStack() as stack:
        if mode is not None and name in ("gpt2", "resnet50"):
            stack.enter_context(clock.locked(options.folder, "large", LARGE))
        if kind == "kernel":
            run = kernels.torchs(kernels.KERNELS[name], precision, options.small, compiled)
        else:
            run = steps.torchs(steps.NETWORKS[name], precision, options.small, compiled)
        # The first run compiles, and has the value: later ones go on with other weights.
        with clock.locked(options.folder, "device") if mode is None else nullcontext():
            value = run(plan.warm).double().cpu().numpy().ravel()
        with clock.locked(options.folder, "device"):
            found = clock.time_of(run, clock.by_torch(), plan)
        return {**found, "value": value.tolist()}


if __name__ == "__main__":
    sys.exit(main())
