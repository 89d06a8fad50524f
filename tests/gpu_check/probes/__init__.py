"""The step of the fifteen probes: the features that no machine without a GPU can confirm, each in a separate process.

Each probe is one line of `probes.jsonl`, written when the probe ends:

    {"probe": "nan", "state": "passed", "seconds": 4.1, "seed": 20240, "checks": [{"what": "bias and relu", "ok": true, ...}]}

A check has the first elements of its result, its error against f64 with the worst element, the tolerance, and whether the
bits of two runs agree. The line of a probe that did not pass also has the logs of cuDNN and cublasLt, the output of its
process and the generated source of the checks that failed, each cut to a limit.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.gpu_check.probes.book import SEED
from tests.gpu_check.processes import run_within
from tests.gpu_check.report import Result, entries_of
from tests.gpu_check.setting import ROOT, Setting, side_by_side

_HERE = "tests.gpu_check.probes"
PROBES: dict[str, str] = {
    "load and launch": f"{_HERE}.arithmetic:load",
    "interrupt": f"{_HERE}.loops:interrupt",
    "convolutions": f"{_HERE}.networks:convolutions",
    "attention": f"{_HERE}.networks:attention",
    "misaligned operands": f"{_HERE}.arithmetic:misaligned",
    "nan": f"{_HERE}.arithmetic:nan",
    "bias gradients": f"{_HERE}.arithmetic:bias_gradients",
    "captured loop": f"{_HERE}.loops:captured",
    "dlpack": f"{_HERE}.memory:dlpack",
    "lstm in a capture": f"{_HERE}.networks:lstm",
    "ctc in a capture": f"{_HERE}.networks:ctc",
    "batch norm": f"{_HERE}.networks:batch_norm",
    "many iterations": f"{_HERE}.loops:many_iterations",
    "two processes": f"{_HERE}.memory:two_processes",
    "out of memory": f"{_HERE}.memory:out_of_memory",
}
"""By name, the function of each probe; those that need most time come first."""
FILE = "probes.jsonl"
AT_ONCE = 8
LIMIT, PROCESS = 60.0, 40.0
"""Seconds for one probe, and for each of its processes: another one continues after a check that hangs."""
SLOWER = 4.0
"""The factor of these limits in a rehearsal, which builds the emulated device and its programs."""
RESTARTS = 6
"""Processes that a probe may lose to crashes before the rest of it is given up."""
LOG, OUTPUT, SOURCE = 48_000, 12_000, 160_000
"""Characters of a log, of the output of a process, and of a source, in the line of a probe that failed."""
SOURCES = 2
_FRAME = re.compile(r".*\+0x[0-9a-f]+\)")
"""A line of a stack: the message is before it."""
LINE = 900_000
"""Characters of a line, at most: fifteen of them are fewer than 16 MiB."""


@dataclass(frozen=True)
class Ended:
    """The end of a process: `how` is "done", "hung" or "over" (the end of the step's time)."""

    how: str
    status: int
    output: str


def run(setting: Setting) -> Result:
    """All probes, as many in parallel as the device allows; each writes its line when it ends."""
    path = setting.folder / FILE
    path.write_text("")
    lock = threading.Lock()
    passed = passed_before(setting.earlier)
    lines: dict[str, dict[str, Any]] = {}

    def one(name: str) -> None:
        line = probe(name, PROBES[name], setting)
        with lock:
            lines[name] = line
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    with ThreadPoolExecutor(side_by_side(AT_ONCE)) as pool:
        list(pool.map(one, (name for name in PROBES if name not in passed)))
    return result_of(lines)


def passed_before(earlier: Path | None) -> set[str]:
    """The probes that passed in the results of an earlier run: another run leaves them out."""
    lines = entries_of(earlier / FILE) if earlier is not None else []
    return {line["probe"] for line in lines if line["state"] == "passed"}


def probe(name: str, target: str, setting: Setting) -> dict[str, Any]:
    """The line of one probe: run in processes, the next one continuing after the check in which the last one died."""
    folder = setting.scratch / "probes" / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    for left in (path for path in folder.iterdir() if path.is_file()):
        left.unlink()  # of an earlier run
    begin = time.monotonic()
    journal, past, ended, deaths = folder / "journal.jsonl", -1, Ended("over", 0, ""), 0
    first: Ended | None = None
    slower = SLOWER if setting.rehearsed else 1.0
    while deaths <= RESTARTS:
        own, left = LIMIT * slower - (time.monotonic() - begin), setting.left()
        if min(own, left) <= 0:
            break
        own = min(own, PROCESS * slower)
        ended = one_process(target, folder, min(own, left), setting.rehearsed, past)
        if ended.how == "over" and own < left:
            ended = replace(ended, how="hung")
        begun = [entry["number"] for entry in entries_of(journal) if "begins" in entry]
        if ended.how == "done" and ended.status == 0:
            break
        first = first or ended
        with journal.open("a") as file:
            file.write(json.dumps({"died": words_of(ended)}) + "\n")
        if not begun or begun[-1] == past:
            break
        past, deaths = begun[-1], deaths + 1
    line = line_of(name, entries_of(journal), ended, folder, time.monotonic() - begin)
    return line | ({"first_output": cut(first.output, OUTPUT)} if first is not None and first is not ended else {})


def one_process(target: str, folder: Path, limit: float, small: bool, past: int) -> Ended:
    """One process of a probe, with the libraries' logs on."""
    command = [sys.executable, "-m", _HERE, target, str(folder), *(["--small"] if small else []), "--past", str(past)]
    try:
        done = run_within(command, limit, ROOT, environment(folder))
    except subprocess.TimeoutExpired as over:
        return Ended("over", 0, str(over.output or ""))
    return Ended("done", done.returncode, done.stdout)


def environment(folder: Path) -> dict[str, str]:
    """With the logs of cuDNN and cublasLt, which a failure needs and which cannot be had afterwards."""
    logs = {"CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": str(folder / "cudnn.log")}
    logs |= {"CUBLASLT_LOG_LEVEL": "5", "CUBLASLT_LOG_FILE": str(folder / "cublaslt.log")}
    return {**os.environ, **logs, "PYTHONFAULTHANDLER": "1"}


# ---- lines ------------------------------------------------------------------------------------------


def line_of(
    name: str, entries: Sequence[Mapping[str, Any]], ended: Ended, folder: Path, seconds: float
) -> dict[str, Any]:
    """The line of a probe, from its journal and the end of its last process."""
    checks: list[dict[str, Any]] = []
    running: dict[str, Any] | None = None
    skipped, ends = "", False
    for entry in entries:
        if "begins" in entry:
            running = {"what": entry["begins"], "number": entry["number"], "ok": False}
        elif "what" in entry:
            checks.append({"number": running["number"] if running else -1, **entry})
            running = None
        elif "lost" in entry:
            checks[-1]["lost"] = entry["lost"]
        elif "died" in entry and running is not None:
            checks.append({**running, "words": entry["died"]})
            running = None
        skipped = str(entry.get("skipped", skipped))
        ends = ends or "ends" in entry
    is_right = ends and all(check["ok"] for check in checks)
    state = "passed" if is_right else "failed"
    if is_right and skipped:
        state = "skipped"
    elif not ends and not entries:
        state = "not begun" if ended.how == "over" else "died"
    elif not ends and ended.how in ("hung", "over"):
        state = "hung" if ended.how == "hung" else "not done"
    elif not ends:
        state = "died"
    line: dict[str, Any] = {"probe": name, "state": state, "seconds": round(seconds, 1), "seed": SEED, "checks": checks}
    if skipped:
        line["words"] = skipped
    if state not in ("passed", "skipped", "not begun"):
        line |= {"end": words_of(ended), "output": cut(ended.output, OUTPUT)}
        for log in ("cudnn.log", "cublaslt.log"):
            if (folder / log).is_file():
                line[log] = cut((folder / log).read_text(errors="replace"), LOG)
        bad = [check["number"] for check in checks if not check["ok"]]
        files = sorted(path for number in bad for path in folder.glob(f"{number:02d}_*.cu"))
        line["sources"] = {path.name: cut(path.read_text(), SOURCE) for path in files[:SOURCES]}
    if len(json.dumps(line)) > LINE:
        line.pop("sources", None)
    return line


def words_of(ended: Ended) -> str:
    """The end of a process in words."""
    if ended.how != "done":
        words = "the process was ended: its time was over"
    elif ended.status < 0:
        words = f"the process was ended by {signal.Signals(-ended.status).name}"
    else:
        words = f"the process ended with status {ended.status}"
    last = [line.strip() for line in ended.output.splitlines() if line.strip() and not _FRAME.match(line)][-2:]
    return ": ".join([words, *([" / ".join(last)[:400]] if last and ended.status else [])])


def cut(text: str, most: int) -> str:
    """The text, if it is too long with its middle left out; the end has two thirds."""
    if len(text) <= most:
        return text
    begin = most // 3
    return f"{text[:begin]}\n... {len(text) - most:,} characters ...\n{text[-(most - begin) :]}"


# ---- the result -------------------------------------------------------------------------------------


def result_of(lines: Mapping[str, Mapping[str, Any]]) -> Result:
    """The table of all probes. The step fails if a probe did; it is unfinished if the time ended first."""
    rows = [["probe", "state", "checks", "largest error / tolerance", "same bits", "seconds"]]
    details = []
    for name in PROBES:
        if name not in lines:
            continue
        line = lines[name]
        checks = line["checks"]
        good = sum(check["ok"] for check in checks)
        with_bits = [check["same_bits"] for check in checks if "same_bits" in check]
        bits = f"{sum(with_bits)} of {len(with_bits)}" if with_bits else ""
        rows.append([name, line["state"], f"{good} of {len(checks)}", _worst(checks), bits, f"{line['seconds']:.1f}"])
        for check in checks:
            if not check["ok"]:
                details.append(f"{name}: {check['what']}: {_reason(check)}")
        if line["state"] in ("skipped", "died", "hung"):
            details.append(f"{name}: {line['state']}: {line.get('words') or line.get('end')}")
    states = Counter(line["state"] for line in lines.values())
    order = ("passed", "failed", "died", "hung", "not done", "not begun", "skipped")
    summary = ", ".join(f"{states[state]} {state}" for state in order if states[state])
    is_right = bool(lines) and set(states) <= {"passed", "skipped"} and states["passed"] > 0
    unfinished = bool(states["not begun"] or states["not done"])
    return Result("passed" if is_right else "failed", summary, details[:60], rows, unfinished=unfinished)


def _worst(checks: Sequence[Mapping[str, Any]]) -> str:
    """The check that is nearest to its tolerance, or furthest over it."""
    measured = [
        (float(check["error"]) / max(check["tolerance"], 1e-300), check) for check in checks if "tolerance" in check
    ]
    if not measured:
        return ""
    _, check = max(measured, key=lambda pair: pair[0])
    return f"{float(check['error']):.1e} / {check['tolerance']:.0e}"


def _reason(check: Mapping[str, Any]) -> str:
    """Why a check failed, in one line."""
    if "words" in check:
        return str(check["words"]).strip().splitlines()[0][:200]
    if "worst" in check and float(check["error"]) > check["tolerance"]:
        worst = check["worst"]
        return f"error {float(check['error']):.1e}: {worst['found']} in place of {worst['expected']} at {worst['at']}"
    return "two runs have different bits" if check.get("same_bits") is False else "see probes.jsonl"


# ---- without a device -------------------------------------------------------------------------------


def prepare(folder: Path, processes: int = 2) -> list[str]:
    """Note the programs of all probes, without a device; returns the messages of the failures."""
    environment = {key: value for key, value in os.environ.items() if key != "STAGED_CUDA"}
    complaints: list[str] = []

    def one(name: str) -> None:
        place = folder / name.replace(" ", "_")
        done = run_within([sys.executable, "-m", _HERE, PROBES[name], str(place), "--prepare"], None, ROOT, environment)
        failed = [entry for entry in entries_of(place / "journal.jsonl") if entry.get("ok") is False]
        complaints.extend(f"{name}: {entry['what']}: {_reason(entry)}" for entry in failed)
        if done.returncode:
            complaints.append(f"{name}: {done.stdout.strip().splitlines()[-1:]}")

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(one, PROBES))
    return complaints
