"""Processes that need one program at the same time: one compiles, and the others wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from staged.runtime.compiler import find_compiler

CODE = "from staged.runtime.c import load\nfrom tests.runtime.test_cache import ANSWER\nprint(load(ANSWER)()[0])\n"


@pytest.fixture
def environment(tmp_path):
    """The environment of processes with one empty cache, and a slow compiler that notes its process for each program."""
    compiler = tmp_path / "cc"
    real = find_compiler().command[0]
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *answer.c*) echo $PPID >> "$0.log"; sleep 0.5;; esac\n' + f'exec {real} "$@"\n'
    )
    compiler.chmod(0o700)
    paths = {"PYTHONPATH": str(Path(__file__).parents[2]), "STAGED_CACHE_DIR": str(tmp_path / "cache")}
    return {**os.environ, **paths, "STAGED_CC": str(compiler)}


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True, env=environment)


def compilations(tmp_path: Path) -> list[int]:
    """The processes that have compiled the program."""
    log = tmp_path / "cc.log"
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def test_four_processes_compile_once(environment, tmp_path):
    processes = [start(environment) for _ in range(4)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["42\n"] * 4
    assert len(compilations(tmp_path)) == 1
    assert [path.name for path in (tmp_path / "cache" / "programs").iterdir() if path.name.startswith("making")] == []


def test_a_compiling_process_that_is_killed_leaves_the_work_to_another(environment, tmp_path):
    processes = [start(environment) for _ in range(2)]
    end = time.monotonic() + 60
    while not compilations(tmp_path) and time.monotonic() < end:
        time.sleep(0.02)
    (first,) = compilations(tmp_path)
    os.kill(first, signal.SIGKILL)
    texts = {process.pid: process.communicate(timeout=60)[0] for process in processes}
    assert texts.pop(first) == ""
    assert list(texts.values()) == ["42\n"]
    assert len(compilations(tmp_path)) == 2
