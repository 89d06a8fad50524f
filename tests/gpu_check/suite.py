"""The tests on the GPU, in many processes with a few tests each: a test that ends its process does not end others.

    find      pytest collects the tests, and `recorder.py` writes their names
    share     a process gets `SHARE` tests at most; files of the back end come first, slow files last
    run       12 processes side by side. If one dies, hangs or loses the GPU, another process runs the tests that are left;
              the test in which it ended has this as its outcome

`suite.jsonl` has a line per test, written when the test ends. After a run that stopped at its limit, `--again` continues: it runs
the tests that did not pass, then those that did not run. A rehearsal runs a sample, which a digest of the names chooses.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu_check.processes import end, run_within
from tests.gpu_check.recorder import LOST
from tests.gpu_check.report import Result, State, entries_of
from tests.gpu_check.setting import ROOT, Setting, side_by_side
from tests.sampling import number_of

FILES = ("tests/backends/cublas_cudnn", "tests/runtime", "tests/programs")
FEWEST, SAMPLE = 900, 100
"""Tests that pytest must find; tests of a rehearsal."""
SLOW = ("test_examples", "test_long_runs", "test_resnet", "test_training", "test_treelstm")
"""Files whose tests take long: a process for each test, after all others."""
ALONE = ("test_calls_do_not_use_up_the_memory",)
"""The device's free memory is a measurement only while no other test runs."""
AT_ONCE = 12
"""Processes, each with a CUDA context of its own, if there are as many cores."""
SHARE = 24
"""Tests of a process."""
TEST_LIMIT, START_LIMIT, FIND_LIMIT = 60.0, 40.0, 60.0
"""Seconds for a test, for a process until its first test, and for finding them all."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test: passed, skipped, expected to fail; failed, died, hung, lost the GPU."""

    kind: str
    words: str = ""
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        return self.kind not in ("passed", "skipped", "expected to fail")


@dataclass
class Book:
    """The outcomes of all tests, in memory and in a file, for the threads of this part."""

    path: Path
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failed_before: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def opened(path: Path, earlier: Path | None = None) -> Book:
        """An empty book; with the lines of an earlier run, a book of the tests that passed in that run."""
        path.write_text("")
        book = Book(path)
        before = {line.pop("test"): Outcome(**line) for line in entries_of(earlier)} if earlier else {}
        for name, outcome in before.items():
            if outcome.is_bad:
                book.failed_before.append(name)
            else:
                book.note(name, outcome)
        return book

    def note_all(self, found: Mapping[str, Outcome]) -> None:
        for name, outcome in found.items():
            if self.outcomes.get(name) != outcome:
                self.note(name, outcome)

    def note(self, name: str, outcome: Outcome) -> None:
        with self.lock:
            self.outcomes[name] = outcome
            with self.path.open("a") as file:
                file.write(json.dumps({"test": name, **vars(outcome)}) + "\n")


def run(setting: Setting) -> Result:
    """The tests marked `gpu`, and all tests of the emulated device, on this machine's GPU."""
    folder = setting.scratch / "suite"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tests, complaints = find(FILES, folder, setting)
    if len(tests) < FEWEST:
        complaints.append(f"pytest found {len(tests)} tests, which should be at least {FEWEST}")
    if setting.rehearsed and not setting.whole:
        tests = sample(tests)
    book = Book.opened(setting.folder / "suite.jsonl", setting.earlier and setting.earlier / "suite.jsonl")
    left = [name for name in tests if name not in book.outcomes]
    left.sort(key=lambda name: name not in book.failed_before)
    run_all(left, folder, book, setting)
    return result_of(tests, book.outcomes, complaints)


# ---- finding and sharing ----------------------------------------------------------------------------


def find(files: Sequence[str], folder: Path, setting: Setting) -> tuple[list[str], list[str]]:
    """(tests, what went wrong with files): as pytest collects them for a GPU."""
    journal = folder / "found.jsonl"
    journal.unlink(missing_ok=True)
    command = [*pytest_command(journal), "--collect-only", "-q", *files]
    try:
        said = run_within(command, FIND_LIMIT * patience(setting), ROOT, environment()).stdout
    except subprocess.TimeoutExpired:
        return [], ["pytest did not find the tests in time"]
    tests: list[str] = []
    complaints: list[str] = []
    for line in entries_of(journal):
        tests += [str(name) for name in line.get("chosen", [])]
        complaints += [f"{line['test']}: {line['words']}"] if "test" in line else []
    return tests, complaints or ([] if tests else said.splitlines()[-20:])


def pytest_command(journal: Path) -> list[str]:
    """pytest with the recorder, for tests that run on a GPU."""
    words = ["-m", "pytest", "-p", "tests.gpu_check.recorder", "--journal", str(journal), "-p", "no:cacheprovider"]
    return [sys.executable, *words, "-m", "gpu", "--on-gpu", "--tb=short"]


def environment() -> dict[str, str]:
    """Without the plugins that a machine's pytest may have: none is needed, and each could be what fails."""
    return {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def patience(setting: Setting) -> float:
    """The factor of the limits within the part. Tests of a rehearsal compile for the emulated device, on fewer cores."""
    return 10.0 if setting.rehearsed else 1.0


def sample(tests: Sequence[str]) -> list[str]:
    """A hundred of the tests, the same ones on each machine."""
    chosen = set(sorted(tests, key=number_of)[:SAMPLE])
    return [name for name in tests if name in chosen]


def file_of(test: str) -> str:
    return test.partition("::")[0]


def shares(tests: Iterable[str]) -> list[list[str]]:
    """The tests of each process: neighbours in the order of the files, then slow ones, each alone."""
    slow, others = [], []
    for test in tests:
        (slow if Path(file_of(test)).stem in SLOW else others).append(test)
    return [*(others[first : first + SHARE] for first in range(0, len(others), SHARE)), *([test] for test in slow)]


# ---- running ----------------------------------------------------------------------------------------


def run_all(tests: Sequence[str], folder: Path, book: Book, setting: Setting) -> None:
    """Runs the tests side by side, then those that must be alone."""
    alone = [name for name in tests if name.partition("[")[0].endswith(ALONE)]
    with ThreadPoolExecutor(side_by_side(AT_ONCE)) as pool:
        for number, share in enumerate(shares(name for name in tests if name not in alone)):
            pool.submit(run_share, share, folder / f"share_{number}", book, setting)
    for number, name in enumerate(alone):
        run_share([name], folder / f"alone_{number}", book, setting)


def run_share(tests: Sequence[str], place: Path, book: Book, setting: Setting, limit: float = TEST_LIMIT) -> None:
    """Run some tests in processes, one after the other, until each test has an outcome or the time is over."""
    left = list(tests)
    for turn in range(len(tests)):
        if not left or setting.left() <= 0:
            return
        journal, only, log = (place.with_name(f"{place.name}_{turn}.{kind}") for kind in ("jsonl", "json", "log"))
        journal.write_text("")
        only.write_text(json.dumps(left))
        with log.open("w") as file:
            process = subprocess.Popen(
                [*pytest_command(journal), "--only", str(only), *dict.fromkeys(map(file_of, left))],
                cwd=ROOT,
                env=environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            how = watch(process, journal, book, setting, limit)
        found = outcomes_of(entries_of(journal), process.returncode, how)
        book.note_all(found)
        before, left = left, [name for name in left if name not in found]
        if left == before:  # pytest itself did not get there: another try would not either
            if how != "over":
                words = "\n".join(log.read_text(errors="replace").splitlines()[-6:])
                book.note(left[0], Outcome("died", f"before its first test:\n{words}"))
                left = left[1:]
            return


def watch(process: subprocess.Popen[bytes], journal: Path, book: Book, setting: Setting, limit: float) -> str:
    """Wait for a process and note the tests that end. Returns `done`; `hung` after a test's limit; `over` after the part's.

    The process ends in each case.
    """
    size, since, most = 0, time.monotonic(), START_LIMIT
    while process.poll() is None:
        time.sleep(0.05)
        if journal.stat().st_size != size:
            size, since = journal.stat().st_size, time.monotonic()
            lines = entries_of(journal)
            book.note_all(outcomes_of(lines, 0, "runs"))
            most = limit if "begins" in (lines or [{}])[-1] else START_LIMIT
        took = (time.monotonic() - since) / patience(setting)
        why = "over" if setting.left() <= 0 else "hung" if took > most else ""
        if why:
            end(process)
            return why
    return "done"


def outcomes_of(journal: Iterable[dict[str, Any]], status: int, how: str) -> dict[str, Outcome]:
    """The outcomes of the tests of a process; `how` is from `watch`. A test that still runs, or had no time, has none."""
    found: dict[str, Outcome] = {}
    running = ""
    for said in journal:
        if "begins" in said:
            running = str(said["begins"])
        elif "test" in said:
            running = ""
            found[str(said["test"])] = Outcome(str(said["outcome"]), str(said["words"]), float(said["seconds"]))
        elif "lost" in said:
            name = str(said["lost"])
            before = found[name]
            words = f"{said['words']} (every call of CUDA since)"
            found[name] = Outcome("lost the GPU", "\n".join(filter(None, [words, before.words])), before.seconds)
    if running and how == "hung":
        found[running] = Outcome("hung", "not done in time, and ended")
    elif running and how == "done":
        found[running] = Outcome("died", in_words(status))
    return found


def in_words(status: int) -> str:
    """The end of a process."""
    if status == LOST:
        return "the process ended itself"
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    return f"the process ended with status {status}"


# ---- the result -------------------------------------------------------------------------------------


def result_of(tests: Sequence[str], outcomes: dict[str, Outcome], complaints: Sequence[str]) -> Result:
    """The outcomes of all tests, by file; the part fails where one did, or was not run."""
    kinds = ("passed", "failed", "skipped", "not run")
    rows = [["file", *kinds, "seconds of processes"]]
    for file in dict.fromkeys(map(file_of, tests)):
        names = [name for name in tests if file_of(name) == file]
        count: Counter[str] = Counter(kind_of(outcomes.get(name)) for name in names)
        took = sum(outcomes[name].seconds for name in names if name in outcomes)
        rows.append([file, *(str(count[kind]) for kind in kinds), f"{took:.1f}"])
    total: Counter[str] = Counter(kind_of(outcomes.get(name)) for name in tests)
    bad = {name: outcomes[name] for name in tests if name in outcomes and outcomes[name].is_bad}
    summary = ", ".join(f"{total[kind]} {kind}" for kind in kinds if total[kind] or kind in ("passed", "failed"))
    worse = Counter(outcome.kind for outcome in bad.values() if outcome.kind != "failed")
    summary += "".join(f"; {count} {kind}" for kind, count in sorted(worse.items()))
    details = list(complaints)
    for name, outcome in bad.items():
        details += [f"{name}: {outcome.kind}", *(f"    {line}" for line in outcome.words.splitlines()[:4])]
    is_right = total["passed"] > 0 and not bad and not complaints
    reasons = Counter(short_reason(outcome.words) for outcome in outcomes.values() if outcome.kind == "skipped")
    details += [f"skipped {count}: {reason}" for reason, count in reasons.most_common(12)]
    state: State = "passed" if is_right else "failed"
    return Result(state, summary, table=rows, details=details[:200], unfinished=total["not run"] > 0)


def kind_of(outcome: Outcome | None) -> str:
    """In the table, whatever is bad is failed, and an expected failure is a pass."""
    if outcome is None:
        return "not run"
    return "failed" if outcome.is_bad else "skipped" if outcome.kind == "skipped" else "passed"


def short_reason(words: str) -> str:
    """Why a test was skipped, in one line."""
    return " ".join(words.removeprefix("Skipped: ").split())[:160]
