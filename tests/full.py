"""`make test-full`: every test, also what `make test-all` samples, and the Array API's suite. Runs before each release.

The suite of the Array API is a clone of github.com/data-apis/array-api-tests with its submodule. `ARRAY_API_TESTS` names its
folder; `--without-array-api` leaves it out, and the record says so. The result is `docs/results/test_full.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "docs" / "results" / "test_full.json"


def counts(report: Path) -> dict[str, Any]:
    """Return the numbers of tests by outcome, and the failed tests, of a report in JUnit's format."""
    if not report.exists():
        return {"failed": ["pytest ended without a report"]}
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")}
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for suite in suites
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    passed = total["tests"] - total["failures"] - total["errors"] - total["skipped"]
    return {"tests": total["tests"], "passed": passed, "skipped": total["skipped"], "failed": failed}


def stage(name: str, command: list[str]) -> dict[str, Any]:
    """Run pytest by a command, and return its counts, its seconds and its exit status."""
    print(f"==== {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        begin = time.monotonic()
        status = subprocess.run([*command, f"--junit-xml={report}"], cwd=ROOT, check=False).returncode
        return {"stage": name, **counts(report), "seconds": round(time.monotonic() - begin), "status": status}


def stages(jobs: str, array_api: str | None, options: list[str]) -> list[tuple[str, list[str]]]:
    """Return the name and the command of each stage."""
    python = [sys.executable, "-m"]
    found = [("pytest --full", [*python, "pytest", "-n", jobs, "--full", *options])]
    for name, words in (("Array API, eager", []), ("Array API, compiled", ["--compiled"])) if array_api else ():
        found.append((name, [*python, "tests.array_api", *words, str(array_api), "array_api_tests"]))
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="2", help="tests that run at the same time")
    parser.add_argument("--without-array-api", action="store_true", help="leave out the Array API's suite")
    choices, options = parser.parse_known_args(words)
    array_api = os.environ.get("ARRAY_API_TESTS")
    if not array_api and not choices.without_array_api:
        sys.exit(
            "ARRAY_API_TESTS must name the folder of the Array API's suite:\n"
            "  git clone --recursive https://github.com/data-apis/array-api-tests\n"
            "  pip install ndindex pytest-json-report\n"
            "or leave the suite out: make test-full ARGS=--without-array-api"
        )
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    results = [stage(*each) for each in stages(choices.jobs, None if choices.without_array_api else array_api, options)]
    record = {
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "stages": results,
        **({"left out": ["Array API"]} if choices.without_array_api else {}),
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for each in results:
        print(f"{each['stage']}: {each.get('tests', 0)} tests, {len(each['failed'])} failed, {each['seconds']} s")
    return int(any(each["status"] for each in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
