"""The cost of a call from Python's own loop: staged functions, programs, PyTorch, `torch.compile` and JAX.

python -m benchmarks.calls                                all of it; rewrites its tables in docs/benchmarks.md
python -m benchmarks.calls --rows call_add --quick        a look at one row; writes nothing
python -m benchmarks.calls --peers-python /path/to/python where PyTorch and JAX live, if not here

Each figure comes from a process of its own, one after another, pinned to one core: processor time of all its threads, which is
what the clock shows where nothing else runs, and which other work on the machine does not change. The last table is what guards cost: a
function that reads 1, 10 and 100 objects, against its program.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.__main__ import OURS, ROOT, cell_of, environment, progress_line
from benchmarks.call_rows import CALLS, GUARDED
from benchmarks.machine import describe
from benchmarks.report import Cell, absences, mark_wrong_results, seconds, warm_table, write_into
from benchmarks.timing import measure
from benchmarks.worker import CALL_FRAMEWORKS

BEGIN, END = "<!-- calls: begin (written by `python -m benchmarks.calls`) -->", "<!-- calls: end -->"
ROUNDS = 7
"""Of the table of guards: call and program by turns, the best of each."""


def main() -> None:
    """The command line."""
    options = parse()
    if options.measure_guards:
        print(json.dumps(guard_figures(options.min_time)))
        return
    cells: list[Cell] = []
    for row in options.rows:
        for framework in options.frameworks:
            with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
                cells.append(cell_of(framework, row, 1, options, cache))
                print(progress_line(cells[-1]), file=sys.stderr, flush=True)
    wrong = mark_wrong_results(cells)
    guards = guards_in_a_process(options) if options.guards else None
    print("\n".join(section(cells, guards)))
    if options.write:
        raw = ROOT / "benchmarks" / "calls.json"
        known = json.loads(raw.read_text()) if raw.exists() else {"cells": [], "guards": []}
        others = [cell for cell in known["cells"] if cell["row"] not in options.rows]
        cells = sorted([*cells, *others], key=lambda cell: list(CALLS).index(cell["row"]))
        guards = guards or known["guards"]
        machine, date = describe(options.peers_python), datetime.date.today().isoformat()
        words = ", ".join(f"{key} {value}" for key, value in machine.items())
        raw.write_text(
            json.dumps({"date": date, "machine": machine, "cells": cells, "guards": guards}, indent=1) + "\n"
        )
        page = [f"Measured on {date}: {words}.", "", *section(cells, guards)]
        write_into(ROOT / "docs" / "benchmarks.md", "\n".join(page), BEGIN, END)
    for cell in wrong:
        print(f"WRONG RESULT: {cell['framework']} {cell['row']}", file=sys.stderr)
    if wrong or any("failed" in cell for cell in cells):
        raise SystemExit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", choices=CALLS, default=list(CALLS), metavar="ROW", help=", ".join(CALLS))
    parser.add_argument(
        "--frameworks", nargs="+", choices=CALL_FRAMEWORKS, default=list(CALL_FRAMEWORKS), metavar="NAME"
    )
    parser.add_argument("--no-guards", dest="guards", action="store_false", help="without the table of guards")
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has PyTorch and JAX")
    parser.add_argument("--min-time", type=float, default=2.0, help="seconds of one window of measuring")
    parser.set_defaults(patience=0.0)  # it measures processor time
    parser.add_argument("--quick", action="store_true", help="short windows; nothing is written")
    parser.add_argument(
        "--no-write", dest="write", action="store_false", help="write neither the page nor the raw figures"
    )
    parser.add_argument("--measure-guards", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.min_time, options.write = 0.3, False
    return options


# ---- what guards cost ---------------------------------------------------------------------------


def guard_figures(min_time: float) -> list[dict[str, Any]]:
    """In a process of its own: seconds of a guarded call and of its program, by the number of objects that are read."""
    from benchmarks.frameworks.calls_ours import calling, guarded

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    found = []
    for count in GUARDED:
        function, arguments = guarded(count)
        ways = {"call": calling(function, arguments), "program": calling(function.stage(*arguments[0]), arguments)}
        taken = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                taken[name].append(measure(way.run, min_time=min_time / ROUNDS, by_processor=True))
        if function.why_traced() or len(function.programs) != 1:
            raise SystemExit(f"{count} objects: the calls traced, {function.why_traced()}")
        best = {name: asdict(min(timings, key=lambda timing: timing.median)) for name, timings in taken.items()}
        found.append({"objects": count, **best})
    return found


def guards_in_a_process(options: argparse.Namespace) -> list[dict[str, Any]]:
    """`guard_figures`, with an empty cache."""
    command = [sys.executable, "-m", "benchmarks.calls", "--measure-guards"]
    command += ["--min-time", str(options.min_time)]
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
        done = subprocess.run(command, cwd=ROOT, env=environment(1, cache), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the table of guards:\n{done.stderr}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- the page -----------------------------------------------------------------------------------


def section(cells: Sequence[Cell], guards: Sequence[dict[str, Any]] | None) -> list[str]:
    """The generated part of docs/benchmarks.md."""
    lines = [*warm_table(cells, 1, rows=CALLS, ours=OURS), ""]
    gone = absences(cells)
    if gone:
        lines += ["Not measured:", "", *gone, ""]
    return [*lines, *guard_table(guards), ""] if guards else lines


def guard_table(guards: Sequence[dict[str, Any]]) -> list[str]:
    """The time that the checks of a call add to that of its program."""
    lines = ["| objects read while staging | `f(x)` | `program(x)` | a guarded call adds |", "|---|---|---|---|"]
    for row in guards:
        call, program = row["call"]["median"], row["program"]["median"]
        lines.append(
            f"| {row['objects']} | {seconds(call)} | {seconds(program)} | {seconds(max(call - program, 0.0))} |"
        )
    return lines


if __name__ == "__main__":
    main()
