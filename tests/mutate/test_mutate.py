"""The table of planted faults fits the sources, and the tool that plants them tells a noticed fault from one that survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutate import __main__ as tool
from tests.mutate.mutant import Mutant
from tests.mutate.table import random_numbers

PROJECT = Path(__file__).parents[2]
MUTANTS = tool.mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_fits_the_sources(mutant: Mutant) -> None:
    text = (PROJECT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1, (
        "its text stands in the file another number of times: follow the change of the source"
    )
    assert mutant.after != mutant.before
    files = [word.split("::")[0] for word in mutant.tests if word.startswith("tests/")]
    assert files
    for file in files:
        assert (PROJECT / file).exists(), file
    for word in mutant.tests:
        file, *names = word.split("::")
        for name in names:
            assert f" {name.partition('[')[0]}(" in (PROJECT / file).read_text(encoding="utf-8"), f"no test {word}"


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
    rounded = Mutant("halves are rounded up", "half.py", "x // 2", "-(-x // 2)", ("test_half.py",))
    broken = Mutant("a word is missing", "half.py", "return x // 2", "retur x // 2", ("test_half.py",))
    unseen = Mutant("what is unused is wrong", "half.py", "    return x\n", "    return -x\n", ("test_half.py",))
    moved = Mutant("its text is gone", "half.py", "x / 2", "x / 3", ("test_half.py",))
    chosen = [rounded, broken, unseen, moved]
    assert tool.killed_all(chosen, tmp_path / "copies", 1) == [unseen, moved]
    said = capsys.readouterr().out
    assert "noticed " in said and "SURVIVES" in said and "half.py has its text 0 times" in said
    chosen_by_name = Mutant("a test is named", "half.py", "x // 2", "x // 3", ("test_half.py", "-k", "half"))
    assert tool.killed_all([rounded, chosen_by_name], tmp_path / "named", 1) == []
    failing = Mutant("tests fail anyway", "half.py", "x // 2", "x // 3", ("test_half.py", "test_none.py"))
    assert tool.killed_all([failing], tmp_path / "more", 1) == [failing]
    assert "without a fault the tests do not pass" in capsys.readouterr().out
