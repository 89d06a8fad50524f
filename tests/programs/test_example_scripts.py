"""Every example runs as a module and as a file, from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*/*.py") if "__main__" in path.read_text())


@pytest.mark.parametrize("script", SCRIPTS, ids=[str(path.relative_to(EXAMPLES)) for path in SCRIPTS])
def test_an_example_runs_by_the_path_of_its_file(script: Path, tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(script), "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {script.name}")
