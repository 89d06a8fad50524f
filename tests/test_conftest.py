"""The rules of plugin.py: what may skip, and what may not skip in CI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def run_suite(folder: Path, test: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text((TESTS / "plugin.py").read_text())
    (folder / "test_it.py").write_text(test)
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "STAGED_DATA", "PYTEST_ADDOPTS")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        *options,
    ]
    return subprocess.run(
        [*command, str(folder)], env={**environment, **variables}, capture_output=True, text=True, check=False
    )


READS_DATA = "def test_data(data_folder):\n    assert data_folder('mnist').is_dir()\n"


def test_missing_data_skips_with_a_reason(tmp_path: Path) -> None:
    done = run_suite(tmp_path, READS_DATA)
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "STAGED_DATA is not set" in done.stdout


def test_missing_data_fails_in_ci(tmp_path: Path) -> None:
    done = run_suite(tmp_path, READS_DATA, CI="true")
    assert done.returncode == 1
    assert "missing in CI: STAGED_DATA" in done.stdout


def test_present_data_is_found(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    assert "1 passed" in run_suite(tmp_path, READS_DATA, CI="true", STAGED_DATA=str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("module", "options", "needed"),
    [
        ("sklearn.no_such_part", (), True),
        ("torch.no_such_part", ("--all",), True),
        ("torch.no_such_part", (), False),
        ("jax.no_such_part", ("--all",), False),
    ],
)
def test_only_libraries_of_the_test_extras_must_be_there_in_ci(
    tmp_path: Path, module: str, options: tuple[str, ...], needed: bool
) -> None:
    # An empty library of that name: the true ones take seconds to import, and it is a part of theirs that is missing.
    library = module.partition(".")[0]
    (tmp_path / f"{library}.py").write_text("")
    test = f"import pytest, sys\nsys.path.insert(0, {str(tmp_path)!r})\npytest.importorskip('{module}')\ndef test_it():\n    pass\n"
    done = run_suite(tmp_path, test, *options, CI="true")
    assert ("everything it needs must be there" in done.stdout) == needed, done.stdout
    assert run_suite(tmp_path, test, *options).returncode == 5  # without CI: skipped, and nothing else was collected


MARKED = "import pytest\n@pytest.mark.{}\ndef test_it():\n    pass\ndef test_other():\n    pass\n"


@pytest.mark.parametrize("mark", ["slow", "live"])
def test_what_takes_long_or_needs_more_runs_with_all_or_by_name(tmp_path: Path, mark: str) -> None:
    assert "1 passed, 1 deselected" in run_suite(tmp_path, MARKED.format(mark)).stdout
    assert "2 passed" in run_suite(tmp_path, MARKED.format(mark), "--all").stdout
    assert "1 passed, 1 deselected" in run_suite(tmp_path, MARKED.format(mark), "-m", mark).stdout
    assert "1 passed, 1 deselected" in run_suite(tmp_path, MARKED.format(mark), "--all", "--rest").stdout
    beside = MARKED.format(mark) + "# the fast one, too, is compared with torch\n"
    assert "2 passed" in run_suite(tmp_path, beside, "--all", "--rest").stdout


def test_what_all_samples_runs_with_full_or_by_name(tmp_path: Path) -> None:
    marked = MARKED.format("full")
    assert "1 passed, 1 deselected" in run_suite(tmp_path, marked, "--all").stdout
    assert "2 passed" in run_suite(tmp_path, marked, "--full").stdout
    assert "1 passed, 1 deselected" in run_suite(tmp_path, marked, "-m", "full").stdout


def test_an_ignored_ctrl_c_is_heard_by_tests(tmp_path: Path) -> None:
    test = "import signal\ndef test_it():\n    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert "1 passed" in run_suite(tmp_path, test).stdout
    finally:
        signal.signal(signal.SIGINT, before)


def test_golden_text_is_written_compared_and_left_beside(tmp_path: Path) -> None:
    test = "def test_it(golden):\n    golden('int {};\\n')\n"
    assert "no golden file" in run_suite(tmp_path, test.format("a")).stdout
    assert run_suite(tmp_path, test.format("a"), "--update-golden").returncode == 0
    assert (tmp_path / "golden/it/it.c").read_text() == "int a;\n"
    assert run_suite(tmp_path, test.format("a")).returncode == 0
    assert run_suite(tmp_path, test.format("b")).returncode == 1
    assert (tmp_path / "golden/it/it.c.actual").read_text() == "int b;\n"
