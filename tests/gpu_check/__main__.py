"""Everything that a machine with a GPU can prove, in parts of a few minutes each, any of which may be run again.

python -m tests.gpu_check                        all parts that have no result yet; rewrites docs/results/gpu-<device>.md
python -m tests.gpu_check --parts memcheck       these parts, again
python -m tests.gpu_check --list                 what there is to run, and what has a result
python -m tests.gpu_check --within 540           what can be done in so many seconds; what is left, the next time
python -m tests.gpu_check --rehearse             all parts on the emulated device, small: whether they would run

Each part is a process of its own with a time limit, and leaves one file in the results folder; the page is written anew
after each. A part that a tool of the machine refuses is recorded as refused, with the tool's words. Needs Python, NumPy,
cffi with pycparser, optree, platformdirs, pytest and cuda-bindings with NVIDIA's runtime; nvcc and compute-sanitizer for
the sanitizer parts, PyTorch for the comparisons. No network, and no data: what is computed with is made here.

To go on on another machine of the same kind, take the results folder along: parts with a result are not run again, and the
suite does the tests that are left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.gpu_check.report import Result, device_name, page, state_of
from tests.gpu_check.setting import ROOT, Setting

try:
    from tests.gpu_check.parts import PARTS
except ModuleNotFoundError as missing:
    sys.exit(
        f"{missing}. The GPU check needs numpy, pytest, cffi, pycparser, optree, platformdirs and cuda-bindings; where there is "
        "no network, `pip download` their wheels elsewhere, `pip install --no-index --target FOLDER *.whl`, and "
        "set PYTHONPATH=FOLDER."
    )

SHORTEST = 45  # seconds that must be left for a part to begin
UNFINISHED = "not begun: the time was over"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}; run again")
    parser.add_argument("--results", type=Path, help="the folder that parts leave results in (default .gpu-check)")
    parser.add_argument("--page", type=Path, help="the page to write (default docs/results/gpu-<device>.md)")
    parser.add_argument(
        "--within", type=float, default=math.inf, metavar="SECONDS", help="end all by then, the page written"
    )
    parser.add_argument("--list", action="store_true", help="show the parts and their state, run nothing")
    parser.add_argument("--rehearse", action="store_true", help="on the emulated device; the page goes to the results")
    parser.add_argument("--run", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=math.inf, help=argparse.SUPPRESS)
    options = parser.parse_args()
    deadline = time.monotonic() + options.within
    folder = options.results or ROOT / (".gpu-check" if not options.rehearse else ".gpu-check/rehearsal")
    setting = Setting(folder.resolve(), options.rehearse, options.limit)
    if options.run:
        answer_of(options.run, setting).write_text(json.dumps(PARTS[options.run].run(setting).as_dict()))
        return 0
    setting.folder.mkdir(parents=True, exist_ok=True)
    results = read(setting.folder)
    if options.list:
        for name, part in PARTS.items():
            print(f"{name:12} {state_of(results[name]) if name in results else 'to do':20} {part.what}")
        return 0
    wanted = options.parts or [name for name in PARTS if name not in results or results[name].unfinished]
    for name in wanted:
        limit = min(PARTS[name].limit, deadline - time.monotonic())
        if limit < SHORTEST and not setting.rehearsed:
            print(f"{name}: {UNFINISHED}", file=sys.stderr, flush=True)
            continue
        print(f"{name}: {PARTS[name].what}", file=sys.stderr, flush=True)
        results[name] = run(name, setting, limit)
        (setting.folder / f"{name}.json").write_text(json.dumps(results[name].as_dict(), indent=1) + "\n")
        took = f"{results[name].seconds:.0f} s"
        print(f"  {state_of(results[name])} after {took}: {results[name].summary}", file=sys.stderr, flush=True)
        if name == "machine" and results[name].state != "passed":
            return 1  # without a GPU there is nothing to prove, and no page to write
        target = options.page or default_page(setting, results)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(results, {name: part.what for name, part in PARTS.items()}, setting.rehearsed))
        print(f"  wrote {target}", file=sys.stderr, flush=True)
    is_whole = set(wanted) <= set(results) and not any(result.unfinished for result in results.values())
    return 0 if is_whole and all(result.state in ("passed", "refused") for result in results.values()) else 1


def answer_of(name: str, setting: Setting) -> Path:
    """The file in which the process of a part leaves its result: its output may come from any library."""
    return setting.folder / f"{name}.answer.json"


def default_page(setting: Setting, results: dict[str, Result]) -> Path:
    """The path of the page: that of a rehearsal stays with the results."""
    if setting.rehearsed:
        return setting.folder / "page.md"
    return ROOT / "docs" / "results" / f"gpu-{device_name(results)}.md"


def read(folder: Path) -> dict[str, Result]:
    """The results that there are, in the order of the parts."""
    found = {}
    for name in PARTS:
        path = folder / f"{name}.json"
        if path.is_file():
            found[name] = Result(**json.loads(path.read_text()))
    return found


def run(name: str, setting: Setting, limit: float) -> Result:
    """One part, in a process of its own: what crashes or hangs there is a result."""
    limit = math.inf if setting.rehearsed else limit
    command = [sys.executable, "-m", "tests.gpu_check", "--run", name, "--results", str(setting.folder)]
    command += ["--rehearse"] if setting.rehearsed else ["--limit", str(limit)]
    environment = {key: value for key, value in os.environ.items() if key != "STAGED_CUDA"}
    environment |= {"STAGED_CUDA": "emulate"} if setting.rehearsed else {}
    environment.setdefault("STAGED_CACHE_DIR", str(setting.folder / "programs"))
    answer, log = answer_of(name, setting), setting.folder / f"{name}.log"
    answer.unlink(missing_ok=True)
    begin = time.monotonic()
    is_over = False
    with log.open("w") as file:
        # A group of its own: what the part has started ends with it. Not a pipe, which any of those might hold open.
        started = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            started.wait(None if math.isinf(limit) else limit)
        except subprocess.TimeoutExpired:
            is_over = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
        status = started.wait()
    took = time.monotonic() - begin
    part = PARTS[name]
    try:
        result = Result(**json.loads(answer.read_text()))
        return replace(result, seconds=took, unfinished=result.unfinished and (part.goes_on or limit < part.limit))
    except (OSError, ValueError, TypeError):
        lines = log.read_text(errors="replace").splitlines()[-30:]
        summary = f"not done after {limit:.0f} s" if is_over else f"exit status {status}"
        return Result("failed", summary, details=lines, seconds=took, unfinished=is_over and limit < part.limit)


if __name__ == "__main__":
    sys.exit(main())
