"""One process measures one row in one framework and prints one line of JSON.

`python -m benchmarks.worker --framework numpy --row sgemm_64 --threads 1 [--cold] [--device gpu]`

The data is in memory before the clock of a cold start begins; it ends when the first call or trained step is done. What
every process needs (Python itself, NumPy) is not in it.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import resource
import sys
import time
from dataclasses import asdict, replace
from typing import Any

from benchmarks.call_rows import CALLS, data_of_call
from benchmarks.rows import ROWS, Row, data_of, digest
from benchmarks.timing import measure
from benchmarks.workload import NotWritten

# Framework -> its module, which has `build(framework, row, threads, data) -> Workload`, with a further `device="cpu"` where
# it can run on a GPU.
FRAMEWORKS = {
    "staged": "benchmarks.frameworks.ours",
    "torch-eager": "benchmarks.frameworks.pytorch",
    "torch-cells": "benchmarks.frameworks.pytorch_recurrent",
    "torch-compile": "benchmarks.frameworks.pytorch",
    "torch-max": "benchmarks.frameworks.pytorch",
    "torch-graphs": "benchmarks.frameworks.pytorch",
    "jax": "benchmarks.frameworks.jax_xla",
    "jax-loop": "benchmarks.frameworks.jax_xla",
    "numpy": "benchmarks.frameworks.plain_numpy",
}
CALL_FRAMEWORKS = {
    "staged": "benchmarks.frameworks.calls_ours",
    "program": "benchmarks.frameworks.calls_ours",
    "torch-eager": "benchmarks.frameworks.calls_pytorch",
    "torch-compile": "benchmarks.frameworks.calls_pytorch",
    "jax": "benchmarks.frameworks.calls_jax",
}
"""The same for the rows of `benchmarks.calls`."""
FOR_GPUS = ("torch-graphs",)  # on a processor it is the same as another
LIBRARIES = ("staged", "torch", "jax", "jaxlib")  # what may be missing; any other missing module is a fault
CHECK_STEPS = {"train": 8, "recurrent": 4, "trees": 1, "call": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", required=True, choices=sorted({*FRAMEWORKS, *CALL_FRAMEWORKS}))
    parser.add_argument("--row", required=True, choices=[*ROWS, *CALLS])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu: `staged` and PyTorch only")
    parser.add_argument("--cold", action="store_true", help="only the first call, and how long it took from the import")
    parser.add_argument("--min-time", type=float, default=2.0)
    parser.add_argument("--patience", type=float, default=20.0)
    options = parser.parse_args()
    try:
        answer = work(options)
    except NotWritten:
        answer = {"absent": "no such row in this framework"}
    except ModuleNotFoundError as error:
        if error.name not in LIBRARIES:
            raise
        answer = {"absent": f"not installed: {error.name}"}
    print(json.dumps(answer))


def work(options: argparse.Namespace) -> dict[str, Any]:
    row = CALLS[options.row] if options.row in CALLS else ROWS[options.row]
    is_call = row.kind == "call"
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-options.threads :])
    data = data_for(row)
    start = time.perf_counter()
    framework = importlib.import_module((CALL_FRAMEWORKS if is_call else FRAMEWORKS)[options.framework])
    imported = time.perf_counter()
    on = {} if options.device == "cpu" else {"device": options.device}
    if on and "device" not in inspect.signature(framework.build).parameters:
        raise NotWritten
    workload = framework.build(options.framework, row, options.threads, data, **on)
    built = time.perf_counter()
    result = workload.run(1)
    done = time.perf_counter()
    answer: dict[str, Any] = {
        "import_s": imported - start,
        "build_s": built - imported,
        "first_call_s": done - built,
        "cold_s": done - start,
        **workload.figures,
    }
    if not options.cold:
        if row.is_training or is_call:
            result = workload.run(CHECK_STEPS[row.kind])
        answer["digest"] = digest(workload.read(result))
        timing = measure(workload.run, min_time=options.min_time, patience=options.patience, by_processor=is_call)
        answer["timing"] = asdict(timing)
    scale = 1 if sys.platform == "darwin" else 1024
    answer["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    return answer


def data_for(row: Row) -> Any:
    """The arrays of a row; of a call that is a step, those of the training."""
    if row.steps_of:
        return data_of(replace(ROWS[row.steps_of], batch=row.batch))
    return data_of_call(row) if row.kind == "call" else data_of(row)


if __name__ == "__main__":
    main()
