"""Exported programs and the examples under NVIDIA's compute-sanitizer, built by nvcc.

The tool looks at the kernels of NVIDIA's libraries too; what it says of those is counted apart, for it is not about us.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged.errors import DependencyError
from staged.runtime.cuda import devices, toolkit
from tests.backends.cublas_cudnn import gpu_funcs, programs
from tests.gpu_check.examples import EXAMPLES
from tests.gpu_check.processes import run_within
from tests.gpu_check.report import Result, State
from tests.gpu_check.setting import Setting, side_by_side

X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)
WIDE = np.random.default_rng(2).normal(size=(130, 260)).astype(np.float32)

# Between them prints, branches, loops, a gradient, reductions of every kind, tiles, Variables, kernels of users; then the examples.
SANITIZED: tuple[tuple[Any, dict[str, Any]], ...] = (
    (programs.double, {"x": X}),
    (programs.maths, {"x": X}),
    (programs.softmax, {"x": WIDE}),
    (programs.layer_norm, {"x": WIDE}),
    (programs.sums, {"x": WIDE}),
    (programs.positions, {"x": WIDE}),
    (programs.moves, {"x": WIDE}),
    (programs.through_the_host, {"x": X}),
    (programs.gradient, {"x": X, "b": X[0]}),
    (programs.train, {"x": X, "rate": 0.1, "n": 4}),
    (programs.attention, {"x": WIDE}),
    (st.function(gpu_funcs.turned), {"x": gpu_funcs.MATRIX}),
    (st.function(gpu_funcs.sums_of_blocks), {"x": gpu_funcs.X}),
    (st.function(gpu_funcs.counted), {"x": gpu_funcs.COUNTS}),
    *EXAMPLES,
)
BUILD_LIMIT, RUN_LIMIT = 200, 150
"""Seconds for one program."""
AT_ONCE = 6
FIRST_PORT = 49152
OVER = "the part's time was over"
KERNEL = re.compile(r'^extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(', re.MULTILINE)
"""A kernel's name where the text of a program defines it."""

# What the tool says where it cannot work at all: that is about the machine.
_REFUSED = re.compile(
    r"Device not supported|Unable to find|not supported on this|Internal Sanitizer Error|LibraryNotLoaded"
    r"|No attachable process found|insufficient permission|Operation not permitted",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Built:
    """A program built from its exported folder: what runs it, its kernels, folders of the libraries that it calls."""

    name: str
    command: tuple[str, ...]
    folder: Path
    kernels: tuple[str, ...]
    libraries: tuple[Path, ...]
    failure: str = ""
    digest: str = ""
    """Of its text."""


@dataclass(frozen=True)
class Run:
    """The tool's words on a program: reports about kernels of ours, how many about others', what went wrong otherwise."""

    ours: list[str]
    others: int
    seconds: float
    refusal: str = ""
    failure: str = ""


class Known:
    """A tool's words on programs in which it found nothing: a part that is run again need not ask again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}
        self.lock = threading.Lock()

    def run(self, program: Built) -> Run | None:
        """The run of the same text, if there was one."""
        said = self.said.get(program.name, {})
        return Run([], said["others"], said["seconds"]) if said.get("text") == program.digest else None

    def noted(self, program: Built, run: Run) -> Run:
        """The same run; kept if it was clean."""
        if not (run.ours or run.refusal or run.failure):
            with self.lock:
                self.said[program.name] = {"text": program.digest, "others": run.others, "seconds": run.seconds}
                self.path.write_text(json.dumps(self.said, indent=1) + "\n")
        return run


def sanitizer(tool: str) -> Callable[[Setting], Result]:
    """The part that runs the programs under one of the tools."""

    def run(setting: Setting) -> Result:
        if not setting.rehearsed and (shutil.which("compute-sanitizer") is None or shutil.which("nvcc") is None):
            return Result("refused", "compute-sanitizer or nvcc is not on the PATH")
        built = built_programs(setting)
        known = Known(setting.folder / f"{tool}.runs.json")

        def looked_at(number: int) -> Run:
            program = built[number]
            return known.run(program) or known.noted(program, sanitized(program, tool, setting, number))

        with ThreadPoolExecutor(side_by_side(AT_ONCE)) as pool:
            runs = list(pool.map(looked_at, range(len(built))))
        return result_of(tool, built, runs)

    return run


def run(setting: Setting) -> Result:
    """The part: memcheck, then racecheck."""
    found = [sanitizer(tool)(setting) for tool in ("memcheck", "racecheck")]
    state: State = next((each.state for each in found if each.state != "passed"), "passed")
    return Result(state, "; ".join(each.summary for each in found), [line for each in found for line in each.details])


def result_of(tool: str, built: Sequence[Built], runs: Sequence[Run]) -> Result:
    """The table of all programs."""
    rows = [["program", "kernels", f"{tool}: reports about them", "about kernels of NVIDIA's", "took"]]
    details: list[str] = []
    for program, run in zip(built, runs, strict=True):
        words = run.refusal or run.failure or str(len(run.ours))
        others = "" if run.refusal or run.failure else str(run.others)
        rows.append([program.name, str(len(program.kernels)), words, others, f"{run.seconds:.0f} s"])
        details += run.ours[:5]
    refusals = [run.refusal for run in runs if run.refusal]
    unfinished = OVER in refusals
    if refusals and len(refusals) == len(runs) and not unfinished:
        return Result("refused", refusals[0], table=rows)
    failures = [program.name for program, run in zip(built, runs, strict=True) if run.failure or run.ours]
    done = sum(not run.refusal and not run.failure for run in runs)
    summary = f"{done} of {len(runs)} programs ran" + (
        f"; look at {', '.join(failures)}" if failures else ", nothing found"
    )
    state: State = "failed" if failures else "passed"
    return Result(state, summary, table=rows, details=details[:60], unfinished=unfinished)


# ---- building -------------------------------------------------------------------------------------


def built_programs(setting: Setting) -> list[Built]:
    """All programs, exported one after the other and built side by side."""
    chosen = SANITIZED if not setting.rehearsed else [SANITIZED[0], SANITIZED[-1]]
    staged = [
        exported(function, arguments, setting.folder / "exported" / function.__name__) for function, arguments in chosen
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda each: built(*each, setting), staged))


def exported(function: Any, arguments: dict[str, Any], folder: Path) -> tuple[Any, list[str], Path]:
    """(program, its flags, its folder): exported there, with its arguments, unless it has been."""
    program = function.stage(*arguments.values())
    text = folder / "exported_from.cu"  # the other tool's part may have built it, and `make` goes by the files' times
    if not text.is_file() or text.read_text() != program.source:
        shutil.rmtree(folder, ignore_errors=True)
        program.export(folder)
        text.write_text(program.source)
    words = []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)
            value = f"{name}.npy"
        words += [f"--{name}", str(value)]
    return program, words, folder


def built(program: Any, words: list[str], folder: Path, setting: Setting) -> Built:
    """The program of an exported folder."""
    artifact = program._artifact
    name = f"{artifact.name}_emu" if setting.rehearsed else artifact.name
    kernels = tuple(KERNEL.findall(program.source))
    libraries: tuple[Path, ...] = ()
    failure = ""
    try:
        variables: list[str] = []
        if not setting.rehearsed:
            libraries, variables = for_nvcc(folder, artifact.link)
        done = run_within(
            ["make", *(["emu", "EMULATORFLAGS=-std=c++17 -O0 -w"] if setting.rehearsed else []), *variables],
            None if setting.rehearsed else min(BUILD_LIMIT, max(1.0, setting.left())),
            folder,
            with_libraries(libraries),
        )
        if done.returncode != 0:
            failure = " ".join(done.stdout.strip().splitlines()[-6:])[:600]
    except (DependencyError, subprocess.TimeoutExpired) as problem:
        failure = str(problem)
    digest = hashlib.sha256(program.source.encode()).hexdigest()
    failure = failure and f"not built: {failure}"
    return Built(artifact.name, (f"./{name}", *words), folder, kernels, libraries, failure, digest)


def for_nvcc(folder: Path, link: Sequence[str]) -> tuple[tuple[Path, ...], list[str]]:
    """(folders of the libraries, variables for `make`): wheels have libraries under versioned names, which nvcc does not look for.

    Raises: DependencyError for a library or headers that are missing.
    """
    names = [flag.removeprefix("-l") for flag in link if flag != "-lcudart"]
    places = toolkit.load_libraries(names)[1:]
    links = folder / "libraries"
    links.mkdir(exist_ok=True)
    for name, place in zip(names, places, strict=True):
        (links / f"lib{name}.so").unlink(missing_ok=True)
        (links / f"lib{name}.so").symlink_to(place)
    headers = [toolkit.include_folder(name) for name in names]
    capability = devices.needed_gpu().capability
    variables = [
        f"ARCHITECTURES=-arch=sm_{capability[0]}{capability[1]} -lineinfo",
        # nvcc's own headers come first: those of wheels may be of another version.
        "INCLUDES=-I$(CUDA_HOME)/include " + " ".join(f"-I{header}" for header in dict.fromkeys(headers)),
        f"LIBRARY_FOLDERS=-L{links} -L$(CUDA_HOME)/lib64",
    ]
    return tuple(dict.fromkeys(place.parent for place in places)), variables


def with_libraries(folders: Sequence[Path]) -> dict[str, str]:
    """The environment, with these folders where libraries are looked for."""
    known = os.environ.get("LD_LIBRARY_PATH", "")
    path = os.pathsep.join([*map(str, folders), *([known] if known else [])])
    return {**os.environ, **({"LD_LIBRARY_PATH": path} if path else {})}


# ---- running --------------------------------------------------------------------------------------


def sanitized(program: Built, tool: str, setting: Setting, number: int = 0) -> Run:
    """A built program as it is, then under the tool; in a rehearsal without. `number` tells it from those beside it."""
    if program.failure:
        return Run([], 0, 0.0, failure=program.failure)
    # Calls that fail are the program's own business: it looks at every one, and libraries try some in vain.
    before = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9"]
    # The tool and what it looks at talk over ports: those of several must not be the same. Loading cuDNN may take long.
    before += ["--port", str(FIRST_PORT + 16 * number), "--launch-timeout", "60"]
    line = [*([] if setting.rehearsed else before), *program.command]
    if setting.left() <= 0:
        return Run([], 0, 0.0, refusal=OVER)
    limit = None if setting.rehearsed else min(RUN_LIMIT, setting.left())
    begin = time.monotonic()
    environment = with_libraries(program.libraries)
    try:
        if not setting.rehearsed:
            done = run_within(program.command, limit, program.folder, environment)
            if done.returncode != 0:
                words = " ".join(done.stdout.splitlines()[-4:])[:400]
                took = time.monotonic() - begin
                return Run([], 0, took, failure=f"without the tool it ends with status {done.returncode}: {words}")
        done = run_within(line, limit, program.folder, environment)
    except subprocess.TimeoutExpired:
        return Run([], 0, time.monotonic() - begin, refusal=OVER if limit != RUN_LIMIT else f"not done after {limit} s")
    took = time.monotonic() - begin
    lines = done.stdout.splitlines()
    reports = reports_of(lines)
    refusal = next((report for report in reports if _REFUSED.search(report)), "")
    if refusal:
        return Run([], 0, took, refusal=refusal.splitlines()[0])
    known = re.compile(rf"\b({'|'.join(map(re.escape, program.kernels)) or 'none'})\b")
    ours = [report for report in reports if known.search(report)]
    # 9: the tool found something, which is among the reports; anything else but 0 is the program's own failure.
    failure = ""
    if done.returncode != 0 and not (done.returncode == 9 and reports):
        failure = f"exit status {done.returncode}: " + " ".join(lines[-4:])[:400]
    return Run(ours, len(reports) - len(ours), took, failure=failure)


def reports_of(lines: Sequence[str]) -> list[str]:
    """The reports of the tool, each with the lines that belong to it: these are indented."""
    found: list[list[str]] = []
    for line in lines:
        if not line.startswith("========="):
            continue
        words = line.removeprefix("=========")
        if not words.strip() or re.match(r" (COMPUTE-SANITIZER|[\w -]*SUMMARY:)", words):
            continue
        if words.startswith("  ") and found:
            found[-1].append(words.strip())
        else:
            found.append([words.strip()])
    return ["\n".join(each) for each in found]
