"""Run the benchmarks: every framework in its own process, one after another.

python -m benchmarks                                      all of it; rewrites docs/benchmarks.md
python -m benchmarks --rows mlp_mnist cnn_mnist --quick   a look at two rows; writes nothing
python -m benchmarks --peers-python /path/to/python       where PyTorch and JAX live, if not here
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.report import Cell, cold_table, mark_wrong_results, section, time_cell, warm_table, write_into
from benchmarks.rows import ROWS
from benchmarks.worker import FOR_GPUS, FRAMEWORKS

ROOT = Path(__file__).parent.parent
# A cell that takes longer has hung; `torch-max` compiles for a minute or two.
TIME_LIMIT = 600
OURS = ("staged", "program")
"""The rows that run in this interpreter."""


def main() -> None:
    options = parse()
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:  # bytecode, where there is none yet
        subprocess.run(
            [sys.executable, "-c", "import benchmarks.worker, staged"], cwd=ROOT, env=environment(1, cache), check=True
        )
    for row in options.rows:
        for framework in options.frameworks:
            with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
                for cell in measure(framework, row, options, cache):
                    cells.append(cell)
                    print(progress_line(cell), file=sys.stderr, flush=True)
                    if "absent" in cell:
                        break
    wrong = mark_wrong_results(cells)
    machine = describe(options.peers_python)
    date = datetime.date.today().isoformat()
    measured, cells = cells, with_other_rows(cells, options)
    if options.json:
        options.json.write_text(json.dumps({"date": date, "machine": machine, "cells": cells}, indent=1) + "\n")
    for threads in options.threads:
        print(f"\n{threads} thread(s)\n" + "\n".join(warm_table(measured, threads)))
    print("\n" + "\n".join(cold_table(measured)))
    if options.write:
        write_into(options.write, section(cells, machine, date))
    for cell in wrong:
        print(f"WRONG RESULT: {cell['framework']} {cell['row']}, {cell['threads']} threads", file=sys.stderr)
    if wrong or any("failed" in cell for cell in measured):
        raise SystemExit(1)


def with_other_rows(cells: list[Cell], options: argparse.Namespace) -> list[Cell]:
    """The cells with those of the rows that were not measured now, as they were, in the order of the table."""
    if not options.json or not options.json.exists():
        return cells
    others = [cell for cell in json.loads(options.json.read_text())["cells"] if cell["row"] not in options.rows]
    return sorted([*cells, *others], key=lambda cell: list(ROWS).index(cell["row"]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everything = "all of them: "
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=everything + ", ".join(ROWS)
    )
    parser.add_argument(
        "--frameworks",
        nargs="+",
        choices=FRAMEWORKS,
        default=[name for name in FRAMEWORKS if name not in FOR_GPUS],
        metavar="NAME",
        help=everything + ", ".join(name for name in FRAMEWORKS if name not in FOR_GPUS),
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="default: 1 2")
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has PyTorch and JAX")
    parser.add_argument("--min-time", type=float, default=2.0, help="seconds of one window of measuring")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for a window without other work")
    parser.add_argument("--quick", action="store_true", help="short windows, no cold starts, nothing is written")
    parser.add_argument(
        "--write", type=Path, default=ROOT / "docs" / "benchmarks.md", help="the page with the two marks"
    )
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results.json", help="the raw figures")
    parser.add_argument("--no-write", action="store_true", help="write neither the page nor the raw figures")
    options = parser.parse_args()
    if options.quick:
        options.min_time, options.patience = 0.3, 1.0
    if options.quick or options.no_write:
        options.write = options.json = None
    return options


def measure(framework: str, row: str, options: argparse.Namespace, cache: str) -> Iterator[Cell]:
    """The cells of one framework and row: cold starts of training rows with the most threads, then warm ones."""
    most = max(options.threads)
    if ROWS[row].is_training and not options.quick:
        yield cell_of(framework, row, most, options, cache, cold="empty")
        yield cell_of(framework, row, most, options, cache, cold="full")
    for threads in options.threads:
        yield cell_of(framework, row, threads, options, cache)


def cell_of(framework: str, row: str, threads: int, options: argparse.Namespace, cache: str, cold: str = "") -> Cell:
    """Run one worker. A cell that fails says so in the table; it does not end the run.

    `options` has `peers_python`, `min_time` and `patience`, and may have `device` and `limit` (seconds).
    """
    limit = getattr(options, "limit", TIME_LIMIT)
    python = sys.executable if framework in OURS else options.peers_python
    command = [python, "-m", "benchmarks.worker", "--framework", framework, "--row", row, "--threads", str(threads)]
    command += ["--cold"] if cold else ["--min-time", str(options.min_time), "--patience", str(options.patience)]
    command += ["--device", getattr(options, "device", "cpu")]
    cell: Cell = {"framework": framework, "row": row, "threads": threads, "cold": cold}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(threads, cache),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {**cell, "failed": f"not done after {limit} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        return {**cell, "failed": lines[-1][:300], "said": lines[-15:]}
    return {**cell, **json.loads(done.stdout.splitlines()[-1])}


def environment(threads: int, cache: str) -> dict[str, str]:
    """Number of threads for everybody, and every framework's compiled programs in one folder that begins empty."""
    counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "STAGED_NUM_THREADS")
    # An installed package has its bytecode beside it, and so have all of the others: Python keeps ours in its usual place.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        **{name: str(threads) for name in counts},
        "STAGED_CACHE_DIR": f"{cache}/staged",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def progress_line(cell: Cell) -> str:
    head = f"{cell['row']:10} {cell['framework']:14} {cell['threads']} thread(s)"
    if "absent" in cell or "failed" in cell:
        return f"{head}  {cell.get('absent') or 'FAILED: ' + cell['failed']}"
    if cell["cold"]:
        return f"{head}  first step after {cell['cold_s']:.2f} s, cache {cell['cold']}"
    return f"{head}  {time_cell(cell)}"


if __name__ == "__main__":
    main()
