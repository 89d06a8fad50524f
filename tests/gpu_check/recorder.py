"""A plugin of pytest: what each test came to, in a file that outlives the process.

A kernel that goes astray leaves the whole process without its GPU: CUDA answers every further call with the same error. So
after each test the GPU is asked whether it still answers; if not, the process ends at once, and whoever started it runs the
tests that are left in another one. A test that takes the process with it, or never ends, is the last one that began.

    {"chosen": ["tests/a/test_a.py::test_one", ...]}
    {"begins": "tests/a/test_a.py::test_one"}
    {"test": "tests/a/test_a.py::test_one", "outcome": "failed", "words": "AssertionError: no", "seconds": 0.2}
    {"lost": "tests/a/test_a.py::test_one", "words": "an illegal memory access was encountered"}
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

LOST = 90
"""The exit status of a process whose GPU no longer answers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal", type=Path, help="the file that takes what the tests came to")
    parser.addoption("--only", type=Path, help="a file with a JSON list: the tests to run, of those that are found")
    # pyproject.toml sets the options of pytest-timeout. That plugin is not loaded here, and pytest raises an error for options
    # that it does not know. `suite.py` has a limit of time for each test.
    for option in ("timeout", "timeout_method"):
        parser.addini(option, "not used")


def pytest_configure(config: pytest.Config) -> None:
    if "STAGED_GPU_CHECK_NOTES" in os.environ:
        from tests.gpu_check.programs import note_emulated

        note_emulated()
    journal = config.getoption("--journal")
    if journal is not None:
        config.pluginmanager.register(Recorder(journal, config.getoption("--only")))


class Recorder:
    """Writes the journal, a line at a time, each in one call of the system: it is there whatever comes next."""

    def __init__(self, journal: Path, only: Path | None) -> None:
        self.file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.only = None if only is None else set(json.loads(only.read_text()))
        self.outcome, self.words, self.seconds = "", "", 0.0

    def note(self, **said: Any) -> None:
        os.write(self.file, (json.dumps(said) + "\n").encode())

    @pytest.hookimpl(trylast=True)  # after `-m` has chosen
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.only is not None:
            left_out = [item for item in items if item.nodeid not in self.only]
            items[:] = [item for item in items if item.nodeid in self.only]
            config.hook.pytest_deselected(items=left_out)
        self.note(chosen=[item.nodeid for item in items])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.note(test=report.nodeid, outcome="failed", words=last_words(report), seconds=0.0)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.outcome, self.words, self.seconds = "passed", "", 0.0
        self.note(begins=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.failed and self.outcome != "failed":
            self.outcome, self.words = "failed", last_words(report)
        elif report.skipped and self.outcome == "passed":
            self.outcome = "expected to fail" if hasattr(report, "wasxfail") else "skipped"
            self.words = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.note(test=nodeid, outcome=self.outcome, words=self.words, seconds=round(self.seconds, 3))
        words = what_the_gpu_lacks()
        if words:
            self.note(lost=nodeid, words=words)
            os._exit(LOST)


def last_words(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The message of a failure, a few lines of it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longreprtext)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return "\n".join(lines[:6] if crash is not None else lines[-6:])[:800]


def what_the_gpu_lacks() -> str:
    """Why this process can use its GPU no longer; empty where it can, or never did."""
    from staged.errors import StagedError
    from staged.runtime.cuda.interface import current_runtime
    from staged.runtime.guard import ffi

    try:
        runtime = current_runtime()
    except StagedError:  # there is none
        return ""
    wait, forget = (runtime.function(f"cuda{name}", "int (*)(void)") for name in ("DeviceSynchronize", "GetLastError"))
    # An error that a test left behind is said once; one that stays is said again.
    for _ in range(2):
        status = int(wait())
        forget()
    words = runtime.function("cudaGetErrorString", "const char *(*)(int)")(status)
    return ffi.string(words).decode(errors="replace") if status else ""
