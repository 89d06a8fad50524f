"""`python -m tests.fuzz --seeds 10000`: thousands of random programs, each checked as `check.py` says.

Programs run in worker processes that have the address sanitizer loaded, so that C at -O0 is checked by it; a worker that dies
says which seed it was at. A failure is made smaller and printed as Python text that reproduces it.

Most programs are many small functions, drawn from the declarations (`cells/`); one in `CONTROL` has deep control flow and
derivatives of the whole (`generator.py`). With `--gpu` they have regions and run on the emulated device (`cells/device.py`,
`on_device.py`). `--report` also says which cells (function, dtype, kind of shape, transform) were never drawn.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.fuzz.cells.check import check_program
from tests.fuzz.cells.device import CUDA, check_cells_on_device, late_form, source_on_device
from tests.fuzz.cells.long_scenes import long_piece
from tests.fuzz.cells.programs import Program, program_of
from tests.fuzz.cells.reduce import reduce_program, reproduction
from tests.fuzz.cells.report import Record, merged, report
from tests.fuzz.check import FAST, SANITIZED, Case, Failure, check
from tests.fuzz.generator import Generator
from tests.fuzz.on_device import check_on_device, device_case_of
from tests.fuzz.ranks import drive as on_ranks
from tests.fuzz.ranks import text_of
from tests.fuzz.reduce import Check, reduce_case

SECONDS = 200
"""The limits of one program: more is a failure, of staging or of the program."""

LEVELS = (SANITIZED, FAST)


def case_of(seed: int) -> Case:
    """The program and the arguments of a seed."""
    chance = random.Random(seed)
    text, shapes = Generator(chance).program()
    return Case(text, tuple(shapes), seed, chance.choice((0, 1, 2, 3, 4)), second=seed % 6 == 0)


CONTROL = 16
"""One seed in so many is a program of deep control flow."""


def is_control(seed: int) -> bool:
    """Whether a seed's program has deep control flow, instead of many small functions."""
    return seed % CONTROL == CONTROL - 1


def checked(gpu: bool, seed: int, record: Record | None = None) -> str:
    """The outcome of a check of a seed's program that found nothing wrong."""
    if os.environ.get(_LATE):
        return f"cells {check_cells_on_device(late_program_of(seed), is_late=True)}"
    if is_control(seed):
        return (
            check_on_device(device_case_of(seed // CONTROL)) if gpu else check(case_of(seed // CONTROL), LEVELS).value
        )
    program = program_of(cell_seed(seed))
    refused: dict[object, str] = {}
    compared = (check_cells_on_device if gpu else check_program)(program, refused=refused)
    if record is not None:
        record.enter(program, refused)
    return f"cells {compared}"


def late_program_of(seed: int) -> Program:
    """The program of a seed with late slices: a few small functions, or one in four of arrays of device sizes."""
    if seed % 4 == 3:
        chance = random.Random(f"late {seed}")
        return Program(seed, [long_piece(chance) for _ in range(2)])
    return Program(seed, program_of(seed).pieces[:3])


def cell_seed(seed: int) -> int:
    """The number of a seed's program among those of cells: without gaps, so that every cell is met in turn."""
    return seed - seed // CONTROL


def checks(gpu: bool) -> list[Check]:
    """The checks that find a failure again: the whole check, then parts of it that are cheaper."""
    if gpu:
        return [check_on_device]
    return [partial(check, levels=levels) for levels in (LEVELS, *((level,) for level in LEVELS))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many programs")
    parser.add_argument("--gpu", action="store_true", help="programs with regions, on the emulated device")
    parser.add_argument("--late", action="store_true", help="with --gpu: small programs that all have late slices (late.py)")
    parser.add_argument("--ranks", type=int, help="programs with collectives, on so many MPI ranks (ranks.py)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, help="print the program of a seed and check it here")
    parser.add_argument("--reduce", type=int, help="print the smallest program found with the failure of a seed")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to look for smaller ones")
    parser.add_argument("--keep-going", type=int, default=20, help="stop after so many failures")
    parser.add_argument("--report", action="store_true", help="say at the end which cells were never drawn")
    parser.add_argument("--worker", nargs=3, type=int, metavar=("FIRST", "STOP", "STEP"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    gpu = options.gpu
    if gpu:
        os.environ["STAGED_CUDA"] = "emulate"
    if options.late:
        os.environ[_LATE] = "1"
    if options.ranks:
        if options.show is not None:
            print(text_of(options.show, options.ranks))
            return 0
        status, words = on_ranks(options.ranks, options.first, options.seeds, limit=60.0 * options.seeds)
        print(words or f"{options.seeds} programs on {options.ranks} ranks: all agree with one rank")
        return status
    if options.show is not None:
        print(source_of(gpu, options.show))
        print(checked(gpu, options.show))
        return 0
    if options.reduce is not None:
        if os.environ.get(_PREPARED):
            reduce_here(gpu, options.reduce, options.seconds)
        else:
            with tempfile.TemporaryDirectory(prefix="staged-fuzz-") as cache:
                show(gpu, options.reduce, "", "", cache, options.seconds)
        return 0
    if options.worker:
        work(gpu, *options.worker)
        return 0
    return drive(gpu, options.first, options.seeds, options.jobs, options.keep_going, options.seconds, options.report)


def source_of(gpu: bool, seed: int) -> str:
    """The text of a seed's module."""
    if os.environ.get(_LATE):
        return late_form(late_program_of(seed)).source(CUDA)
    if is_control(seed):
        return (device_case_of if gpu else case_of)(seed // CONTROL).source()
    program = program_of(cell_seed(seed))
    return source_on_device(program) if gpu else program.source()


_LATE = "STAGED_FUZZ_LATE"
"""Set in the environment of the processes that check programs with late slices alone."""

_PREPARED = "STAGED_FUZZ_PREPARED"
"""Set in the environment of the processes that `_environment` was made for."""


# ---- workers ------------------------------------------------------------------------------------


def work(gpu: bool, first: int, stop: int, step: int) -> None:
    """Check seeds one after the other; one line on standard output for each."""
    signal.signal(signal.SIGALRM, _too_slow)
    os.environ.pop("LD_PRELOAD", None)  # the compiler need not run under the sanitizer
    gc.set_threshold(50_000, 20, 20)
    out = os.fdopen(os.dup(1), "w")
    record = Record(Path(os.environ["STAGED_CACHE_DIR"]), f"{first}.{os.getpid()}")
    for number, seed in enumerate(range(first, stop, step)):
        if number % 50 == 0:  # what programs leave behind is much, and need not be looked through again
            gc.collect()
            gc.freeze()
        out.write(f"start {seed}\n")
        out.flush()
        word = settled(gpu, seed, record)
        out.write(f"done {seed} {word}\n")
        out.flush()


def settled(gpu: bool, seed: int, record: Record) -> str:
    """The outcome of the check of a seed; once more where it took too long: the machine had other work, or the program hangs again."""
    word = _outcome(gpu, seed, record)
    return _outcome(gpu, seed, record) if "took longer than" in word else word


def _outcome(gpu: bool, seed: int, record: Record) -> str:
    """The outcome of the check of a seed's program, within its time."""
    signal.alarm(SECONDS)
    try:
        return checked(gpu, seed, record)
    except Failure as failure:
        return "failed " + failure.key
    except Exception as error:
        return "failed " + _summary(error)
    finally:
        signal.alarm(0)


def _too_slow(number: int, frame: object) -> None:
    raise TimeoutError(f"took longer than {SECONDS} s")


def _summary(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}{at}"


# ---- the driver ---------------------------------------------------------------------------------


class Worker:
    """A process that checks every `step`-th seed from `first`."""

    def __init__(self, gpu: bool, first: int, stop: int, step: int, cache: str) -> None:
        self.stop, self.step = stop, step
        self.gpu, self.environment = gpu, _environment(gpu, cache)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the worker)
        self.start(first)

    def start(self, first: int) -> None:
        self.current = first
        self.errors.seek(0)
        self.errors.truncate()
        self.process = subprocess.Popen(
            [*_command(self.gpu), "--worker", str(first), str(self.stop), str(self.step)],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=self.environment,
        )

    def words(self) -> str:
        """The end of what the process said on standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-4000:]


def _command(gpu: bool) -> list[str]:
    return [sys.executable, "-m", "tests.fuzz", *(["--gpu"] if gpu else [])]


def _environment(gpu: bool, cache: str) -> dict[str, str]:
    """The environment of a process that loads programs; those for the host have the address sanitizer in them."""
    prepared = {**os.environ, _PREPARED: "1", "STAGED_CACHE_DIR": cache}
    if gpu:
        return prepared
    # The second is there so that the sanitizer knows how C++ throws: PyTorch does.
    names = ("libasan.so", "libstdc++.so")
    found = [subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True) for name in names]
    return {
        **prepared,
        "LD_PRELOAD": " ".join(library.stdout.strip() for library in found),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:quarantine_size_mb=16",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def drive(
    gpu: bool, first: int, seeds: int, jobs: int, keep_going: int, seconds: float, wants_report: bool = False
) -> int:
    """Run all seeds, print what failed; 1 where something did."""
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    pieces = 0
    refusals: Counter[str] = Counter()
    failures: list[tuple[int, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="staged-fuzz-") as cache:
        for seed, word, words in run(gpu, first, first + seeds, jobs, cache):
            counts[word.split(" ", 1)[0]] += 1
            if word.startswith("cells "):
                pieces += int(word.split()[1])
            if word.startswith("refused "):
                refusals[word.removeprefix("refused ")] += 1
            if word.startswith(("failed", "died")):
                failures.append((seed, word, words))
                print(f"seed {seed}: {word}", flush=True)
                if len(failures) >= keep_going:
                    break
            done = sum(counts.values())
            if done % 100 == 0:
                print(f"{done} programs in {time.monotonic() - begin:.0f} s: {dict(counts)}", flush=True)
        for seed, word, words in failures[:3]:
            show(gpu, seed, word, words, cache, seconds)
        cells, keywords, scenes = merged(Path(cache))
        print(f"{len(cells)} cells (function, dtype, kind of shape, transform) drawn; {sum(scenes.values())} scenes")
        if wants_report:
            text, empty = report(cells, keywords, scenes, check_cells_on_device if gpu else check_program)
            print(text)
            if empty and not failures:
                return 1
    for words, count in refusals.most_common():
        print(f"refused {count} times: {words}")
    print(f"{sum(counts.values())} programs in {time.monotonic() - begin:.0f} s: {dict(counts)}")
    print(f"{pieces} small functions compared; {len(failures)} failed")
    return 1 if failures else 0


def run(gpu: bool, first: int, stop: int, jobs: int, cache: str) -> Iterator[tuple[int, str, str]]:
    """(seed, outcome, what was said on standard error) as they come."""
    import selectors

    selector = selectors.DefaultSelector()
    for number in range(min(jobs, stop - first)):
        worker = Worker(gpu, first + number, stop, jobs, cache)
        selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
    try:
        while selector.get_map():
            for key, _ in selector.select():
                worker = key.data
                line = key.fileobj.readline().decode()  # type: ignore[union-attr]
                if line.startswith("start "):
                    worker.current = int(line.split()[1])
                elif line.startswith("done "):
                    _, seed, word = line.rstrip("\n").split(" ", 2)
                    worker.current = int(seed) + worker.step
                    yield int(seed), word, ""
                elif not line:
                    selector.unregister(key.fileobj)
                    code = worker.process.wait()
                    if worker.current < stop and code != 0:
                        yield worker.current, f"died with status {code}", worker.words()
                        if worker.current + worker.step < stop:
                            worker.start(worker.current + worker.step)
                            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
    finally:
        for key in list(selector.get_map().values()):
            key.data.process.kill()


def show(gpu: bool, seed: int, word: str, words: str, cache: str, seconds: float) -> None:
    """Print a failing program, smaller if it can be, as text that reproduces."""
    print(f"\n==== seed {seed}: {word}\n{words}", flush=True)
    command = [*_command(gpu), "--reduce", str(seed), "--seconds", str(seconds)]
    subprocess.run(command, env=_environment(gpu, cache), stderr=subprocess.DEVNULL)


def reduce_here(gpu: bool, seed: int, seconds: float) -> None:
    """Print the smallest program found with the failure of this seed, in a process that was prepared for it."""
    os.environ.pop("LD_PRELOAD", None)
    is_late = bool(os.environ.get(_LATE))
    if is_late or not is_control(seed):
        program = late_program_of(seed) if is_late else program_of(cell_seed(seed))
        on_device = partial(check_cells_on_device, is_late=is_late or None)
        program, key = reduce_program(program, on_device if gpu else check_program, seconds)
        print(f"# {key or 'did not fail again'}\n{reproduction(program, gpu)}", flush=True)
        return
    seed //= CONTROL
    case, key = reduce_case((device_case_of if gpu else case_of)(seed), checks(gpu), seconds)
    print(f"# {key or 'did not fail again'}\n{case.reproduction()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
