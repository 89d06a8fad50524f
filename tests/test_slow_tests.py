"""The table of slow tests: which cases are in it, which tests it names, and what a run reports."""

from __future__ import annotations

import re
from pathlib import Path

from tests import slow_tests
from tests.test_conftest import run_suite


def test_every_listed_test_is_there() -> None:
    """A case that was renamed returns to `make test` unseen, so at least its function must exist."""
    for name in sorted({slow_tests.function_of(case) for case in slow_tests.listed()}):
        file, *classes, function = name.split("::")
        text = (slow_tests.TESTS.parent / file).read_text()
        assert re.search(rf"\b{function}\b", text), name


def test_kept_cases_are_slow() -> None:
    """A case that was renamed or became fast is not kept: `python -m tests.mutate.kept`."""
    table = slow_tests.listed()
    assert not [case for case in slow_tests.kept() if not slow_tests.is_slow(case, table)]


def test_a_function_keeps_its_cheapest_case() -> None:
    measured = {
        "tests/a.py::test_fast": 0.3,
        "tests/a.py::test_cases[cheap case]": 0.1,
        "tests/a.py::test_cases[dear]": 0.31,
        "tests/a.py::test_all_slow[x]": 0.4,
        "tests/a.py::test_all_slow[y]": 0.45,
        "tests/a.py::test_one": 0.5,
        "tests/a.py::test_too_slow[x]": 0.51,
    }
    slow = slow_tests.slow_cases(measured)
    assert set(slow) == {"tests/a.py::test_cases[dear]", "tests/a.py::test_all_slow[y]", "tests/a.py::test_too_slow[x]"}


def test_the_cases_of_a_function_have_a_limit_together() -> None:
    measured = {f"tests/a.py::test_many[{number}]": 0.25 for number in range(40)}
    table = slow_tests.slow_cases(measured)
    assert table == {"tests/a.py::test_many[*]": 10.0}
    slow = {case: 0.0 for case in measured if slow_tests.is_slow(case, table)}
    assert 0.15 * 40 < len(measured) - len(slow) < 0.45 * 40  # 3 of 10 seconds
    some = slow_tests.sampled(slow, {"tests/a.py::test_many"})
    assert 1 <= len(some) < len(slow)
    assert len(slow_tests.sampled(slow, ()) - some) <= 1


def test_a_measurement_replaces_the_lines_of_its_files(tmp_path: Path) -> None:
    table = tmp_path / "table.txt"
    table.write_text("# head\n   2.0  tests/a.py::test_a[one of two]\n   1.0  tests/b.py::test_b\n")
    measured = slow_tests.read_measured(["0.1 tests/a.py::test_a[one of two]", "7.25 tests/a.py::test_c[x y]"])
    slow_tests.write_table(measured, table)
    assert slow_tests.listed(table) == {"tests/a.py::test_c[x y]": 7.2, "tests/b.py::test_b": 1.0}


def test_a_run_prints_its_time_and_cases_that_the_table_lacks(tmp_path: Path) -> None:
    slow = "import time\ndef test_it():\n    end = time.process_time() + 1.0\n    while time.process_time() < end:\n        pass\n"
    done = run_suite(tmp_path, slow)
    assert re.search(r"processor time of the tests, without collection: [1-9]\d* s", done.stdout)
    assert "need more than" in done.stdout and "test_it.py::test_it" in done.stdout
