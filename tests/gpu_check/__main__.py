"""Everything that a machine with a GPU can prove, in parts of a few minutes each, any of which may be run again.

python -m tests.gpu_check                        all parts that have no result yet; rewrites docs/results/gpu-<device>.md
python -m tests.gpu_check --parts memcheck       these parts, again
python -m tests.gpu_check --list                 what there is to run, and what has a result
python -m tests.gpu_check --rehearse             all parts on the emulated device, small: whether they would run

Each part is a process of its own with a time limit, and leaves one file in the results folder; the page is written anew
after each. A part that a tool of the machine refuses is recorded as refused, with the tool's words. Needs Python, NumPy,
cffi with pycparser, optree, platformdirs, pytest and cuda-bindings with NVIDIA's runtime; nvcc and compute-sanitizer for
the sanitizer parts, PyTorch for the comparisons. No network, and no data: what is computed with is made here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.gpu_check.parts import PARTS
from tests.gpu_check.report import Result, device_name, page
from tests.gpu_check.setting import ROOT, Setting

TIME_LIMIT = 8 * 60  # seconds of one part


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}; run again")
    parser.add_argument("--results", type=Path, help="the folder that parts leave results in (default .gpu-check)")
    parser.add_argument("--page", type=Path, help="the page to write (default docs/results/gpu-<device>.md)")
    parser.add_argument("--list", action="store_true", help="show the parts and their state, run nothing")
    parser.add_argument("--rehearse", action="store_true", help="on the emulated device; the page goes to the results")
    parser.add_argument("--run", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.results or ROOT / (".gpu-check" if not options.rehearse else ".gpu-check/rehearsal")
    setting = Setting(folder.resolve(), options.rehearse)
    if options.run:
        print(json.dumps(PARTS[options.run].run(setting).as_dict()))
        return 0
    setting.folder.mkdir(parents=True, exist_ok=True)
    results = read(setting.folder)
    if options.list:
        for name, part in PARTS.items():
            print(f"{name:12} {results[name].state if name in results else 'to do':8} {part.what}")
        return 0
    for name in options.parts or [name for name in PARTS if name not in results]:
        print(f"{name}: {PARTS[name].what}", file=sys.stderr, flush=True)
        results[name] = run(name, setting)
        (setting.folder / f"{name}.json").write_text(json.dumps(results[name].as_dict(), indent=1) + "\n")
        took = f"{results[name].seconds:.0f} s"
        print(f"  {results[name].state} after {took}: {results[name].summary}", file=sys.stderr, flush=True)
        if name == "machine" and results[name].state != "passed":
            return 1  # without a GPU there is nothing to prove, and no page to write
        target = options.page or default_page(setting, results)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(results, {name: part.what for name, part in PARTS.items()}, setting.rehearsed))
        print(f"  wrote {target}", file=sys.stderr, flush=True)
    return 0 if all(result.state in ("passed", "refused") for result in results.values()) else 1


def default_page(setting: Setting, results: dict[str, Result]) -> Path:
    """Where the page goes: that of a rehearsal stays with the results."""
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


def run(name: str, setting: Setting, limit: float = TIME_LIMIT) -> Result:
    """One part, in a process of its own: what crashes or hangs there is a result."""
    command = [sys.executable, "-m", "tests.gpu_check", "--run", name, "--results", str(setting.folder)]
    command += ["--rehearse"] if setting.rehearsed else []
    environment = {key: value for key, value in os.environ.items() if key != "STAGED_CUDA"}
    environment |= {"STAGED_CUDA": "emulate"} if setting.rehearsed else {}
    environment.setdefault("STAGED_CACHE_DIR", str(setting.folder / "programs"))
    begin = time.monotonic()
    # A group of its own: what the part has started ends with it.
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, complained = started.communicate(timeout=None if setting.rehearsed else limit)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        said, complained = started.communicate()
        lines = (said + complained).splitlines()[-30:]
        return Result("failed", f"not done after {limit:.0f} s", details=lines, seconds=limit)
    took = time.monotonic() - begin
    try:
        return replace(Result(**json.loads(said.strip().splitlines()[-1])), seconds=took)
    except (ValueError, IndexError, TypeError):
        lines = (said + complained).splitlines()[-30:]
        return Result("failed", f"exit status {started.returncode}", details=lines, seconds=took)


if __name__ == "__main__":
    sys.exit(main())
