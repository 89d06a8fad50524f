"""Jobs of several MPI ranks: `mpiexec` of this Python's environment (else of the PATH) runs a file or a text.

    done = run("import staged as st; print(st.ranks())", 2)
    assert done.status == 0 and done.stdout == "2\n2\n"

Python and `staged` need half a second to start, so one job runs many cases: `results_of("tests.ranks.reductions", 3)` calls
the functions `case_*` of that module on 3 ranks, once per session, and returns what each of them returned on each rank.
Without `mpiexec` the test skips with a reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = "STAGED_TEST_RANKS"
"""The folder to which the ranks of `results_of` write."""
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "200",
}
"""Open MPI as root, and both libraries with more ranks than cores: a rank of MPICH that waits leaves the core to others."""

NUMBERS = [2, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (3, 4))]
"""The numbers of ranks of a test: CI runs the first one, `make ranks` all of them."""


@dataclass(frozen=True)
class Finished:
    """A job that ended."""

    status: int
    stdout: str
    stderr: str
    seconds: float
    is_late: bool
    """True if the job reached the time limit. The processes then ended by a signal."""

    def check(self) -> Finished:
        """Fail unless the status is 0."""
        assert self.status == 0, f"status {self.status}{' (time limit)' if self.is_late else ''}\n{self.stdout}\n{self.stderr}"
        return self


@cache
def mpiexec() -> str | None:
    """The command that starts ranks."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the ranks: this checkout is first on the path, and each rank has one thread."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    return {**os.environ, **MPI, "PYTHONPATH": path, "STAGED_NUM_THREADS": "1", **(changes or {})}


def start(
    program: str | Path, ranks: int, *arguments: str, changes: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.Popen[str]:
    """Start a Python file or text on a number of ranks. The processes are a group: see `end`."""
    command = mpiexec()
    if command is None:
        from tests.plugin import unavailable

        unavailable("no `mpiexec`: pip install 'staged[mpi]'")
    assert command is not None
    python = [sys.executable, *([str(program)] if isinstance(program, Path) else ["-c", program])]
    return subprocess.Popen(
        [command, "-n", str(ranks), *python, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment(changes),
        cwd=folder or ROOT,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    """End all processes of a job: `mpiexec` ends its ranks when it receives a signal."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
            return


def run(
    program: str | Path,
    ranks: int,
    *arguments: str,
    changes: Mapping[str, str] | None = None,
    folder: Path | None = None,
    limit: float = 120.0,
) -> Finished:
    """Run a Python file or text on a number of ranks, with `changes` of the environment and a time limit in seconds."""
    begun = time.monotonic()
    process = start(program, ranks, *arguments, changes=changes, folder=folder)
    is_late = False
    try:
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        is_late = True
        end(process)
        stdout, stderr = process.communicate()
    return Finished(process.returncode, stdout, stderr, time.monotonic() - begun, is_late)


# ---- many cases in a job ------------------------------------------------------------------------


@dataclass(frozen=True)
class Raised:
    """The error of a case on a rank."""

    kind: str
    text: str


class Results:
    """The results of the cases of a module, by case and rank."""

    def __init__(self, folder: Path, ranks: int, done: Finished) -> None:
        self.ranks = ranks
        self.done = done
        self.by_rank = [read(folder / str(rank)) for rank in range(ranks)]

    def raw(self, case: str) -> list[Any]:
        """For each rank what the case returned, or `Raised`."""
        missing = [rank for rank, found in enumerate(self.by_rank) if case not in found]
        assert not missing, f"{case}: no result of ranks {missing}\n{self.raised(case)}\n{self.done.stdout}\n{self.done.stderr}"
        return [found[case] for found in self.by_rank]

    def raised(self, case: str) -> str:
        found = ((rank, results.get(case)) for rank, results in enumerate(self.by_rank))
        return "\n".join(f"rank {rank}: {value.text}" for rank, value in found if isinstance(value, Raised))

    def __getitem__(self, case: str) -> list[Any]:
        """The result of the case on each rank. An error on a rank is a failure."""
        found = self.raw(case)
        assert not self.raised(case), f"{case}:\n{self.raised(case)}"
        return found


def read(path: Path) -> dict[str, Any]:
    """The results that a rank wrote: all of them, or those before it ended."""
    found = {}
    with contextlib.suppress(EOFError, FileNotFoundError), path.open("rb") as file:
        while True:
            name, value = pickle.load(file)
            found[name] = value
    return found


@cache
def results_of(module: str, ranks: int, limit: float = 240.0) -> Results:
    """Run the functions `case_*` of a module on a number of ranks, once per session for all workers."""
    folder = Path(os.environ["STAGED_TEST_RESULTS"], f"{module}-{ranks}")
    folder.mkdir(exist_ok=True)
    with (folder / "done").open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if text:
            return Results(folder, ranks, pickle.loads(text))
        # The cases are many programs of few elements: compiling them needs most of the time.
        changes = {RESULTS: str(folder), "STAGED_CFLAGS": "-O0"}
        done = run(Path(__file__), ranks, module, changes=changes, limit=limit)
        pickle.dump(done, file)
        return Results(folder, ranks, done)


def names_of(module: str) -> list[str]:
    """The names of the cases of a module."""
    return [name for name in vars(importlib.import_module(module)) if name.startswith("case_")]


def run_cases(module: str, folder: Path) -> None:
    """On each rank: run the cases of a module, and write what they return."""
    from staged.base.launcher import this_job

    found = importlib.import_module(module)
    with (folder / str(this_job().rank)).open("wb") as file:
        for name in names_of(module):
            try:
                value = getattr(found, name)()
            except Exception as error:
                value = Raised(type(error).__name__, "".join(traceback.format_exception(error)))
            pickle.dump((name, value), file)
            file.flush()


if __name__ == "__main__":
    from tests.ranks import jobs  # results are pickled with the classes of this name

    jobs.run_cases(sys.argv[1], Path(os.environ[RESULTS]))
