"""The time of programs with dynamic sizes, beside the static program of each size.

python -m benchmarks.dynamic_sizes                       all rows but the slow one; prints their table
python -m benchmarks.dynamic_sizes --rows gpt lstm       two rows
python -m benchmarks.dynamic_sizes --slow --write        all rows; rewrites the table in docs/benchmarks.md

Each row is a process with one thread and an empty cache. It calls the two programs by turns and takes the processor time of its
thread. A ratio is the median over pairs of blocks of calls. The time of the C compiler is processor time, too.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import staged as st
from benchmarks.__main__ import ROOT, environment
from benchmarks.machine import describe
from benchmarks.report import seconds, write_into
from benchmarks.size_rows import ROWS

BEGIN, END = "<!-- sizes: begin (written by `python -m benchmarks.dynamic_sizes`) -->", "<!-- sizes: end -->"
BAR = 1.10
"""The largest ratio that is not marked."""
HEAD = [
    "| row | dynamic / static time, by size | time of the static programs | C compiler: dynamic | static, mean |",
    "|---|---|---|---|---|",
]

Figures = dict[str, Any]


def compiler_seconds(work: Callable[[], object]) -> float:
    """Return the processor time of the processes that `work` starts and waits for."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


def thread_seconds(work: Callable[[], object], calls: int) -> float:
    start = time.thread_time()
    for _ in range(calls):
        work()
    return time.thread_time() - start


def compared(dynamic: Callable[[], object], static: Callable[[], object], budget: float) -> tuple[float, float]:
    """Return the ratio of two times, and the seconds of a call of `static`. All blocks take about `budget` seconds."""
    once = min(thread_seconds(static, 1) for _ in range(3))
    pairs = max(5, min(41, int(budget / (2 * once))))
    calls = max(1, math.ceil(budget / (2 * pairs * once)))
    ratios, times = [], []
    gc.disable()
    for number in range(pairs):
        both = (dynamic, static) if number % 2 else (static, dynamic)
        taken = {work: thread_seconds(work, calls) for work in both}
        ratios.append(taken[dynamic] / taken[static])
        times.append(taken[static] / calls)
    gc.enable()
    return statistics.median(ratios), min(times)


def figures(name: str, sizes: Sequence[int], budget: float) -> Figures:
    """The figures of a row, in this process."""
    row = ROWS[name]
    function = row.make()
    dynamic, found = st.function(dims=row.dims)(function), Figures(ratio={}, static={}, compilers=[])
    for size in sizes:
        given, static = row.arguments(size), st.function(dims="static")(function)
        for each in (dynamic, static):
            taken = compiler_seconds(lambda each=each, given=given: each(*given))
            if each is static or size == sizes[0]:
                found["compilers"].append(taken)
        found["ratio"][size], found["static"][size] = compared(
            lambda given=given: dynamic(*given), lambda static=static, given=given: static(*given), budget
        )
    if len(dynamic.programs) != 1:
        raise SystemExit(f"{name}: {len(dynamic.programs)} programs with dynamic sizes: {dynamic.why_traced()}")
    return found


def measure(name: str, options: argparse.Namespace) -> Figures:
    """`figures`, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.dynamic_sizes",
        "--one",
        "--rows",
        name,
        "--budget",
        str(options.budget),
    ]
    command += ["--sizes", *map(str, options.sizes or ROWS[name].sizes)]
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
        done = subprocess.run(command, cwd=ROOT, env=environment(1, cache), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def line(name: str, found: Figures) -> str:
    """A row of the table."""
    ratios = [f"{size}: {mark(f'{ratio:.2f}', round(ratio, 2) > BAR)}" for size, ratio in found["ratio"].items()]
    times = [seconds(each) for each in found["static"].values()]
    dynamic, *static = found["compilers"]
    cells = [ROWS[name].what, ", ".join(ratios), f"{times[0]} to {times[-1]}"]
    return f"| {' | '.join([*cells, seconds(dynamic), seconds(statistics.mean(static))])} |"


def mark(text: str, is_marked: bool) -> str:
    return f"**{text}**" if is_marked else text


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dynamic_sizes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--sizes", nargs="+", type=int, help="other sizes")
    parser.add_argument("--slow", action="store_true", help="all rows, the slow ones too")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of each comparison")
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/benchmarks.md")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(figures(options.rows[0], options.sizes, options.budget)))
        return
    rows = options.rows or [name for name, row in ROWS.items() if options.slow or not row.slow]
    raw = ROOT / "benchmarks" / "dynamic_sizes.json"
    known = json.loads(raw.read_text()) if raw.exists() else {}
    print("\n".join(HEAD))
    for name in rows:
        known[name] = measure(name, options)
        print(line(name, known[name]), flush=True)
    if not options.write:
        return
    known = {name: known[name] for name in ROWS if name in known}
    raw.write_text(json.dumps(known, indent=1) + "\n")
    words = ", ".join(f"{key} {value}" for key, value in describe(sys.executable).items())
    head = f"Measured on {datetime.date.today().isoformat()}: {words}."
    lines = [line(name, found) for name, found in known.items()]
    write_into(ROOT / "docs" / "benchmarks.md", "\n".join([head, "", *HEAD, *lines, ""]), BEGIN, END)


if __name__ == "__main__":
    main()
