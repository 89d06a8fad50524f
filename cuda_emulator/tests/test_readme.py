"""The blocks of the README run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`python` is this Python, and the package is on its path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join([str(FOLDER), *sys.path])}


def test_the_program_is_compiled_and_runs_by_its_commands(tmp_path: Path, environment: dict[str, str]) -> None:
    (program,) = blocks("cpp")
    (commands,) = [block for block in blocks("sh") if "saxpy.cu" in block]
    (tmp_path / "saxpy.cu").write_text(program)
    done = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 6 9 12\n", "")


def test_python_reads_the_counters(environment: dict[str, str]) -> None:
    (program,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "256\n"), done.stderr


def test_an_unknown_library_is_named(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "cuda_emulator", "libs", "cufft"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "unknown library 'cufft'" in done.stderr
