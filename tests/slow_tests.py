"""The tests that `make test` leaves to `make test-all` because they take long: a table that was measured, `slow_tests.txt`.

`python -m tests.slow_tests` measures all tests anew and rewrites the table (an hour on one core). A figure is processor time, of the
test's own process and of those that it starts, so that a busy machine does not change it; all cases of a test function count together.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = TESTS / "slow_tests.txt"
SECONDS = 3.0
"""A test function that takes longer than this is in the table."""
MEASURED = "STAGED_TEST_SECONDS"
"""The file to which a measuring run adds a line for each test."""


def function_of(item: pytest.Item) -> str:
    """The test's file and function, without the parameters of its cases."""
    return item.nodeid.split("[")[0]


def listed() -> set[str]:
    """The functions of the table."""
    return {line.split()[-1] for line in TABLE.read_text().splitlines() if line and not line.startswith("#")}


def mark_slow(items: list[pytest.Item]) -> None:
    """Give the tests of the table the mark `slow`."""
    slow = listed()
    for item in items:
        if function_of(item) in slow:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """As a plugin (`-p tests.slow_tests`): note what each test takes."""
    before = _seconds()
    result = yield
    with Path(os.environ[MEASURED]).open("a") as file:
        file.write(f"{_seconds() - before:.3f} {function_of(item)}\n")
    return result


def _seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def write_table(measured: Path) -> None:
    """Rewrite the table from the lines of a measuring run."""
    totals: defaultdict[str, float] = defaultdict(float)
    for line in measured.read_text().splitlines():
        seconds, name = line.split(" ", 1)
        totals[name] += float(seconds)
    slow = sorted(((seconds, name) for name, seconds in totals.items() if seconds > SECONDS), reverse=True)
    head = f"# Seconds of processor time, where they are more than {SECONDS:g}: written by `python -m tests.slow_tests`.\n"
    TABLE.write_text(head + "".join(f"{seconds:6.1f}  {name}\n" for seconds, name in slow))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(folder) / "seconds"
        variables = {**os.environ, MEASURED: str(measured)}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", "-p", "tests.slow_tests", *sys.argv[1:]]
        status = subprocess.run(command, cwd=TESTS.parent, env=variables, check=False).returncode
        write_table(measured)
    return status


if __name__ == "__main__":
    sys.exit(main())
