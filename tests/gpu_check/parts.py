"""The parts of the check, in the order in which they run: what tells most about a machine in the least time comes first."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from staged import system
from staged.errors import DependencyError
from staged.runtime.cuda import devices, toolkit
from tests.backends.cublas_cudnn import programs
from tests.gpu_check import kernels
from tests.gpu_check.report import Result
from tests.gpu_check.sanitizers import sanitizer
from tests.gpu_check.setting import Setting, exclusive
from tests.gpu_check.suite import digest_of_sources, suite
from tests.gpu_check.training import FRAMEWORKS, training

X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)


@dataclass(frozen=True)
class Part:
    """A part: one sentence, the function that does it, and the seconds after which it is ended.

    One that `goes_on` does, run again, what is left; another one begins anew, so that with all its time it is not run again.
    """

    what: str
    run: Callable[[Setting], Result]
    limit: float = 300.0
    goes_on: bool = False


# ---- the machine ----------------------------------------------------------------------------------


def machine(setting: Setting) -> Result:
    """The GPU, the versions, and the places of NVIDIA's libraries and headers."""
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
    rows += [["processes on the GPU", "one at a time" if exclusive() else "several side by side"]]
    rows += [["cores", str(os.cpu_count())], ["Python", platform.python_version()]]
    rows += [["date", time.strftime("%Y-%m-%d", time.gmtime())], ["digest of the sources", digest_of_sources()[:12]]]
    for name in (
        "numpy",
        "torch",
        "triton",
        "cuda-bindings",
        "nvidia-cuda-nvrtc",
        "nvidia-cublas",
        "nvidia-cudnn-cu13",
        "nvidia-cusolver",
    ):
        rows.append([name, _version(name)])
    for name in ("cublas", "cublasLt", "cudnn", "cusolver"):
        rows.append([f"lib{name}", _place(lambda name=name: toolkit.load_libraries((name,))[-1])])
        rows.append([f"headers of {name}", _place(lambda name=name: toolkit.include_folder(name))])
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


# ---- all of them ----------------------------------------------------------------------------------

SANITIZED = "exported programs and the examples"

PARTS: dict[str, Part] = {
    "machine": Part("the machine", machine),
    "first": Part("one kernel, loaded and launched", first),
    "suite": Part("the tests marked `gpu`, and those of the emulated device on the GPU", suite, goes_on=True),
    **{row: Part(f"training steps of `{row}` against PyTorch", training(row)) for row in FRAMEWORKS},
    "kernels": Part("memory-bound kernels against a copy and PyTorch", kernels.speed),
    "memcheck": Part("compute-sanitizer memcheck over " + SANITIZED, sanitizer("memcheck"), goes_on=True),
    "racecheck": Part("compute-sanitizer racecheck over " + SANITIZED, sanitizer("racecheck"), goes_on=True),
}
