"""Running a program with a limit of time, after which nothing of it is left: neither it nor what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def run_within(
    command: Sequence[str], limit: float | None, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The output of a command and its end; `stderr` is in `stdout`, in the order in which it was said.

    Raises: subprocess.TimeoutExpired after `limit` seconds, with what was said by then as its output; OSError.
    """
    # A file and not a pipe: one that the command has started may outlive it and hold a pipe open.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
        is_over = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            is_over = True
        finally:
            end(process)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if is_over:
        raise subprocess.TimeoutExpired(command, limit or 0.0, output=text)
    return subprocess.CompletedProcess(command, process.returncode, text, "")


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it has started, directly or not; nothing where it has ended by itself."""
    if process.poll() is None:
        for each in [*started_by(process.pid), process.pid]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
    process.wait()


def started_by(process: int) -> list[int]:
    """The processes that this one has started, and those that they have, as Linux lists them."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # The name stands in brackets, and may hold any character: what follows it is state and parent.
                parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found, new = [], [process]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found
