"""The cases that `make test` leaves to `make test-all` or `make test-full`: a measured table, `slow_tests.txt`.

A case is in the table if it needs more than `SECONDS` of processor time, with an empty program cache. A test function that would
lose all of its cases keeps the cheapest one, if that case needs at most `CHEAPEST`. Cases that planted faults need are kept too
(`kept_tests.txt`). If the other cases of a function need more
than `FUNCTION` together, the table has a line `[*]` for them, and `make test` runs a share of them, chosen by digest. The time
of a case is that of its process and of the processes that it starts, so that other work on the machine hardly changes it.

`python -m tests.slow_tests [FILES]` measures tests and rewrites their lines of the table. `--from FILE` reads the lines of an
earlier measurement (`SECONDS TEST`) instead. Every run prints its processor time, and cases that should be in the table.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.sampling import is_sampled, number_of

TESTS = Path(__file__).parent
TABLE = TESTS / "slow_tests.txt"
KEPT = TESTS / "kept_tests.txt"
"""Cases of the table that `make test` runs, because no fast case detects a planted fault (`tests/mutate/kept.py`)."""
SECONDS = 0.3
"""A case that needs more than this is in the table."""
CHEAPEST = 0.5
"""The limit for the cheapest case of a function whose cases all need more than `SECONDS`."""
FUNCTION = 3.0
"""The limit for the other cases of a function together. Beyond it `make test` runs a share of them, chosen by digest."""
ALL = "[*]"
"""The end of a line of the table that has the seconds of all cases of a function up to `SECONDS` together."""
ONE_IN = 5
"""The part of the slow cases that `make test-all` runs. `make test-full` runs all of them."""
SURPRISING = 3 * SECONDS
"""A case outside of the table that needs more than this is reported: the machine may be slower than the one that measured."""
MEASURED = "STAGED_TEST_SECONDS"
"""The file to which a measuring run adds a line for each test."""
HEAD = f"""\
# Cases of tests that need more than {SECONDS:g} s of processor time with an empty program cache, and their seconds.
# Written by `python -m tests.slow_tests`.
"""


def function_of(case: str) -> str:
    """Return a test's file and function, without the parameters of the case."""
    return case.split("[")[0]


def cases_of_functions(cases: Iterable[str]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for case in cases:
        found[function_of(case)].append(case)
    return found


def file_of(case: str) -> str:
    return case.split("::")[0]


def listed(table: Path = TABLE) -> dict[str, float]:
    """Return the cases of the table, with their seconds."""
    lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {case: float(seconds) for seconds, case in (line.split(maxsplit=1) for line in lines)}


def kept(table: Path = KEPT) -> set[str]:
    """Return the slow cases that `make test` runs."""
    return {line for line in table.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")}


def mark_slow(items: list[pytest.Item]) -> None:
    """Give the slow cases the mark `slow`, and those that only `make test-full` runs the mark `full`."""
    table, needed = listed(), kept()
    names = [item.nodeid for item in items]
    slow = {case: table.get(case, 0.0) for case in names if is_slow(case, table) and case not in needed}
    fast = {function_of(case) for case in names if case not in slow}
    full = set(slow) - sampled(slow, fast)
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
        if item.nodeid in full:
            item.add_marker(pytest.mark.full)


def is_slow(case: str, table: Mapping[str, float]) -> bool:
    """Return whether a case is in the table, or beyond the share of its function's cases that `FUNCTION` allows."""
    together = table.get(function_of(case) + ALL, 0.0)
    return case in table or number_of(case) % 1000 * together >= 1000 * FUNCTION


def sampled(slow: Mapping[str, float], fast: Collection[str]) -> set[str]:
    """Return the slow cases that `make test-all` runs: some by their digest, and the cheapest of a function without fast cases."""
    functions = cases_of_functions(slow).items()
    cheapest = {min(cases, key=lambda case: slow[case]) for function, cases in functions if function not in fast}
    return cheapest | {case for case in slow if is_sampled(case, ONE_IN)}


# ---- measuring ----------------------------------------------------------------------------------


class Stopwatch:
    """A plugin that measures the processor time of each test, and prints the sum and the surprises at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.is_worker = hasattr(config, "workerinput")
        self.total = 0.0
        self.surprising: dict[str, float] = {}
        self.slow = listed()
        self.measured = os.environ.get(MEASURED)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[object]:
        self._before = _seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[object]:
        if call.when == "teardown":  # pytest-xdist sends properties of a report to the process that started the workers
            item.user_properties.append(("processor seconds", _seconds() - self._before))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown" or self.is_worker:
            return
        seconds = dict(report.user_properties).get("processor seconds", 0.0)
        assert isinstance(seconds, float)
        self.total += seconds
        if seconds > SURPRISING and report.nodeid not in self.slow and not {"slow", "ranks"} & set(report.keywords):
            self.surprising[report.nodeid] = seconds
        if self.measured:
            with Path(self.measured).open("a", encoding="utf-8") as file:
                file.write(f"{seconds:.3f} {report.nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"processor time of the tests, without collection: {self.total:.0f} s")
        if self.surprising:
            longest = sorted(self.surprising.items(), key=lambda pair: -pair[1])
            terminalreporter.write_line(
                f"{len(longest)} cases outside of tests/slow_tests.txt need more than {SURPRISING:g} s, of which the longest are:"
            )
            for case, seconds in longest[:10]:
                terminalreporter.write_line(f"  {seconds:5.1f}  {case}")


def _seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


# ---- the table ----------------------------------------------------------------------------------


def slow_cases(measured: Mapping[str, float]) -> dict[str, float]:
    """Return the lines of the table for measured cases."""
    slow: dict[str, float] = {}
    for function, names in cases_of_functions(measured).items():
        cheapest = min(names, key=lambda case: measured[case])
        slow |= {case: measured[case] for case in names if measured[case] > (CHEAPEST if case == cheapest else SECONDS)}
        together = sum(measured[case] for case in names if case not in slow)
        if together > FUNCTION:
            slow[function + ALL] = together
    return slow


def write_table(measured: Mapping[str, float], table: Path = TABLE) -> None:
    """Rewrite the lines of the measured files."""
    files = {file_of(case) for case in measured}
    rows = {case: seconds for case, seconds in listed(table).items() if file_of(case) not in files}
    rows |= slow_cases(measured)
    table.write_text(
        HEAD + "".join(f"{rows[case]:6.1f}  {case}\n" for case in sorted(rows)), encoding="utf-8"
    )


def read_measured(lines: Iterable[str]) -> dict[str, float]:
    """Return the seconds of each case. A case that was measured several times has its last figure."""
    return {case: float(seconds) for seconds, case in (line.rstrip("\n").split(" ", 1) for line in lines)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, help="read a measurement instead of running tests")
    words, options = parser.parse_known_args()
    if words.source is not None:
        write_table(read_measured(words.source.read_text(encoding="utf-8").splitlines()))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(folder) / "seconds"
        variables = {**os.environ, MEASURED: str(measured), "STAGED_CACHE_DIR": str(Path(folder) / "programs")}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", *options]
        status = subprocess.run(command, cwd=TESTS.parent, env=variables, check=False).returncode
        write_table(read_measured(measured.read_text(encoding="utf-8").splitlines()))
    return status


if __name__ == "__main__":
    sys.exit(main())
