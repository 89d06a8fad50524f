"""The comparison of frozen programs notices one changed character, and says where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
IN_A_REPOSITORY = pytest.mark.skipif(not (HERE.parent.parent / ".git").exists(), reason="the project has no git repository")


def frozen(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE), *arguments, "--only", "gradients_through_loops"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_equal_texts_are_equal_and_one_changed_character_is_shown(tmp_path: Path) -> None:
    written = frozen("write", str(tmp_path))
    assert written.returncode == 0, written.stderr
    files = sorted(tmp_path.iterdir())
    assert [file.name.partition(".")[2] for file in files] == ["gpu.c", "portable.c", "x86-64-v3.c", "x86-64-v4.c"]
    same = frozen("compare", str(tmp_path))
    assert same.returncode == 0 and "4 of 4 files are equal" in same.stdout, same.stdout + same.stderr
    text = files[1].read_text()
    files[1].write_text(text.replace("tanh", "sinh", 1))
    changed = frozen("compare", str(tmp_path))
    assert changed.returncode == 1 and "differs: gradients_through_loops.portable.c" in changed.stdout
    assert "3 of 4 files are equal" in changed.stdout


@IN_A_REPOSITORY
def test_programs_are_compared_with_those_of_a_commit() -> None:
    done = frozen("since", "HEAD")
    assert "4 of 4 files are equal" in done.stdout or "differs: gradients_through_loops" in done.stdout, done.stderr
    packages = {line.rpartition(" ")[2] for line in done.stdout.splitlines() if "staged in" in line}
    assert str(HERE.parent.parent / "staged") in packages and len(packages) == 2


@IN_A_REPOSITORY
def test_an_unknown_commit_is_an_error() -> None:
    done = frozen("since", "no-such-commit")
    assert done.returncode == 1
    assert done.stderr == (
        "the base must be a commit of this repository, got 'no-such-commit' (`make frozen BASE=<commit>`)\n"
    )
