"""Sums, means, norms, products and convolutions are as exact as docs/accuracy.md says: within twice the errors of torch.

torch's errors are those that docs/make_accuracy.py recorded; the last test measures them anew where torch is installed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

import staged as st
from docs.make_accuracy import CASES, PAGE, RECORD, Case, Exact, allowed, in_region, measured, torch_of

RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))["errors"]
FAST = [case for case in CASES if not case.slow]
SMALL = [case for case in FAST if sum(prod(shape) for shape in case.shapes) <= 1 << 18 and "norm" not in case.name]
LARGE = [case for case in FAST if case not in SMALL]
GROUPS = [
    pytest.param(SMALL, id="small"),
    *(pytest.param(LARGE[n : n + 6], id=LARGE[n].name, marks=pytest.mark.slow) for n in range(0, len(LARGE), 6)),
]


def program_of(cases: Sequence[Case], where: str) -> Any:
    """One program that computes several cases."""

    def program(*arrays: Any) -> Any:
        found, first = [], 0
        for case in cases:
            found.append(case.ours(*arrays[first : first + len(case.shapes)]))
            first += len(case.shapes)
        return tuple(found)

    return st.function(program if where == "host" else in_region(program))


def excess(case: Case, kind: str, exact: Exact, results: Sequence[Any]) -> str:
    """The fault of the results; empty where they are exact enough."""
    recorded = RECORDED[case.label][kind]
    error, limit = exact.error(case, results), allowed(recorded["torch"], exact.floor(case))
    return "" if error <= limit else f"{case.label}, {kind}: {error:.3g} roundings, allowed are {limit:.3g}"


@pytest.mark.parametrize("where", ["host", "region"])
@pytest.mark.parametrize("cases", GROUPS)
def test_errors_are_at_most_twice_those_of_torch(cases: Sequence[Case], where: str, emulated_device: Any) -> None:
    if where == "region":
        cases = [case for case in cases if not case.library]
    program = program_of(cases, where)
    wrong = []
    for kind in dict.fromkeys(kind for case in cases for kind in case.kinds):
        # A case that has no such data takes its first kind, and is looked at there.
        exacts = [Exact.of(case, kind if kind in case.kinds else case.kinds[0]) for case in cases]
        trials = max(len(exact.arrays) for exact in exacts)
        results: list[list[Any]] = []
        for trial in range(trials):
            arrays = [x for exact in exacts for x in exact.arrays[trial % len(exact.arrays)]]
            results.append(program(*arrays))
        for number, (case, exact) in enumerate(zip(cases, exacts, strict=True)):
            if kind in case.kinds:
                wrong.append(excess(case, kind, exact, [each[number] for each in results[: len(exact.arrays)]]))
    assert not [words for words in wrong if words]


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.slow], ids=lambda case: case.label)
def test_errors_of_the_largest_sizes(case: Case) -> None:
    ours = st.function(case.ours)
    for kind in case.kinds:
        exact = Exact.of(case, kind)
        assert not excess(case, kind, exact, [ours(*arrays) for arrays in exact.arrays])


def test_the_page_has_every_case() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for case in CASES:
        assert f"| {case.name} | {case.size} | {case.dtype} |" in page
        assert set(RECORDED[case.label]) == set(case.kinds)


def test_a_total_that_takes_in_everything_would_not_pass() -> None:
    """The measure sees what it is for: NumPy adds up columns one by one."""
    case = next(case for case in CASES if case.name == "sum of columns" and case.size == "1000x256")
    exact = Exact.of(case, "uniform")
    naive = [np.add.accumulate(x, axis=0)[-1] for (x,) in exact.arrays]
    assert excess(case, "uniform", exact, naive)


@pytest.mark.slow
def test_the_recorded_errors_are_those_of_torch(library: Any) -> None:
    torch = library("torch")
    for case in FAST:
        if case.name.startswith("sum"):
            exact = Exact.of(case, "uniform")
            now = measured(case, exact, torch_of(case, torch))
            assert now == pytest.approx(RECORDED[case.label]["uniform"]["torch"], rel=0.5, abs=0.2), case.label
