"""Check everything that only a machine with a GPU can prove, in nine minutes at most.

python -m tests.gpu_check --prepare                  build what can be built without a device: .whl and .gpu-check
python -m tests.gpu_check --rehearse                 run all parts on the emulated device, small
python -m tests.gpu_check --within 535 --out FOLDER  run all parts on the device; the results go to FOLDER
python -m tests.gpu_check --within 195 --out FOLDER --again EARLIER
                                                     run the parts again that failed in the results EARLIER
python -m tests.gpu_check --keep FOLDER              copy the facts of a run to tests/gpu_check/devices, and write its page

Each part is a process with a time limit, and writes one file of FOLDER while it works: a part that crashes, hangs or loses the
device does not end the others. docs/gpu_check.md has the commands for a machine that is available for minutes only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.gpu_check.parts import PARTS
from tests.gpu_check.report import Result, device_name, page, printed
from tests.gpu_check.setting import PREPARED, REHEARSAL, ROOT, Setting

SHORTEST = 8.0
"""Seconds that must remain when a part begins."""
PACKING = 3.0
"""Seconds that remain for the summary when the last part ends."""
MOST_FILES, MOST_BYTES = 8, 16 << 20
"""Files that come back from the machine, and bytes of each."""
RESULTS = "results.json"
DEVICES = Path(__file__).parent / "devices"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", help=f"only some of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="the folder of results (default .gpu-check/results)")
    parser.add_argument("--within", type=float, default=math.inf, metavar="SECONDS", help="end by then")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="only what failed in these results")
    parser.add_argument("--rehearse", action="store_true", help="run on the emulated device, in small sizes")
    parser.add_argument("--all", action="store_true", help="all tests of the suite, not a sample, when it rehearses or prepares")
    parser.add_argument("--slack", type=float, default=1.0, metavar="FACTOR", help="multiply the limits of the parts")
    parser.add_argument("--prepare", action="store_true", help="build .whl and .gpu-check")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the facts of a run, and write its page")
    parser.add_argument("--run", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=math.inf, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        from tests.gpu_check.prepare import prepare

        return prepare(options.all)
    if options.keep:
        return keep(options.keep)
    folder = options.out or (REHEARSAL if options.rehearse else PREPARED) / "results"
    again = options.again and options.again.resolve()
    setting = Setting(folder.resolve(), options.rehearse, options.all, options.limit, again)
    if options.run:
        answer_of(options.run, setting).write_text(json.dumps(PARTS[options.run].run(setting).as_dict()))
        return 0
    return run_all(chosen(options.parts, again), setting, options.within, options.slack)


def chosen(parts: list[str] | None, earlier: Path | None) -> list[str]:
    """The parts to run in their order. With the results of an earlier run: `machine`, and those that failed or did not end."""
    names = [name for name in PARTS if name in (parts or PARTS)]
    if earlier is None:
        return names
    before = read(earlier)
    left = [name for name in names if name not in before or before[name].is_open]
    return [name for name in PARTS if name in left or (left and name == "machine")]  # it also unpacks the kernels


def run_all(names: list[str], setting: Setting, within: float, slack: float = 1.0) -> int:
    """Run the parts, one after the other. Return 0 if all passed, or could not run because of the machine's tools."""
    deadline = time.monotonic() + within
    background: subprocess.Popen[bytes] | None = None
    setting.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Result] = {}
    for name in names:
        limit = min(PARTS[name].limit * slack, deadline - time.monotonic() - PACKING)
        if limit < SHORTEST:
            results[name] = Result("failed", "not run: no time was left", unfinished=True)
        else:
            results[name] = run(name, setting, limit)
        print("\n".join(printed(name, results[name])), flush=True)
        written = {each: result.as_dict() for each, result in results.items()}
        (setting.folder / RESULTS).write_text(json.dumps(written, indent=1) + "\n")
        if name == "machine" and results[name].state != "passed" and not results[name].unfinished:
            break  # without a device there is nothing to check
        background = background or build_in_background(setting)
    if background is not None:
        os.killpg(background.pid, signal.SIGKILL)
        background.wait()
    for complaint in pack(setting.folder):
        print(complaint, flush=True)
    return 0 if len(results) == len(names) and not any(result.is_open for result in results.values()) else 1


def pack(folder: Path) -> list[str]:
    """Cut the files that are too large to come back. Return what was cut, and what is one file too many."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    complaints = [f"too many files: {path.name}" for path in files[MOST_FILES:]]
    for path in files:
        if path.stat().st_size > MOST_BYTES:
            complaints.append(f"{path.name} had {path.stat().st_size} bytes; the rest is cut off")
            os.truncate(path, MOST_BYTES)
    return complaints


def keep(folder: Path) -> int:
    """Copy the facts of a run to `devices/<name>`, as data of tests, and write the page about the run."""
    if not (folder / "facts.json").is_file():
        print(f"{folder} has no facts of a device", file=sys.stderr)
        return 1
    results = read(folder)
    name = device_name(json.loads((folder / "facts.json").read_text())["device"])
    place = DEVICES / name
    place.mkdir(parents=True, exist_ok=True)
    for file in ("facts.json", "libraries.json"):
        if (folder / file).is_file():
            shutil.copyfile(folder / file, place / file)
            print(f"wrote {place / file}")
    target = ROOT / "docs" / "results" / f"gpu-{name}.md"
    target.write_text(page(results, {each: part.what for each, part in PARTS.items()}))
    print(f"wrote {target}")
    return 0


def answer_of(name: str, setting: Setting) -> Path:
    """The file in which the process of a part leaves its result: any library may write to its output."""
    return setting.scratch / f"{name}.answer.json"


def read(folder: Path) -> dict[str, Result]:
    """The results of a run, by part."""
    found = json.loads((folder / RESULTS).read_text())
    return {name: Result(**found[name]) for name in PARTS if name in found}


def run(name: str, setting: Setting, limit: float) -> Result:
    """Run one part in a process. A crash or a hang there is a result."""
    command = [sys.executable, "-m", "tests.gpu_check", "--run", name, "--out", str(setting.folder)]
    command += ["--limit", str(limit)]
    command += ["--rehearse"] if setting.rehearsed else []
    command += ["--all"] if setting.whole else []
    command += ["--again", str(setting.earlier)] if setting.earlier else []
    answer, log = answer_of(name, setting), setting.scratch / f"{name}.log"
    answer.unlink(missing_ok=True)
    begin = time.monotonic()
    is_over = False
    with log.open("w") as file:
        # A process group, so that all processes of the part end with it. Not a pipe, which any of them could hold open.
        started = subprocess.Popen(
            command, cwd=ROOT, env=environment(setting), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
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
    try:
        return replace(Result(**json.loads(answer.read_text())), seconds=took)
    except (OSError, ValueError, TypeError):
        lines = log.read_text(errors="replace").splitlines()[-30:]
        summary = f"not finished after {limit:.0f} s" if is_over else f"exit status {status}"
        return Result("failed", summary, details=lines, seconds=took, unfinished=is_over)


def build_in_background(setting: Setting) -> subprocess.Popen[bytes]:
    """Build the prepared programs while the first parts run: they use few of the machine's cores."""
    command = [sys.executable, "-m", "tests.gpu_check.programs"]
    with (setting.scratch / "background.log").open("w") as log:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment(setting), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def environment(setting: Setting) -> dict[str, str]:
    """The variables of a part's process: the device or the emulated one, each with its cache of programs."""
    found = {key: value for key, value in os.environ.items() if key != "STAGED_CUDA"}
    found |= {"STAGED_CUDA": "emulate"} if setting.rehearsed else {}
    programs = ROOT / ".pytest_cache" / "programs" if setting.rehearsed else setting.scratch / "programs"
    found.setdefault("STAGED_CACHE_DIR", str(programs))
    return found


if __name__ == "__main__":
    sys.exit(main())
