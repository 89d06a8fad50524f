"""`python -m tests.fuzz --seeds 10000`: thousands of random programs, each checked as `check.py` says.

Programs run in worker processes that have the address sanitizer loaded, so that C at -O0 is checked by it; a worker that dies
says which seed it was at. A failure is made smaller and printed as Python text that reproduces it.
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
from pathlib import Path

from tests.fuzz.check import FAST, SANITIZED, Case, Failure, Outcome, check
from tests.fuzz.generator import Generator
from tests.fuzz.reduce import reduce_case

SECONDS = 200
"""What one program may take: more is a failure, of staging or of the program."""

LEVELS = (SANITIZED, FAST)


def case_of(seed: int) -> Case:
    """The program and the arguments of a seed."""
    chance = random.Random(seed)
    text, shapes = Generator(chance).program()
    return Case(text, tuple(shapes), seed, chance.choice((0, 1, 2, 3, 4)), second=seed % 6 == 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, help="print the program of a seed and check it here")
    parser.add_argument("--reduce", type=int, help="print the smallest program found with the failure of a seed")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to look for smaller ones")
    parser.add_argument("--keep-going", type=int, default=20, help="stop after so many failures")
    parser.add_argument("--worker", nargs=3, type=int, metavar=("FIRST", "STOP", "STEP"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show is not None:
        print(case_of(options.show).source())
        print(check(case_of(options.show)).value)
        return 0
    if options.reduce is not None:
        if "libasan" in os.environ.get("LD_PRELOAD", ""):
            reduce_here(options.reduce, options.seconds)
        else:
            with tempfile.TemporaryDirectory(prefix="staged-fuzz-") as cache:
                show(options.reduce, "", "", cache, options.seconds)
        return 0
    if options.worker:
        work(*options.worker)
        return 0
    return drive(options.first, options.seeds, options.jobs, options.keep_going, options.seconds)


# ---- workers ------------------------------------------------------------------------------------


def work(first: int, stop: int, step: int) -> None:
    """Check seeds one after the other; one line on standard output for each."""
    signal.signal(signal.SIGALRM, _too_slow)
    os.environ.pop("LD_PRELOAD", None)  # the compiler need not run under the sanitizer
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    out = os.fdopen(os.dup(1), "w")
    for seed in range(first, stop, step):
        out.write(f"start {seed}\n")
        out.flush()
        signal.alarm(SECONDS)
        try:
            word = check(case_of(seed), LEVELS).value
        except Failure as failure:
            word = "failed " + failure.key
        except Exception as error:
            word = "failed " + _summary(error)
        signal.alarm(0)
        out.write(f"done {seed} {word}\n")
        out.flush()


def _too_slow(number: int, frame: object) -> None:
    raise TimeoutError(f"took longer than {SECONDS} s")


def _summary(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}{at}"


# ---- the driver ---------------------------------------------------------------------------------


class Worker:
    """A process that checks every `step`-th seed from `first`."""

    def __init__(self, first: int, stop: int, step: int, cache: str) -> None:
        self.stop, self.step, self.cache = stop, step, cache
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the worker)
        self.start(first)

    def start(self, first: int) -> None:
        self.current = first
        self.errors.seek(0)
        self.errors.truncate()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", "--worker", str(first), str(self.stop), str(self.step)],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=_environment(self.cache),
        )

    def words(self) -> str:
        """The end of what the process said on standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-4000:]


def _environment(cache: str) -> dict[str, str]:
    """What a process needs that loads programs with the address sanitizer in them."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return {
        **os.environ,
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:quarantine_size_mb=16",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "STAGED_CACHE_DIR": cache,
    }


def drive(first: int, seeds: int, jobs: int, keep_going: int, seconds: float) -> int:
    """Run all seeds, print what failed; 1 where something did."""
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="staged-fuzz-") as cache:
        for seed, word, words in run(first, first + seeds, jobs, cache):
            counts[word.split(" ", 1)[0]] += 1
            if word.startswith(("failed", "died")):
                failures.append((seed, word, words))
                print(f"seed {seed}: {word}", flush=True)
                if len(failures) >= keep_going:
                    break
            done = sum(counts.values())
            if done % 100 == 0:
                print(f"{done} programs in {time.monotonic() - begin:.0f} s: {dict(counts)}", flush=True)
        for seed, word, words in failures[:3]:
            show(seed, word, words, cache, seconds)
    print(f"{sum(counts.values())} programs in {time.monotonic() - begin:.0f} s: {dict(counts)}")
    print(f"{len(failures)} failed; gradients agree with differences in {counts[Outcome.AGREE.value]}")
    return 1 if failures else 0


def run(first: int, stop: int, jobs: int, cache: str) -> Iterator[tuple[int, str, str]]:
    """(seed, outcome, what was said on standard error) as they come."""
    import selectors

    selector = selectors.DefaultSelector()
    for number in range(min(jobs, stop - first)):
        worker = Worker(first + number, stop, jobs, cache)
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


def show(seed: int, word: str, words: str, cache: str, seconds: float) -> None:
    """Print a failing program, smaller if it can be, as text that reproduces."""
    print(f"\n==== seed {seed}: {word}\n{words}", flush=True)
    command = [sys.executable, "-m", "tests.fuzz", "--reduce", str(seed), "--seconds", str(seconds)]
    subprocess.run(command, env=_environment(cache), stderr=subprocess.DEVNULL)


def reduce_here(seed: int, seconds: float) -> None:
    """Print the smallest program found with the failure of this seed; the address sanitizer is loaded."""
    os.environ.pop("LD_PRELOAD")
    case, key = reduce_case(case_of(seed), LEVELS, seconds)
    print(f"# {key or 'did not fail again'}\n{case.reproduction()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
