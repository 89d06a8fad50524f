"""The examples' programs beside PyTorch's: processor time on one core, since the machine may be busy.

python -m benchmarks.examples                     # all rows; rewrites their table in docs/benchmarks.md
python -m benchmarks.examples --rows vae pinn     # measures two rows again, leaves the others as they are
python -m benchmarks.examples --frameworks staged # without PyTorch; writes nothing

Each figure is from a process of its own, one after another, with empty caches. Steps: the time of twice as many steps less that of
once as many, the median of three, all threads of the process together. Compiling is all from the trace to machine code, the
compiler's processes included; in PyTorch it is the first step.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from benchmarks.__main__ import ROOT, environment
from benchmarks.example_rows import ROWS
from benchmarks.machine import describe
from benchmarks.report import seconds, write_into

FRAMEWORKS = ("staged", "torch-eager", "torch-compile")
BEGIN, END = "<!-- examples: begin (written by `python -m benchmarks.examples`) -->", "<!-- examples: end -->"
TIMES = 3
LIMIT = 600.0
"""Seconds for a process."""

Figures = dict[str, float]


def clock() -> float:
    """Seconds of processor time of this process and of those that it has waited for: the compiler's."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def timed(work: Callable[[], object]) -> float:
    begin = clock()
    work()
    return clock() - begin


def ours(name: str) -> tuple[Callable[[int], object], Figures]:
    """A run of so many units, and what was measured before it."""
    function, arguments, static = ROWS[name].program()
    none = arguments(0)
    begin = clock()
    program = function.stage(*none, **static)
    staging = clock() - begin

    def run(units: int) -> None:
        for _ in range(units if ROWS[name].calls else 1):
            program(*arguments(units))

    return run, {"staging": staging, "compile": timed(lambda: program(*none))}


def torchs(name: str, framework: str) -> tuple[Callable[[int], object], Figures]:
    """The same by PyTorch. Its compiler works in this process, not in others that would outlive a measurement."""
    import torch

    from benchmarks.frameworks.example_peers import PEERS

    torch.set_num_threads(1)
    run = PEERS[name](torch.compile if framework == "torch-compile" else lambda function: function)
    return lambda units: run(units * ROWS[name].steps), {"compile": timed(lambda: run(1))}


def figures(name: str, framework: str) -> Figures:
    """In a process of its own: seconds of a step, of staging and of compiling, and the most memory, in bytes."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    run, found = ours(name) if framework == "staged" else torchs(name, framework)
    many = ROWS[name].many
    run(1)
    steps = []
    for _ in range(TIMES):
        once, twice = timed(lambda: run(many)), timed(lambda: run(2 * many))
        steps.append((twice - once) / (many * ROWS[name].steps))
    # A process' own peak: `ru_maxrss` begins with that of its parent.
    with open("/proc/self/status") as status:
        (peak,) = (int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    return {**found, "step": statistics.median(steps), "memory": float(peak)}


def measure(name: str, framework: str) -> Figures:
    """`figures` of a new process."""
    command = [sys.executable, "-m", "benchmarks.examples", "--rows", name, "--one", framework]
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
        variables = {**environment(1, cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        done = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=LIMIT
        )
    if done.returncode != 0:
        raise SystemExit(f"{framework}, {name}:\n{done.stderr[-2000:]}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def line(name: str, cells: dict[str, Figures]) -> str:
    """A row of the table."""
    mine = cells["staged"]
    peers = {framework: found for framework, found in cells.items() if framework != "staged"}
    best = min(peers, key=lambda framework: peers[framework]["step"]) if peers else None

    def each(what: Callable[[Figures], str]) -> str:
        return " | ".join([what(mine), *(what(cells[name]) if name in cells else "-" for name in FRAMEWORKS[1:])])

    words = [
        f"[{name}](../examples/{name}/README.md): {ROWS[name].what}",
        each(lambda found: f"{1.0 / found['step']:.3g}"),
        f"**{mine['step'] / peers[best]['step']:.2f}** {best}" if best else "-",
        seconds(mine["staging"]),
        each(lambda found: seconds(found["compile"])),
        each(lambda found: f"{found['memory'] / 2**20:.0f}"),
    ]
    return f"| {' | '.join(words)} |"


HEAD = (
    "| example | steps/s: staged | torch-eager | torch-compile | time of a step / best of torch's | staging | compile: staged "
    "| torch-eager | torch-compile | MiB: staged | torch-eager | torch-compile |\n" + "|---" * 12 + "|"
)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.examples", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=FRAMEWORKS, metavar="NAME")
    parser.add_argument("--one", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(figures(options.rows[0], options.one)))
        return
    print(HEAD)
    raw = ROOT / "benchmarks" / "examples.json"
    known = json.loads(raw.read_text()) if raw.exists() else {}
    for name in options.rows:
        chosen = [
            framework for framework in options.frameworks if framework == "staged" or framework in ROWS[name].peers
        ]
        known[name] = {framework: measure(name, framework) for framework in chosen}
        print(line(name, known[name]), flush=True)
    if "staged" not in options.frameworks or len(options.frameworks) == 1:
        return
    raw.write_text(json.dumps({name: known[name] for name in ROWS if name in known}, indent=1) + "\n")
    words = ", ".join(f"{key} {value}" for key, value in describe(sys.executable).items())
    lines = [line(name, known[name]) for name in ROWS if name in known]
    head = f"Measured on {datetime.date.today().isoformat()}: {words}."
    write_into(ROOT / "docs" / "benchmarks.md", "\n".join([head, "", HEAD, *lines, ""]), BEGIN, END)


if __name__ == "__main__":
    main()
