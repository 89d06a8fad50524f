"""Programs that are noted here and built for the device: kernels by `--prepare`, host parts on the machine with the device.

note(PROGRAM)                              a file of the folder `$STAGED_GPU_CHECK_NOTES` for a program
python -m tests.gpu_check.programs kernels compile the kernels of all noted programs with NVRTC, and pack them for the journey
python -m tests.gpu_check.programs         build all noted programs for the device of this machine

Machine code of kernels is found again in the program cache on another machine if its NVRTC has the same version. The key of a host
part contains the C compiler and the processor, so that the runner builds host parts there, in the background.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import pickle
import shutil
import sys
import tarfile
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from staged.base.artifact import Artifact
from staged.runtime.cuda import loading
from staged.runtime.cuda.devices import gpus, is_emulated
from staged.runtime.cuda.host import compile_host
from staged.runtime.cuda.nvrtc import compile_kernels
from staged.runtime.options import CompileOptions
from tests.gpu_check.setting import PREPARED, REHEARSAL, Setting

CAPABILITY = (9, 0)
"""Of the device for which `--prepare` builds."""
NOTES = "STAGED_GPU_CHECK_NOTES"
"""The variable with the folder in which `--prepare` collects programs."""
NOTED, KERNELS, CACHE = PREPARED / "noted.pickle.xz", PREPARED / "kernels.tar.xz", PREPARED / "scratch" / "programs"
"""The noted programs and their kernels, packed; the program cache, which does not travel."""
FOLDER = REHEARSAL / "noted"

Program = tuple[Artifact, CompileOptions]


def note(artifact: Artifact, options: CompileOptions | None = None) -> None:
    """Keep a program for the device, if `--prepare` runs this process."""
    folder = os.environ.get(NOTES)
    if folder is None:
        return
    options = options or CompileOptions()
    key = hashlib.sha256(repr((artifact.source, artifact.header, artifact.support, artifact.link, options)).encode())
    path = Path(folder) / f"{key.hexdigest()[:32]}.pickle"
    if not path.is_file():
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(pickle.dumps((artifact, options)))
        unfinished.rename(path)


def note_emulated() -> None:
    """Note each program that this process compiles for the emulated device."""
    compile_emulated = loading.compile_emulated

    def noted(artifact: Artifact, options: CompileOptions) -> Path:
        note(artifact, options)
        return compile_emulated(artifact, options)

    loading.compile_emulated = noted


def compile_and_pack() -> list[str]:
    """Compile the kernels of all noted programs, and pack programs and machine code. Returns the messages of the failures."""
    paths = sorted(FOLDER.glob("*.pickle"), key=lambda path: path.stat().st_mtime_ns)
    programs: list[Program] = [pickle.loads(path.read_bytes()) for path in paths]
    os.environ["STAGED_CACHE_DIR"] = str(CACHE)
    shutil.rmtree(CACHE, ignore_errors=True)
    failures = done((program[0].name, compile_kernels, (program[0], CAPABILITY)) for program in programs)
    NOTED.write_bytes(lzma.compress(pickle.dumps(programs), preset=1))
    with tarfile.open(KERNELS, "w:xz", preset=1) as archive:
        archive.add(CACHE, ".")
    print(f"{len(programs) - len(failures)} of {len(programs)} programs have kernels for {CAPABILITY}")
    return failures


def unpack() -> None:
    """Put the compiled kernels into the program cache."""
    if KERNELS.is_file() and not CACHE.is_dir():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(KERNELS.read_bytes())) as archive:
            archive.extractall(CACHE, filter="data")
        for folder in (CACHE, *(path for path in CACHE.rglob("*") if path.is_dir())):
            folder.chmod(0o700)  # else the cache is not accepted: others could write to it


def build(program: Program) -> None:
    """Compile a program for the first GPU of this machine."""
    artifact, options = program
    compile_host(artifact, compile_kernels(artifact, capability()), options)


def capability() -> tuple[int, int]:
    """Return the compute capability of the first GPU of this machine, or of the device of `--prepare`."""
    found = gpus()
    return found[0].capability if found else CAPABILITY


def build_exports() -> None:
    """Build the exported programs of the sanitizer part."""
    from tests.gpu_check.sanitizers import built_programs

    failures = [program.failure for program in built_programs(Setting(Path(), is_emulated())) if program.failure]
    assert not failures, failures


def done(jobs: Iterable[tuple[str, Callable[..., object], tuple[Any, ...]]]) -> list[str]:
    """Do the jobs (name, function, arguments) in a process per two cores. Returns the messages of the failures."""
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        futures = [(name, pool.submit(function, *arguments)) for name, function, arguments in jobs]
        found = [(name, future.exception()) for name, future in futures]
    return [f"{name}: {said(failure)}" for name, failure in found if failure is not None]


def said(failure: BaseException) -> str:
    """The message of a failure, in one line."""
    return " ".join("".join(traceback.format_exception_only(failure)).split())[:400]


def main() -> int:
    os.nice(10)
    if sys.argv[1:] == ["kernels"]:
        failures = compile_and_pack()
    else:
        # A rehearsal runs other programs: its sizes are small, and its machine has fewer cores.
        is_there = NOTED.is_file() and not is_emulated()
        programs: list[Program] = pickle.loads(lzma.decompress(NOTED.read_bytes())) if is_there else []
        failures = done([("exports", build_exports, ()), *((each[0].name, build, (each,)) for each in programs)])
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
