"""Build without a device what the nine minutes need: `.whl` and `.gpu-check`.

| step     | result                                                                                                     |
|----------|------------------------------------------------------------------------------------------------------------|
| wheels   | `.whl`: the packages that the machine with the device does not have, for its Python                        |
| programs | the parts run on the emulated device, and each program that they compile is noted                          |
| kernels  | `.gpu-check`: the noted programs, and their kernels for compute capability 9.0 by the machine's NVRTC      |
| exports  | `.gpu-check/exported`: the programs of the sanitizer part, built by nvcc if it is installed                |
| size     | an error if more than 64 MiB would travel                                                                  |
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from tests import cuda_wheels
from tests.gpu_check.programs import FOLDER, NOTES
from tests.gpu_check.setting import PREPARED, REHEARSAL, ROOT

WHEELS = ROOT / ".whl"
CARRIED = ("cffi", "pycparser", "optree", "platformdirs")
"""Packages that the machine does not have; the versions are those of this Python."""
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
CCCL = "nvidia-cuda-cccl==13.0.85"
"""The headers `nv/target` of CUDA 13.0; a toolkit on the machine may not have them."""
MOST_BYTES = 64 << 20


class UnpreparedError(Exception):
    """A step of the preparation failed."""


def prepare(whole: bool) -> int:
    """Run all steps. With `whole`, the programs of all tests are noted, not those of the sample."""
    steps: dict[str, Callable[[], str]] = {
        "wheels": wheels,
        "programs": lambda: programs(whole),
        "kernels": kernels,
        "exports": exports,
        "size": size,
    }
    PREPARED.mkdir(exist_ok=True)
    for name, step in steps.items():
        begin = time.monotonic()
        try:
            words = step()
        except UnpreparedError as failure:
            print(f"{name}: {failure}", file=sys.stderr)
            return 1
        print(f"{name}: {words}, {time.monotonic() - begin:.0f} s", flush=True)
    return 0


def wheels() -> str:
    """Download the wheels that the machine does not have."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    names = [f"{name}=={importlib.metadata.version(name)}" for name in CARRIED] + [CCCL]
    words = ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp", "--quiet"]
    for platform in PLATFORMS:
        words += ["--platform", platform]
    done(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", *words, "-d", str(WHEELS), *names)
    found = sorted(path.name for path in WHEELS.glob("*.whl"))
    if len(found) != len(names):
        raise UnpreparedError(f"{len(found)} wheels for {len(names)} packages: {', '.join(found)}")
    return f"{len(found)} wheels"


def programs(whole: bool) -> str:
    """Run the parts on the emulated device, and note their programs."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.gpu_check", "--rehearse", "--slack", "inf", *(["--all"] if whole else [])]
    command += ["--out", str(REHEARSAL / "noting"), "--parts", "first", "suite"]
    os.environ[NOTES] = str(FOLDER)
    # A test that fails on the emulated device is a matter of the rehearsal: its programs travel all the same.
    subprocess.run(command, cwd=ROOT)
    for name in ("probes", "times"):
        for failure in importlib.import_module(f"tests.gpu_check.{name}").prepare(REHEARSAL / name):
            print(f"  not noted: {failure}")
    count = len(list(FOLDER.glob("*.pickle")))
    if count == 0:
        raise UnpreparedError("the parts compiled no programs")
    return f"{count} programs"


def kernels() -> str:
    """Compile the kernels of the noted programs, by the NVRTC that the machine has too."""
    cuda_wheels.install()
    status = subprocess.run([str(cuda_wheels.python()), "-m", "tests.gpu_check.programs", "kernels"], cwd=ROOT).returncode
    return "kernels packed" if status == 0 else "kernels packed; those of the programs above are missing"


def exports() -> str:
    """Export the programs of the sanitizer part. Build them, for the emulated device and, if nvcc is here, for a GPU."""
    code = "from tests.gpu_check.sanitizers import *\nfor each in built_programs(Setting(Path(), {0})): print(each.failure)"
    found = []
    for rehearsed in (True, False):
        python = sys.executable if rehearsed else str(cuda_wheels.python())
        failures = done(python, "-c", code.format(rehearsed)).split("\n")
        failures = [line for line in failures if line]
        if failures and rehearsed:
            raise UnpreparedError("; ".join(failures))
        found.append(f"{'emulated' if rehearsed else 'nvcc'}: " + (failures[0][:200] if failures else "all built"))
    return "; ".join(found)


def size() -> str:
    """The bytes that travel: the files that git tracks or does not ignore, and the prepared folders.

    Raises: UnpreparedError above the limit, with the largest files.
    """
    listed = done("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    paths = {ROOT / name for name in listed if name}
    scratch = PREPARED / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    paths |= {path for folder in (WHEELS, PREPARED) for path in folder.rglob("*")}
    sizes = {path: path.stat().st_size for path in paths if path.is_file() and not path.is_symlink()}
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = sorted(sizes, key=lambda path: sizes[path], reverse=True)[:8]
        lines = [f"  {sizes[path] / 2**20:.1f} MiB {path.relative_to(ROOT)}" for path in largest]
        limit = f"{total / 2**20:.1f} MiB would travel, and the limit is {MOST_BYTES / 2**20:.0f} MiB; the largest files:"
        raise UnpreparedError("\n".join([limit, *lines]))
    return f"{total / 2**20:.1f} MiB travel"


def done(*command: str) -> str:
    """The output of a command. Raises: UnpreparedError with its last lines if it fails."""
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        last = " ".join((run.stdout + run.stderr).strip().splitlines()[-4:])[:800]
        raise UnpreparedError(f"{' '.join(command)[:200]} ended with status {run.returncode}: {last}")
    return run.stdout

