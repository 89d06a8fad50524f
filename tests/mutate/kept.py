"""Slow cases that `make test` runs, because no fast case detects a planted fault: the table `tests/kept_tests.txt`.

`python -m tests.mutate.kept` rewrites the table. It collects the tests, and looks which planted faults name slow cases only.
Of these cases it keeps few and cheap ones that name as many of these faults as possible, up to `SECONDS` each.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from _pytest.mark.expression import Expression

from tests.mutate.__main__ import mutants
from tests.slow_tests import KEPT, is_slow, kept, listed
from tests.slow_tests import SECONDS as FAST

ROOT = Path(__file__).parent.parent.parent
SECONDS = 2.5
"""The most processor time of a kept case, with an empty program cache."""


def collected(*options: str) -> list[str]:
    """Return the cases that pytest would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in printed.splitlines() if "::" in line]


def named(tests: Sequence[str], cases: Sequence[str]) -> Iterator[str]:
    """Return the cases that the tests of a planted fault name: paths, and an expression after `-k`."""
    expression = Expression.compile(tests[tests.index("-k") + 1]) if "-k" in tests else None
    places = [word for word in tests[: tests.index("-k")] if word] if "-k" in tests else list(tests)
    for case in cases:
        if any(case == place or case.startswith((f"{place}::", f"{place}[", f"{place}/")) for place in places):
            words = case.lower()
            if expression is None or expression.evaluate(lambda word, words=words, **_: word.lower() in words):
                yield case


def chosen(faults_of: Mapping[str, set[str]], seconds: Mapping[str, float]) -> list[str]:
    """Return cases that together name as many faults as possible, at few seconds for each fault."""
    left, found = set().union(*faults_of.values()), []
    affordable = [case for case in faults_of if seconds[case] <= SECONDS]
    while best := max(affordable, key=lambda case: len(faults_of[case] & left) / seconds[case], default=None):
        if not faults_of[best] & left:
            break
        left -= faults_of[best]
        found.append(best)
    return found


def main() -> None:
    """The command line."""
    every, table, now = collected("--full"), listed(), kept()
    fast = set(collected()) - now
    faults_of: defaultdict[str, set[str]] = defaultdict(set)
    for mutant in mutants():
        cases = list(named(mutant.tests, every))
        if fast.isdisjoint(cases):
            for case in filter(lambda case: is_slow(case, table), cases):
                faults_of[case].add(mutant.name)
    cases = chosen(faults_of, {case: table.get(case, FAST) for case in faults_of})
    head = "# Slow cases that `make test` runs, for planted faults without a fast case. Written by `python -m tests.mutate.kept`.\n"
    KEPT.write_text(head + "".join(f"{case}\n" for case in sorted(cases)), encoding="utf-8")
    caught = set().union(*(faults_of[case] for case in cases))
    faults = set().union(*faults_of.values())
    print(f"{len(cases)} cases are kept, for {len(caught)} of {len(faults)} faults without a fast case")


if __name__ == "__main__":
    main()
