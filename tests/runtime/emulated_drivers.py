"""The programs of `cuda_*.cu`: built against the emulated device, run with the name of a case."""

from __future__ import annotations

import atexit
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

from staged.errors import CompilerError
from staged.runtime.cuda.building import find_cxx
from staged.runtime.cuda.emulated import KERNEL_CHECKS, emulator, race_detector
from staged.runtime.cuda_emulator import INCLUDE

FAULT = 86
"""The exit status after an access that a GPU would not allow."""


@dataclass(frozen=True)
class Driver:
    """A program that does one of many things, mostly wrong ones."""

    path: Path

    def __call__(self, case: str, words: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a case with `words` in STAGED_CUDA_EMULATOR."""
        environment = {**os.environ, "STAGED_CUDA_EMULATOR": words}
        return subprocess.run([str(self.path), case], capture_output=True, text=True, env=environment, timeout=120)

    def lines(self, case: str, words: str = "") -> list[str]:
        """The output of a case, where nothing is wrong but perhaps a number."""
        done = self(case, words)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.splitlines()


@cache
def driver(name: str, races: bool = False) -> Driver:
    """The program of `name`.cu; with `races`, under the race detector. Skips the test without a C++ compiler."""
    try:
        compiler, _ = find_cxx()
        library = race_detector() if races else emulator().path
    except CompilerError as error:
        pytest.skip(str(error))
    folder = Path(mkdtemp(prefix="staged-driver-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    path = folder / name
    source = Path(__file__).parent / f"{name}.cu"
    checks = ["-fsanitize=thread"] if races else list(KERNEL_CHECKS)
    flags = ["-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-rdynamic", f"-I{INCLUDE}", *checks]
    command = [*compiler, *flags, "-include", "cuda_runtime.h", "-x", "c++", str(source), "-x", "none", str(library)]
    # As in a program: `emulated_thread` is the library's, not a copy of the executable.
    link = ["-fPIC", f"-Wl,-rpath,{library.parent}", "-o", str(path), "-pthread"]
    built = subprocess.run([*command, *link], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return Driver(path)
