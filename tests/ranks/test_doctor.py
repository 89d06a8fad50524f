"""The report of `staged doctor` on MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from staged import system
from tests.ranks import exported, jobs

pytestmark = pytest.mark.ranks


@pytest.fixture(autouse=True)
def _mpi():
    if jobs.mpiexec() is None:
        from tests.plugin import unavailable

        unavailable("no `mpiexec`: pip install 'staged[mpi]'")


def command(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def other(tmp_path, monkeypatch):
    """An `mpicc` in a folder of its own, beside which tests put an `mpiexec`."""
    made = command(tmp_path / "mpicc", f'exec {exported.mpicc()} "$@"')
    monkeypatch.setenv("STAGED_MPICC", str(made))
    return made


@pytest.mark.core
def test_compiler_launcher_and_library_of_one_mpi_are_found(monkeypatch):
    for name, value in jobs.MPI.items():
        monkeypatch.setenv(name, value)
    found, problem = system.mpi()
    assert problem == ""
    assert found.startswith(("MPICH ", "Open MPI "))
    assert found.endswith(f": {exported.mpicc()}, {jobs.mpiexec()}")


def test_a_launcher_of_another_mpi_is_a_problem(other):
    command(other.parent / "mpiexec", 'shift 2; "$@"; "$@"')  # each process is a job of its own
    found, problem = system.mpi()
    assert found == ""
    assert f"{other.parent}/mpiexec and {other} belong to different MPI libraries" in problem


def test_a_launcher_that_fails_is_named_with_its_message(other):
    command(other.parent / "mpiexec", "echo ----- >&2; echo no slots >&2; exit 1")
    assert system.mpi()[1] == f"`{other.parent}/mpiexec -n 2` does not start a program: no slots"


def test_a_compiler_that_is_absent_is_named(monkeypatch):
    monkeypatch.setenv("STAGED_MPICC", "no_mpicc")
    assert system.mpi() == ("", "a program of several ranks needs MPI: `no_mpicc`, which STAGED_MPICC names, was not found")
