"""The step of the times: kernels and training steps on the device, predicted, measured, and next to PyTorch.

Each job is a process with some rows; many stage and compile at the same time, and one at a time measures. `times.json` is
written again whenever a row ends:

    {"copy": {"bytes_per_second": 2.9e12, ...}, "rows": {"kernel softmax f32": {"predicted": 8.1e-05, "staged": {"seconds": 9.4e-05,
    "value": [...], ...}, "torch-eager": {...}, ...}}}
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.gpu_check.processes import run_within
from tests.gpu_check.report import Result, State, entries_of
from tests.gpu_check.setting import ROOT, Setting, exclusive
from tests.gpu_check.timing import kernels, model, steps

FILE = "times.json"
FRAMEWORKS = ("staged", "torch-eager", "torch-compile", "torch-graphs")
"""torch-graphs is torch.compile with mode="reduce-overhead"."""
OVER = "not run: no time was left"
SHORTEST = 10.0
"""Seconds that must remain when a job begins."""
CLOSE = {"f32": 2e-3, "tf32": 3e-2, "bf16": 5e-2}
"""The difference from PyTorch's values that a precision allows, relative to the largest of them."""


@dataclass(frozen=True)
class Job:
    """A process: the rows that it measures in one framework."""

    framework: str
    rows: tuple[str, ...]


def rows_of(names: Sequence[str]) -> tuple[str, ...]:
    """The rows of kernels and networks, with each precision."""
    found = []
    for name in names:
        precisions = kernels.KERNELS[name].precisions if name in kernels.KERNELS else steps.PRECISIONS
        kind = "kernel" if name in kernels.KERNELS else "step"
        found += [f"{kind} {name} {precision}" for precision in precisions]
    return tuple(found)


MATMULS = [name for name in kernels.KERNELS if name.startswith("matmul")]
ATTENTIONS = [name for name in kernels.KERNELS if name.startswith("attention")]
MEMORY = [name for name in kernels.KERNELS if name not in (*MATMULS, *ATTENTIONS)]
SMALL_NETWORKS = ["mlp", "cnn", "char-lstm"]
LARGE = ["step gpt2 bf16", "step resnet50 f32", "step gpt2 f32", "step resnet50 bf16", "step gpt2 tf32", "step resnet50 tf32"]
KERNEL_ROWS, SMALL_ROWS = rows_of(list(kernels.KERNELS)), rows_of(SMALL_NETWORKS)
JOBS = (
    Job("staged", ("copy", *rows_of(MEMORY))),
    *(Job("staged", (row,)) for row in LARGE),
    Job("staged", rows_of(MATMULS)),
    *(Job("staged", rows_of([name])) for name in SMALL_NETWORKS),
    Job("staged", rows_of(ATTENTIONS)),
    Job("torch-eager", KERNEL_ROWS),
    Job("torch-eager", (*LARGE[:4], *SMALL_ROWS, *LARGE[4:])),
    Job("torch-compile", (LARGE[0],)),
    Job("torch-graphs", SMALL_ROWS),
    Job("torch-compile", KERNEL_ROWS),
    Job("torch-graphs", (LARGE[0],)),
    Job("torch-compile", SMALL_ROWS),
    *(Job(framework, (row,)) for row in LARGE[1:] for framework in ("torch-compile", "torch-graphs")),
)
"""In the order in which they begin: ours first, and of PyTorch the comparisons that say most."""
ROWS = tuple(dict.fromkeys(row for job in JOBS for row in job.rows))
NOT_REHEARSED = re.compile(r"kernel attention 4096|step (cnn|char-lstm|resnet50|gpt2) tf32|step (cnn|char-lstm) bf16")
"""Rows that are the same as others in the sizes of a rehearsal, or differ in an option that the emulated device ignores."""


def run(setting: Setting) -> Result:
    """All jobs, as many in parallel as there are cores; what the time does not allow is not run."""
    folder = setting.scratch / "times"
    folder.mkdir(exist_ok=True)
    for left in folder.glob("*.jsonl"):
        left.unlink()  # of an earlier run
    before = measured_before(setting.earlier)
    with ThreadPoolExecutor(processes(setting)) as pool:
        jobs = [
            pool.submit(run_job, without(job, before), folder / f"{number:02d}.jsonl", setting)
            for number, job in enumerate(jobs_of(setting))
        ]
        while wait(jobs, timeout=2.0).not_done:
            write(setting, collected(folder, before))
    for job in jobs:
        job.result()  # an exception of a job is one of this step
    return result_of(write(setting, collected(folder, before)), setting)


def processes(setting: Setting) -> int:
    """The number of processes: two cores remain for those that measure. One if the device accepts only one."""
    cores = os.cpu_count() or 1
    return 1 if exclusive() and not setting.rehearsed else max(1, cores - 2 if cores > 4 else cores)


def jobs_of(setting: Setting) -> tuple[Job, ...]:
    """The jobs; a rehearsal compiles nothing with PyTorch, and leaves out some rows."""
    if not setting.rehearsed:
        return JOBS
    jobs = (job for job in JOBS if job.framework in FRAMEWORKS[:2])
    return tuple(Job(job.framework, tuple(row for row in job.rows if not NOT_REHEARSED.match(row))) for job in jobs)


def without(job: Job, before: Mapping[str, Mapping[str, Any]]) -> Job:
    """The job without the rows that an earlier run measured."""
    return Job(job.framework, tuple(row for row in job.rows if job.framework not in before.get(row, {})))


def measured_before(earlier: Path | None) -> dict[str, dict[str, Any]]:
    """By row and framework, the times of an earlier run."""
    if earlier is None or not (earlier / FILE).is_file():
        return {}
    rows = json.loads((earlier / FILE).read_text())["rows"]
    frameworks = {row: {name: cells[name] for name in FRAMEWORKS if name in cells} for row, cells in rows.items()}
    return {row: {n: cell for n, cell in cells.items() if "seconds" in cell} for row, cells in frameworks.items()}


def run_job(job: Job, journal: Path, setting: Setting) -> None:
    """The rows of a job: if its process dies, another one measures the rows after the one in which it died."""
    rows = list(job.rows)
    while rows and setting.left() > SHORTEST:
        command = [sys.executable, "-m", "tests.gpu_check.timing", job.framework, str(journal.parent), *rows]
        command += ["--journal", journal.name, *(["--small"] if setting.rehearsed else [])]
        try:
            done = run_within(command, setting.left(), ROOT, environment(setting))
        except subprocess.TimeoutExpired:
            return
        ended = {entry["row"] for entry in entries_of(journal) if "row" in entry}
        left = [row for row in rows if row not in ended]
        if left:  # the process died in the first of them
            last = " / ".join([line for line in done.stdout.splitlines() if line.strip()][-2:])[:600]
            entry = {"row": left[0], "framework": job.framework, "failed": f"exit status {done.returncode}: {last}"}
            with journal.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        rows = left[1:]


def environment(setting: Setting) -> dict[str, str]:
    """PyTorch compiles with a few processes in each of ours, and keeps what it compiled."""
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(setting.scratch / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "4"}
    return {**os.environ, **kept, "OMP_NUM_THREADS": "2"}


# ---- the file ---------------------------------------------------------------------------------------


def collected(folder: Path, before: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By row and framework, what was measured until now."""
    cells: dict[str, dict[str, Any]] = {row: dict(before.get(row, {})) for row in ROWS}
    for journal in sorted(folder.glob("*.jsonl")):
        for entry in entries_of(journal):
            if "row" in entry:
                known = ("row", "framework")
                cells[entry["row"]][entry["framework"]] = {key: x for key, x in entry.items() if key not in known}
    return cells


def write(setting: Setting, cells: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Write `times.json`, and return its rows: the predictions with the cells, and whether the values agree."""
    facts = setting.folder / "facts.json"
    device = model.device_of(json.loads(facts.read_text()) if facts.is_file() else {})
    rows: dict[str, dict[str, Any]] = {}
    for row, found in cells.items():
        rows[row] = {**predicted(row, device, setting.rehearsed), **found}
        if (values := disagreement(row, found)) is not None:
            rows[row]["staged"] = {**found["staged"], "wrong": values}
    content = {"rehearsed": setting.rehearsed, "device": asdict(device) if isinstance(device, model.Device) else device}
    path = setting.folder / FILE
    beside = setting.scratch / FILE
    beside.write_text(json.dumps({**content, "copy": rows["copy"].get("staged"), "rows": rows}, indent=1) + "\n")
    path.write_text(beside.read_text())
    return rows


def predicted(row: str, device: model.Device | str, small: bool) -> dict[str, Any]:
    """The work of a row, and its time in the model."""
    kind, _, rest = row.partition(" ")
    name, _, precision = rest.rpartition(" ")
    if kind == "copy":
        return {}
    if kind == "kernel":
        work = kernels.KERNELS[name].work(precision, small)
    else:
        network = steps.NETWORKS[name]
        work = (network.small if small else network.full).work()
    time = device.seconds(work, precision) if isinstance(device, model.Device) else None
    return {"work": asdict(work), "predicted": time}


def disagreement(row: str, cells: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Describe how our values differ from those of PyTorch in eager mode; None if they agree, or one is missing."""
    ours, theirs = (cells.get(name, {}).get("value") for name in FRAMEWORKS[:2])
    if ours is None or theirs is None:
        return None
    precision = row.rpartition(" ")[2]
    allowed = CLOSE[precision] * max(1e-3, *map(abs, theirs))
    agrees = len(ours) == len(theirs) and all(abs(a - b) <= allowed for a, b in zip(ours, theirs, strict=True))
    return None if agrees else f"{ours} in place of {theirs}"


# ---- the result -------------------------------------------------------------------------------------


def result_of(rows: Mapping[str, Mapping[str, Any]], setting: Setting) -> Result:
    """The table of all rows. The step fails if a row of ours did not run, or has other values than PyTorch's."""
    table = [["row", "predicted", *FRAMEWORKS]]
    details = []
    ratios: list[float] = []
    asked = {(row, job.framework) for job in jobs_of(setting) for row in job.rows}
    for row, cells in rows.items():
        time = cells.get("predicted")
        shown = [cell_of(cells.get(name)) if (row, name) in asked else "" for name in FRAMEWORKS]
        table.append([row, in_words(time) if time else "", *shown])
        ours = cells.get("staged", {})
        if "failed" in ours or "wrong" in ours:
            details.append(f"{row}: {ours.get('failed') or 'other values than PyTorch: ' + ours['wrong']}"[:300])
        theirs = [cells[name]["seconds"] for name in FRAMEWORKS[1:] if "seconds" in cells.get(name, {})]
        if theirs and ours.get("seconds", 0.0) > 0.0 and row.startswith("step"):
            ratios.append(ours["seconds"] / max(min(theirs), 1e-9))
    missing = [row for row, name in asked if name not in rows[row]]
    count = sum("seconds" in cells.get("staged", {}) for cells in rows.values())
    summary = f"{count} of {sum(name == 'staged' for _, name in asked)} rows measured"
    bandwidth = rows["copy"].get("staged", {}).get("bytes_per_second")
    if bandwidth and not setting.rehearsed:
        summary += f"; a copy moves {bandwidth / 1e12:.2f} TB/s"
    if ratios and not setting.rehearsed:
        summary += f"; steps take {min(ratios):.2f} to {max(ratios):.2f} times as long as PyTorch's fastest"
    if missing:
        summary += f"; {len(missing)} cells not run"
    state: State = "failed" if details or not count else "passed"
    return Result(state, summary, details, table, unfinished=bool(missing))


def cell_of(cell: Mapping[str, Any] | None) -> str:
    """A cell of the table."""
    if cell is None:
        return OVER
    return in_words(cell["seconds"]) if "seconds" in cell else str(cell["failed"]).splitlines()[0][:100]


def in_words(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


# ---- without a device -------------------------------------------------------------------------------


def prepare(folder: Path, processes: int = 2) -> list[str]:
    """Note the programs of all rows, without a device; returns the messages of the failures."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key != "STAGED_CUDA"}
    ours = [job for job in JOBS if job.framework == "staged"]

    def one(number: int) -> list[str]:
        words = ["staged", str(folder), *ours[number].rows, "--journal", f"{number}.jsonl", "--prepare"]
        (folder / f"{number}.jsonl").unlink(missing_ok=True)
        done = run_within([sys.executable, "-m", "tests.gpu_check.timing", *words], None, ROOT, environment)
        found = [entry for entry in entries_of(folder / f"{number}.jsonl") if "failed" in entry]
        complaints = [f"{entry['row']}: {entry['failed']}" for entry in found]
        return complaints + ([f"{ours[number].rows}: {done.stdout[-500:]}"] if done.returncode else [])

    with ThreadPoolExecutor(processes) as pool:
        return [words for complaints in pool.map(one, range(len(ours))) for words in complaints]
