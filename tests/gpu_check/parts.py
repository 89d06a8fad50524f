"""The parts of the check: what each proves, and how."""

from __future__ import annotations

import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from staged import system
from staged.runtime.cuda import devices
from tests.backends.cublas_cudnn import programs
from tests.gpu_check import kernels
from tests.gpu_check.report import Result

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)

# Exported and run under NVIDIA's sanitizer: between them prints, branches, loops, a gradient, reductions, Variables.
SANITIZED: tuple[tuple[Any, dict[str, Any]], ...] = (
    (programs.double, {"x": X}),
    (programs.maths, {"x": X}),
    (programs.softmax, {"x": X}),
    (programs.layer_norm, {"x": X}),
    (programs.sums, {"x": X}),
    (programs.moves, {"x": X}),
    (programs.through_the_host, {"x": X}),
    (programs.gradient, {"x": X, "b": X[0]}),
    (programs.train, {"x": X, "rate": 0.1, "n": 4}),
)


@dataclass(frozen=True)
class Part:
    """A part: one sentence, and the function that does it, given the results folder."""

    what: str
    run: Callable[[Path], dict[str, Any]]


def machine(folder: Path) -> dict[str, Any]:
    found, reason = system.gpus()
    if not found:
        return Result("failed", f"no GPU: {reason}").as_dict()
    rows = [["what", "which"], ["GPU", found[0]], ["GPUs", str(len(found))]]
    driver = devices.driver_version()
    rows += [["driver knows CUDA", ".".join(map(str, driver or ("?",)))]]
    rows += [["C compiler", system.compiler()], ["nvcc", system.cuda_compiler() or "none"]]
    rows += [["Python", platform.python_version()], ["PyTorch", _torch_version()]]
    return Result("passed", found[0], table=rows).as_dict()


def _torch_version() -> str:
    try:
        import torch
    except ImportError:
        return "none"
    return str(torch.__version__)


def first(folder: Path) -> dict[str, Any]:
    """The one thing that could not be tried without a GPU: machine code is loaded, a kernel is launched."""
    begin = time.perf_counter()
    found = programs.double(X)
    seconds = time.perf_counter() - begin
    np.testing.assert_array_equal(found, X * 2.0 + 1.0)
    return Result("passed", f"staged, compiled, loaded and right in {seconds:.2f} s").as_dict()


def suite(folder: Path) -> dict[str, Any]:
    """The tests marked `gpu`."""
    report = folder / "suite.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        "tests",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [f"{case.get('classname')}::{case.get('name')}" for case in cases if _is_bad(case)]
    skipped = sum(case.find("skipped") is not None for case in cases)
    ran = len(cases) - skipped
    summary = f"{ran - len(bad)} of {ran} tests passed, {skipped} skipped"
    if done.returncode == 0 and ran:
        return Result("passed", summary).as_dict()
    return Result("failed", summary, details=bad or done.stdout.splitlines()[-20:]).as_dict()


def _is_bad(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


# ---- NVIDIA's sanitizer -------------------------------------------------------------------------

# What the tool says where it cannot work at all: that is about the machine.
_REFUSED = re.compile(
    r"Device not supported|Unable to find|not supported on this|Internal Sanitizer Error", re.IGNORECASE
)


def sanitizer(tool: str) -> Callable[[Path], dict[str, Any]]:
    """The programs under one of compute-sanitizer's tools."""

    def run(folder: Path) -> dict[str, Any]:
        if shutil.which("compute-sanitizer") is None or shutil.which("nvcc") is None:
            return Result("refused", "compute-sanitizer or nvcc is not on the PATH").as_dict()
        rows = [["program", "what the tool said"]]
        state = "passed"
        for function, arguments in SANITIZED:
            binary, words = exported(function, arguments, folder / "exported")
            line = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", f"./{binary.name}", *words]
            done = subprocess.run(line, cwd=binary.parent, capture_output=True, text=True)
            said = [text for text in (done.stdout + done.stderr).splitlines() if text.startswith("=========")]
            if refusal := next((text for text in said if _REFUSED.search(text)), None):
                return Result("refused", refusal.strip("= "), table=rows).as_dict()
            if done.returncode != 0:
                state = "failed"
            rows.append([binary.name, (said[-1].strip("= ") if said else f"exit status {done.returncode}")])
        summary = f"{len(rows) - 1} programs" + ("" if state == "passed" else ", with errors")
        return Result(state, summary, table=rows).as_dict()  # type: ignore[arg-type]

    return run


def exported(function: Any, arguments: dict[str, Any], folder: Path) -> tuple[Path, list[str]]:
    """(a program built by nvcc from its exported folder, its flags)."""
    program = function.stage(*arguments.values())
    below = folder / program.name
    program.export(below)
    words = []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            np.save(below / f"{name}.npy", value)
            value = f"{name}.npy"
        words += [f"--{name}", str(value)]
    subprocess.run(["make"], cwd=below, check=True, capture_output=True)
    binary = next(path for path in below.iterdir() if path.is_file() and os.access(path, os.X_OK) and not path.suffix)
    return binary, words


# ---- speed --------------------------------------------------------------------------------------


def speed(folder: Path) -> dict[str, Any]:
    """Memory-bound kernels against a copy on the device, and against PyTorch in the same run."""
    copy = kernels.copy_bandwidth()
    rows = [["kernel", "staged", "share of a copy's bandwidth", "PyTorch eager", "PyTorch compiled"]]
    for kernel in kernels.KERNELS:
        ours = statistics.median(kernels.seconds_per_turn(kernel) for _ in range(3))
        theirs = [kernels.torch_seconds(kernel, compiled) for compiled in (False, True)]
        ratios = [
            "not there" if seconds is None else f"{seconds * 1e6:.1f} µs ({seconds / ours:.2f} x ours)"
            for seconds in theirs
        ]
        rows.append([kernel.name, f"{ours * 1e6:.1f} µs", f"{kernel.bytes / ours / copy:.0%}", *ratios])
    return Result(
        "passed", f"a copy on the device moves {copy / 1e12:.2f} TB/s, read and written", table=rows
    ).as_dict()


PARTS: dict[str, Part] = {
    "machine": Part("the machine", machine),
    "first": Part("one kernel, loaded and launched", first),
    "suite": Part("the tests marked `gpu`", suite),
    "memcheck": Part("compute-sanitizer memcheck over exported programs", sanitizer("memcheck")),
    "racecheck": Part("compute-sanitizer racecheck over exported programs", sanitizer("racecheck")),
    "speed": Part("memory-bound kernels", speed),
}
