"""The parts of the check, in the order in which they run: what tells most about a machine in the least time comes first."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from staged import system
from staged.errors import DependencyError
from staged.runtime.cuda import devices, toolkit
from tests.backends.cublas_cudnn import programs
from tests.gpu_check import kernels
from tests.gpu_check.report import Result
from tests.gpu_check.sanitizers import sanitizer
from tests.gpu_check.setting import ROOT, Setting
from tests.gpu_check.training import FRAMEWORKS, training

X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)
SUITE = ("tests/backends/cublas_cudnn", "tests/programs", "tests/runtime")
SUITE_LIMIT = 7 * 60
"""Seconds after which the tests are stopped, so that what they said by then is still a result."""


@dataclass(frozen=True)
class Part:
    """A part: one sentence, and the function that does it."""

    what: str
    run: Callable[[Setting], Result]


# ---- the machine ----------------------------------------------------------------------------------


def machine(setting: Setting) -> Result:
    """Which GPU, which versions, and where NVIDIA's libraries and headers are."""
    found, reason = system.gpus()
    if setting.rehearsed:
        found = ["the emulated device"]
    if not found:
        return Result("failed", f"no GPU: {reason}")
    rows = [["what", "which"], ["GPU", found[0]], ["GPUs", str(len(found))]]
    driver = devices.driver_version()
    rows += [["driver knows CUDA", ".".join(map(str, driver or ("?",)))]]
    rows += [["C compiler", system.compiler()], ["nvcc", system.cuda_compiler() or "none"]]
    rows += [["compute-sanitizer", _first_line("compute-sanitizer", "--version")]]
    rows += [["cores", str(os.cpu_count())], ["Python", platform.python_version()]]
    for name in (
        "numpy",
        "torch",
        "triton",
        "cuda-bindings",
        "nvidia-cuda-nvrtc",
        "nvidia-cublas",
        "nvidia-cudnn-cu13",
    ):
        rows.append([name, _version(name)])
    for name in ("cublas", "cublasLt", "cudnn"):
        rows.append([f"lib{name}", _place(lambda name=name: toolkit.load_libraries((name,))[-1])])
        rows.append([f"headers of {name}", _place(lambda name=name: toolkit.include_folders((name,))[-1])])
    return Result("passed", found[0], table=rows)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a wheel"


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return f"none ({type(failure).__name__})"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "ersion" in line]
    return (lines or [f"exit status {done.returncode}"])[0]


def _place(find: Callable[[], Path]) -> str:
    try:
        return str(find())
    except DependencyError as missing:
        return "; ".join(missing.details) or str(missing)


def first(setting: Setting) -> Result:
    """The one thing that could not be tried without a GPU: machine code is loaded, a kernel is launched."""
    begin = time.perf_counter()
    found = programs.double(X)
    seconds = time.perf_counter() - begin
    np.testing.assert_array_equal(found, X * 2.0 + 1.0)
    return Result("passed", f"staged, compiled, loaded and right in {seconds:.2f} s")


# ---- the tests ------------------------------------------------------------------------------------


def suite(setting: Setting) -> Result:
    """The tests marked `gpu`, and all tests of the emulated device, on this machine's GPU; several at a time."""
    command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "--tb=short", "-p", "no:cacheprovider"]
    command += ["--on-gpu", *(SUITE if not setting.rehearsed else [f"{SUITE[0]}/test_programs.py"])]
    log = setting.folder / "suite.log"
    ends = []
    runs = [["-k", "not memory"], ["-k", "memory"]] if not setting.rehearsed else [["-k", "swap or memory"]]
    side_by_side = ["-n", str(min(12, os.cpu_count() or 1))] if importlib.util.find_spec("xdist") is not None else []
    deadline = time.monotonic() + SUITE_LIMIT
    with log.open("w") as file:
        for words in runs:
            # What a test finds of the device's free memory is about itself only while no other runs.
            several = side_by_side if words != ["-k", "memory"] else []
            ends.append(_run_into(file, [*command, *words, *several], max(10.0, deadline - time.monotonic())))
    said = log.read_text(errors="replace").splitlines()
    outcomes = outcomes_of(said)
    counts = {word: sum(outcome == word for outcome in outcomes.values()) for word in ("PASSED", "FAILED", "SKIPPED")}
    bad = [name for name, outcome in outcomes.items() if outcome in ("FAILED", "ERROR")]
    summary = f"{counts['PASSED']} tests passed, {len(bad)} failed, {counts['SKIPPED']} skipped"
    if None in ends:
        summary += f"; stopped after {SUITE_LIMIT} s"
    if not bad and counts["PASSED"] and all(end in (0, 5) for end in ends):  # 5: none were chosen
        return Result("passed", summary)
    reasons = [line for line in said if line.startswith(("FAILED ", "ERROR "))]
    return Result("failed", summary, details=(reasons or bad or said[-20:])[:60])


def _run_into(file: Any, command: list[str], limit: float) -> int | None:
    """The exit status of a command whose words go to a file; None if it was stopped after `limit` seconds."""
    try:
        return subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, timeout=limit).returncode
    except subprocess.TimeoutExpired:
        return None


_SIDE_BY_SIDE = re.compile(r"^\[gw\d+\] \[ *\d+%\] (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (.+?)\s*$")
_ALONE = re.compile(r"^(tests/\S+?::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))? *\[ *\d+%\]$")


def outcomes_of(lines: list[str]) -> dict[str, str]:
    """What pytest -v says of each test, with or without xdist; a failure stands, whatever else is said of a test."""
    found: dict[str, str] = {}
    for line in lines:
        if match := _SIDE_BY_SIDE.match(line):
            outcome, name = match[1], match[2]
        elif match := _ALONE.match(line):
            name, outcome = match[1], match[2]
        else:
            continue
        if found.get(name) not in ("FAILED", "ERROR"):
            found[name] = outcome
    return found


# ---- all of them ----------------------------------------------------------------------------------

PARTS: dict[str, Part] = {
    "machine": Part("the machine", machine),
    "first": Part("one kernel, loaded and launched", first),
    "suite": Part("the tests marked `gpu`, and those of the emulated device on the GPU", suite),
    **{row: Part(f"training steps of `{row}` against PyTorch", training(row)) for row in FRAMEWORKS},
    "kernels": Part("memory-bound kernels against a copy and PyTorch", kernels.speed),
    "memcheck": Part("compute-sanitizer memcheck over exported programs and the examples", sanitizer("memcheck")),
    "racecheck": Part("compute-sanitizer racecheck over exported programs and the examples", sanitizer("racecheck")),
}
