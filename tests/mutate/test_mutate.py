"""The table of planted faults fits the sources, and the tool that plants them tells a noticed fault from one that survives."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutate import __main__ as tool
from tests.mutate.anchor import planted
from tests.mutate.mutant import Mutant
from tests.mutate.sources import MisfitError, Sources
from tests.mutate.table import random_numbers

PROJECT = Path(__file__).parents[2]
TESTS = ("tests/", "cuda_emulator/tests/")
TABLES = tool.tables()
MUTANTS = tool.mutants()
SOURCES = Sources(PROJECT)


@pytest.mark.parametrize("table", TABLES)
def test_mutants_fit_the_sources(table: str) -> None:
    misfits = {mutant.name: reason for mutant in TABLES[table] if (reason := misfit(mutant))}
    assert not misfits, "\n".join(f"{name}: {reason}" for name, reason in misfits.items())


def misfit(mutant: Mutant) -> str:
    """Why a mutant cannot be planted, or its tests cannot run; empty if it fits."""
    try:
        planted(SOURCES, mutant)
    except MisfitError as error:
        return str(error)
    if not any(word.startswith(TESTS) for word in mutant.tests):
        return "it names no file of tests"
    for word in mutant.tests:
        file, *names = word.split("::")
        if not word.startswith(TESTS) and not names:
            continue
        if not (PROJECT / file).exists():
            return f"there is no {file}"
        for name in names:
            test = name.partition("[")[0]
            if not re.search(rf" {test}\(|^{test} = ", (PROJECT / file).read_text(encoding="utf-8"), re.MULTILINE):
                return f"there is no test {word}"
    return ""


def test_a_mutant_that_does_not_fit_has_a_reason() -> None:
    fits = TABLES["algebra"][0]
    assert not misfit(fits)
    assert "it must match once" in misfit(replace(fits, before="op"))
    assert misfit(replace(fits, tests=("-k", "add"))) == "it names no file of tests"
    assert misfit(replace(fits, tests=("tests/none.py",))) == "there is no tests/none.py"
    wrong = "tests/mutate/test_mutate.py::test_nothing"
    assert misfit(replace(fits, tests=(wrong,))) == f"there is no test {wrong}"


def test_names_tell_mutants_apart() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_the_word_of_a_table_chooses_its_mutants() -> None:
    chosen = tool.mutants("random_numbers")
    assert set(random_numbers.MUTANTS) <= set(chosen) < set(MUTANTS)
    assert {mutant.name for mutant in tool.mutants("a generator is")} <= {mutant.name for mutant in MUTANTS}


def small_project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    (project / "half.py").write_text("def half(x):\n    return x // 2\n\n\ndef unused(x):\n    return x\n")
    (project / "test_half.py").write_text("from half import half\n\n\ndef test_half():\n    assert half(7) == 3\n")
    return project


def test_a_fault_that_a_test_sees_is_told_from_one_that_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "PROJECT", small_project(tmp_path))
    half = "./half.py:half"
    rounded = Mutant("halves are rounded up", half, "x // 2", "-(-x // 2)", ("test_half.py",))
    broken = Mutant("the import fails", half, "def half(x): ...", "@min\ndef half(x): ...", ("test_half.py",))
    unseen = Mutant("what is unused is wrong", "./half.py:unused", "return x", "return -x", ("test_half.py",))
    moved = Mutant("its syntax is gone", half, "x / 2", "x / 3", ("test_half.py",))
    chosen = [rounded, broken, unseen, moved]
    assert tool.killed_all(chosen, tmp_path / "copies", 1) == [unseen, moved]
    said = capsys.readouterr().out
    assert "noticed " in said and "SURVIVES" in said and "`before` does not match in half of half.py" in said
    chosen_by_name = Mutant("a test is named", half, "x // 2", "x // 3", ("test_half.py", "-k", "half"))
    assert tool.killed_all([rounded, chosen_by_name], tmp_path / "named", 1) == []
    failing = Mutant("tests fail anyway", half, "x // 2", "x // 3", ("test_half.py", "test_none.py"))
    assert tool.killed_all([failing], tmp_path / "more", 1) == [failing]
    assert "without a fault the tests do not pass" in capsys.readouterr().out
