"""`make mutate`: plant each fault of the table in a copy of the project, run its tests, and demand that one fails.

    make mutate                                   # all of them
    make mutate ARGS="--only algebra --list"      # names of those whose name, target or table has the word
    make mutate ARGS="--shard 3/24"               # the third of 24 parts, which together are all of them

A mutant that no test notices survives: a hole in the tests. First the tests of all chosen mutants run on the copy as it is, since
a test that fails anyway notices nothing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tests.mutate import table
from tests.mutate.anchor import planted
from tests.mutate.mutant import Mutant
from tests.mutate.sources import MisfitError, Sources
from tests.sampling import number_of

PROJECT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "*.egg-info", "build", "dist", "out")
SECONDS = 300
"""The time limit of one test: a mutant that makes a program run for ever is noticed by this limit."""


def tables() -> dict[str, tuple[Mutant, ...]]:
    """The mutants of each file of the table."""
    names = sorted(info.name for info in pkgutil.iter_modules(table.__path__))
    return {name: importlib.import_module(f"{table.__name__}.{name}").MUTANTS for name in names}


def mutants(only: str = "") -> list[Mutant]:
    """The mutants whose name, target or table has the word, in the order of the table's files."""
    return [
        mutant
        for name, each in tables().items()
        for mutant in each
        if only in mutant.name or only in mutant.target or only in name
    ]


class Copy:
    """A copy of the project in which one fault is planted at a time."""

    def __init__(self, folder: Path, cache: Path, fast: bool) -> None:
        self.folder, self.cache, self.fast = folder, cache, fast
        shutil.copytree(PROJECT, folder, ignore=LEFT_OUT)
        self.sources = Sources(folder)

    def outcome(self, mutant: Mutant) -> tuple[bool, str]:
        """(whether a test failed, the first test that did or pytest's last line)."""
        try:
            file, faulty = planted(self.sources, mutant)
            if file.suffix == ".py":
                ast.parse(faulty)
        except (MisfitError, SyntaxError) as error:
            return False, str(error)
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        path.write_text(faulty, encoding="utf-8")
        try:
            return self.run(mutant.tests)
        finally:
            path.write_text(text, encoding="utf-8")

    def run(self, tests: tuple[str, ...]) -> tuple[bool, str]:
        """Whether one of the tests fails, and pytest's words for it."""
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", f"--timeout={SECONDS}"]
        if self.fast:
            options += ["-m", "not slow and not live"]
        elif has_options(tests) or not all("::" in word for word in tests):  # without a mark, slow tests are left out
            options += ["-m", "not live"]
        # Bytecode goes by the second in which a source was written: two mutants of one file may be of the same.
        variables = {
            "PYTHONPATH": f"{self.folder}{os.pathsep}{self.folder / 'cuda_emulator'}",
            "STAGED_CACHE_DIR": str(self.cache),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self.folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.strip()] or done.stderr.splitlines() or [""]
        failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        word = (failures or lines)[-1]
        # 1: a test failed. 2 and above with a failure: the fault breaks an import. Without one: pytest could not run them.
        # Below 0: a signal. The fault overwrites memory.
        is_broken = done.returncode in (-signal.SIGABRT, -signal.SIGSEGV)
        failed = done.returncode == 1 or bool(failures) or "Timeout" in done.stderr or is_broken
        return failed, word if failed or done.returncode == 0 else f"pytest ended with {done.returncode}: {word}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutate", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="mutants whose name, target or table has this word")
    parser.add_argument("--jobs", type=int, default=2, help="how many copies are tested side by side")
    parser.add_argument("--fast", action="store_true", help="only the tests that `make test` runs")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants, chosen by digest")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="every N-th mutant, from the K-th one on")
    parser.add_argument("--list", action="store_true", help="names alone")
    options = parser.parse_args()
    chosen = mutants(options.only)
    if options.sample:
        chosen = sorted(chosen, key=lambda mutant: number_of(mutant.name))[: options.sample]
    part, parts = map(int, options.shard.split("/"))
    if not 1 <= part <= parts:
        parser.error(f"--shard {options.shard}: K is between 1 and N")
    chosen = chosen[part - 1 :: parts]
    if options.list:
        print("\n".join(f"{mutant.target}: {mutant.name}" for mutant in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        survivors = killed_all(chosen, Path(folder), max(1, min(options.jobs, len(chosen))), options.fast)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants are noticed")
    for mutant in survivors:
        print(f"  survives: {mutant.name} ({mutant.target})")
    return 1 if survivors or not chosen else 0


def has_options(tests: tuple[str, ...]) -> bool:
    """Whether arguments of pytest choose among tests (`-k`), so that they cannot be joined with others."""
    return any(word.startswith("-") for word in tests)


def killed_all(chosen: list[Mutant], folder: Path, jobs: int, fast: bool = False) -> list[Mutant]:
    """Run all, and print a line for each. Return the survivors; `fast`: of the tests that `make test` runs."""
    copies: Queue[Copy] = Queue()
    for number in range(jobs):
        copies.put(Copy(folder / str(number), folder / "cache", fast))
    plain = {test for mutant in chosen if not has_options(mutant.tests) for test in mutant.tests}
    with_options = {mutant.tests for mutant in chosen if has_options(mutant.tests)}

    def passing(tests: tuple[str, ...]) -> bool:
        copy = copies.get()
        failed, word = copy.run(tests)
        copies.put(copy)
        if failed or "passed" not in word:
            print(f"without a fault the tests do not pass: {' '.join(tests)}  [{word[:160]}]", flush=True)
        return not failed and "passed" in word

    groups = list(filter(None, (tuple(sorted(plain)), *sorted(with_options))))
    with ThreadPoolExecutor(jobs) as pool:
        sound = {tests for tests, passed in zip(groups, pool.map(passing, groups), strict=True) if passed}

    def one(mutant: Mutant) -> bool:
        if (mutant.tests if has_options(mutant.tests) else groups[0]) not in sound:
            return False
        copy = copies.get()
        begin = time.monotonic()
        noticed, word = copy.outcome(mutant)
        copies.put(copy)
        print(
            f"{'noticed ' if noticed else 'SURVIVES'} {time.monotonic() - begin:4.0f} s  {mutant.name}  [{word[:160]}]",
            flush=True,
        )
        return noticed

    with ThreadPoolExecutor(jobs) as pool:
        noticed = list(pool.map(one, chosen))
    return [mutant for mutant, was in zip(chosen, noticed, strict=True) if not was]


if __name__ == "__main__":
    sys.exit(main())
