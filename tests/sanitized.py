"""Programs compiled at -O0 with the address and undefined-behaviour sanitizers, run in a process made for it.

A library with the address sanitizer needs its runtime before everything else, so one child process per session has it
preloaded and runs what it is sent: the working memory of a program is filled with NaN before a call, NumPy's arrays
have red zones around them, and the first complaint ends the child, whose words then fail the test.

    outcomes = run_sanitized(program, [((x, 3), ()), ((x, 0), ())])     # inputs, and buffers of outside Variables
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from staged.base.artifact import Artifact
from staged.runtime.compiler import compile_shared, find_compiler
from staged.runtime.guard import guard
from staged.runtime.native import NativeProgram
from staged.runtime.options import CompileOptions
from tests.plugin import unavailable

OPTIONS = CompileOptions("0", ("address", "undefined"), ("-fno-sanitize-recover=all",))
ROOT = Path(__file__).parent.parent

Call = tuple[Sequence[Any], Sequence[np.ndarray[Any, Any]]]
"""The values of a program's inputs, and the buffers of the outside Variables that it uses."""


@dataclass
class SanitizedOutcome:
    """The effects of one call: its results (one per output of the program) or its error, its text, the Variables after it."""

    results: tuple[np.ndarray[Any, Any], ...]
    error: Exception | None
    text: str
    variables: list[np.ndarray[Any, Any]]


def run_sanitized(artifact: Artifact, calls: Sequence[Call]) -> list[SanitizedOutcome]:
    """Compile and run a program under the sanitizers, once per call. Raises AssertionError with what they found."""
    library = _runtime_library()
    if library is None:
        unavailable("the C compiler has no address sanitizer")
    path = compile_shared(artifact, OPTIONS)
    return _child(library).run(artifact, path, calls)


@functools.cache
def _runtime_library() -> str | None:
    """The address sanitizer's shared runtime, which the compiler knows."""
    for name in ("libasan.so", "libclang_rt.asan-x86_64.so", "libclang_rt.asan-aarch64.so"):
        command = [*find_compiler().command, f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        if os.path.isabs(path) and os.path.exists(path):
            return path
    return None


# ---- the parent's side --------------------------------------------------------------------------


class _Child:
    """The process with the sanitizers; started at the first program, and again after a complaint."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.process: subprocess.Popen[bytes] | None = None
        self.words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the child may be started again)
        guard()  # its library is compiled here, without the preloaded runtime

    def start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "LD_PRELOAD": self.library,
            "ASAN_OPTIONS": "detect_leaks=0",  # Python's own would drown everything
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        self.words.truncate(0)
        self.words.seek(0)
        command = [sys.executable, "-m", "tests.sanitized"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words
        )
        self.process = process
        return process

    def run(self, artifact: Artifact, path: Path, calls: Sequence[Call]) -> list[SanitizedOutcome]:
        process = self.process or self.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, (artifact, path, list(calls), os.getcwd()))
            outcomes: list[SanitizedOutcome] = _receive(process.stdout)
        except (EOFError, BrokenPipeError):
            process.wait()
            self.process = None
            self.words.seek(0)
            words = self.words.read().decode(errors="replace")
            raise AssertionError(f"the sanitizers stopped the program `{artifact.name}`:\n{words}") from None
        return outcomes

    def stop(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()


@functools.cache
def _child(library: str) -> _Child:
    child = _Child(library)
    atexit.register(child.stop)
    return child


def _send(stream: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    data = stream.read(struct.unpack("<q", head)[0])
    return pickle.loads(data)


# ---- the child's side ---------------------------------------------------------------------------


def _serve() -> None:
    """Run what comes in until the parent closes the pipe."""
    os.environ.pop("LD_PRELOAD", None)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but answers on that pipe
    while True:
        try:
            artifact, path, calls, folder = _receive(requests)
        except EOFError:
            return
        os.chdir(folder)  # files that programs write
        # An arena that owns stacks holds their state between calls: it may not be filled.
        program = NativeProgram(artifact, path, poison=not artifact.grows)
        _send(answers, [_outcome(program, values, variables) for values, variables in calls])


def _outcome(
    program: NativeProgram, values: Sequence[Any], variables: Sequence[np.ndarray[Any, Any]]
) -> SanitizedOutcome:
    buffers = [np.array(variable) for variable in variables]
    results: tuple[np.ndarray[Any, Any], ...] = ()
    error = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            results = program(*values, *buffers)
        except Exception as caught:
            error = caught
    return SanitizedOutcome(results, error, printed.getvalue(), buffers)


if __name__ == "__main__":
    # Under its importable name, so that what it sends back is what the parent knows.
    from tests.sanitized import _serve as serve

    serve()
