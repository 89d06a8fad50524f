"""Notes of what a run with `--all --rest` need not do again: `tests/noted.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.noted import Notes, is_script
from tests.test_conftest import run_suite

TESTS = """
import importlib.metadata, importlib.util, subprocess, sys
from pathlib import Path
import numpy as np
import pytest
import staged as st
from tests import torch_reference

@st.function
def double(x):
    with st.with_backend(st.GPU, x):
        y = x * 2.0
    return y

def test_alike():
    assert subprocess.run(["true"]).returncode == 0

def test_alike_but_for_its_program(emulated_device):
    assert double(np.ones(3, np.float32)).sum() == 6.0

def test_looks_for_a_module():
    importlib.util.find_spec("torch")

def test_looks_for_a_part_of_it():
    with pytest.raises(ImportError):
        import cuda.no_such_part

def test_looks_for_a_wheel():
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("nvidia-no-such-wheel")

def test_starts_python():
    subprocess.run([sys.executable, "--version"], check=True)

def test_starts_python_by_a_script(tmp_path):
    (tmp_path / "run").write_text("#!/bin/sh")
    (tmp_path / "run").chmod(0o755)
    subprocess.run([tmp_path / "run"], check=True)

@pytest.fixture(scope="module")
def looked():
    return importlib.util.find_spec("torch") is not None

@pytest.mark.parametrize("number", [1, 2])
def test_uses_what_looked(looked, number):
    pass

def test_reference(monkeypatch):
    monkeypatch.setattr(torch_reference.RUNNING, "_file", Path(__file__))
    monkeypatch.setattr(torch_reference.RUNNING, "_recorded", lambda key, given: 1.0)
    assert torch_reference.reference(lambda torch: 1.0) == 1.0

def test_skips():
    pytest.skip("for a reason")
"""


def test_what_passed_and_is_alike_with_all_is_left_out_of_the_rest(tmp_path: Path) -> None:
    done = run_suite(tmp_path, TESTS, "--note")
    assert "10 passed, 1 skipped" in done.stdout, done.stdout
    notes = Notes(tmp_path / ".pytest_cache" / "noted")
    assert notes.alike() == {"test_it.py::test_alike", "test_it.py::test_alike_but_for_its_program"}
    assert [(kept.test, kept.artifact.name) for kept in notes.programs()] == [
        ("test_it.py::test_alike_but_for_its_program", "double_")
    ]
    rest = run_suite(tmp_path, TESTS, "--all", "--rest", "--collect-only")
    assert "9/11 tests collected (2 deselected)" in rest.stdout, rest.stdout


def test_a_file_that_looks_for_a_library_differs_as_a_whole(tmp_path: Path) -> None:
    test = "import importlib.util\nTORCH = importlib.util.find_spec('torch')\ndef test_it():\n    pass\n"
    assert "1 passed" in run_suite(tmp_path, test, "--note").stdout
    assert Notes(tmp_path / ".pytest_cache" / "noted").alike() == set()


def test_notes_of_other_sources_do_not_hold(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    assert notes.alike() == set()
    notes.begin()
    notes.note("tests/test_it.py::test_it")
    assert Notes(tmp_path).alike() == {"tests/test_it.py::test_it"}
    (tmp_path / "sources").write_text("a digest of others")
    assert Notes(tmp_path).alike() == set()
    assert not list(Notes(tmp_path).programs())


@pytest.mark.parametrize(("text", "expected"), [(b"#!/usr/bin/env python3\n", True), (b"\x7fELF", False)])
def test_a_script_is_told_from_a_program(tmp_path: Path, text: bytes, expected: bool) -> None:
    (tmp_path / "run").write_bytes(text)
    (tmp_path / "run").chmod(0o755)
    assert is_script(tmp_path / "run") == expected
    assert not is_script(tmp_path / "absent")
