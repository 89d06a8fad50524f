"""Everything that a machine with a GPU can prove, in parts of a few minutes each, any of which may be run again.

python -m tests.gpu_check                        all parts that have no result yet; rewrites docs/results/gpu-<device>.md
python -m tests.gpu_check --parts memcheck       these parts, again
python -m tests.gpu_check --list                 what there is to run, and what has a result

Each part is a process of its own with a time limit, and leaves one file in the results folder. A part that a tool of the
machine refuses is recorded as refused, with the tool's words. Needs Python, NumPy, cffi, optree, platformdirs, pytest and
cuda-bindings with NVIDIA's runtime; nvcc and compute-sanitizer for the sanitizer parts, PyTorch for the comparisons. No network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.gpu_check.parts import PARTS
from tests.gpu_check.report import Result, device_name, page

ROOT = Path(__file__).parents[2]
TIME_LIMIT = 8 * 60  # seconds of one part


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}; run again")
    parser.add_argument(
        "--results", type=Path, default=ROOT / ".gpu-check", help="the folder that parts leave results in"
    )
    parser.add_argument("--page", type=Path, help="the page to write (default docs/results/gpu-<device>.md)")
    parser.add_argument("--list", action="store_true", help="show the parts and their state, run nothing")
    parser.add_argument("--run", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(PARTS[options.run].run(options.results)))
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    results = read(options.results)
    if options.list:
        for name, part in PARTS.items():
            print(f"{name:12} {results[name].state if name in results else 'to do':8} {part.what}")
        return 0
    for name in options.parts or [name for name in PARTS if name not in results]:
        print(f"{name}: {PARTS[name].what}", file=sys.stderr, flush=True)
        results[name] = run(name, options.results)
        (options.results / f"{name}.json").write_text(json.dumps(results[name].as_dict(), indent=1) + "\n")
        print(f"  {results[name].state}: {results[name].summary}", file=sys.stderr, flush=True)
        if name == "machine" and results[name].state != "passed":
            return 1  # without a GPU there is nothing to prove, and no page to write
    target = options.page or ROOT / "docs" / "results" / f"gpu-{device_name(results)}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(results, {name: part.what for name, part in PARTS.items()}))
    print(f"wrote {target}", file=sys.stderr)
    return 0 if all(result.state in ("passed", "refused") for result in results.values()) else 1


def read(folder: Path) -> dict[str, Result]:
    """The results that there are, in the order of the parts."""
    found = {}
    for name in PARTS:
        path = folder / f"{name}.json"
        if path.is_file():
            found[name] = Result(**json.loads(path.read_text()))
    return found


def run(name: str, folder: Path, limit: float = TIME_LIMIT) -> Result:
    """One part, in a process of its own: what crashes or hangs there is a result."""
    command = [sys.executable, "-m", "tests.gpu_check", "--run", name, "--results", str(folder)]
    environment = {key: value for key, value in os.environ.items() if key != "STAGED_CUDA"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return Result("failed", f"not done after {limit:.0f} s")
    try:
        return Result(**json.loads(done.stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        return Result(
            "failed", f"exit status {done.returncode}", details=(done.stdout + done.stderr).splitlines()[-30:]
        )


if __name__ == "__main__":
    sys.exit(main())
