"""Run the suite: `python -m tests.array_api [--compiled] FOLDER_OF_THE_SUITE [words for pytest]`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main(words: list[str]) -> int:
    """Run the suite in a process of its own, and return its exit status."""
    in_programs = "--compiled" in words
    words = [word for word in words if word != "--compiled"]
    if not words or not (Path(words[0]) / "array_api_tests").is_dir():
        sys.exit(f"{__doc__}\nThe folder is a clone of github.com/data-apis/array-api-tests with its submodule.")
    suite = Path(words[0]).resolve()
    environment = {
        **os.environ,
        "ARRAY_API_TESTS_MODULE": "compiled_staged" if in_programs else "staged",
        "ARRAY_API_TESTS_MAX_ARRAY_SIZE": "64",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), str(suite), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-p", "tests.array_api.plugin", "--disable-deadline", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(suite)]  # expected failures are found by names of tests below it
    expected = (HERE / "expected_failures.txt").read_text()
    expected += (HERE / "expected_failures_compiled.txt").read_text() if in_programs else ""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as failures:
        failures.write(expected)
        failures.flush()
        command += ["--xfails-file", failures.name, "--derandomize"]
        command += ["--max-examples", "2" if in_programs else "20", *(words[1:] or ["array_api_tests"])]
        return subprocess.run(command, cwd=suite, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
