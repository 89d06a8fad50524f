"""Five exported programs under NVIDIA's compute-sanitizer: memcheck, then racecheck.

`--prepare` exports the programs, and builds them if nvcc is installed; else the runner builds them on the machine with the device,
in the background. The tool also looks at kernels of NVIDIA's libraries: the reports about those are counted separately.
`sanitizer.txt` gets what the tool writes about a program when the program ends.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from staged.backends.cublas_cudnn.export import EMULATED_DEVICE
from staged.errors import DependencyError
from staged.runtime.cuda import toolkit
from tests.gpu_check.examples import EXAMPLES
from tests.gpu_check.processes import run_within
from tests.gpu_check.programs import capability
from tests.gpu_check.report import Result, State
from tests.gpu_check.setting import Setting, side_by_side

TOOLS = ("memcheck", "racecheck")
AT_ONCE = 5
SAID = 400_000
"""Characters of the file about one program and tool."""
FIRST_PORT = 49152
OVER = "the part's time was over"
KERNEL = re.compile(r'^extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(', re.MULTILINE)
"""A kernel's name where the source of a program defines it."""

# What the tool writes if it cannot work on a machine.
_REFUSED = re.compile(
    r"Device not supported|Unable to find|not supported on this|Internal Sanitizer Error|LibraryNotLoaded"
    r"|No attachable process found|insufficient permission|Operation not permitted",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Built:
    """An exported program: its command, its kernels, folders of the libraries that it calls; why it was not built."""

    name: str
    command: tuple[str, ...]
    folder: Path
    kernels: tuple[str, ...]
    libraries: tuple[Path, ...]
    failure: str = ""


@dataclass(frozen=True)
class Run:
    """The tool's reports about our kernels, the number of reports about others, and other failures."""

    ours: list[str]
    others: int
    seconds: float
    refusal: str = ""
    failure: str = ""


def run(setting: Setting) -> Result:
    """The part: memcheck of all programs, then racecheck."""
    path = setting.folder / "sanitizer.txt"
    path.write_text("")
    if not setting.rehearsed and (shutil.which("compute-sanitizer") is None or shutil.which("nvcc") is None):
        return Result("refused", "compute-sanitizer or nvcc is not on the PATH")
    programs = built_programs(setting)
    lock = threading.Lock()

    def looked_at(job: tuple[int, str, Built]) -> Run:
        number, tool, program = job
        done, words = sanitized(program, tool, setting, number)
        with lock, path.open("a") as file:
            state = done.failure or done.refusal or f"{len(done.ours)} reports about our kernels, {done.others} others"
            file.write(f"==== {tool} {program.name}: {state}, {done.seconds:.1f} s\n{words[:SAID]}\n")
        return done

    jobs = [(number, tool, program) for tool in TOOLS for number, program in enumerate(programs)]
    with ThreadPoolExecutor(side_by_side(AT_ONCE)) as pool:
        runs = list(pool.map(looked_at, jobs))
    return result_of([(tool, program) for _, tool, program in jobs], runs)


def result_of(jobs: Sequence[tuple[str, Built]], runs: Sequence[Run]) -> Result:
    """The table of all programs and tools."""
    rows = [["program", "tool", "kernels", "reports about them", "about kernels of NVIDIA's", "seconds"]]
    details: list[str] = []
    for (tool, program), run in zip(jobs, runs, strict=True):
        words = run.refusal or run.failure or str(len(run.ours))
        others = "" if run.refusal or run.failure else str(run.others)
        rows.append([program.name, tool, str(len(program.kernels)), words, others, f"{run.seconds:.0f}"])
        details += [f"{program.name}, {tool}: {run.failure}"] if run.failure else run.ours[:5]
    refusals = [run.refusal for run in runs if run.refusal]
    unfinished = OVER in refusals
    if refusals and len(refusals) == len(runs) and not unfinished:
        return Result("refused", refusals[0], table=rows)
    failures = [f"{tool} {program.name}" for (tool, program), run in zip(jobs, runs, strict=True) if run.failure or run.ours]
    done = sum(not run.refusal and not run.failure for run in runs)
    summary = f"{done} of {len(runs)} runs" + (f"; look at {', '.join(failures)}" if failures else ", nothing found")
    state: State = "failed" if failures else "passed"
    return Result(state, summary, table=rows, details=details[:60], unfinished=unfinished)


# ---- building -------------------------------------------------------------------------------------


def built_programs(setting: Setting) -> list[Built]:
    """All programs, in the folders of `--prepare`; those that are not built there are built now, side by side."""
    staged = [
        exported(function, arguments, setting.prepared / "exported" / function.__name__)
        for function, arguments in EXAMPLES
    ]
    variables = variables_for_emulator(staged[0][2]) if setting.rehearsed else []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda each: built(*each, variables, setting), staged))


def variables_for_emulator(folder: Path) -> list[str]:
    """Build the emulated device in one of the folders. Returns what tells `make` in all of them to use it."""
    flags = "EMULATORFLAGS=-std=c++17 -O0 -w"
    objects = [path.with_suffix(".o") for path in sorted((folder / EMULATED_DEVICE).rglob("*.cpp"))]
    names = [str(path.relative_to(folder)) for path in objects]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_within(["make", f"-j{os.cpu_count() or 1}", flags, *names], None, folder, os.environ)
    return ["emu", flags, f"EMULATOR={' '.join(map(str, objects))}"]


def exported(function: Any, arguments: dict[str, Any], folder: Path) -> tuple[Any, list[str], Path]:
    """(program, its flags, its folder): exported there, with its arguments, unless it has been."""
    program = function.stage(*arguments.values())
    text = folder / "exported_from.cu"  # `make` compares the times of files: one that is right is not written again
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


def built(program: Any, words: list[str], folder: Path, variables: Sequence[str], setting: Setting) -> Built:
    """The program of an exported folder. Another process may be building it: that one ends first."""
    artifact = program._artifact
    name = f"{artifact.name}_emu" if setting.rehearsed else artifact.name
    libraries: tuple[Path, ...] = ()
    failure = ""
    try:
        if not setting.rehearsed:
            libraries, variables = for_nvcc(folder, artifact.link)
        limit = None if math.isinf(setting.limit) else max(1.0, setting.left())
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = run_within(["make", *variables], limit, folder, with_libraries(libraries))
        if done.returncode != 0:
            failure = "not built: " + " ".join(done.stdout.strip().splitlines()[-6:])[:600]
    except (DependencyError, subprocess.TimeoutExpired) as problem:
        failure = f"not built: {problem}"
    kernels = tuple(KERNEL.findall(program.source))
    return Built(artifact.name, (f"./{name}", *words), folder, kernels, libraries, failure)


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
    major, minor = capability()
    variables = [
        f"ARCHITECTURES=-arch=sm_{major}{minor} -lineinfo",
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


def sanitized(program: Built, tool: str, setting: Setting, number: int = 0) -> tuple[Run, str]:
    """The program without the tool, then under it, and the output; a rehearsal has no tool. `number` is that of the program."""
    if program.failure:
        return Run([], 0, 0.0, failure=program.failure), ""
    # Calls that fail are the program's own business: it looks at every one, and libraries try some in vain.
    before = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9"]
    # The tool and what it looks at talk over ports: those of several must not be the same. Loading cuDNN may take long.
    before += ["--port", str(FIRST_PORT + 16 * number), "--launch-timeout", "60"]
    line = [*([] if setting.rehearsed else before), *program.command]
    if setting.left() <= 0:
        return Run([], 0, 0.0, refusal=OVER), ""
    limit = None if math.isinf(setting.limit) else setting.left()
    begin = time.monotonic()
    environment = with_libraries(program.libraries)
    try:
        if not setting.rehearsed and tool == TOOLS[0]:
            done = run_within(program.command, limit, program.folder, environment)
            if done.returncode != 0:
                words = " ".join(done.stdout.splitlines()[-4:])[:400]
                took = time.monotonic() - begin
                failure = f"without the tool it ends with status {done.returncode}: {words}"
                return Run([], 0, took, failure=failure), done.stdout
        done = run_within(line, limit, program.folder, environment)
    except subprocess.TimeoutExpired as over:
        return Run([], 0, time.monotonic() - begin, refusal=OVER), str(over.output)
    took = time.monotonic() - begin
    lines = done.stdout.splitlines()
    reports = reports_of(lines)
    refusal = next((report for report in reports if _REFUSED.search(report)), "")
    if refusal:
        return Run([], 0, took, refusal=refusal.splitlines()[0]), done.stdout
    known = re.compile(rf"\b({'|'.join(map(re.escape, program.kernels)) or 'none'})\b")
    ours = [report for report in reports if known.search(report)]
    # 9: the tool found something, which is among the reports; anything else but 0 is the program's own failure.
    failure = ""
    if done.returncode != 0 and not (done.returncode == 9 and reports):
        failure = f"exit status {done.returncode}: " + " ".join(lines[-4:])[:400]
    return Run(ours, len(reports) - len(ours), took, failure=failure), done.stdout


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
