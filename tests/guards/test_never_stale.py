"""Functions read things of every kind from outside; each is changed in every way that Python knows; no call is stale.

A case of `never_stale.txt` is a module with a function `f(x)` and a list of changes.
After each the result of `f`, which may have run the
program of an earlier call, must be that of a new staged function on the same Python, which traces.
"""

from __future__ import annotations

import ast
import builtins
import decimal
import math
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.syntax.names import bindings_of
from staged.frontend.values.generator import numbers_again
from staged.testing import load_snippet
from tests.guards.generated import generate
from tests.guards.interpreted import interpret


@dataclass(frozen=True)
class Case:
    """The objects that are read, how, and the statements that change them."""

    name: str
    setup: str
    read: str
    changes: tuple[str, ...]
    traced: bool = False
    """Whether it cannot be guarded: then `why_traced` says why."""
    counts: bool = False
    """Whether each trace changes what it reads."""


def cases() -> list[Case]:
    """The table."""
    _, *sections = re.split(
        r"^=== ", (Path(__file__).parent / "never_stale.txt").read_text(encoding="utf-8"), flags=re.M
    )
    (_, shared), *others = (section.split("\n", 1) for section in sections)
    found = []
    for head, text in others:
        name, *words = head.split(" | ")
        setup, *parts = re.split(r"^--- (?:f|change)\n", text.replace("@object\n", shared), flags=re.M)
        read, *changes = (part.strip("\n") for part in parts)
        found.append(Case(name, setup, read, tuple(changes), "traced" in words, "counts" in words))
    return found


def module_of(case: Case) -> Any:
    """A module with the case's `f(x)`, and one function for each change."""
    text = f"import numpy as np\nimport staged as st\n{case.setup}\ndef f(x):\n    return {case.read}\n"
    return module_with(text, case.changes)


def module_with(text: str, changes: Sequence[str]) -> Any:
    """The module with a function `change_0()` for the first change, and so on: what they define has its source in a file, too."""
    for number, change in enumerate(changes):
        bound = sorted(bindings_of(ast.parse(change).body).bound)
        text += f"def change_{number}():\n" + (f"    global {', '.join(bound)}\n" if bound else "")
        text += textwrap.indent(change, "    ") + "\n"
    return load_snippet(text, "stale")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
@pytest.mark.usefixtures("_as_before")
def test_no_call_is_stale(case: Case) -> None:
    module = module_of(case)
    # Where each trace changes what it reads, another module of the same text is run eagerly as often.
    other = module_of(case) if case.counts else module
    staged = st.function(module.f)
    x = np.array([1.0, 2.0, 3.0])
    for number in range(-1, len(case.changes)):
        for each in {module, other} if number >= 0 else ():
            getattr(each, f"change_{number}")()
        change = case.changes[number] if number >= 0 else "nothing"
        found = [outcome(staged, x) for _ in range(3)]
        if case.counts:
            with st.eager():
                wanted = [outcome(st.function(other.f), x) for _ in found]
        else:
            wanted = [outcome(st.function(module.f), x)] * len(found)
        if number < 0:
            assert not isinstance(wanted[0], Exception)
        for result, fresh in zip(found, wanted, strict=True):
            assert type(result) is type(fresh), change
            if isinstance(fresh, np.ndarray):
                assert (result.dtype, result.shape) == (fresh.dtype, fresh.shape), change
                np.testing.assert_array_equal(result, fresh, err_msg=change)
                assert result.tobytes() == fresh.tobytes(), change  # 0.0 is not -0.0
            elif not isinstance(fresh, Exception):
                assert repr(result) == repr(fresh), change
    assert bool(staged._kept.reasons) == case.traced, staged.why_traced()
    if not case.traced:
        calls = [(entry, entry.calls) for entry in staged._kept.entries]
        staged(x)
        # A collection of garbage may end an entry whose objects are gone, such as a class that the trace made.
        is_dropped = any(entry not in staged._kept.entries for entry, _ in calls)
        assert is_dropped or sum(entry.calls - before for entry, before in calls) == 1


def outcome(function: Any, x: Any) -> Any:
    """The result of a call, or the error that it raises."""
    try:
        with numbers_again():
            return function(x.copy())
    except (AttributeError, KeyError, TypeError, IndexError, NameError, ValueError) as error:
        return error


@pytest.fixture(name="_as_before")
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    interpret(monkeypatch)
    precision = decimal.getcontext().prec
    kept = math.pi, math.tau, math.floor, abs, st.relu, st.nn.Linear.forward
    yield
    math.pi, math.tau, math.floor, builtins.abs, st.relu, st.nn.Linear.forward = kept
    decimal.getcontext().prec = precision
    np.set_printoptions(precision=8)
    for name in ("STAGED_TEST_A", "STAGED_TEST_B"):
        os.environ.pop(name, None)


def check_generated(seed: int) -> None:
    """The function of a seed: after each change a call gives what a new trace gives, and what plain NumPy does."""
    text, changes = generate(seed)
    module = module_with(text, changes)
    staged, x = st.function(module.f), np.array([1.0, 2.0, 3.0])
    for number in range(-1, len(changes)):
        said = f"seed {seed}, after {changes[number] if number >= 0 else 'nothing'}\n{text}"
        if number >= 0:
            try:
                getattr(module, f"change_{number}")()
            except (AttributeError, KeyError, TypeError):
                continue  # an earlier change has left nothing to change in this way
        found = [outcome(staged, x) for _ in range(2)]
        fresh = outcome(st.function(module.f), x)
        with st.eager():
            eager = outcome(st.function(module.f), x)
        if number < 0:
            assert isinstance(fresh, np.ndarray), said
        for result in (*found, eager):
            assert type(result) is type(fresh), said
            if isinstance(fresh, np.ndarray):
                assert (result.dtype, result.shape) == (fresh.dtype, fresh.shape), said
                np.testing.assert_array_equal(result, fresh, err_msg=said)


@pytest.mark.usefixtures("_as_before")
def test_no_call_of_generated_functions_is_stale() -> None:
    for seed in range(30):
        check_generated(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.usefixtures("_as_before")
def test_no_call_of_many_generated_functions_is_stale(part: int) -> None:
    for seed in range(30 + 50 * part, 80 + 50 * part):
        check_generated(seed)
