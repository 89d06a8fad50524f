"""Check MPI for `staged doctor`: its compiler, launcher and library, and whether they belong together.

Tested by `tests/ranks/test_doctor.py`.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from staged.errors import StagedError
from staged.runtime.compiler import CompileFailure, find_compiler, run_compiler
from staged.runtime.mpi import Mpi, find_mpi
from staged.runtime.shortage import ShortageError

_PROBE = """\
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0, ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Get_library_version(version, &length);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    printf("%d ranks: %.60s\\n", ranks, version);
    MPI_Finalize();
    return 0;
}
"""
_OF_MPI4PY = """\
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""
_SECONDS = 60
"""The time limit of a command: a launcher may wait for a daemon forever."""


class _Problem(Exception):
    """A part of MPI does not work. `doctor` reports it with what to do."""


def examined() -> tuple[str, str]:
    """(the compiler, the launcher and the library of MPI, the problem): one of the two strings is empty."""
    try:
        mpi = find_mpi()
        launcher = find_launcher(mpi)
        with tempfile.TemporaryDirectory(prefix="staged-mpi-") as folder:
            version = _probed(mpi, launcher, Path(folder))
        _check_mpi4py(version)
    except StagedError as error:
        return "", error.message
    except _Problem as problem:
        return "", str(problem)
    return f"{version}: {mpi.command}, {launcher}", ""


def find_launcher(mpi: Mpi) -> str:
    """The `mpiexec` next to an MPI compiler, else the one on the PATH.

    Raises: _Problem without one.
    """
    beside = Path(mpi.command).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise _Problem(f"no `mpiexec` was found next to {mpi.command} or on the PATH")
    return found


def _probed(mpi: Mpi, launcher: str, folder: Path) -> str:
    """The version of the library of which the launcher starts 2 ranks."""
    (folder / "probe.c").write_text(_PROBE)
    try:
        run_compiler([*find_compiler().command, *mpi.flags, "probe.c", "-o", "probe", *mpi.link], folder)
    except CompileFailure as failure:
        raise _Problem(f"`{mpi.command}` does not compile a program: {_first_line(failure.words)}") from None
    except ShortageError as error:
        raise _Problem(f"a program of MPI cannot be compiled now: {error}") from None
    done = _run([launcher, "-n", "2", "./probe"], folder)
    lines = [line.partition(" ranks: ") for line in done.stdout.splitlines() if " ranks: " in line]
    if done.returncode or len(lines) != 2:
        raise _Problem(f"`{launcher} -n 2` does not start a program: {_first_line(done.stderr or done.stdout)}")
    versions = {_short(version) for _, _, version in lines}
    if {ranks for ranks, _, _ in lines} != {"2"}:
        raise _Problem(f"{launcher} and {mpi.command} belong to different MPI libraries: {', '.join(versions)}")
    return versions.pop()


def _check_mpi4py(version: str) -> None:
    """Raise _Problem if mpi4py is installed and has another library, or none."""
    if importlib.util.find_spec("mpi4py") is None:
        return
    done = _run([sys.executable, "-c", _OF_MPI4PY], Path.cwd())
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]  # the last line of a traceback
        raise _Problem(f"mpi4py does not find its MPI library: {reason}")
    if (other := _short(done.stdout)) != version:
        raise _Problem(f"mpi4py has the library {other}, and programs have {version}")


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise _Problem(f"`{command[0]}` does not end") from None
    except OSError as error:
        raise _Problem(f"`{command[0]}` cannot be run: {error}") from None


def _short(version: str) -> str:
    """`MPICH 5.0.2` of what libraries say about themselves, such as `MPICH Version:      5.0.2`."""
    words = version.partition(",")[0].partition("\n")[0].replace("Version:", "").split()
    return " ".join(word.removeprefix("v") if word[1:2].isdigit() else word for word in words)


def _first_line(text: str) -> str:
    """The first line that is not empty or a rule."""
    return next((line for line in text.splitlines() if line.strip(" -")), "it said nothing").strip()
