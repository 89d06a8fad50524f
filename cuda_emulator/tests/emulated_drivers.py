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

from cuda_emulator import compile_flags, find_compiler, link_flags

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
    """The program of `name`.cu; with `races`, under the race detector."""
    compiler, _ = find_compiler()
    folder = Path(mkdtemp(prefix="emulator-driver-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    path = folder / name
    source = Path(__file__).parent / f"{name}.cu"
    flags = ["-O1", "-g1", "-Wall", "-Wextra", "-Werror", *compile_flags(races)]
    command = [*compiler, *flags, str(source), *link_flags(races=races), "-o", str(path)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return Driver(path)
